#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"
#include "core/stream/state_backend.h"

namespace postrider {

// What a function may do; one per task (a partition and its function). Threads: the shard's.
class TaskContext {
 public:
  virtual ~TaskContext() = default;

  virtual const Clock& clock() const = 0;
  virtual const TopicPartition& partition() const = 0;
  // Raised by each new owner of the partition.
  virtual uint64_t epoch() const = 0;
  // When the partition was first taken without a commit of ours, ms since the Unix epoch: the third
  // part of a source record's identity.
  virtual int64_t incarnation_ms() const = 0;

  // The record at `offset` is complete and may be forgotten. Exactly once per OnElement(), inside
  // it or later.
  virtual void Complete(int64_t offset) = 0;

  // Side and main outputs: appends a record with the shard's producer. False: full, nothing was
  // taken; OnRoom() follows. `done` does not run when the task was closed before the answer.
  [[nodiscard]] virtual bool Emit(AppendRecord&& record, LogProducer::AppendDone&& done) = 0;

  // The durable state that changelog `index` of the job keeps (JobOptions::changelogs). States are
  // made on it in Open(), so that what is restored finds them, and live as long as the function.
  // Until OnRestored(index) reads show what was restored so far; writes are taken. A write that is
  // refused for want of room is followed by OnRoom().
  virtual StateBackend& state(size_t index) = 0;

  // Calls OnTimer(key, time, tag) once at `time`, unless it is replaced: a key has one timer per
  // tag. Replayable: gone with the task's memory.
  virtual void SetTimer(absl::string_view key, uint32_t tag, MonotonicTime time) = 0;
  virtual void CancelTimer(absl::string_view key, uint32_t tag) = 0;

  // Whether work that the outside world sees may be started now: the task runs, is not being
  // revoked, and the lease of its shard holds. When it turns true again OnResume() is called, but
  // not after OnDrain(kShutdown).
  virtual bool MayAct() const = 0;

  // Wraps a callback of an asynchronous operation: it does not run after the task was closed.
  virtual absl::AnyInvocable<void() &&> Guard(absl::AnyInvocable<void() &&> callback) = 0;

  // The shard is at its bounds of pending records or bytes and reads nothing more.
  virtual bool under_pressure() const = 0;

  // The task cannot go on: it is closed and opened again from its last commit, after a delay that
  // doubles up to 30 s while it fails. Nothing else is affected.
  virtual void Fail(absl::Status why) = 0;
};

// The code of a job, one instance per task. Calls never overlap. A record stays pending until
// Complete(); after a crash pending records come again, in offset order, to a fresh instance.
class KeyedProcessFunction {
 public:
  virtual ~KeyedProcessFunction() = default;

  virtual absl::Status Open(TaskContext& ctx) = 0;
  // Changelog `index` has been read to its end. Comes before any record, timer or OnResume() for a
  // changelog that is restored first; at any time later for one that is restored beside.
  virtual void OnRestored(TaskContext& /*ctx*/, size_t /*index*/) {}
  // What predecessors had in flight when they gave the partition back; once, before any record. The
  // records that these name come again: they are to be held until OnResult(), or until no result
  // can come (InheritedOperations).
  virtual void OnInherited(TaskContext& /*ctx*/, std::vector<Operation> /*operations*/) {}
  // The result of an operation that an earlier owner had begun, which came in after the partition
  // had moved (ShardEnvironment::results). It may come again, and for records that are complete.
  virtual void OnResult(TaskContext& /*ctx*/, const OperationResult& /*result*/) {}
  // The views of `record` are valid during the call only.
  virtual void OnElement(TaskContext& ctx, const LogRecord& record) = 0;
  // A record that a predecessor has completed: it is not pending and nothing is to be done, but its
  // identity belongs into a window of those that were met.
  virtual void OnSkipped(TaskContext& /*ctx*/, const LogRecord& /*record*/) {}
  virtual void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag,
                       MonotonicTime time) = 0;
  // The partition has been read to its end; the next record will have offset `next`.
  virtual void OnPartitionEnd(TaskContext& ctx, int64_t next) = 0;
  // Emit() may succeed again.
  virtual void OnRoom(TaskContext& ctx) = 0;
  // MayAct() has become true (again), at the first start too.
  virtual void OnResume(TaskContext& ctx) = 0;
  // The shard has reached its bounds, told again each second while it is full; the function may
  // give up records by its own rules.
  virtual void OnPressure(TaskContext& ctx) = 0;
  // The completed records above the watermark are at one of their bounds (JobOptions::holes_max,
  // hole_bytes_max, or nine tenths of what a commit can name). What pends below `below`, as half of
  // them do, is to be made durable or given up. Told again each second while it is so.
  virtual void OnHoles(TaskContext& /*ctx*/, int64_t /*below*/) {}
  // kHandover: the partition is to be given back; start nothing, MayAct() is false. If it comes
  // straight back, OnResume() follows. kShutdown: the process stops for good; open work should be
  // sent out at once, MayAct() stays true while the lease holds, timers fire no more.
  enum class Drain { kHandover, kShutdown };
  virtual void OnDrain(TaskContext& ctx, Drain kind) = 0;
  // Operations of the outside world whose result has not come in.
  virtual size_t in_flight() const = 0;
  // What a successor has to wait for: those of in_flight() that cannot be stopped, and those that
  // were inherited and are still awaited. Asked when the wait for results is over at a handover.
  virtual std::vector<Operation> Operations() const { return {}; }
  // Operations() was asked, or the last commit is on its way: what ends from now on is known to
  // nobody else. Results that come in are to be kept until OnResume() (the partition came straight
  // back) or Close(kMoved). Not called at a loss of the partition.
  virtual void OnGivenBack(TaskContext& /*ctx*/) {}
  // kMoved: somebody else goes on; what is in flight may end, its result is to be passed to
  // ShardEnvironment::results, those kept since OnGivenBack() too. kEnded: the task has failed or
  // the process stops; what is in flight is aborted.
  enum class CloseReason { kMoved, kEnded };
  // The memory is dropped. No call on ctx but clock() and partition() any more.
  virtual void Close(TaskContext& ctx, CloseReason reason) = 0;
};

// What a shard is given by its role: makes the functions and holds what they share there (an HTTP
// sink, a fair queue, the snapshot). Threads: the shard's.
class ShardProgram {
 public:
  virtual ~ShardProgram() = default;
  virtual std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) = 0;
  // Once per turn of the loop, after all else: for work that is best done in batches.
  virtual void OnTurnEnd() {}
  // Operations of tasks that have moved, whose result has not come in: a stop waits for them too.
  virtual size_t in_flight() const { return 0; }
};

// Takes results of operations whose partition has moved: appends each to that partition as a
// `result` record, for whoever owns it now. Threads: the shard's.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  // Bounded: when there is no room for a minute the result is dropped and counted, and the new
  // owner waits until the operation's deadline.
  virtual void Append(const TopicPartition& tp, const OperationResult& result) = 0;
};

// What a program stands on. All of it outlives the program.
struct ShardEnvironment {
  EventLoop& loop;
  LogProducer& producer;
  int index;
  ResultSink& results;
};

using ShardProgramFactory =
    absl::AnyInvocable<absl::StatusOr<std::unique_ptr<ShardProgram>>(const ShardEnvironment&)>;

}  // namespace postrider
