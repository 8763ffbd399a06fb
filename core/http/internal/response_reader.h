#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/http/header_rules.h"

namespace postrider::internal {

struct ResponseLimits {
  size_t header_bytes_max = 0;
  int header_lines_max = 0;
  size_t body_bytes_max = 0;
  absl::string_view kept_prefix = {};  // lower case; must outlive the response; empty: none
};

// Takes a response in, by its parts or by lines as libcurl hands them over, and bounds it. Header
// lines of interim answers and trailers count to the same limits as those of the answer.
class ResponseReader {
 public:
  void Start(const ResponseLimits& limits);

  // One line with its end, the status line and the empty one included. False: stop reading.
  bool OnHeaderLine(absl::string_view line);
  // False: stop reading, more came than is wanted.
  bool OnBody(absl::string_view bytes);

  // What OnHeaderLine() does, for who has taken the line to pieces. False: stop reading.
  bool CountLine(size_t bytes);
  // Of a head, but no line of it.
  bool CountBytes(size_t bytes);
  void OnStatus(int status) { status_ = status; }
  // Without white space around either.
  void OnField(absl::string_view name, absl::string_view value);
  void OnHeadEnd();
  size_t header_bytes_left() const { return limits_.header_bytes_max - header_bytes_; }

  // The final head was complete: `status` is decided.
  bool head_done() const { return head_done_; }
  bool too_large() const { return too_large_; }
  int status() const { return status_; }
  bool received_any() const { return header_lines_ > 0; }

  std::vector<std::string> TakeRetryAfter() { return std::move(retry_after_); }
  absl::optional<std::string> TakeDate() { return std::move(date_); }
  HttpHeaders TakeKept() { return std::move(kept_); }
  std::string TakeBody() { return std::move(body_); }

 private:
  ResponseLimits limits_;
  size_t header_bytes_ = 0;
  int header_lines_ = 0;
  int status_ = 0;
  bool in_head_ = false;
  bool head_done_ = false;
  bool too_large_ = false;
  std::vector<std::string> retry_after_;
  absl::optional<std::string> date_;
  HttpHeaders kept_;
  std::string body_;
};

}  // namespace postrider::internal
