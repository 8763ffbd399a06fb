#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/http/http_sink.h"
#include "delivery/backlog.h"
#include "delivery/backlog_collapse.h"
#include "delivery/backlog_room.h"
#include "delivery/backlog_state.h"
#include "delivery/batch.h"
#include "delivery/batch_line.h"
#include "delivery/endpoint_health.h"
#include "delivery/endpoint_order.h"
#include "delivery/endpoint_reporting.h"
#include "delivery/learned_record.h"
#include "delivery/operational_teller.h"
#include "delivery/part_share.h"
#include "delivery/prepared_endpoint.h"
#include "delivery/rate_limit.h"
#include "delivery/retry_policy.h"
#include "delivery/steering.h"
#include "delivery/throttled_rate.h"
#include "delivery/window.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/erasure.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

// A batch that was sent and whose result has not come in.
struct Flight {
  Batch batch;
  HttpRequestId request = 0;
  MonotonicTime started;
  // When it got its slot in the sink: its deadline counts from there.
  absl::optional<MonotonicTime> on_wire;
  Duration timeout{};
  BacklogRoom::Hold room;   // for those of its messages that are parked
  AttemptFacts facts;       // for its report
  std::string host;         // of its URL, with the port
  bool host_probe = false;  // others of that host wait for what comes of it
  // Of the messages in their order, with partial_ack only.
  std::vector<IdBytes> message_ids;
  uint64_t token = 0;  // TokenCache::Token::number of what it was sent with; 0: none
  MonotonicTime token_ends_at{};
  // What it was made by, in case it is another when the request gets its slot: the endpoint, the
  // snapshot's contents, what is to be forgotten, and of messages whose content is not kept the
  // tenants.
  std::shared_ptr<const subscriptions::Endpoint> made_for;
  uint64_t made_from = 0;
  std::shared_ptr<const subscriptions::Erasures> erasures;
  std::vector<std::string> tenants;

  // Before contents are dropped.
  void KeepTenants() {
    if (on_wire) return;
    for (const Message& message : batch.messages) {
      if (message.content != nullptr) tenants.emplace_back(message.content->record.tenant);
    }
    std::sort(tenants.begin(), tenants.end());
    tenants.erase(std::unique(tenants.begin(), tenants.end()), tenants.end());
  }
};

// One endpoint, or one part of it (subscriptions::DispatchKey), in its key group's memory.
struct EndpointState {
  // `options` outlives it.
  explicit EndpointState(const HealthOptions& options) : health(options) {}

  std::string key;  // see subscriptions::DispatchKey
  subscriptions::EndpointId id;
  PartShare share;                     // of its limits, and which of its parts this is
  subscriptions::CustomerId customer;  // as far as it is known
  bool streaming = false;
  subscriptions::BodyFormat format = subscriptions::BodyFormat::kEnvelope;
  int64_t events_max = 1000;
  int64_t bytes_max = 1 << 20;
  Duration wait_max = std::chrono::seconds(1);
  RetryPolicy retry;
  uint64_t generation = 0;  // of the settings above
  LearnedLimits learned;    // since then
  LearnedRecord learned_stored;

  // What of the backlog is in memory. It stands before all that has contents.
  BacklogRoom::Owner room;
  BacklogRoom::Hold granted;  // for the next that is read back
  bool awaits_room = false;

  Batch open;
  bool open_due = false;
  bool open_late = false;  // was due on arrival
  bool open_long = false;  // waits for so long that its messages are parked
  MonotonicTime open_since;
  BatchLine ready;    // closed and never tried
  BatchLine drained;  // read back from the backlog, to be sent like `ready`
  std::map<uint64_t, Flight> flights;
  std::multimap<MonotonicTime, Batch> waiting;  // by the time of their next try
  bool piece_in_flight = false;                 // see Bisection
  size_t waiting_messages = 0;
  size_t members_left_out = 0;  // of those in `waiting`

  Window window{32};
  MonotonicTime hold_until{};    // nothing is sent before
  MonotonicTime outage_until{};  // likewise, and no fault of the endpoint's
  int outage_rests = 0;          // in our own outage, one after the other
  // When it may be sent to, see endpoint_gate.cc.
  EndpointHealth health;
  RateLimit rate;
  ThrottledRate throttled;
  MonotonicTime unproven_until{};  // it has never answered 2xx, and was tried before
  bool unreached = false;          // its last request failed before it was sent
  bool absent = false;             // from the snapshot
  std::shared_ptr<const subscriptions::Endpoint> desired;  // as it was read last
  // What is told of it.
  OperationalTeller teller;
  absl::optional<WallTime> backlog_oldest;  // as it was looked at last
  EndpointReporting::Told told;
  uint64_t told_backlog = 0;  // bytes
  WallTime told_attempt;
  WallTime last_attempt_at;
  WallTime last_success_at;
  OutcomeKind last_outcome = OutcomeKind::kAborted;
  int last_status = 0;
  bool health_stored = false;
  // Which disable its other parts are told of, and the next of them; see endpoint_parts.cc.
  uint64_t notice_generation = 0;
  uint32_t notice_next_part = 0;
  HealthState health_counted = HealthState::kHealthy;  // as the metrics have it
  int fresh_in_a_row = 0;                              // sent while a retry or backlog was due
  int throttled_in_a_row = 0;                          // without being told for how long
  bool in_line = false;
  bool listed_late = false;  // stands among those that wait for the partition's end
  bool awaits_snapshot = false;
  size_t pending_bytes = 0;  // of records that pend
  // A batch that was moved here from an earlier generation, until its last member is read.
  Batch arriving;
  BatchAttempts arriving_attempts;
  MonotonicTime last_used;  // had a message or a result
  // Nothing of it changes by itself: it is looked at again then, or once it is used or has other
  // settings.
  MonotonicTime rests_until{};
  MonotonicTime rests_since_use{};
  std::unique_ptr<PreparedEndpoint> prepared;
  // With order: then `ready` ascends by offset and `drained` is empty, and the backlog has been
  // read up to `drain_from`, but for the entries that were passed. Null: none is asked for.
  std::unique_ptr<EndpointOrder> order;

  // The backlog. `claimed`: the entries that are in memory, or that a batch here names; all others
  // are to be drained, from the place `drain_from` on.
  Backlog::Flag flag = Backlog::Flag::kNone;
  absl::flat_hash_set<IdBytes> claimed;
  uint64_t drain_from = 0;
  bool drained_dry = false;  // a scan over all of it found nothing to drain
  // Its bounds.
  MonotonicTime look_at_age{};
  size_t bound_endings = 0;  // given up there, and not removed yet
  // What bounds that it has together with others leave it (BacklogLevels).
  uint64_t level = UINT64_MAX;
  // The last such level, as long as it counts for what the customer is told.
  uint64_t told_level = UINT64_MAX;
  MonotonicTime told_level_until{};
  std::unique_ptr<BacklogCollapse> collapse;
  bool collapsed = false;   // and has not come below its bound since
  uint8_t park_wanted = 0;  // a bit per ParkReason: was refused, and is tried again

  // The first of those that wait that may have its turn: there is one piece in flight at most.
  auto NextWaiting() { return piece_in_flight ? waiting.upper_bound(kPieceDue) : waiting.begin(); }
  auto NextWaiting() const {
    return piece_in_flight ? waiting.upper_bound(kPieceDue) : waiting.begin();
  }

  bool idle() const {
    return open.messages.empty() && ready.empty() && drained.empty() && flights.empty() &&
           waiting.empty() && claimed.empty() && pending_bytes == 0 && !in_line && !listed_late &&
           !awaits_snapshot && !awaits_room && (order == nullptr || !order->AnyBlocked());
  }
};

}  // namespace postrider::delivery
