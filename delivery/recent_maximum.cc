#include "delivery/recent_maximum.h"

#include <algorithm>

#include "core/base/check.h"

namespace postrider::delivery {

RecentMaximum::RecentMaximum(size_t seen_max) : seen_max_(seen_max) {
  POSTRIDER_CHECK(seen_max > 0);
}

uint64_t RecentMaximum::See(uint64_t value) {
  if (seen_.size() < seen_max_) {
    seen_.push_back(value);
  } else {
    seen_[next_] = value;
    next_ = (next_ + 1) % seen_max_;
  }
  return *std::max_element(seen_.begin(), seen_.end());
}

}  // namespace postrider::delivery
