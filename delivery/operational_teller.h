#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/stream/keyed_state.h"
#include "delivery/outcome.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

struct OperationalOptions {
  // So many dead letters of one endpoint within an hour are told of.
  int64_t dead_letters = 100;
  // Not an option: so long before a signing secret ends it is told of.
  std::chrono::milliseconds secret_lead = std::chrono::hours(6);

  void Register(Options& options);
};

// What a customer was told of an endpoint, in durable endpoint state: that it is told of each
// change once, whoever is the worker. The default value stands for an endpoint that is well.
struct OperationalRecord {
  enum class Health : uint8_t { kWell, kDegraded, kDisabled };

  Health health = Health::kWell;
  uint32_t warned = 0;      // kDegraded: quarters of the time after which it is disabled
  uint64_t generation = 0;  // kDisabled: of the endpoint, when it was
  WallTime since;           // of the health that was told
  uint32_t backlog = 0;     // percent of its bound, one of OperationalTeller::kBacklogPercents
  WallTime backlog_since;
  WallTime letters_since;  // of the hour with so many dead letters; the epoch: there was none
  WallTime secret_ends;    // of the last one that was told of
  friend bool operator==(const OperationalRecord&, const OperationalRecord&) = default;
};
StateSerializer<OperationalRecord> OperationalSerializer();

// What is to be seen of an endpoint.
struct OperationalFacts {
  bool stopped = false;  // by a person: its health says nothing then
  DisableReason disabled = DisableReason::kNone;
  uint64_t disabled_generation = 0;
  WallTime disabled_at;
  bool failing = false;  // its breaker is open
  uint32_t warned = 0;
  absl::optional<WallTime> failing_since;
  WallTime disables_at;  // if it goes on failing
  bool well = false;     // has taken something since, and its slow start is over
  absl::string_view last_outcome;
  int last_status = 0;
  uint64_t backlog_messages = 0;
  uint64_t backlog_bytes = 0;
  uint64_t backlog_bytes_max = 0;
  absl::optional<WallTime> backlog_oldest;
  Duration backlog_age_max{};
};

// Decides what of an endpoint is told by operational events (subscriptions/registry/own_events.h):
// one event per change, one on its way at a time. What was not acknowledged is told again, with the
// same id.
//
// Threads: owned by one. Bounds: keeps one event.
class OperationalTeller {
 public:
  static constexpr uint32_t kBacklogPercents[] = {50, 80, 100};
  // Below so many it is told anew.
  static constexpr uint32_t kBacklogForgotten = 25;

  struct Event {
    absl::string_view type;
    std::string occasion;
    std::string data;
  };

  void Restore(const OperationalRecord& told) { told_ = told; }
  const OperationalRecord& told() const { return told_; }
  // To be written. True at most once per change.
  bool TakeChanged();
  // It could not be written.
  void NotWritten() { changed_ = true; }

  // So many messages were given up.
  void OnDeadLetters(uint64_t letters, MonotonicTime now, WallTime wall);
  // Whether dead letters that still count would be forgotten with it.
  bool CountsAt(MonotonicTime now) const;
  // Whether there is nothing to look at for an endpoint that is well and has no backlog.
  bool quiet() const {
    return told_.health == OperationalRecord::Health::kWell && told_.backlog == 0 &&
           told_.letters_since == WallTime() && !letters_from_ && !next_ && !changed_;
  }

  // What is to be told now; null: nothing, or one is on its way. When it is appended call OnSent(),
  // and OnAnswer() when the log has answered that.
  const Event* Next(const OperationalOptions& options, subscriptions::EndpointId endpoint,
                    const OperationalFacts& facts, MonotonicTime now, WallTime wall);
  void OnSent() { sent_ = true; }
  void OnAnswer(bool acknowledged);

  // A signing secret ends then; told beside the others, by whoever looks at secrets.
  static Event SecretEvent(subscriptions::EndpointId endpoint, WallTime ends);
  void OnSecretTold(WallTime ends);

 private:
  absl::optional<Event> NextHealth(subscriptions::EndpointId endpoint,
                                   const OperationalFacts& facts, WallTime wall);
  absl::optional<Event> NextBacklog(subscriptions::EndpointId endpoint,
                                    const OperationalFacts& facts, WallTime wall);
  absl::optional<Event> NextLetters(const OperationalOptions& options,
                                    subscriptions::EndpointId endpoint, MonotonicTime now,
                                    WallTime wall);

  OperationalRecord told_;
  bool changed_ = false;
  // On its way, or to be sent (again); and what will have been told then.
  absl::optional<Event> next_;
  OperationalRecord after_;
  bool sent_ = false;
  // Dead letters of the hour that began then; none: no hour is counted.
  absl::optional<MonotonicTime> letters_from_;
  WallTime letters_wall_;
  uint64_t letters_ = 0;
};

struct OperationalMetrics {
  explicit OperationalMetrics(Metrics& metrics);

  Counter& told;
  Counter& failures;
};

}  // namespace postrider::delivery
