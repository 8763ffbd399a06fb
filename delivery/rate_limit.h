#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::delivery {

// So much per second. What is taken is paid for afterwards: whoever is not in debt may take any
// amount, and then waits until it is paid at the rate. So the mean keeps to the rate whatever the
// amounts are, and one that exceeds a second's worth is never starved. After a rest up to a tenth
// of a second's worth may be taken in advance (nothing, when that is less than one), so that a late
// turn of the loop costs no throughput.
//
// Threads: owned by one.
class RateBucket {
 public:
  static constexpr Duration kAdvance = std::chrono::milliseconds(100);
  // A debt ends after so long, whatever was taken.
  static constexpr double kDebtMaxSeconds = 24 * 3600;

  // No value: no limit, and no debt.
  void SetRate(absl::optional<double> per_second) {
    if (!per_second) free_at_ = MonotonicTime{};
    rate_ = per_second;
  }
  const absl::optional<double>& rate() const { return rate_; }
  // When the next may be taken.
  MonotonicTime MayTakeAt() const { return rate_ ? free_at_ : MonotonicTime{}; }
  void Take(MonotonicTime now, double amount) {
    if (!rate_) return;
    const double seconds = std::min(amount / *rate_, kDebtMaxSeconds);
    const MonotonicTime least = *rate_ >= 10 ? now - kAdvance : now;
    free_at_ = std::max(free_at_, least) +
               std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

 private:
  absl::optional<double> rate_;
  MonotonicTime free_at_{};
};

// All limits of one endpoint's rate: those that its customer sets, and what its receiver asks for.
// Threads: owned by one.
class RateLimit {
 public:
  void SetRequests(absl::optional<double> per_second) { requests_.SetRate(per_second); }
  void SetMessages(absl::optional<double> per_second) { messages_.SetRate(per_second); }
  // Of bodies, before compression.
  void SetBytes(absl::optional<double> per_second) { bytes_.SetRate(per_second); }
  // Messages per second, learned from the receiver's `webhook-rate`.
  void SetLearned(absl::optional<double> per_second) { learned_.SetRate(per_second); }
  const absl::optional<double>& learned() const { return learned_.rate(); }

  MonotonicTime MayStartAt() const {
    return std::max(
        {requests_.MayTakeAt(), messages_.MayTakeAt(), bytes_.MayTakeAt(), learned_.MayTakeAt()});
  }
  void OnStart(MonotonicTime now, size_t messages, size_t bytes) {
    requests_.Take(now, 1);
    messages_.Take(now, static_cast<double>(messages));
    bytes_.Take(now, static_cast<double>(bytes));
    learned_.Take(now, static_cast<double>(messages));
  }

 private:
  RateBucket requests_;
  RateBucket messages_;
  RateBucket bytes_;
  RateBucket learned_;
};

}  // namespace postrider::delivery
