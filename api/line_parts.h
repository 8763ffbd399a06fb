#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider::api {

// Cuts a body that comes in piece by piece into parts of whole lines, which are handled before the
// rest is there.
//
// Threads: owned by one.
// Bounds:  holds one line of kLineBytesMax and what was added last.
class LineParts {
 public:
  // Nothing is to be added while Next() has a value.
  void Add(absl::string_view bytes);
  // No more comes: what follows the last newline is a line too, unless it is empty.
  void End() { ended_ = true; }
  // Whole lines without the last newline, at most kLinesOfPartMax; no value: there is none yet.
  absl::optional<std::string> Next();
  // The number, from 1 on, of the next part's first line.
  int64_t next_line() const { return next_line_; }
  // The line that has begun is longer than kLineBytesMax.
  bool line_too_long() const;

 private:
  std::string held_;
  size_t taken_ = 0;     // of held_
  size_t searched_ = 0;  // no newline between taken_ and here
  int64_t next_line_ = 1;
  bool ended_ = false;
};

}  // namespace postrider::api
