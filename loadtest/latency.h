#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace postrider::loadtest {

// Counts latencies in buckets that are at most 3% wide, from 1 us to about an hour.
// Threads: owned by one.
class LatencyHistogram {
 public:
  void Add(int64_t us);
  // The upper edge in ms of the bucket where the fraction (0 .. 1) is reached; 0 when empty.
  double QuantileMs(double fraction) const;
  uint64_t count() const { return count_; }

 private:
  static constexpr size_t kSteps = 32;  // per power of two
  std::array<uint64_t, 32 * kSteps> buckets_{};
  uint64_t count_ = 0;
};

}  // namespace postrider::loadtest
