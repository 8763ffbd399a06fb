#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/id.h"
#include "core/stream/completion_tracker.h"
#include "core/stream/function.h"
#include "core/stream/hole_map.h"
#include "core/stream/internal/changelog_part.h"
#include "core/stream/internal/in_flight_record.h"
#include "core/stream/internal/restorer.h"
#include "core/stream/internal/shard_metrics.h"
#include "core/stream/internal/timers.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

class Task;

// What a task asks of its shard.
class TaskHost {
 public:
  virtual ~TaskHost() = default;
  virtual EventLoop& loop() = 0;
  virtual LogProducer& outputs() = 0;
  // For the changelog of this index.
  virtual LogProducer& changelog_producer(size_t changelog) = 0;
  // Of the shard as a whole: it runs, is not giving back, and its lease holds.
  virtual bool ShardMayAct() const = 0;
  virtual bool TimersRun() const = 0;
  virtual bool UnderPressure() const = 0;
  virtual void AddPending(int64_t records, int64_t bytes, int64_t tracked) = 0;
  // The task has called Fail(), was refused by Emit(), or waits for OnResume().
  virtual void TaskWants() = 0;
  // Of durable state; empty where the job has none.
  virtual const std::vector<ChangelogOptions>& changelogs() const = 0;
  virtual Restorer& restorer() = 0;
  virtual ShardMetrics& metrics() = 0;
  // It runs now: its records are to be read.
  virtual void TaskRestored(Task& task) = 0;
};

// One partition's function with its tracker, timers and commits. What it does not do: decide when;
// its shard opens, feeds, commits and closes it.
//
//   created --Open()--> running --Fail()--> degraded --Open()--> running
//   created --no right to commit--> failed --after a while--> created
//   any --Close()--> closed
// With durable state:
//   created --Open()--> restoring --what is restored first is there--> running
//
// Threads: its shard's. It does not move in memory.
class Task final : public TaskContext, private PartOwner {
 public:
  // `epoch` and `incarnation_ms` are its own, already raised; the tracker starts at `watermark`.
  Task(TaskHost& host, TopicPartition tp, uint64_t epoch, int64_t incarnation_ms);
  ~Task() override;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Where it begins. Without it the position is not known yet: located() is false.
  void Locate(int64_t watermark, const OffsetSet& completed_above);
  bool located() const { return tracker_.has_value(); }
  // Raised by each Locate(): versions of the tracker compare within one of them.
  int lives() const { return lives_; }

  TaskState state() const { return state_; }
  void set_state(TaskState state) { state_ = state; }

  // Makes its durable state, where the job has any, and begins to restore it; then comes Open().
  absl::Status OpenState();
  absl::Status Open(std::unique_ptr<KeyedProcessFunction> function);
  // Ends the function's life: nothing of it is called afterwards. Its tracker stays.
  void Close(TaskState state,
             KeyedProcessFunction::CloseReason reason = KeyedProcessFunction::CloseReason::kEnded);
  bool open() const { return function_ != nullptr; }
  bool running() const { return state_ == TaskState::kRunning && !failure_.has_value(); }
  // Running, or restored beside: the highest epoch of an owner before that its changelogs show.
  uint64_t OwnerBefore() const;
  bool restoring() const { return state_ == TaskState::kRestoring && !failure_.has_value(); }
  KeyedProcessFunction& function() { return *function_; }

  // A record of the partition; false when it was skipped.
  bool OnRecord(const LogRecord& record);
  void OnPartitionEnd(int64_t next);
  // Nothing below `log_start` comes any more.
  void SkipTo(int64_t log_start);
  void OnRoomIfRefused();
  // Now and then: stores that were full may take more; values whose time has passed go.
  void RetryWrites();
  void Sweep();
  // A commit of the shard that was issued then was acknowledged.
  void OnCommitAcknowledged(MonotonicTime issued);
  // The wait for results at a handover is over: names in the log what is still in flight.
  void NameOperations();
  // What its states and their restores hold in memory beside stores and overlays.
  size_t StateBytes() const;
  // Writes of durable state that have no answer.
  bool HasPendingWrites() const;
  void ResumeIfWanted();
  // After a stop of timers.
  void ArmTimer();

  const CompletionTracker& tracker() const { return *tracker_; }
  // The timestamp of the oldest record that may be pending; none when nothing is.
  absl::optional<WallTime> OldestPending();
  const absl::optional<absl::Status>& failure() const { return failure_; }
  void set_resume_wanted() { resume_wanted_ = true; }

  // Commits. The text is the same for the same state.
  CommittedPosition Position(const IdBytes& writer, int64_t* left_out) const;
  bool dirty() const { return !acknowledged_ || acknowledged_version_ != tracker_->version(); }
  void Acknowledged(const CommittedPosition& position, uint64_t version);
  // It may be stored or not.
  void Unanswered(const CommittedPosition& position);
  // Whether `position` is what this task has stored, so that nobody else was here meanwhile.
  bool IsOurs(const CommittedPosition& position) const;
  const absl::optional<CommittedPosition>& acknowledged() const { return acknowledged_; }
  void ForceDirty() { acknowledged_version_ = ~uint64_t{0}; }
  // The task is another owner from now on: it is to be claimed as one before it opens.
  void RaiseEpoch() { ++epoch_; }
  void set_incarnation_ms(int64_t incarnation_ms) { incarnation_ms_ = incarnation_ms; }

  // The assignments that it was made in and last claimed in.
  int64_t created_in = 0;
  int64_t claimed_in = 0;
  // Where it begins when it is not located.
  StartPosition::At fresh_start = StartPosition::At::kLogStart;
  // How often it has failed in a row, and since when it has not.
  int failures = 0;
  absl::optional<MonotonicTime> opened_at;
  TimerId reopen_timer = 0;
  bool behind = false;   // records were passed over for want of room
  bool reading = false;  // what comes from its partition is read from its own position
  // The epoch of this owner when it found no commit at all, until it is known whether there had
  // been one.
  absl::optional<uint64_t> found_no_commit;
  int64_t forgotten = 0;      // by the last commit that was sent
  size_t metadata_bytes = 0;  // of that commit
  // Where its partition ended when that was read last; behind the last record there may be markers.
  int64_t ended_at = 0;
  // When an acknowledged commit had last covered all that was to be committed: that commit's issue.
  absl::optional<MonotonicTime> covered_at;

  // TaskContext.
  const Clock& clock() const override { return host_.loop().clock(); }
  const TopicPartition& partition() const override { return tp_; }
  uint64_t epoch() const override { return epoch_; }
  int64_t incarnation_ms() const override { return incarnation_ms_; }
  void Complete(int64_t offset) override;
  bool Emit(AppendRecord&& record, LogProducer::AppendDone&& done) override;
  StateBackend& state(size_t index) override;
  void SetTimer(absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void CancelTimer(absl::string_view key, uint32_t tag) override;
  bool MayAct() const override;
  absl::AnyInvocable<void() &&> Guard(absl::AnyInvocable<void() &&> callback) override;
  bool under_pressure() const override { return host_.UnderPressure(); }
  void Fail(absl::Status why) override;

 private:
  // Lives as long as one function does; callbacks hold it weakly, so that none outlives it.
  struct Life {};
  static constexpr size_t kUnansweredMax = 8;

  // PartOwner.
  void OnPartMarked(ChangelogPart& part) override;
  void OnPartRestored(ChangelogPart& part) override;
  void OnPartFailed(absl::Status why) override { Fail(std::move(why)); }
  void OnPartRefused() override { refused_ = true; }
  void OnPartRoom() override;

  void BeginRunning();
  bool IsResult(const LogRecord& record) const;
  void OnResultRecord(const LogRecord& record);
  void FireTimers();
  void DisarmTimer();
  void NoteTimestamp(int64_t offset, WallTime timestamp);
  // Tells the host by how much what pends here has changed.
  void Report();

  TaskHost& host_;
  const TopicPartition tp_;
  uint64_t epoch_;
  int64_t incarnation_ms_;
  TaskState state_ = TaskState::kCreated;
  absl::optional<CompletionTracker> tracker_;
  int lives_ = 0;
  std::vector<std::unique_ptr<ChangelogPart>> parts_;
  absl::optional<InFlightRecord> in_flight_;
  std::unique_ptr<KeyedProcessFunction> function_;
  std::shared_ptr<const Life> life_;
  absl::optional<absl::Status> failure_;
  bool refused_ = false;
  mutable bool resume_wanted_ = true;

  Timers timers_;
  TimerId loop_timer_ = 0;
  absl::optional<MonotonicTime> armed_for_;

  // What the host counts for this task.
  int64_t reported_records_ = 0;
  int64_t reported_bytes_ = 0;
  int64_t reported_tracked_ = 0;

  // Timestamps of records at or above the watermark, one per change of a tenth of a second.
  std::deque<std::pair<int64_t, WallTime>> timestamps_;

  absl::optional<CommittedPosition> acknowledged_;
  uint64_t acknowledged_version_ = 0;
  std::vector<CommittedPosition> unanswered_;
};

}  // namespace postrider::internal
