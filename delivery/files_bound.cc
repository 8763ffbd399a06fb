#include "delivery/files_bound.h"

#include <algorithm>
#include <utility>

namespace postrider::delivery {
namespace {

// What files grow by before contents are cut again.
constexpr double kGrowth = 1.02;

}  // namespace

uint64_t FilesBound::Look(uint64_t used, uint64_t allowed, uint64_t held, uint64_t held_least,
                          uint64_t shrinking_max) {
  if (used <= allowed) {
    beyond_ = false;
    held_max_ = UINT64_MAX;
    return held_max_;
  }
  if (used <= shrinking_max) return held_max_;
  if (!std::exchange(beyond_, true)) return held_max_;
  const double filled =
      static_cast<double>(used) / static_cast<double>(std::max<uint64_t>(allowed, 1));
  if (held_max_ == UINT64_MAX || filled > cut_at_ * kGrowth) {
    const double kept = held_max_ == UINT64_MAX ? kContents : cut_at_;
    const auto left = static_cast<double>(std::min(held_max_, held));
    held_max_ = std::max(static_cast<uint64_t>(left * kept / filled), held_least);
    cut_at_ = filled;
  }
  return held_max_;
}

}  // namespace postrider::delivery
