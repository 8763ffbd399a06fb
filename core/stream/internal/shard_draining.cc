// Giving back, at a rebalance and for good.

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/stream/internal/shard_impl.h"

namespace postrider::internal {
namespace {

using std::chrono::seconds;

constexpr seconds kFinalCommitWait{1};
constexpr seconds kLeaveWait{5};

}  // namespace

void ShardImpl::OnRevoked() {
  if (leaving_) return GiveBack();
  const bool ran = phase_ == Phase::kRunning;
  phase_ = Phase::kDraining;
  SetGathering(false);
  begin_deferred_ = false;
  if (!ran) {
    // Nothing was begun; but the claim's answer is to be known.
    loop_.CancelTimer(claim_timer_);
    final_sent_ = true;
    return BeginDrain(Drain::kFinalCommit, Now() + kFinalCommitWait);
  }
  if (!stopping_) DrainTasks(KeyedProcessFunction::Drain::kHandover);
  give_back_due_ = true;
  producer_->Flush();
  if (drain_ == Drain::kRecords || drain_ == Drain::kFinalCommit) return AdvanceDrain();
  BeginDrain(Drain::kResults, Now() + options_.revoke_wait_max);
}

void ShardImpl::OnLost() {
  metrics_.lost.Increment();
  POSTRIDER_LOG(kWarn, "assignment lost", {"job", options_.name}, {"shard", index_});
  const bool ran = phase_ == Phase::kRunning;
  fenced_ = true;
  drain_ = Drain::kNone;
  give_back_due_ = false;
  begin_deferred_ = false;
  phase_ = Phase::kDraining;
  if (ran && !stopping_) DrainTasks(KeyedProcessFunction::Drain::kHandover);
  ForgetOutstanding();
  GiveBack();
}

void ShardImpl::DrainTasks(KeyedProcessFunction::Drain kind) {
  for (auto& [tp, task] : tasks_) {
    if (!task->running()) continue;
    task->set_resume_wanted();
    task->function().OnDrain(*task, kind);
  }
}

bool ShardImpl::Quiet() const {
  if (PendingAppends() > 0) return false;
  return std::all_of(tasks_.begin(), tasks_.end(), [](const auto& entry) {
    Task& task = *entry.second;
    return !task.open() || task.function().in_flight() == 0;
  });
}

void ShardImpl::BeginDrain(Drain step, MonotonicTime deadline) {
  drain_ = step;
  drain_deadline_ = deadline;
  loop_.CancelTimer(drain_timer_);
  drain_timer_ = loop_.CallAt(deadline, [this] { AdvanceDrain(); });
  AdvanceDrain();
}

void ShardImpl::AdvanceDrain() {
  if (drain_ == Drain::kResults) {
    if (Now() < drain_deadline_ && !Quiet()) return;
    if (phase_ == Phase::kDraining || durable()) {
      for (auto& [tp, task] : tasks_) task->NameOperations();
      // A result that came in between would be in neither the record nor, its writes pending, the
      // last commit: the successor would wait for it in vain.
      if (durable()) TellGivenBack();
      producer_->Flush();
    }
    return BeginDrain(Drain::kRecords, Now() + kFinalCommitWait);
  }
  if (drain_ == Drain::kRecords) {
    const bool pending = std::any_of(tasks_.begin(), tasks_.end(), [](const auto& entry) {
      return entry.second->HasPendingWrites();
    });
    if (Now() < drain_deadline_ && !fenced_ && pending) return;
    final_sent_ = false;
    drain_ = Drain::kFinalCommit;  // by the same deadline
  }
  if (drain_ != Drain::kFinalCommit) return;
  if (Now() < drain_deadline_ && !fenced_) {
    if (outstanding_) return;
    if (!final_sent_) {
      final_sent_ = true;
      const std::vector<Task*> tasks = Uncommitted();
      if (!tasks.empty()) SendCommit(tasks);
      TellGivenBack();
      if (outstanding_) return;
    }
  }
  FinishDrain();
}

// What ends from now on is known to nobody else.
void ShardImpl::TellGivenBack() {
  if (!std::exchange(give_back_due_, false)) return;
  for (auto& [tp, task] : tasks_) {
    if (task->running()) task->function().OnGivenBack(*task);
  }
}

void ShardImpl::FinishDrain() {
  drain_ = Drain::kNone;
  loop_.CancelTimer(drain_timer_);
  TellGivenBack();
  if (phase_ == Phase::kDraining) return GiveBack();
  if (stopping_) BeginLeave();
}

// Tasks stay until the next assignment tells which of them go on.
void ShardImpl::GiveBack() {
  phase_ = Phase::kReleased;
  consumer_->Release();
  if (stopping_) BeginLeave();
}

void ShardImpl::Stop(std::function<void()> done) {
  POSTRIDER_CHECK(!stopping_);
  stopping_ = true;
  SetGathering(false);
  stopped_ = std::move(done);
  linger_until_ = Now() + options_.stop_wait_max;
  switch (phase_) {
    case Phase::kRunning:
      // With durable state others go on with what is open, and hear of the results that come in.
      DrainTasks(durable() ? KeyedProcessFunction::Drain::kHandover
                           : KeyedProcessFunction::Drain::kShutdown);
      give_back_due_ = durable();
      producer_->Flush();
      BeginDrain(Drain::kResults, durable() ? Now() + options_.revoke_wait_max : linger_until_);
      break;
    case Phase::kDraining:
      break;  // leaves when it has given back
    default:
      BeginLeave();
  }
  UpdateWatch();
}

void ShardImpl::BeginLeave() {
  if (leaving_ || Gone()) return;
  leaving_ = true;
  leave_timer_ = loop_.CallAfter(kLeaveWait, [this] {
    POSTRIDER_LOG(kWarn, "the group did not let go in time", {"job", options_.name},
                  {"shard", index_});
    Linger();
  });
  consumer_->Leave([this] { Linger(); });
  UpdateWatch();
}

// The partitions are somebody else's. What is in flight ends here, and its results are appended for
// those who own them now.
void ShardImpl::Linger() {
  if (Gone()) return;
  loop_.CancelTimer(leave_timer_);
  loop_.SetEvents(consumer_->wake_fd(), kFdNone);
  if (!durable()) return Finish();
  phase_ = Phase::kLingering;
  for (auto& [tp, task] : tasks_) {
    task->Close(TaskState::kClosed, KeyedProcessFunction::CloseReason::kMoved);
  }
  linger_timer_ = loop_.CallAt(std::max(linger_until_, Now()), [this] { Finish(); });
}

void ShardImpl::AdvanceLinger() {
  if (program_->in_flight() > 0 || results_->waiting() > 0 || PendingAppends() > 0) return;
  Finish();
}

void ShardImpl::Finish() {
  if (phase_ == Phase::kStopped) return;
  phase_ = Phase::kStopped;
  loop_.CancelTimer(linger_timer_);
  for (auto& [tp, task] : tasks_) task->Close(TaskState::kClosed);
  done_timer_ = loop_.CallAfter(Duration::zero(), [this] {
    if (stopped_) std::exchange(stopped_, nullptr)();
  });
}

}  // namespace postrider::internal
