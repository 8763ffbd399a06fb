#include "api/line_parts.h"

#include "api/router.h"

namespace postrider::api {

void LineParts::Add(absl::string_view bytes) {
  held_.erase(0, taken_);
  searched_ -= taken_;
  taken_ = 0;
  held_.append(bytes.data(), bytes.size());
}

absl::optional<std::string> LineParts::Next() {
  size_t end = taken_;  // behind the last newline that was found
  size_t lines = 0;
  while (lines < kLinesOfPartMax) {
    const size_t newline = held_.find('\n', searched_);
    if (newline == std::string::npos) break;
    // A line that is too long is told of when its turn has come.
    if (newline - end > kLineBytesMax) break;
    end = searched_ = newline + 1;
    ++lines;
  }
  if (lines == 0) {
    if (line_too_long()) return absl::nullopt;
    searched_ = held_.size();
    if (!ended_ || taken_ == held_.size()) return absl::nullopt;
    std::string last = held_.substr(taken_);
    taken_ = held_.size();
    ++next_line_;
    return last;
  }
  std::string part = held_.substr(taken_, end - taken_ - 1);
  taken_ = end;
  next_line_ += static_cast<int64_t>(lines);
  return part;
}

bool LineParts::line_too_long() const {
  const size_t newline = held_.find('\n', searched_);
  return (newline == std::string::npos ? held_.size() : newline) - taken_ > kLineBytesMax;
}

}  // namespace postrider::api
