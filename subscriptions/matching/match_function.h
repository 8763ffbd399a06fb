#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/stream/function.h"
#include "core/stream/record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/matching/index.h"
#include "subscriptions/matching/match_program.h"

namespace postrider::subscriptions {

// Turns the events of one source partition into messages: one dispatch record for each endpoint
// that an event matches, appended strictly in the order of the events. An event is complete when
// all its records, or its record in the `rejected` topic, are acknowledged; at once when it goes to
// nobody.
//
//   read --may match--> matched --Emit() took all--> emitted --all acknowledged--> complete
//     |                    | Emit() refuses
//     |                    v
//     |                 half emitted: the rest goes out, in order, in OnRoom(); later events wait
//     `--no usable snapshot, or an earlier event waits--> waiting
//
// Threads: the shard's.
// Bounds:  what waits is pending with the shard, which stops reading at its bounds.
class MatchFunction final : public KeyedProcessFunction {
 public:
  // `program` outlives it.
  explicit MatchFunction(MatchProgram& program);
  ~MatchFunction() override;

  absl::Status Open(TaskContext& ctx) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext& ctx, int64_t next) override;
  void OnRoom(TaskContext& ctx) override;
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext& ctx) override;
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override { return 0; }
  void Close(TaskContext& ctx, CloseReason reason) override;

  // The program has another snapshot.
  void OnSnapshot();

  size_t waiting() const { return waiting_.size(); }

 private:
  // An event that could not be matched when it was read, with storage of its own.
  struct WaitingEvent {
    explicit WaitingEvent(const LogRecord& record);

    int64_t offset;
    WallTime timestamp;
    std::string key;
    absl::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;
  };

  bool MayMatch() const;
  // Matches one event and emits what it gives. Afterwards emitting_ is true when Emit() refused.
  void MatchEvent(const LogRecord& record);
  void MatchMeasured(const LogRecord& record);
  void FindPatterns(absl::string_view type);
  void LeaveOutSubject(const LogRecord& record);
  void Finish(int64_t offset, UnmatchedReason reason);
  void Reject(const LogRecord& record, RejectReason reason);
  // Takes an event in hand that gives so many appends.
  void BeginEmit(int64_t offset, uint32_t appends);
  // Goes on with the event in hand. False: Emit() refused.
  bool EmitRest();
  bool EmitRecord(AppendRecord&& record);
  void OnAppended(int64_t offset, const absl::StatusOr<int64_t>& answer);
  // Goes on with the event in hand and those that wait, a bounded number in one call.
  void Pump();
  void CountWaiting(int change);

  MatchProgram& program_;
  TaskContext* ctx_ = nullptr;
  bool draining_ = false;
  bool operational_ = false;  // the partition is of our own events

  // The patterns of this topic's event type, or of our own event in hand, in the program's index.
  uint64_t patterns_of_snapshot_ = 0;
  MatchIndex::TypePatterns patterns_;

  // The event in hand; its buffers are used again.
  bool emitting_ = false;
  int64_t offset_in_hand_ = 0;
  DispatchRecord record_;
  std::vector<Match> matches_;
  size_t next_match_ = 0;
  std::string given_id_;
  absl::optional<AppendRecord> rejected_;

  std::deque<WaitingEvent> waiting_;
  std::vector<RecordHeader> header_views_;
  // Appends of an event that have not been acknowledged.
  absl::flat_hash_map<int64_t, uint32_t> outstanding_;
  uint32_t measured_ = 0;
};

}  // namespace postrider::subscriptions
