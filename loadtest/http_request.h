#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace postrider::loadtest {

// One request of HTTP/1.1 as the receiver needs it. Views point into the reader's buffer and are
// good until its next call.
struct HttpRequest {
  absl::string_view method;
  absl::string_view target;
  absl::string_view body;
  bool keep_alive = true;

  // The first header of that name in any letter case; empty: none.
  absl::string_view Header(absl::string_view name) const;
  struct HeaderLine {
    absl::string_view name;
    absl::string_view value;
  };
  std::vector<HeaderLine> headers;
};

// Cuts a byte stream into requests: bodies by content-length or chunked; never both.
// Bounds: a head of 64 KB, a body of 16 MB; more is malformed.
// Threads: owned by one.
class HttpRequestReader {
 public:
  enum class Result { kNeedMore, kRequest, kMalformed };

  // Room for `size` bytes at the end of the buffer; Commit says how many were written there.
  char* Space(size_t size);
  void Commit(size_t size);
  void Append(absl::string_view bytes);

  // kRequest fills `request`, whose bytes stay until Consume().
  Result Next(HttpRequest* request);
  void Consume();
  // True once for a request whose head is in and asks with `expect: 100-continue`.
  bool TakeContinue();
  // Frees the buffer when nothing is in it.
  void Shrink();
  size_t buffered() const { return size_; }

 private:
  Result ReadHead();
  Result ReadChunks();

  std::string buffer_;  // the first size_ bytes are data
  size_t size_ = 0;
  size_t scanned_ = 0;    // no end of head before this
  size_t head_size_ = 0;  // 0: the head is not whole yet
  size_t body_size_ = 0;
  size_t request_size_ = 0;  // head and body as they came
  bool chunked_ = false;
  bool expect_continue_ = false;
  size_t chunk_at_ = 0;  // chunked: bytes taken behind the head
  std::string chunks_;   // chunked: the body so far
};

}  // namespace postrider::loadtest
