#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "delivery/rate_limit.h"

namespace postrider::delivery {

// How many requests per second a receiver takes that refuses what is above its rate (429) and says
// nothing of that rate. Each refusal costs a hold; so after one it is sent a little less than it
// took in the second before, and more by and by: slowly up to where it refused, faster beyond that,
// where it may have become another one.
//
// It only counts what is told; the hold is the caller's. It is forgotten when nothing was refused
// for long, and lives in memory only: to learn it anew costs a refusal or two.
//
// Threads: owned by one.
class ThrottledRate {
 public:
  // Of what was taken, after a refusal.
  static constexpr double kCut = 0.9;
  // By how much of a request per second each one that is taken raises the rate: below where it was
  // refused (a quarter of a percent per second), and beyond.
  static constexpr double kCreep = 0.0025;
  static constexpr double kClimb = 0.05;
  static constexpr double kLeast = 1;
  // Fewer that were taken within a second say nothing of a rate.
  static constexpr int kTakenLeast = 2;
  static constexpr std::chrono::minutes kKept{10};

  // No value: none is known.
  const absl::optional<double>& rate() const { return bucket_.rate(); }
  MonotonicTime MayStartAt() const { return bucket_.MayTakeAt(); }

  void OnStart(MonotonicTime now);
  void OnTaken(MonotonicTime now);
  // Refusals of requests that were under way together are one.
  void OnRefused(MonotonicTime now);

 private:
  static constexpr Duration kSlot = std::chrono::milliseconds(100);
  static constexpr size_t kSlots = 11;
  struct Slot {
    int64_t number = -1;  // of the time, in slots
    int taken = 0;
  };
  int TakenLately(MonotonicTime now) const;

  RateBucket bucket_;
  double refused_at_ = 0;
  MonotonicTime refused_when_{};
  absl::optional<MonotonicTime> begun_;  // with sending, after the last refusal
  std::array<Slot, kSlots> slots_{};
};

}  // namespace postrider::delivery
