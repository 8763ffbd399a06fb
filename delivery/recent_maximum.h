#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace postrider::delivery {

// The largest of the values that were seen last: for what falls for moments and should be judged by
// what it is between them. A disk is one: while files are compacted, old ones and new ones are
// there at once, and either count for nobody.
//
// Threads: one. Bounds: `seen_max` values.
class RecentMaximum {
 public:
  // At least 1.
  explicit RecentMaximum(size_t seen_max);

  // Of `value` and of those that were seen before it, `seen_max` in all.
  uint64_t See(uint64_t value);

 private:
  const size_t seen_max_;
  std::vector<uint64_t> seen_;  // a ring
  size_t next_ = 0;
};

}  // namespace postrider::delivery
