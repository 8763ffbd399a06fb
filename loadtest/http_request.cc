#include "loadtest/http_request.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace postrider::loadtest {
namespace {

constexpr size_t kHeadMax = 64 << 10;
constexpr size_t kBodyMax = 16 << 20;

// Splits a head without its last empty line. False: malformed.
bool ParseHead(absl::string_view head, HttpRequest* request) {
  request->headers.clear();
  size_t end = head.find("\r\n");
  absl::string_view line = head.substr(0, end);
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == absl::string_view::npos || first == last || first == 0) return false;
  request->method = line.substr(0, first);
  request->target = line.substr(first + 1, last - first - 1);
  const absl::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  if (request->target.empty() || request->target.find(' ') != absl::string_view::npos) return false;
  request->keep_alive = version == "HTTP/1.1";
  while (end != absl::string_view::npos) {
    head.remove_prefix(end + 2);
    if (head.empty()) break;
    end = head.find("\r\n");
    line = head.substr(0, end);
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || colon == 0) return false;
    const absl::string_view name = line.substr(0, colon);
    if (name.find_first_of(" \t") != absl::string_view::npos) return false;
    request->headers.push_back({name, absl::StripAsciiWhitespace(line.substr(colon + 1))});
  }
  const absl::string_view connection = request->Header("connection");
  if (absl::EqualsIgnoreCase(connection, "close")) request->keep_alive = false;
  return true;
}

}  // namespace

absl::string_view HttpRequest::Header(absl::string_view name) const {
  for (const HeaderLine& header : headers) {
    if (absl::EqualsIgnoreCase(header.name, name)) return header.value;
  }
  return {};
}

char* HttpRequestReader::Space(size_t size) {
  if (buffer_.size() < size_ + size) buffer_.resize(std::max(size_ + size, buffer_.size() * 2));
  return buffer_.data() + size_;
}

void HttpRequestReader::Commit(size_t size) { size_ += size; }

void HttpRequestReader::Append(absl::string_view bytes) {
  memcpy(Space(bytes.size()), bytes.data(), bytes.size());
  Commit(bytes.size());
}

HttpRequestReader::Result HttpRequestReader::ReadHead() {
  const absl::string_view data(buffer_.data(), size_);
  const size_t end = data.find("\r\n\r\n", scanned_ < 3 ? 0 : scanned_ - 3);
  if (end == absl::string_view::npos) {
    scanned_ = size_;
    return size_ > kHeadMax ? Result::kMalformed : Result::kNeedMore;
  }
  if (end > kHeadMax) return Result::kMalformed;
  HttpRequest request;
  if (!ParseHead(data.substr(0, end), &request)) return Result::kMalformed;
  const absl::string_view length = request.Header("content-length");
  const absl::string_view coding = request.Header("transfer-encoding");
  chunked_ = absl::EqualsIgnoreCase(coding, "chunked");
  if (!coding.empty() && (!chunked_ || !length.empty())) return Result::kMalformed;
  body_size_ = 0;
  if (!length.empty()) {
    if (length.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(length, &body_size_) || body_size_ > kBodyMax) {
      return Result::kMalformed;
    }
  }
  head_size_ = end + 4;
  chunk_at_ = 0;
  chunks_.clear();
  expect_continue_ = absl::EqualsIgnoreCase(request.Header("expect"), "100-continue");
  return Result::kRequest;
}

HttpRequestReader::Result HttpRequestReader::ReadChunks() {
  for (;;) {
    const absl::string_view rest(buffer_.data() + head_size_ + chunk_at_,
                                 size_ - head_size_ - chunk_at_);
    const size_t line_end = rest.find("\r\n");
    if (line_end == absl::string_view::npos) {
      return rest.size() > 1024 ? Result::kMalformed : Result::kNeedMore;
    }
    absl::string_view digits = rest.substr(0, line_end);
    digits = absl::StripAsciiWhitespace(digits.substr(0, digits.find(';')));
    uint64_t size = 0;
    if (digits.empty() || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
        !absl::SimpleHexAtoi(digits, &size) || size > kBodyMax - chunks_.size()) {
      return Result::kMalformed;
    }
    const size_t needed = line_end + 2 + size + 2;
    if (rest.size() < needed) return Result::kNeedMore;
    if (rest.substr(needed - 2, 2) != "\r\n") return Result::kMalformed;  // no trailers either
    chunks_.append(rest.data() + line_end + 2, size);
    chunk_at_ += needed;
    if (size == 0) return Result::kRequest;
  }
}

HttpRequestReader::Result HttpRequestReader::Next(HttpRequest* request) {
  if (head_size_ == 0) {
    const Result head = ReadHead();
    if (head != Result::kRequest) return head;
  }
  if (chunked_) {
    const Result chunks = ReadChunks();
    if (chunks != Result::kRequest) return chunks;
    request_size_ = head_size_ + chunk_at_;
    request->body = chunks_;
  } else {
    if (size_ < head_size_ + body_size_) return Result::kNeedMore;
    request_size_ = head_size_ + body_size_;
    request->body = absl::string_view(buffer_.data() + head_size_, body_size_);
  }
  expect_continue_ = false;
  ParseHead(absl::string_view(buffer_.data(), head_size_ - 4), request);
  return Result::kRequest;
}

void HttpRequestReader::Consume() {
  memmove(buffer_.data(), buffer_.data() + request_size_, size_ - request_size_);
  size_ -= request_size_;
  scanned_ = head_size_ = body_size_ = request_size_ = 0;
  chunked_ = false;
}

bool HttpRequestReader::TakeContinue() {
  const bool asked = expect_continue_ && head_size_ > 0;
  if (asked) expect_continue_ = false;
  return asked;
}

void HttpRequestReader::Shrink() {
  if (size_ == 0 && !buffer_.empty()) std::string().swap(buffer_);
}

}  // namespace postrider::loadtest
