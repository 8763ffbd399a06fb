#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/stream/keyed_state.h"
#include "delivery/breaker.h"
#include "delivery/outcome.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

struct HealthOptions {
  BreakerOptions breaker;
  // An endpoint that has failed for so long, without any success in between and with its breaker
  // open, is disabled. A quarter, a half and three quarters of it are warned of.
  Duration auto_disable_after = std::chrono::hours(5 * 24);
};

// What of an endpoint's health outlives its worker's memory, in durable endpoint state. Times of 0:
// none. It is written when it changes; of the breaker and of holds a stale value costs a probe.
struct HealthRecord {
  // A person's pause, or a disabled endpoint: from when to when it was seen; `until` 0: it goes on.
  struct Pause {
    WallTime from;
    WallTime until;
    friend bool operator==(const Pause&, const Pause&) = default;
  };
  static constexpr size_t kPausesMax = 16;

  uint64_t destination = 0;  // of URL, auth and TLS, that all below (but for pauses) is about
  // The endpoint's, when it had that destination: at the same one secrets were only sealed anew.
  uint64_t generation = 0;
  bool answered = false;  // with a 2xx, once
  WallTime failing_since;
  uint32_t opened = 0;  // see Breaker::Restore()
  WallTime open_until;
  WallTime held_until;
  DisableReason disabled = DisableReason::kNone;
  uint64_t disabled_generation = 0;  // of the endpoint
  WallTime disabled_at;
  uint32_t warned = 0;        // quarters of auto_disable_after
  std::vector<Pause> pauses;  // the oldest first
  friend bool operator==(const HealthRecord&, const HealthRecord&) = default;
};
StateSerializer<HealthRecord> HealthSerializer();

// Names all that decides whether an endpoint can be reached and lets us in.
uint64_t DestinationOf(const subscriptions::Endpoint& endpoint);

enum class HealthState : uint8_t {
  kHealthy,
  kDegraded,  // fails: three times in a row, or its breaker is open
  kProbing,   // a probe has found it well; its window begins slowly
  kPaused,
  kDisabled,
};
inline constexpr int kHealthStates = 5;
absl::string_view HealthStateName(HealthState state);

// The health of one endpoint: its breaker, who has stopped it, and since when it fails (RULES 1 and
// 3). What a person wants (Endpoint) and what was observed (HealthRecord) are two things: a disable
// that we made ourselves ends with the next change that a person makes.
//
// Threads: owned by one.
class EndpointHealth {
 public:
  // `options` outlives it.
  explicit EndpointHealth(const HealthOptions& options)
      : options_(&options), breaker_(options.breaker) {}

  // What a predecessor had observed, before anything else.
  void Restore(const HealthRecord& record, MonotonicTime now, WallTime wall);
  // To be written. True at most once per change.
  bool TakeChanged();
  const HealthRecord& record() const { return record_; }

  // What the snapshot says now; told at each change, and when the endpoint comes into memory.
  struct Change {
    bool cleared = false;  // breaker, holds and whatever was learned of the receiver are void
    bool stopped = false;  // nothing may start any more
    bool resumed = false;  // it was stopped, and is not any more
  };
  Change OnDesired(const subscriptions::Endpoint& endpoint, WallTime wall);

  // A request starts; returns whether it is the breaker's probe.
  bool OnStart() { return breaker_.OnStart(); }
  struct Judgement {
    bool closed = false;    // the probe found the endpoint well again
    bool opened = false;    // nothing but a probe, after a rest
    bool disabled = false;  // just now
    bool warned = false;    // another quarter of the time to that has passed
  };
  Judgement OnOutcome(const Outcome& outcome, bool probe, MonotonicTime now, WallTime wall,
                      Random& random);
  // It was disabled where another part of it is seen to. False: that says nothing new.
  bool OnDisabledElsewhere(DisableReason reason, uint64_t generation, WallTime at);
  // The probe has ended without an outcome.
  void OnNoOutcome(MonotonicTime now, bool probe) { breaker_.OnNeutral(now, probe); }
  // The endpoint is left alone until then.
  void OnHeld(MonotonicTime until, MonotonicTime now, WallTime wall);
  // Its window is as large as it may be, or was cut again.
  void OnRecovered() { recovering_ = false; }
  void ProbeNow(MonotonicTime now) { breaker_.ProbeNow(now); }

  // When a request may start by breaker and stops; no value: not before something happens.
  absl::optional<MonotonicTime> MayStartAt() const {
    return stopped() ? absl::nullopt : breaker_.MayStartAt();
  }
  bool answered() const { return record_.answered; }
  // It has taken something, and goes on well: its slow start is over, or has lasted for a minute.
  bool well(MonotonicTime now) const;
  bool failing() const { return breaker_.state() != Breaker::State::kClosed; }
  const Breaker& breaker() const { return breaker_; }
  bool paused() const { return paused_; }  // by customer or operator
  bool enabled() const { return enabled_; }
  bool stopped() const { return paused_ || !enabled_ || record_.disabled != DisableReason::kNone; }
  HealthState state() const;
  // How much of the time from `since` to now a person kept the endpoint stopped: no message ages
  // meanwhile.
  Duration PausedSince(MonotonicTime since, MonotonicTime now, WallTime wall) const;

 private:
  void Clear();
  void Touch() { changed_ = true; }
  void OnPaused(bool paused, WallTime wall);
  void Disable(DisableReason reason, WallTime wall);
  void Remember(MonotonicTime now, WallTime wall);

  const HealthOptions* options_;
  Breaker breaker_;
  HealthRecord record_;
  bool changed_ = false;
  bool known_ = false;  // OnDesired() was called
  bool paused_ = false;
  bool enabled_ = true;
  bool recovering_ = false;
  MonotonicTime closed_at_{};
  uint64_t generation_ = 0;  // of what is desired
  absl::optional<MonotonicTime> failing_since_;
};

}  // namespace postrider::delivery
