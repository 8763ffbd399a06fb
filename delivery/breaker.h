#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/random.h"

namespace postrider::delivery {

struct BreakerOptions {
  int failures_in_a_row = 10;
  // So many outcomes within `span`, of which this share failed.
  int samples_least = 20;
  double failed_share = 0.5;
  Duration span = std::chrono::seconds(30);
  // How long it stays open before the first probe; doubles with each failed one. Each rest is drawn
  // evenly from the upper half of its bound.
  Duration first_rest = std::chrono::seconds(1);
  Duration rest_max = std::chrono::seconds(60);
  // While nobody can be reached from here: as long as a host that was tried counts in that
  // (OwnOutage::kSpan), so that the end of it is seen.
  Duration outage_rest_max = std::chrono::seconds(10);
};

// How long to leave alone what could not be reached for the `rests`th time (from 0): first_rest
// doubled so often, at most `rest_max`, drawn evenly from the upper half of that.
Duration DrawRest(const BreakerOptions& options, int rests, Duration rest_max, Random& random);

// Whether an endpoint may be sent to (RULES 3, "Breaker").
//
//             failures_in_a_row, or failed_share of samples_least in span
//   closed ----------------------------------------------------------------> open <------.
//     ^                                                                        |         |
//     |                                              its rest is over: one request       | failed:
//     |                                                                        v         | longer
//     '------------------------------- success ---------------------------- probing -----'
//
// It opens for longer each time when it was closed for less than `span` in between. Outcomes that
// say nothing (429, 400, our own outage) count for nothing; a probe that ends so leaves it open,
// and the next one may follow at once, in our own outage after a rest. What was begun before it
// opened and ends later says nothing either.
//
// Threads: owned by one.
class Breaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kProbing };

  // `options` outlives it.
  explicit Breaker(const BreakerOptions& options) : options_(&options) {}

  State state() const { return state_; }
  int failures_in_a_row() const { return failures_in_a_row_; }
  // When the next request may start; no value: only after the probe has ended.
  absl::optional<MonotonicTime> MayStartAt() const;

  // A request starts, which needs MayStartAt(). Returns whether it is the probe.
  bool OnStart();
  // The outcomes, `probe` being what OnStart() said. Each returns whether the state has changed.
  bool OnSuccess(MonotonicTime now, bool probe);
  bool OnFailure(MonotonicTime now, bool probe, Random& random);
  bool OnNeutral(MonotonicTime now, bool probe);
  // Our own outage.
  bool OnOutage(MonotonicTime now, bool probe, Random& random);

  // A predecessor left it open until then, for the `opened`th time.
  void Restore(MonotonicTime open_until, int opened);
  // The probe need not wait any longer: what the endpoint failed by is known to be over.
  void ProbeNow(MonotonicTime now);
  // Nothing is known: closed.
  void Reset();

  // For Restore(): how often it has opened without having been closed for long, 0 when closed.
  int opened() const { return state_ == State::kClosed ? 0 : opened_; }
  MonotonicTime open_until() const { return open_until_; }

 private:
  static constexpr size_t kSlots = 10;
  struct Slot {
    int32_t number = -1;  // of the time, in slots
    uint16_t succeeded = 0;
    uint16_t failed = 0;
  };
  int32_t NumberOf(MonotonicTime now) const;
  Slot& SlotOf(MonotonicTime now);
  bool Tripped(MonotonicTime now) const;
  void Open(MonotonicTime now, Duration rest_max, Random& random);
  void Forget();

  const BreakerOptions* options_;
  State state_ = State::kClosed;
  int failures_in_a_row_ = 0;
  int opened_ = 0;
  MonotonicTime open_until_{};
  absl::optional<MonotonicTime> closed_at_;  // after it was open
  std::array<Slot, kSlots> slots_{};
};

}  // namespace postrider::delivery
