#include "loadtest/zipf.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace postrider::loadtest {

Zipf::Zipf(uint32_t size, double skew) {
  POSTRIDER_CHECK(size > 0);
  cumulative_.reserve(size);
  double sum = 0;
  for (uint32_t rank = 0; rank < size; ++rank) {
    sum += std::pow(static_cast<double>(rank) + 1.0, -skew);
    cumulative_.push_back(sum);
  }
  for (double& value : cumulative_) value /= sum;
}

uint32_t Zipf::Rank(double fraction) const {
  const auto it = std::upper_bound(cumulative_.begin(), cumulative_.end(), fraction);
  const auto rank = static_cast<uint32_t>(it - cumulative_.begin());
  return std::min(rank, size() - 1);
}

double Zipf::Probability(uint32_t rank) const {
  return rank == 0 ? cumulative_[0] : cumulative_[rank] - cumulative_[rank - 1];
}

}  // namespace postrider::loadtest
