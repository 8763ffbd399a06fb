#include "core/http/internal/response_framing.h"

#include <cstddef>
#include <limits>

#include "absl/strings/match.h"
#include "absl/types/optional.h"
#include "core/http/internal/field_text.h"

namespace postrider::internal {
namespace {

constexpr absl::string_view kHttp1 = "HTTP/1.";
constexpr absl::string_view kHttp2 = "HTTP/2";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Calls `take` with each element of a list as "a, b", empty ones included.
template <typename Take>
void ForEachElement(absl::string_view list, Take take) {
  for (size_t comma = 0; comma != absl::string_view::npos;) {
    comma = list.find(',');
    take(StripBlanks(list.substr(0, comma)));
    if (comma != absl::string_view::npos) list.remove_prefix(comma + 1);
  }
}

// Digits alone; what is too large for the type is the largest there is, which no body ever reaches.
absl::optional<uint64_t> LengthOf(absl::string_view text) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  if (text.empty()) return absl::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (!IsDigit(c)) return absl::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    value = value > (kMost - digit) / 10 ? kMost : value * 10 + digit;
  }
  return value;
}

}  // namespace

void ResponseFraming::NextHead() {
  const bool clear = clear_;
  *this = ResponseFraming();
  clear_ = clear;
}

// The reason may be missing, with or without its space, and more than one space may stand before
// the status, as some receivers write it.
int ResponseFraming::OnStatusLine(absl::string_view text) {
  if (absl::StartsWith(text, kHttp1) && text.size() > kHttp1.size() && IsDigit(text[7])) {
    version_1_1_ = text[7] != '0';
    text.remove_prefix(kHttp1.size() + 1);
  } else if (absl::StartsWith(text, kHttp2)) {
    // Some write so and mean HTTP/1.1.
    Doubt();
    text.remove_prefix(kHttp2.size());
    if (absl::StartsWith(text, ".0")) text.remove_prefix(2);
  } else {
    return 0;
  }
  if (text.empty() || text.front() != ' ') return 0;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.size() < 3 || (text.size() > 3 && text[3] != ' ')) return 0;
  if (!IsDigit(text[0]) || !IsDigit(text[1]) || !IsDigit(text[2])) return 0;
  const int status = (text[0] - '0') * 100 + (text[1] - '0') * 10 + (text[2] - '0');
  return status >= 100 ? status : 0;
}

void ResponseFraming::OnField(absl::string_view name, absl::string_view value) {
  last_field_ = Field::kOther;
  switch (name.size()) {
    case 10:
      if (IsSame(name, "connection")) OnConnection(value);
      break;
    case 14:
      if (IsSame(name, "content-length")) OnLength(value);
      break;
    case 17:
      if (IsSame(name, "transfer-encoding")) OnCoding(value);
      break;
    default:
      break;
  }
}

void ResponseFraming::OnFold() {
  Doubt();
  if (last_field_ == Field::kLength || last_field_ == Field::kCoding) contradicts_ = true;
}

// Several that say the same are one (RFC 9112, 6.3, 5).
void ResponseFraming::OnLength(absl::string_view value) {
  last_field_ = Field::kLength;
  ForEachElement(value, [this](absl::string_view element) {
    const absl::optional<uint64_t> length = LengthOf(element);
    if (!length || (has_length_ && *length != length_)) {
      contradicts_ = true;
      return;
    }
    has_length_ = true;
    length_ = *length;
  });
}

void ResponseFraming::OnCoding(absl::string_view value) {
  last_field_ = Field::kCoding;
  ForEachElement(value, [this](absl::string_view element) {
    if (element.empty() || IsSame(element, "identity")) {
      Doubt();  // no coding since RFC 7230
      return;
    }
    if (last_chunked_) contradicts_ = contradicts_ || IsSame(element, "chunked");
    has_coding_ = true;
    last_chunked_ = IsSame(element, "chunked");
  });
}

void ResponseFraming::OnConnection(absl::string_view value) {
  last_field_ = Field::kConnection;
  ForEachElement(value, [this](absl::string_view element) {
    close_ = close_ || IsSame(element, "close");
    keep_alive_ = keep_alive_ || IsSame(element, "keep-alive");
  });
}

BodyEnd ResponseFraming::Decide(int status, AnswerTo request) {
  if (request == AnswerTo::kConnect && status >= 200 && status <= 299) {
    // The tunnel begins here, whatever the head says of it (RFC 9110, 9.3.6).
    clear_ = keep_alive_ = true;
    close_ = false;
    return BodyEnd::kNoBody;
  }
  if (contradicts_) Doubt();
  // A length beside a coding, or a coding in HTTP/1.0 (RFC 9112, 6.1): the coding holds, and the
  // connection ends.
  if (has_coding_ && (has_length_ || !version_1_1_)) Doubt();
  if (status == 101 || status == 204 || status == 304) {
    // We asked for no upgrade; and what is announced here may yet be sent.
    if (status == 101 || has_coding_ || length_ != 0) Doubt();
    return BodyEnd::kNoBody;
  }
  if (contradicts_) return BodyEnd::kUnclear;
  if (has_coding_ && last_chunked_) return BodyEnd::kChunked;
  if (has_coding_ || !has_length_) {
    Doubt();
    return BodyEnd::kConnection;
  }
  return length_ == 0 ? BodyEnd::kNoBody : BodyEnd::kLength;
}

}  // namespace postrider::internal
