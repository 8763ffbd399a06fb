#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/random.h"

namespace postrider::delivery {

// When a failed message is tried again.
struct RetryPolicy {
  int attempts = 10;
  Duration horizon = std::chrono::hours(24);
  Duration first_delay = std::chrono::seconds(5);
  double factor = 2;
  Duration cap = std::chrono::hours(1);
  // Given, it stands for the three above: the delay before the second try, the third, ...; the last
  // one holds for all later ones.
  std::vector<Duration> schedule;
};

// min(cap, first_delay x factor^retries), saturating; never below min(first_delay, cap) and never
// falling. `retries` made before this one: 0 for the first. Of a schedule: its delay.
Duration BackoffBound(const RetryPolicy& policy, uint32_t retries);
// Full jitter: evenly between 0 and the bound. Of a schedule: evenly between its delay and a tenth
// more, so that a customer's retries come when he said, but not all in the same moment.
Duration Backoff(const RetryPolicy& policy, uint32_t retries, Random& random);

// When to try again after `attempts_made` charged attempts (at least 0; an attempt that was free
// backs off like the first). No value: the attempts are used up.
absl::optional<Duration> NextDelay(const RetryPolicy& policy, int attempts_made, Random& random);
// A message whose first attempt was at `first` is given up when its next try would be after this.
MonotonicTime GiveUpAt(const RetryPolicy& policy, MonotonicTime first);

}  // namespace postrider::delivery
