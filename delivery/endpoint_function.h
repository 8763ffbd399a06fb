#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/http/http_sink.h"
#include "core/stream/async_operations.h"
#include "core/stream/function.h"
#include "core/stream/inherited_operations.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/recent_identities.h"
#include "delivery/backlog.h"
#include "delivery/backlog_levels.h"
#include "delivery/backlog_room.h"
#include "delivery/batch.h"
#include "delivery/batch_line.h"
#include "delivery/delivery_metrics.h"
#include "delivery/endpoint_health.h"
#include "delivery/endpoint_reporting.h"
#include "delivery/endpoint_state.h"
#include "delivery/erase_line.h"
#include "delivery/files_bound.h"
#include "delivery/flight_result.h"
#include "delivery/learned_record.h"
#include "delivery/operational_teller.h"
#include "delivery/outcome.h"
#include "delivery/prepared_endpoint.h"
#include "dlq/letters/dead_letter_record.h"
#include "dlq/reports/report_record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/erasure.h"

namespace postrider::delivery {

class DeliveryProgram;
class ReadyPicker;
struct MovedFlight;

// Delivers one key group's messages: groups them by endpoint (of one that is spread over several
// key groups: by its part, which is as good as an endpoint here) into batches, sends these, and
// sees each message to one of its ends: delivered, dead letter, withheld or discarded. A batch goes
//
//   open --full or due--> ready --its turn--> in flight --outcome--> done
//                           ^                    |  \--------------> dead letter
//                           '--- due <-- waiting-'
//
// An open batch that is due but finds no slot free goes on gathering until it is full. A message is
//
//   pending  --parked--> backlog (durable) --read back--> in memory again
//      '--ended--> complete                     '--ended--> removed
//
// pending in the log, or parked: an entry of the durable backlog, whose content is read back when
// it is to be sent. It is parked when its batch has failed, when it has pended for long, and when
// its endpoint holds its share of memory.
//
// Its code stands in endpoint_function.cc (life, records, gathering) and, by subject, in
// endpoint_sending.cc, endpoint_way_out.cc, endpoint_ordering.cc, endpoint_gate.cc,
// endpoint_settling.cc, endpoint_splitting.cc, endpoint_parking.cc, endpoint_bounds.cc,
// endpoint_erasing.cc, endpoint_orphans.cc, endpoint_parts.cc, endpoint_moving.cc,
// endpoint_observed.cc, endpoint_telling.cc and endpoint_handover.cc.
//
// Threads: the shard's. Bounds: those of the shard's pending records; per endpoint, the content of
// a batch and what is in flight beside; what is read back from the backlog and the members of
// batches that wait for their retry are bounded over all endpoints of the shard (DeliveryProgram).
// An endpoint without any message is forgotten after a while.
class EndpointFunction final : public KeyedProcessFunction,
                               private AsyncOperations<HttpResult>::Owner {
 public:
  // `program` outlives it.
  explicit EndpointFunction(DeliveryProgram& program);
  ~EndpointFunction() override;

  absl::Status Open(TaskContext& ctx) override;
  void OnRestored(TaskContext& ctx, size_t index) override;
  void OnInherited(TaskContext& ctx, std::vector<Operation> operations) override;
  void OnResult(TaskContext& ctx, const OperationResult& result) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnSkipped(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext& ctx, int64_t next) override;
  void OnRoom(TaskContext& ctx) override;
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext& ctx) override;
  void OnHoles(TaskContext& ctx, int64_t below) override;
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override;
  size_t identity_bytes() const { return recent_.memory_bytes(); }
  std::vector<Operation> Operations() const override;
  void OnGivenBack(TaskContext& ctx) override;
  void Close(TaskContext& ctx, CloseReason reason) override;

  // From the program: this endpoint's turn, a new snapshot, draining has begun or is over.
  // Returns how many bytes that sent.
  size_t SendNext(const std::string& key);
  void OnSnapshot();
  void OnDraining();
  // Something has become known of the host that this endpoint waited for.
  void OnHostChanged(const std::string& key, bool reached);
  // There is the room that was asked for; what is not used at once is given back.
  void OnBacklogRoom(const std::string& key, BacklogRoom::Hold room);

  // Endpoints that it remembers, those whose late batch waits for the partition's end, and the
  // operations of predecessors that it waits for.
  size_t endpoints() const { return endpoints_.size(); }
  size_t waiting_for_partition_end() const { return late_.size(); }
  size_t inherited() const { return inherited_.size(); }

 private:
  // What is left to do when the record of a message's end is acknowledged.
  struct Ending {
    subscriptions::DispatchKey endpoint;
    uint64_t order = 0;
    IdBytes digest{};
    bool pending = false;
    bool listed = false;
    uint64_t order_key = 0;  // stands still until then; 0: none does
    bool bound = false;      // at its backlog's bound
    // The recorded batch whose last messages these are.
    struct Group {
      IdBytes batch{};
      size_t left = 0;
    };
    std::shared_ptr<Group> group;
  };
  struct Output {
    AppendRecord record;
    Ending ending;
    BacklogRoom::Hold room;
  };
  // Of what a predecessor had in flight: the messages that were read again and are held until its
  // result is here, or will not come.
  struct Held {
    Batch batch;
    // When the batch that stands in the backlog under its id, and waits for it too, would be due.
    absl::optional<MonotonicTime> parked_due;
  };
  enum class Admission { kSend, kDrop, kWait };

  // endpoint_function.cc
  EndpointState& StateOf(absl::string_view key);
  void ReadSettings(EndpointState& state);
  static bool Fits(const EndpointState& state, const Batch& batch);
  static void Cut(const EndpointState& state, BatchLine& batches);
  static void Remeasure(EndpointState& state);
  void CutUntried(EndpointState& state);
  void Reject(const LogRecord& record);
  bool IsEntry(const EndpointState& state, uint64_t order, const IdBytes& digest);
  void Add(EndpointState& state, Message message);
  static bool OnlyGathers(const EndpointState& state);
  void CloseOpen(EndpointState& state);
  void StartOpen(EndpointState& state, const Message& first);
  void Sweep();

  // endpoint_sending.cc
  bool Sendable(const EndpointState& state) const;
  bool OpenMayGo(const EndpointState& state) const;
  bool MayTakeFresh(const EndpointState& state) const;
  bool FreshMayGo(const EndpointState& state) const;
  bool BacklogMayGo(const EndpointState& state) const;
  bool HasRoom(EndpointState& state, size_t bytes);
  void Schedule(EndpointState& state);
  absl::optional<Batch> TakeNext(EndpointState& state);
  size_t Send(EndpointState& state, Batch batch);
  void PutBack(EndpointState& state, Batch batch);
  Admission Admit(EndpointState& state, Batch& batch);
  PreparedEndpoint* Prepared(EndpointState& state, absl::Status* why);
  absl::StatusOr<HttpRequest> MakeRequest(const EndpointState& state, const Batch& batch,
                                          PreparedEndpoint& prepared, Flight* flight);
  bool MayStart(const std::string& key, uint64_t flight_id, HttpRequest& request);
  bool IsShutOut(const EndpointState& state, const Flight& flight) const;
  bool IsUpToDate(const EndpointState& state, const Flight& flight) const;

  // endpoint_gate.cc
  absl::optional<MonotonicTime> GateOpensAt(const EndpointState& state) const;
  bool Stopped(const EndpointState& state) const { return !state.absent && state.health.stopped(); }
  bool IsFailing(const EndpointState& state) const {
    return !state.absent && state.health.failing();
  }
  bool RetryMayGo(const EndpointState& state) const;
  void AwaitHost(const EndpointState& state);
  bool HostIsShut(const EndpointState& state) const;
  void OnStart(EndpointState& state, Flight& flight, size_t body_bytes);
  void LeaveHost(const Flight& flight);
  void OnNoOutcome(EndpointState& state, const Batch& batch);
  bool NoteReach(EndpointState& state, const Flight& flight, const HttpResult& result);
  void RestInOutage(EndpointState& state, const Outcome& outcome);
  void Judge(EndpointState& state, const Outcome& outcome, bool probe);
  void GiveUpExpired(EndpointState& state);
  void ReadHealth(EndpointState& state);
  void WriteHealth(EndpointState& state);
  void WriteHealthAgain();
  void ForgetHealth(EndpointState& state);
  void CountHealth(EndpointState& state, HealthState now);
  void ReadDesired(EndpointState& state,
                   const std::shared_ptr<const subscriptions::Endpoint>& endpoint);
  void RetryNow(EndpointState& state);
  Admission SkipOnResume(EndpointState& state, Batch& batch,
                         const subscriptions::Endpoint& endpoint);

  // endpoint_bounds.cc
  struct Oldest {
    uint64_t order = 0;
    WallTime dispatch_time;
    std::multimap<MonotonicTime, Batch>::iterator batch;  // end: entries that nobody has read
  };
  const subscriptions::BacklogSettings* BoundsOf(const EndpointState& state) const;
  void LookAtBounds(EndpointState& state);
  void KeepBounds();
  bool KeepBounds(EndpointState& state);
  absl::optional<Oldest> FindOldest(EndpointState& state);
  WallTime DispatchTimeOf(EndpointState& state, const Batch& batch);
  size_t GiveUpOldest(EndpointState& state, const Oldest& oldest, dlq::DeadReason reason,
                      size_t count_max, uint64_t bytes, uint64_t* freed);
  bool Collapse(EndpointState& state);
  void TellSizes(BacklogLevels::Sizes sizes, uint64_t bytes_to_go);

  // endpoint_erasing.cc
  struct EraseTurn;
  using ErasedOfBatches = absl::flat_hash_map<IdBytes, std::unique_ptr<MessageContent>>;
  void LookAtErasures();
  void LookThrough(const std::string& key, uint64_t from);
  void NoteParked(const EndpointState& state, const Message& message);
  void NoteCameBack(const EndpointState& state, const Batch& batch,
                    const subscriptions::Erasures* known);
  void LookThroughLapsed();
  void EraseSome();
  bool EraseFrom(EndpointState& state, EraseTurn& turn);
  void EraseOfBatches(EndpointState& state, ErasedOfBatches& erased);
  bool HoldsAny(EndpointState& state, const Batch& batch, const ErasedOfBatches& erased);
  void EraseOf(EndpointState& state, Batch& batch, ErasedOfBatches& erased, MonotonicTime due);
  bool IsToBeForgotten(const subscriptions::DispatchRecordView& record) const;

  // endpoint_way_out.cc
  bool AwaitsWayOut(EndpointState& state);
  Outcome NoTokenOutcome(const PreparedEndpoint& prepared);
  void NoteRefusedToken(const EndpointState& state, uint64_t token, const HttpResult& result);

  // endpoint_settling.cc
  void OnEnded(const std::string& key, uint64_t flight, HttpResult result) override;
  void SettleFlight(EndpointState& state, uint64_t flight, const HttpResult& result);
  void Settle(EndpointState& state, Batch batch, const Outcome& outcome);
  enum class Probe : bool { kNo, kYes };
  void Apply(EndpointState& state, const Outcome& outcome, Probe probe);
  void Delivered(EndpointState& state, Batch& batch);
  void Retry(EndpointState& state, std::vector<Batch> batches, const Outcome& outcome);
  void Later(EndpointState& state, Batch batch, MonotonicTime next);
  enum class Place { kLast, kFirst };  // among those of the same time
  void Wait(EndpointState& state, MonotonicTime due, Batch batch, Place place = Place::kLast);
  void Wait(EndpointState& state, std::multimap<MonotonicTime, Batch>::iterator before,
            MonotonicTime due, Batch batch);
  Batch TakeWaiting(EndpointState& state, std::multimap<MonotonicTime, Batch>::iterator place);
  void GiveUpBatch(EndpointState& state, Batch batch, dlq::DeadReason reason);
  // No letter is made of what is to be forgotten.
  void GiveUp(EndpointState& state, Message& message, dlq::DeadReason reason, const Batch& batch,
              std::shared_ptr<Ending::Group> group);
  void Refuse(EndpointState& state, const Message& message, dlq::RefusalReason reason,
              std::shared_ptr<Ending::Group> group);
  static std::shared_ptr<Ending::Group> GroupOf(const Batch& batch);
  Ending EndingOf(EndpointState& state, const Message& message,
                  std::shared_ptr<Ending::Group> group);
  void End(const Ending& ending);
  void EndAll(EndpointState& state, Batch& batch);
  void NoteEndedAhead(uint64_t order, const IdBytes& digest);
  bool EndedAhead(uint64_t order, const IdBytes& digest);
  void Emit(Output output);
  void DrainOutputs();

  // endpoint_learning.cc
  void Learn(EndpointState& state, const HttpResult& result);
  void LearnTooLarge(EndpointState& state, size_t bytes);
  void ReadLearned(EndpointState& state);
  void WriteLearned(EndpointState& state);

  // endpoint_observed.cc
  AttemptFacts FactsOf(const HttpRequest& request, const Batch& batch) const;
  void TellAttempt(const EndpointState& state, const Batch& batch, AttemptFacts facts,
                   const HttpResult& result, const Outcome& outcome);
  void NoteAttempt(EndpointState& state, const Outcome& outcome);
  void TellStatus(EndpointState& state);

  // endpoint_parts.cc
  void TellParts(EndpointState& state);
  void OnPartNotice(const LogRecord& record);

  // endpoint_telling.cc
  OperationalFacts LookAt(const EndpointState& state) const;
  void Tell(EndpointState& state);
  void ReadTold(EndpointState& state);
  void WriteTold(EndpointState& state);
  bool StoreTold(const std::string& key, const OperationalRecord& told);
  bool EmitOperational(const subscriptions::Endpoint& endpoint,
                       const OperationalTeller::Event& event,
                       absl::AnyInvocable<void(bool) &&> answer);
  void LookAtSecrets();
  void TellSecret(const std::shared_ptr<const subscriptions::Endpoint>& endpoint, WallTime ends);

  // endpoint_splitting.cc
  void Replace(EndpointState& state, const Batch& batch, std::vector<Batch>& pieces);
  void SettlePartly(EndpointState& state, Batch batch, const Outcome& outcome,
                    const std::vector<size_t>& failed);
  void Bisect(EndpointState& state, Batch batch, const Outcome& outcome);
  std::vector<Batch> CutAll(EndpointState& state, std::vector<Batch> batches);
  std::vector<Batch> TakePieces(EndpointState& state, const std::shared_ptr<Bisection>& bisection);
  void EndPiece(EndpointState& state, const std::shared_ptr<Bisection>& bisection);
  void RetryPieces(EndpointState& state, std::vector<Batch> pieces, const Outcome& outcome);

  // endpoint_parking.cc
  bool Park(EndpointState& state, Message& message, ParkReason reason);
  bool ParkBatch(EndpointState& state, Batch& batch, ParkReason reason, MonotonicTime due);
  bool Record(EndpointState& state, Batch& batch, MonotonicTime due);
  bool ParkReady(EndpointState& state, ParkReason reason);
  bool ParkOpen(EndpointState& state, ParkReason reason);
  bool ParkWaiting(EndpointState& state, ParkReason reason);
  void ParkAll(EndpointState& state, ParkReason reason);
  void ParkAgain(EndpointState& state);
  void Want(EndpointState& state, ParkReason reason);
  bool Spills(const EndpointState& state, const Message& message) const;
  bool Spill(EndpointState& state, uint64_t order, const IdBytes& digest, absl::string_view encoded,
             ParkReason reason);
  const Message* OldestPending(const EndpointState& state) const;
  static bool Rests(EndpointState& state, MonotonicTime now);
  void ParkOld();
  bool HasListed(const EndpointState& state) const;
  void DrainBacklog(EndpointState& state);
  bool HasRoomToDrain(EndpointState& state, size_t messages_max, size_t bytes_max);
  absl::optional<absl::flat_hash_set<IdBytes>> LeftOut(const EndpointState& state);
  bool Load(EndpointState& state, Batch& batch);
  void Undrain(EndpointState& state, const Batch& batch);
  void LetGo(EndpointState& state);
  void LeaveOutMembers(EndpointState& state, Batch& batch);
  bool ReadMembers(EndpointState& state, Batch& batch);
  void AddMembers(EndpointState& state, const std::vector<BatchMember>& members, Batch& batch);
  BacklogRoom::Hold TakeRoom(EndpointState& state, size_t bytes);
  void RejectEntry(EndpointState& state, const Backlog::Damaged& entry);
  size_t ResolveListed(EndpointState& state, std::vector<Message>& messages);
  void ResolveAll(EndpointState& state);
  void Rebuild();
  // What predecessors had parked is known, or will not be.
  void SetBacklogKnown();
  bool RestoreBatches(EndpointState& state, std::string& from, size_t batches_max);
  void RemoveOrphans();
  // Whether the backlog is there as a whole, and this endpoint's batches in memory.
  bool IsRestored(const EndpointState& state) const;
  void ClearFlagWhenEmpty(EndpointState& state);
  void OnFlagged(const std::string& key);
  void RemoveEntry(EndpointState& state, const IdBytes& digest,
                   const absl::optional<ListState::Place>& place = absl::nullopt);
  void OnRemoved(const std::string& key, const IdBytes& digest);
  MonotonicTime FlightDeadline(const Flight& flight) const;

  // endpoint_moving.cc
  bool Arrive(EndpointState& state, const LogRecord& record, Message& message);
  void EndArrival(EndpointState& state);

  // endpoint_ordering.cc
  void SetOrder(EndpointState& state, const subscriptions::OrderSettings& settings);
  static void SetOrderKey(EndpointState& state, Message& message);
  bool IsBehindBacklog(const EndpointState& state) const;
  bool SpillArrived(EndpointState& state, const Message& message);
  bool ReadsBacklog(const EndpointState& state) const;
  std::multimap<MonotonicTime, Batch>::const_iterator NextRetry(const EndpointState& state) const;
  bool SendableInOrder(const EndpointState& state) const;
  void GoBack(EndpointState& state);
  absl::optional<Batch> TakeInOrder(EndpointState& state);
  void LearnKeys(EndpointState& state);
  Batch Compose(EndpointState& state);
  void ReadInOrder(EndpointState& state, ReadyPicker& picker);
  void LeaveToBacklog(EndpointState& state);
  void InsertReady(EndpointState& state, std::vector<Message> messages);
  void PutBackInOrder(EndpointState& state, Batch batch);
  void WakeUnread();

  // endpoint_handover.cc
  void RecordFlights();
  bool Hold(EndpointState& state, Message& message);
  Batch TakeHeld(const IdBytes& id);
  void ParkHeld(const IdBytes& id, Held& held, ParkReason reason);
  void ParkHeldWhere(absl::FunctionRef<bool(const Message&)> holds, ParkReason reason);
  void ParkHeldOlderThan(Duration age, ParkReason reason);
  void SetInheritedTimer();
  void EndInherited();
  void SettleEarlyResults(const std::string& key);
  void SettleAllEarlyResults();
  void SettleResult(const OperationResult& result, const FlightResult& flight);
  void TakeNamed(EndpointState& state, const OperationResult& result, const FlightResult& flight,
                 Batch& batch);
  MovedFlight Moved(const EndpointState& state, Flight& flight) const;
  absl::optional<Operation> Describe(const std::string& key, uint64_t flight) const override;
  AsyncOperations<HttpResult>::Telling Leave(const std::string& key, uint64_t flight) override;

  DeliveryProgram& program_;
  TaskContext* ctx_ = nullptr;
  ReplayableValueState<EndpointState> endpoints_;
  // None without the changelogs, like the backlog.
  std::unique_ptr<ValueState<HealthRecord>> health_;
  absl::flat_hash_set<std::string> health_unwritten_;  // for want of room
  std::unique_ptr<ValueState<OperationalRecord>> told_;
  std::unique_ptr<ValueState<LearnedRecord>> learned_;
  absl::flat_hash_set<std::string> telling_secrets_;  // of these it is on its way
  std::unique_ptr<Backlog> backlog_;                  // none: see DeliveryOptions::durable_backlog
  RecentIdentities recent_;
  // Entries that ended before their record was read (again), by its offset: a predecessor had
  // parked them and was gone before its commit said so. At most kEndedAheadMax.
  static constexpr size_t kEndedAheadMax = 100'000;
  absl::flat_hash_map<uint64_t, IdBytes> ended_ahead_;
  uint64_t next_read_ = 0;             // one past the highest offset that was read
  std::deque<Output> outputs_;         // refused by the producer; in order
  std::vector<std::string> late_;      // each endpoint once
  std::vector<std::string> awaiting_;  // each endpoint once
  absl::flat_hash_set<std::string> park_again_;
  // Endpoints with order whose next entry stands behind records that were not read yet.
  std::set<std::pair<uint64_t, std::string>> unread_;
  // Endpoints whose backlog is beyond its bounds, each once.
  absl::flat_hash_set<std::string> beyond_;
  std::deque<std::string> beyond_line_;
  // Bounds of endpoints together as they were looked at last: of several functions, and of this
  // one's own store.
  std::shared_ptr<const BacklogLevels::Levels> levels_;
  uint64_t store_level_ = UINT64_MAX;
  FilesBound store_bound_;
  // What is to be forgotten, and the time of the last such wish; the backlogs that are to be looked
  // through for it, and those that are when nothing can be in flight any more at a predecessor.
  std::shared_ptr<const subscriptions::Erasures> erasures_;
  WallTime forget_until_ = WallTime::min();
  EraseLine erase_line_;
  absl::flat_hash_set<std::string> erase_when_lapsed_;
  absl::flat_hash_set<std::string> arriving_;  // have a batch that is not there as a whole
  InheritedOperations inherited_;
  absl::flat_hash_map<IdBytes, Held> held_;  // of inherited_
  // Results that wait for the backlog's restore, by endpoint.
  absl::flat_hash_map<std::string, std::vector<std::pair<OperationResult, FlightResult>>>
      early_results_;
  size_t early_results_count_ = 0;
  uint64_t contents_read_ = 0;  // of the snapshot whose settings were read last
  // Endpoints whose batches are to be read from the backlog; of the first one, where to go on.
  std::deque<std::string> rebuild_;
  absl::flat_hash_set<std::string> rebuilding_;  // the same
  std::string rebuild_from_;
  bool backlog_known_ = false;
  std::string orphans_after_;  // up to this endpoint they are removed
  bool sweeping_ = false;
  bool at_partition_end_ = false;
  bool caught_up_ = false;  // the partition's end was seen: no record comes again
  bool flushing_ = false;
  size_t in_line_ = 0;
  // Handed weakly to the sink, to be asked for the right to start: gone when this is closed.
  std::shared_ptr<EndpointFunction*> self_;
};

}  // namespace postrider::delivery
