#include "loadtest/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace postrider::loadtest {

void LatencyHistogram::Add(int64_t us) {
  const auto value = static_cast<uint64_t>(std::max<int64_t>(us, 1));
  // Below kSteps a bucket a microsecond, then kSteps buckets for each power of two.
  size_t bucket = value;
  if (value >= kSteps) {
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 6;  // value >> power: 32..63
    bucket = kSteps + power * kSteps + (value >> power) - kSteps;
  }
  ++buckets_[std::min(bucket, buckets_.size() - 1)];
  ++count_;
}

double LatencyHistogram::QuantileMs(double fraction) const {
  if (count_ == 0) return 0;
  const auto wanted = std::max<uint64_t>(
      1, static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(count_))));
  uint64_t seen = 0;
  size_t bucket = 0;
  for (; bucket < buckets_.size() - 1; ++bucket) {
    seen += buckets_[bucket];
    if (seen >= wanted) break;
  }
  if (bucket < kSteps) return static_cast<double>(bucket) / 1000;
  const size_t power = (bucket - kSteps) / kSteps;
  const uint64_t step = (bucket - kSteps) % kSteps + kSteps;
  const uint64_t upper = ((step + 1) << power) - 1;
  return static_cast<double>(upper) / 1000;
}

}  // namespace postrider::loadtest
