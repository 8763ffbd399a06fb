#include "core/http/internal/response_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/http/internal/field_text.h"

namespace postrider::internal {
namespace {

constexpr size_t kFieldsKept = 4;
constexpr size_t kFieldBytesMax = 128;
constexpr size_t kKeptMax = 8;

// "HTTP/1.1 200 OK" -> 200; 0 for anything else.
int StatusOf(absl::string_view line) {
  const size_t space = line.find(' ');
  int status = 0;
  if (!absl::StartsWith(line, "HTTP/") || space == absl::string_view::npos) return 0;
  const absl::string_view code = line.substr(space + 1, 3);
  return code.size() == 3 && absl::SimpleAtoi(code, &status) && status >= 100 ? status : 0;
}

bool IsInterim(int status) { return status >= 100 && status <= 199 && status != 101; }

}  // namespace

void ResponseReader::Start(const ResponseLimits& limits) {
  *this = ResponseReader();
  limits_ = limits;
}

bool ResponseReader::CountBytes(size_t bytes) {
  if (bytes > header_bytes_left()) {
    too_large_ = true;
    return false;
  }
  header_bytes_ += bytes;
  return true;
}

bool ResponseReader::CountLine(size_t bytes) {
  ++header_lines_;
  if (!CountBytes(bytes) || header_lines_ > limits_.header_lines_max) too_large_ = true;
  return !too_large_;
}

bool ResponseReader::OnHeaderLine(absl::string_view line) {
  if (!CountLine(line.size())) return false;
  if (head_done_) return true;  // a trailer
  const bool is_empty = line.empty() || line.front() == '\r' || line.front() == '\n';
  if (!in_head_) {
    OnStatus(StatusOf(absl::StripTrailingAsciiWhitespace(line)));
    in_head_ = true;
  } else if (is_empty) {
    in_head_ = false;
    OnHeadEnd();
  } else if (const size_t colon = line.find(':'); colon != absl::string_view::npos) {
    OnField(line.substr(0, colon), absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return true;
}

void ResponseReader::OnHeadEnd() {
  if (!IsInterim(status_)) {
    head_done_ = status_ != 0;
    return;
  }
  status_ = 0;
  retry_after_.clear();
  date_.reset();
  kept_.clear();
}

void ResponseReader::OnField(absl::string_view name, absl::string_view value) {
  if (value.size() > kFieldBytesMax) return;
  if (IsSame(name, "retry-after") && retry_after_.size() < kFieldsKept) {
    retry_after_.emplace_back(value);
  } else if (IsSame(name, "date")) {
    date_ = std::string(value);
  } else if (!limits_.kept_prefix.empty() && kept_.size() < kKeptMax &&
             BeginsWith(name, limits_.kept_prefix) && name.size() <= kFieldBytesMax) {
    kept_.emplace_back(absl::AsciiStrToLower(name), std::string(value));
  }
}

bool ResponseReader::OnBody(absl::string_view bytes) {
  const size_t room = limits_.body_bytes_max - body_.size();
  const absl::string_view kept = bytes.substr(0, room);
  body_.append(kept.data(), kept.size());
  return bytes.size() <= room;
}

}  // namespace postrider::internal
