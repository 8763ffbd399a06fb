// What is assigned, claimed, opened, and read from where.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/stream/hole_map.h"
#include "core/stream/internal/shard_impl.h"

namespace postrider::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Tasks that are restored begin to be read together: each beginning interrupts all fetching. When
// nothing is read yet, the first beginning waits for all of them, but not for long.
constexpr milliseconds kBeginTogether{20};
constexpr milliseconds kFirstBeginWait{300};
constexpr seconds kClaimRetryMax{5};
// Members of one generation learn of it within this time.
constexpr seconds kOneGeneration{2};

}  // namespace

void ShardImpl::OnAssigned(Assignment assignment) {
  ++assignment_;
  metrics_.rebalances.Increment();
  ForgetOutstanding();
  if (leaving_) return;
  group_lost_commits_ = options_.group_had_commits && !assignment.group_has_commits;
  const StartPosition::At fresh_start = FreshStart(assignment.group_has_commits);
  fenced_ = false;
  claim_failures_ = 0;
  drain_ = Drain::kNone;
  give_back_due_ = false;
  begin_deferred_ = false;
  phase_ = Phase::kClaiming;
  last_found_ = nullptr;
  index_of_tasks_.clear();

  std::map<TopicPartition, std::unique_ptr<Task>> before = std::exchange(tasks_, {});
  for (const auto& [tp, task] : before) {
    if (task->acknowledged()) committed_before_[tp] = task->acknowledged()->offset;
  }
  int64_t kept = 0;
  for (const AssignedPartition& partition : assignment.partitions) {
    std::unique_ptr<Task>& task = tasks_[partition.tp];
    const auto old = before.find(partition.tp);
    if (old != before.end() && partition.committed &&
        (old->second->running() || old->second->restoring()) &&
        old->second->IsOurs(*partition.committed)) {
      task = std::move(old->second);
      ++kept;
    } else {
      task = MakeTask(partition);
      task->fresh_start = fresh_start;
      if (old != before.end()) {
        task->failures = old->second->failures;
        // It was not claimed last time, and begins where it would have begun then.
        if (old->second->claimed_in == 0) task->fresh_start = old->second->fresh_start;
      }
    }
    index_of_tasks_.emplace(TopicKey{task->partition().topic, task->partition().partition},
                            task.get());
  }
  metrics_.tasks_kept.Add(static_cast<double>(kept));
  for (auto& [tp, task] : before) {
    if (task == nullptr) continue;
    task->Close(TaskState::kClosed, KeyedProcessFunction::CloseReason::kMoved);
  }
  before.clear();
  POSTRIDER_LOG(kInfo, "shard assigned", {"job", options_.name}, {"shard", index_},
                {"partitions", tasks_.size()}, {"kept", kept});
  SendClaim();
}

// Where partitions without a commit begin. One that this shard meets in a later generation than its
// first, or after it was told that nothing matches, is of a topic that was made meanwhile: nothing
// of it may be left out.
StartPosition::At ShardImpl::FreshStart(bool group_has_commits) {
  if (options_.start == StartPolicy::kLogStart || options_.group_had_commits || ever_ran_ ||
      nothing_matches_) {
    return StartPosition::At::kLogStart;
  }
  const int64_t now = Now().time_since_epoch().count();
  if (!group_has_commits) {
    if (siblings_ != nullptr) siblings_->fresh_group_at.store(now);
    return StartPosition::At::kLogEnd;
  }
  const int64_t fresh_at = siblings_ == nullptr ? 0 : siblings_->fresh_group_at.load();
  return fresh_at != 0 && Duration(now - fresh_at) < kOneGeneration ? StartPosition::At::kLogEnd
                                                                    : StartPosition::At::kLogStart;
}

// An owner that finds no metadata of ours takes the wall clock as its epoch: higher than any that
// was counted.
std::unique_ptr<Task> ShardImpl::MakeTask(const AssignedPartition& partition) {
  const int64_t wall = WallMillis();
  absl::optional<CommitMetadata> metadata;
  const bool committed = partition.committed && partition.committed->offset >= 0;
  if (committed) {
    metadata = DecodeCommitMetadata(partition.committed->metadata, partition.committed->offset);
    if (!metadata) {
      metrics_.metadata_unreadable.Increment();
      POSTRIDER_LOG(kWarn, "commit without our metadata", {"job", options_.name},
                    {"partition", partition.tp.ToString()}, {"offset", partition.committed->offset},
                    {"bytes", partition.committed->metadata.size()});
    }
  }
  auto task = std::make_unique<Task>(*this, partition.tp,
                                     metadata ? metadata->epoch + 1 : static_cast<uint64_t>(wall),
                                     metadata ? metadata->incarnation_ms : wall);
  task->created_in = assignment_;
  if (committed) {
    task->Locate(partition.committed->offset, metadata ? metadata->completed : OffsetSet());
  } else {
    task->found_no_commit = task->epoch();
  }
  return task;
}

// Commits what all tasks hold, unchanged, as this owner's. Those whose position is not known yet
// are read from fresh_start_ and claimed at the first offset that shows (LocateFresh).
void ShardImpl::SendClaim() {
  std::vector<Task*> missing;
  for (auto& [tp, task] : tasks_) {
    if (task->located() && task->state() != TaskState::kFailed && task->claimed_in != assignment_) {
      missing.push_back(task.get());
    }
  }
  if (missing.empty()) return BeginReading();
  SendCommit(missing);
}

void ShardImpl::ClaimAnswered() {
  if (fenced_ || leaving_) return;  // the group will assign again, or to others
  const bool complete = std::all_of(tasks_.begin(), tasks_.end(), [this](const auto& entry) {
    const Task& task = *entry.second;
    return !task.located() || task.state() == TaskState::kFailed || task.claimed_in == assignment_;
  });
  if (complete) return BeginReading();
  metrics_.claims_failed.Increment();
  const Duration delay = RetryDelay(++claim_failures_, kClaimRetryMax);
  loop_.CancelTimer(claim_timer_);
  claim_timer_ = loop_.CallAfter(delay, [this] {
    if (phase_ == Phase::kClaiming && !outstanding_ && !fenced_ && !leaving_) SendClaim();
  });
}

void ShardImpl::BeginReading() {
  phase_ = Phase::kRunning;
  SetGathering(!stopping_);
  ever_ran_ = true;
  fresh_located_ = false;
  std::vector<StartPosition> positions;
  for (auto& [tp, task] : tasks_) {
    task->reading = false;
    if (task->state() == TaskState::kFailed) continue;
    if (!task->located()) {
      positions.push_back({tp, task->fresh_start, 0});
      continue;
    }
    task->behind = false;
    if (task->state() == TaskState::kCreated) {
      OpenTask(*task);
    } else {
      task->set_resume_wanted();
      task->ArmTimer();
    }
    if (durable() && !task->running()) continue;  // later
    task->reading = true;
    positions.push_back({tp, StartPosition::At::kOffset, task->tracker().next_offset()});
  }
  wants_ = true;
  begin_deferred_ = positions.empty() && AnyRestoring();
  if (!begin_deferred_) return consumer_->Start(std::move(positions));
  loop_.CancelTimer(begin_timer_);
  begin_timer_ = loop_.CallAfter(kFirstBeginWait, [this] {
    if (begin_deferred_) BeginDeferred();
  });
}

bool ShardImpl::AnyRestoring() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const auto& entry) { return entry.second->restoring(); });
}

void ShardImpl::BeginDeferred() {
  begin_deferred_ = false;
  loop_.CancelTimer(begin_timer_);
  if (phase_ != Phase::kRunning || stopping_) return;
  std::vector<StartPosition> positions;
  for (auto& [tp, task] : tasks_) {
    if (!task->running()) continue;
    task->reading = true;
    positions.push_back({tp, StartPosition::At::kOffset, task->tracker().next_offset()});
  }
  consumer_->Start(std::move(positions));
}

void ShardImpl::TaskRestored(Task& task) {
  if (task.found_no_commit) {
    // Nobody writes a marker before its claim is acknowledged.
    const uint64_t before = task.OwnerBefore();
    if (before > 0 && before < *task.found_no_commit) {
      CommitIsGone(task, "its changelog shows an owner before");
    }
    task.found_no_commit.reset();
  }
  // Else the next assignment begins with it, or all do together.
  if (phase_ != Phase::kRunning || stopping_ || begin_deferred_) return;
  loop_.CancelTimer(begin_timer_);
  begin_timer_ = loop_.CallAfter(kBeginTogether, [this] { ReadRestored(); });
}

void ShardImpl::ReadRestored() {
  if (phase_ != Phase::kRunning || stopping_ || begin_deferred_) return;
  for (auto& [tp, task] : tasks_) {
    if (task->reading || !task->running()) continue;
    task->reading = true;
    consumer_->Restart(tp, task->tracker().next_offset());
  }
}

void ShardImpl::OpenTask(Task& task) {
  absl::Status opened = task.OpenState();
  if (opened.ok()) opened = task.Open(program_->CreateFunction(task.partition()));
  if (!opened.ok()) Degrade(task, opened);
}

// From `offset`, with nothing of its memory. A task with durable state becomes another owner, so
// that what it had written before cannot be taken for what it writes now: it is claimed first.
void ShardImpl::BeginAnew(Task& task, int64_t offset, Claim claim) {
  task.behind = false;
  task.reading = false;
  if (durable() || claim == Claim::kAnew) {
    task.RaiseEpoch();
    task.set_state(TaskState::kCreated);
    task.claimed_in = 0;
    fresh_located_ = true;
    return;
  }
  OpenTask(task);
  if (!task.running()) return;
  task.reading = true;
  consumer_->Restart(task.partition(), offset);
}

// Claimed with the next commit; until then its records are dropped, and read again afterwards.
void ShardImpl::LocateFresh(Task& task, int64_t offset) {
  task.Locate(offset, OffsetSet());
  fresh_located_ = true;
  const bool trims = options_.trim_safety > milliseconds::zero();
  if (committed_before_.contains(task.partition())) {
    CommitIsGone(task, "this process had committed it");
  } else if (group_lost_commits_) {
    CommitIsGone(task, "the group had committed before");
  } else if (trims && offset > 0) {
    CommitIsGone(task, "the topic was trimmed, which is done below commits only");
  }
}

// A group that was empty for longer than the log keeps its commits, or that somebody has deleted.
void ShardImpl::CommitIsGone(Task& task, absl::string_view why) {
  if (!std::exchange(task.found_no_commit, absl::nullopt)) return;
  metrics_.commits_gone.Increment();
  const auto before = committed_before_.find(task.partition());
  POSTRIDER_LOG(kError, "a commit is gone: records are read again from where the log begins",
                {"job", options_.name}, {"partition", task.partition().ToString()}, {"why", why},
                {"begins_at", task.tracker().watermark()},
                {"committed_before", before != committed_before_.end() ? before->second : -1});
}

void ShardImpl::ResumeTasks() {
  const bool may_act = ShardMayAct();
  const bool stops = stopping_ && durable();  // by itself, with its commits acknowledged
  if (acting_ && !may_act && phase_ == Phase::kRunning && !stops) {
    metrics_.lease_lapses.Increment();
    POSTRIDER_LOG(kWarn, "shard stops acting: no commit was acknowledged in time",
                  {"job", options_.name}, {"shard", index_}, {"fenced", fenced_});
  }
  if (may_act && !acting_) {
    for (auto& [tp, task] : tasks_) task->set_resume_wanted();
    wants_ = true;
  }
  acting_ = may_act;
  if (!may_act || !wants_ || stopping_) return;
  wants_ = false;
  for (auto& [tp, task] : tasks_) task->ResumeIfWanted();
}

}  // namespace postrider::internal
