#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/compression/compressor.h"
#include "core/crypto/key_ring.h"
#include "core/http/http_sink.h"
#include "core/stream/async_operations.h"
#include "core/stream/function.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"
#include "delivery/backlog_levels.h"
#include "delivery/backlog_room.h"
#include "delivery/delivery_metrics.h"
#include "delivery/endpoint_health.h"
#include "delivery/endpoint_reporting.h"
#include "delivery/fair_queue.h"
#include "delivery/flight_result.h"
#include "delivery/key_group_members.h"
#include "delivery/named_lines.h"
#include "delivery/operational_teller.h"
#include "delivery/own_outage.h"
#include "delivery/store_figures.h"
#include "delivery/token_cache.h"
#include "delivery/unreached_hosts.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {

class EndpointFunction;
struct EndpointState;

struct DeliveryOptions {
  std::string topic_prefix = "postrider.";
  // Whether the tasks have the changelogs of backlog_state.h. Without them nothing is parked: what
  // waits, waits in memory, and comes again after a restart.
  bool durable_backlog = false;
  // Messages of an endpoint that pend beyond this (never less than a batch) go to its backlog.
  size_t endpoint_share_bytes = 2 << 20;
  // Requests at once, of one shard: what the sink carries beside those that wait in its line.
  size_t requests_max = 2'000;
  // Of one shard: what is read back from the backlog, see BacklogRoom; and what batches that wait
  // for their next try take, beyond which the members of a batch stay in the backlog too.
  size_t backlog_room_bytes = 32 << 20;
  size_t waiting_bytes_max = 32 << 20;
  // What pends for longer is parked; an attempt that is older hangs.
  Duration park_after = std::chrono::seconds(5);
  // At the shard's bounds what pends for longer is parked.
  Duration park_after_under_pressure = std::chrono::seconds(1);
  // The messages of an open batch that will wait for longer are parked from its first one on.
  Duration long_wait = std::chrono::seconds(4);
  // A batch that is due on arrival waits so long for company (never longer than its wait_max).
  Duration late_wait = std::chrono::milliseconds(100);
  // An endpoint that had no message for so long is forgotten, its window too.
  Duration forget_after = std::chrono::minutes(10);
  // None: nothing is told of endpoints and attempts.
  absl::optional<EndpointReportingOptions> reports;
  // None: customers are told of nothing by events.
  absl::optional<OperationalOptions> operational;
  // Partitions of the dispatch topic. 0: whose an endpoint is cannot be told, so that of those
  // without messages nothing is.
  int32_t key_groups = 0;
  HealthOptions health;
  // An endpoint that has never answered with 2xx is sent one request in so long.
  Duration unproven_interval = std::chrono::seconds(1);
  // What the backlogs of a customer's endpoints may hold in one process.
  uint64_t customer_backlog_bytes_max = uint64_t{10} << 30;
  // With a snapshot that was confirmed longer ago nothing is sent.
  std::chrono::milliseconds snapshot_age_max{std::chrono::hours(24)};
};

enum class Reached : uint8_t { kNo, kYes };

// What the shards of a process have in common. Threads: any.
struct DeliveryCommon {
  explicit DeliveryCommon(const DeliveryOptions& options)
      : backlog_levels(options.customer_backlog_bytes_max) {}

  OwnOutage own_outage;
  BacklogLevels backlog_levels;
  // Of the store of a key group's backlog; null: it has no bound. Set before the first program.
  std::function<StoreFullness(int32_t key_group)> backlog_fullness;
  // Functions that do not know yet what predecessors had parked. Their stores and files fill
  // meanwhile, and nobody can say how much of that lives: what is too full says nothing then.
  std::atomic<int> backlogs_unknown{0};
  bool backlogs_known() const { return backlogs_unknown == 0; }
  // What the functions' recent identities hold, as the shards saw it last.
  std::atomic<uint64_t> identity_bytes{0};
};

// A request whose key group moves: its result goes to the new owner.
struct MovedFlight {
  OperationResult result;  // but for its outcome
  FlightResult flight;     // but for its outcome
  subscriptions::EndpointId endpoint;
  AttemptFacts facts;  // for its report
  size_t batch_size = 1;
  Duration horizon{};
  // With partial_ack only: of the batch's messages, in their order.
  std::vector<IdBytes> message_ids;
  std::vector<IdBytes> digests;
};

// What the endpoint functions of one shard share: the way out, the snapshot, the line in which
// endpoints with something to send take turns, one request each, and all requests in flight, also
// those that have outlived the ownership of their key group.
//
// Threads: the shard's.
// Bounds:  the lines hold each endpoint once; requests are bounded by the sink, what is read back
//          from the backlog by options().backlog_room_bytes.
class DeliveryProgram final : public ShardProgram {
 public:
  // `keys`, `metrics` and `common` (one for the process; null: one of its own) outlive it.
  DeliveryProgram(const ShardEnvironment& environment, const DeliveryOptions& options,
                  std::unique_ptr<HttpSink> sink, const KeyRing& keys, DeliveryMetrics& metrics,
                  uint64_t seed, DeliveryCommon* common = nullptr);
  ~DeliveryProgram() override;

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override;
  void OnTurnEnd() override;

  void SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot);
  // Draining: everything that pends is parked, and nothing is sent.
  void SetDraining(bool draining);
  void SetAddressRules(std::shared_ptr<const AddressRules> rules);
  // Counts what its functions hold into common().
  void LookAtMemory();

  // For the functions.
  const subscriptions::Snapshot* snapshot() const { return snapshot_.get(); }
  bool SnapshotUsable() const;
  // Of the snapshot, which is there. Needs DeliveryOptions::key_groups.
  absl::Span<const uint32_t> EndpointsOf(int32_t key_group) {
    return key_group_members_.Of(*snapshot_, key_group, options_.key_groups);
  }
  bool draining() const { return draining_; }
  const DeliveryOptions& options() const { return options_; }
  HttpSink& sink() { return *sink_; }
  const KeyRing& keys() const { return keys_; }
  Compressor& compressor() { return compressor_; }
  DeliveryMetrics& metrics() { return metrics_; }
  Random& random() { return random_; }
  EndpointReporting* reporting() { return reporting_.get(); }  // null: DeliveryOptions::reports
  // Puts an endpoint in line; the function sees to it that it stands there once.
  void Enqueue(EndpointFunction* function, const EndpointState& state);
  // The same for one whose host has all the requests that it may have waiting: it comes into the
  // line when there is room (HttpSink::RoomFor).
  void EnqueueForHost(const std::string& authority, EndpointFunction* function,
                      const EndpointState& state);
  // The same for one whose token is being fetched.
  void EnqueueForToken(const std::string& source, EndpointFunction* function,
                       const EndpointState& state);
  TokenCache& tokens() { return tokens_; }
  // A request of this customer's was handed to the sink, and has ended.
  void TakeSlot(subscriptions::CustomerId customer) { line_.TakeSlot(customer); }
  void GiveSlot(subscriptions::CustomerId customer) { line_.GiveSlot(customer); }
  void Forget(EndpointFunction* function);
  // When a function may look at a part of the backlogs for what is to be forgotten: the turns of
  // all functions of the shard lie 20 ms apart, however many there are. Each call takes one.
  MonotonicTime NextEraseTurn(MonotonicTime now);
  // The memory for what is read back from the backlog. Who finds none there, or others in line,
  // joins the line once; OnBacklogRoom() of the function follows, with what it asked for.
  BacklogRoom& backlog_room() { return backlog_room_; }
  bool AnyAwaitsRoom(const BacklogRoom::Owner& owner) const {
    return !room_lines_[owner.failing ? 1 : 0].empty();
  }
  void AwaitRoom(EndpointFunction* function, std::string key, BacklogRoom::Owner* owner,
                 size_t bytes);
  // Hosts of this shard that cannot be reached, and whether that is our own fault.
  UnreachedHosts& unreached_hosts() { return unreached_hosts_; }
  OwnOutage& own_outage() { return common_->own_outage; }
  DeliveryCommon& common() { return *common_; }
  void Wake(const UnreachedHosts::Woken& woken, Reached reached);
  // What batches that wait for their next try take in all.
  size_t waiting_bytes() const { return waiting_bytes_; }
  bool WaitingFits(size_t bytes) const {
    return waiting_bytes_ + bytes <= options_.waiting_bytes_max;
  }
  void AddWaiting(size_t bytes) { waiting_bytes_ += bytes; }
  void TakeWaiting(size_t bytes) { waiting_bytes_ -= bytes; }
  // The requests in flight. Of one endpoint its window bounds them, in all the sink.
  AsyncOperations<HttpResult>& operations() { return operations_; }
  // What the new owner is told of a request that was in flight when its key group moved. As an
  // attempt it is told here, where the answer is.
  OperationResult Tell(MovedFlight moved, const HttpResult& result);
  size_t in_flight() const override { return operations_.moved(); }

 private:
  struct AwaitsRoom {
    EndpointFunction* function;
    std::string key;
    BacklogRoom::Owner* owner;  // there as long as it stands in line
    size_t bytes;
  };
  void GiveRoom();
  bool MayServe() const { return sink_->CanSend() && line_.HasFreeSlot(); }
  bool RoomChanged() const { return room_given_ != backlog_room_.given(); }

  EventLoop& loop_;
  LogProducer& producer_;
  DeliveryOptions options_;
  BacklogRoom backlog_room_;
  FairQueue line_;
  std::deque<AwaitsRoom> room_lines_[2];  // of endpoints that do not fail, and that do
  size_t room_given_ = 0;                 // as it was when the lines were looked at last
  size_t waiting_bytes_ = 0;
  MonotonicTime next_erase_turn_{};
  UnreachedHosts unreached_hosts_;
  std::unique_ptr<DeliveryCommon> own_common_;  // without one of the process
  DeliveryCommon* common_;
  std::unique_ptr<HttpSink> sink_;
  Compressor compressor_;
  const KeyRing& keys_;
  DeliveryMetrics& metrics_;
  Random random_;
  std::unique_ptr<EndpointReporting> reporting_;
  std::shared_ptr<const subscriptions::Snapshot> snapshot_;
  KeyGroupMembers key_group_members_;
  bool draining_ = false;
  absl::flat_hash_set<EndpointFunction*> functions_;
  uint64_t identity_bytes_ = 0;  // of them, in common()
  TokenCache tokens_;
  NamedLines token_lines_;
  NamedLines host_lines_;  // of hosts with no room: as many as fill the sink's line, if at all
  AsyncOperations<HttpResult> operations_;
};

}  // namespace postrider::delivery
