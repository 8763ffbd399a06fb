#include "delivery/retry_policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace postrider::delivery {

Duration BackoffBound(const RetryPolicy& policy, uint32_t retries) {
  if (!policy.schedule.empty()) {
    const size_t last = policy.schedule.size() - 1;
    return std::max(policy.schedule[std::min<size_t>(retries, last)], Duration::zero());
  }
  const Duration cap = std::max(policy.cap, Duration::zero());
  const Duration first = std::clamp(policy.first_delay, Duration::zero(), cap);
  const double factor = std::max(policy.factor, 1.0);
  // In floating point: a huge power is infinity, never negative.
  const double bound =
      static_cast<double>(first.count()) * std::pow(factor, static_cast<double>(retries));
  if (!(bound < static_cast<double>(cap.count()))) return cap;
  return std::clamp(Duration(static_cast<int64_t>(bound)), first, cap);
}

Duration Backoff(const RetryPolicy& policy, uint32_t retries, Random& random) {
  const Duration bound = BackoffBound(policy, retries);
  const Duration least = policy.schedule.empty() ? Duration::zero() : bound;
  const auto spread = static_cast<uint64_t>((policy.schedule.empty() ? bound : bound / 10).count());
  return least + Duration(static_cast<int64_t>(random.Below(spread + 1)));
}

absl::optional<Duration> NextDelay(const RetryPolicy& policy, int attempts_made, Random& random) {
  if (attempts_made >= policy.attempts) return absl::nullopt;
  return Backoff(policy, static_cast<uint32_t>(std::max(attempts_made - 1, 0)), random);
}

MonotonicTime GiveUpAt(const RetryPolicy& policy, MonotonicTime first) {
  const Duration horizon = std::max(policy.horizon, Duration::zero());
  return first > MonotonicTime::max() - horizon ? MonotonicTime::max() : first + horizon;
}

}  // namespace postrider::delivery
