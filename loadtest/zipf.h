#pragma once

#include <cstdint>
#include <vector>

namespace postrider::loadtest {

// Ranks 0 .. size-1, rank r with a probability proportional to 1 / (r + 1)^skew; skew 0 is even.
// Threads: any, it never changes.
class Zipf {
 public:
  // size > 0.
  Zipf(uint32_t size, double skew);

  // The rank that `fraction` (0 <= fraction < 1, even) falls on.
  uint32_t Rank(double fraction) const;
  double Probability(uint32_t rank) const;
  uint32_t size() const { return static_cast<uint32_t>(cumulative_.size()); }

 private:
  std::vector<double> cumulative_;
};

}  // namespace postrider::loadtest
