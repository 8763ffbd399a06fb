// Commits: one outstanding at most, of partitions of the present assignment.

#include <chrono>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/stream/internal/shard_impl.h"

namespace postrider::internal {
namespace {

constexpr std::chrono::seconds kLeaseRenewal{1};

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

void ShardImpl::SendCommit(const std::vector<Task*>& tasks) {
  POSTRIDER_CHECK(!outstanding_ && !tasks.empty());
  Outstanding sent{++commit_number_, Now(), {}};
  std::vector<CommitEntry> entries;
  for (Task* task : tasks) {
    CommittedPosition position = task->Position(writer_, &task->forgotten);
    task->metadata_bytes = position.metadata.size();
    entries.push_back({task->partition(), position});
    sent.commits.push_back({task->partition(), task->created_in, task->lives(),
                            task->tracker().version(), std::move(position)});
  }
  last_commit_issued_ = sent.issued;
  outstanding_ = std::move(sent);
  consumer_->Commit(std::move(entries),
                    [this, number = commit_number_](std::vector<absl::Status> statuses) {
                      OnCommitAnswer(number, std::move(statuses));
                    });
}

void ShardImpl::OnCommitAnswer(int64_t number, std::vector<absl::Status> statuses) {
  if (!outstanding_ || outstanding_->number != number) return;
  const Outstanding answered = *std::exchange(outstanding_, absl::nullopt);
  bool acknowledged = false;
  for (size_t i = 0; i < answered.commits.size(); ++i) {
    const SentCommit& sent = answered.commits[i];
    Task* task = Find(sent.tp);
    const absl::Status status =
        i < statuses.size() ? statuses[i] : absl::UnavailableError("no answer for the partition");
    acknowledged = acknowledged || status.ok();
    if (task != nullptr && task->created_in == sent.created_in) {
      HandleCommitStatus(*task, sent, status, answered.issued);
    }
  }
  if (acknowledged) {
    last_commit_acknowledged_ = answered.issued;
    for (auto& [tp, task] : tasks_) task->OnCommitAcknowledged(answered.issued);
  }
  if (phase_ == Phase::kClaiming) ClaimAnswered();
  AdvanceDrain();
}

void ShardImpl::HandleCommitStatus(Task& task, const SentCommit& sent, const absl::Status& status,
                                   MonotonicTime issued) {
  if (status.ok()) {
    task.Acknowledged(sent.position, sent.version);
    task.covered_at = issued;
    const bool stands = task.lives() == sent.lives;
    if (!stands) task.ForceDirty();
    const bool first = stands && task.claimed_in != assignment_;
    if (first && (phase_ == Phase::kClaiming || phase_ == Phase::kRunning)) {
      task.claimed_in = assignment_;
    }
    if (first && phase_ == Phase::kRunning && task.state() == TaskState::kCreated) {
      OpenTask(task);
      if (durable() && !task.running()) return;  // read when it is restored
      task.reading = true;
      consumer_->Restart(task.partition(), task.tracker().watermark());
    }
    return;
  }
  metrics_.commits_failed.Increment();
  task.Unanswered(sent.position);
  if (absl::IsAborted(status)) {
    if (!fenced_) metrics_.fenced.Increment();
    fenced_ = true;
    return;
  }
  POSTRIDER_LOG(kWarn, "commit failed", {"job", options_.name}, {"partition", sent.tp.ToString()},
                {"status", status.ToString()});
  if (!IsTransient(status) && task.claimed_in != assignment_) {
    // Without the right to commit there is no right to send. Somebody may grant it.
    Degrade(task, status, TaskState::kFailed);
  }
}

// Its answer is of a former generation: it may be stored or not.
void ShardImpl::ForgetOutstanding() {
  if (!outstanding_) return;
  for (const SentCommit& sent : outstanding_->commits) {
    Task* task = Find(sent.tp);
    if (task != nullptr && task->created_in == sent.created_in) task->Unanswered(sent.position);
  }
  outstanding_.reset();
}

std::vector<Task*> ShardImpl::Uncommitted() {
  std::vector<Task*> tasks;
  for (auto& [tp, task] : tasks_) {
    const bool changed = (task->running() || task->restoring()) && task->dirty();
    const bool fresh = task->state() == TaskState::kCreated && task->located();
    if (changed || fresh) tasks.push_back(task.get());
  }
  return tasks;
}

void ShardImpl::MaybeCommit() {
  if (phase_ != Phase::kRunning || fenced_ || outstanding_ || drain_ == Drain::kFinalCommit ||
      leaving_) {
    return;
  }
  fresh_located_ = false;
  std::vector<Task*> tasks = Uncommitted();
  if (tasks.empty() && Now() - last_commit_issued_ >= kLeaseRenewal) {
    // The lease lives by commits: one that changes nothing will do.
    for (auto& [tp, task] : tasks_) {
      if (!task->running() && !task->restoring()) continue;
      tasks.push_back(task.get());
      break;
    }
  }
  if (!tasks.empty()) SendCommit(tasks);
}

}  // namespace postrider::internal
