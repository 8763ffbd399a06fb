#include "core/stream/shard.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/stream/hole_map.h"
#include "core/stream/internal/shard_impl.h"

namespace postrider {
namespace internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// While nothing is read, awaited answers are looked for so often, and rebalances at
// kHeldPollInterval. A record that comes with them is taken until the bounds are exceeded by an
// eighth, then it is read again later.
constexpr milliseconds kHeldTick{50};
constexpr seconds kHeldPollInterval{1};
constexpr milliseconds kRetryFirst{100};
constexpr seconds kReopenMax{30};
// A task that has run for so long is no longer failing.
constexpr seconds kHealthyAfter{30};
constexpr std::chrono::minutes kTrimInterval{1};

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

IdBytes ShardImpl::MakeWriter(uint64_t seed) {
  Random random(seed);
  IdBytes writer;
  for (uint8_t& byte : writer) byte = static_cast<uint8_t>(random.Next());
  return writer;
}

Duration ShardImpl::RetryDelay(int failures, Duration max) {
  const int doublings = std::min(failures - 1, 16);
  return std::min<Duration>(kRetryFirst * (int64_t{1} << doublings), max);
}

absl::Status ShardImpl::Start(ShardProgramFactory& factory) {
  last_poll_ = last_second_ = last_trim_ = Now();
  ASSIGN_OR_RETURN(producer_, log_.OpenProducer(loop_, options_.producer));
  for (const ChangelogOptions& changelog : options_.changelogs) {
    const bool gathers = changelog.gather > milliseconds(0);
    gatherers_.push_back(gathers ? std::make_unique<AppendGatherer>(
                                       loop_, *producer_, changelog.gather,
                                       std::chrono::microseconds(0), changelog.gather_puts)
                                 : nullptr);
  }
  if (options_.gather > milliseconds(0)) {
    outputs_ = std::make_unique<AppendGatherer>(loop_, *producer_, options_.gather,
                                                options_.gather_per_partition);
  }
  producer_->SetRoomCallback([this] {
    results_->OnRoom();
    if (outputs_ != nullptr) outputs_->OnRoom();
    for (const auto& gatherer : gatherers_) {
      if (gatherer != nullptr) gatherer->OnRoom();
    }
    for (auto& [tp, task] : tasks_) task->OnRoomIfRefused();
  });
  results_ = std::make_unique<ResultLog>(loop_, *producer_, metrics_.results_appended,
                                         metrics_.results_dropped);
  ASSIGN_OR_RETURN(program_, factory(ShardEnvironment{loop_, *producer_, index_, *results_}));
  ASSIGN_OR_RETURN(consumer_, log_.JoinGroup(loop_, options_.group, *this));
  RETURN_IF_ERROR(loop_.Watch(consumer_->wake_fd(), kFdReadable, [this](uint32_t) { Read(); }));
  watched_ = kFdReadable;
  metrics_.reachable.Set(1);
  loop_.SetTurnEnd([this] { TurnEnd(); });
  tick_ = loop_.CallAfter(options_.commit_interval, [this] { Tick(); });
  return absl::OkStatus();
}

ShardImpl::~ShardImpl() {
  for (const TimerId timer : {tick_, read_timer_, claim_timer_, begin_timer_, linger_timer_,
                              drain_timer_, leave_timer_, done_timer_}) {
    loop_.CancelTimer(timer);
  }
  loop_.SetTurnEnd(nullptr);
  if (consumer_ != nullptr) loop_.Unwatch(consumer_->wake_fd());
  tasks_.clear();
  consumer_.reset();
  program_.reset();
  outputs_.reset();
  gatherers_.clear();
  producer_.reset();
}

void ShardImpl::SetGathering(bool gathering) {
  if (outputs_ != nullptr) outputs_->SetGathering(gathering);
  for (const auto& gatherer : gatherers_) {
    if (gatherer != nullptr) gatherer->SetGathering(gathering);
  }
}

size_t ShardImpl::PendingAppends() const {
  size_t pending = producer_->pending();
  if (outputs_ != nullptr) pending += outputs_->waiting();
  for (const auto& gatherer : gatherers_) {
    if (gatherer != nullptr) pending += gatherer->waiting();
  }
  return pending;
}

void ShardImpl::Tick() {
  tick_ = 0;
  if (Gone()) return;
  const MonotonicTime now = Now();
  // A log may not be able to look for answers without taking a record: so it is asked only when one
  // is awaited, else for rebalances.
  const bool poll_is_due = now - last_poll_ >= kHeldPollInterval;
  if (Holding() && (outstanding_ || poll_is_due)) {
    last_poll_ = now;
    consumer_->Poll(poll_is_due ? 1 : 0);
  } else if (poll_is_due) {
    Read();
  }
  if (Gone()) return;
  for (auto& [tp, task] : tasks_) task->RetryWrites();
  if (!Holding() || now - last_commit_issued_ >= options_.commit_interval) MaybeCommit();
  if (now - last_second_ >= seconds(1)) EverySecond(now);
  const Duration interval =
      Holding() ? std::min(kHeldTick, options_.commit_interval) : options_.commit_interval;
  tick_ = loop_.CallAfter(interval, [this] { Tick(); });
}

void ShardImpl::TurnEnd() {
  if (phase_ == Phase::kStopped) return;
  if (phase_ == Phase::kLingering) {
    program_->OnTurnEnd();
    return AdvanceLinger();
  }
  if (wants_) HandleFailures();
  if (begin_deferred_ && !AnyRestoring()) BeginDeferred();
  AdvanceDrain();
  CheckPressure();
  if (fresh_located_) MaybeCommit();
  ResumeTasks();
  program_->OnTurnEnd();
  UpdateWatch();
}

Task* ShardImpl::Find(absl::string_view topic, int32_t partition) {
  if (last_found_ != nullptr && last_found_->partition().partition == partition &&
      last_found_->partition().topic == topic) {
    return last_found_;
  }
  const auto found = index_of_tasks_.find(TopicKey{topic, partition});
  if (found == index_of_tasks_.end()) return nullptr;
  last_found_ = found->second;
  return last_found_;
}

JobStatus ShardImpl::status() const {
  JobStatus status;
  status.shards = 1;
  status.shards_assigned = ever_ran_ || nothing_matches_ ? 1 : 0;
  for (const auto& [tp, task] : tasks_) {
    if (task->state() == TaskState::kRunning) ++status.tasks_running;
    if (task->state() == TaskState::kRestoring || task->state() == TaskState::kCreated) {
      ++status.tasks_restoring;
    }
    if (task->state() == TaskState::kDegraded || task->state() == TaskState::kFailed) {
      ++status.tasks_failed;
    }
  }
  status.log_reachable = reachable_;
  status.oldest_commit = OldestCommit().value_or(MonotonicTime::max());
  status.lag_records = lag_.records();
  status.standing_still = lag_.standing_still();
  return status;
}

// ---- Failures ----

void ShardImpl::HandleFailures() {
  for (auto& [tp, task] : tasks_) {
    if (!task->failure()) continue;
    const absl::Status why = *task->failure();
    Degrade(*task, why);
  }
}

void ShardImpl::Degrade(Task& task, const absl::Status& why, TaskState state) {
  const MonotonicTime now = Now();
  // It may fail before it is opened, again and again.
  if (task.opened_at && now - *task.opened_at >= kHealthyAfter) task.failures = 0;
  task.opened_at.reset();
  const Duration delay = RetryDelay(++task.failures, kReopenMax);
  metrics_.task_restarts.Increment();
  POSTRIDER_LOG(kError, "task failed", {"job", options_.name},
                {"partition", task.partition().ToString()}, {"status", why.ToString()},
                {"failures", task.failures}, {"again_in_ms", delay});
  task.Close(state);
  loop_.CancelTimer(task.reopen_timer);
  task.reopen_timer = loop_.CallAfter(delay, [this, &task] { Reopen(task); });
}

bool ShardImpl::AwaitsCommitOf(const Task& task) const {
  if (!outstanding_) return false;
  return std::any_of(outstanding_->commits.begin(), outstanding_->commits.end(),
                     [&task](const SentCommit& sent) {
                       return sent.tp == task.partition() && sent.lives == task.lives();
                     });
}

// From its last acknowledged commit; one that it had sent before it failed is answered first, so
// that what it had completed by then is not undone. Outside of a running phase it waits for the
// next one, which an assignment may come before that makes the task anew.
void ShardImpl::Reopen(Task& task) {
  task.reopen_timer = 0;
  if (stopping_) return;
  const bool unclaimed = task.state() == TaskState::kFailed;
  if (phase_ != Phase::kRunning || fenced_ || (!unclaimed && !task.acknowledged()) ||
      AwaitsCommitOf(task)) {
    task.reopen_timer = loop_.CallAfter(kRetryFirst, [this, &task] { Reopen(task); });
    return;
  }
  if (unclaimed && !task.acknowledged()) {
    // It has done nothing yet: it is still where it was found.
    task.set_state(TaskState::kCreated);
    fresh_located_ = true;
    return;
  }
  const CommittedPosition& position = *task.acknowledged();
  const absl::optional<CommitMetadata> metadata =
      DecodeCommitMetadata(position.metadata, position.offset);
  POSTRIDER_CHECK(metadata.has_value());
  const int64_t offset = position.offset;
  task.Locate(offset, metadata->completed);
  BeginAnew(task, offset, unclaimed ? Claim::kAnew : Claim::kStands);
}

// ---- Once a second ----

void ShardImpl::EverySecond(MonotonicTime now) {
  last_second_ = now;
  // What could not be given up when the shard filled up may be by now.
  if (full_) TellOfPressure();
  TellOfHoles();
  results_->Expire();
  size_t state_bytes = 0;
  for (auto& [tp, task] : tasks_) {
    task->Sweep();
    state_bytes += task->StateBytes();
  }
  metrics_.state_bytes.Set(static_cast<double>(state_bytes));
  const LoadRatios::Ratios load = load_.Take();
  metrics_.busy_ratio.Set(load.busy);
  metrics_.pressured_ratio.Set(load.pressured);
  metrics_.idle_ratio.Set(load.idle);
  metrics_.restores_running.Set(static_cast<double>(restorer_.size()));
  metrics_.pending_records.Set(static_cast<double>(pending_records_));
  metrics_.pending_bytes.Set(static_cast<double>(pending_bytes_));
  for (auto& [tp, task] : tasks_) {
    if (task->located() && !task->dirty()) task->covered_at = now;
  }
  const absl::optional<MonotonicTime> committed = OldestCommit();
  metrics_.commit_age_seconds.Set(committed ? Seconds(now - *committed) : 0);
  ReportTasks();
  LookAtLag();
  largest_record_ = std::max<int64_t>(1, largest_record_ / 2);
  if (options_.trim_safety > milliseconds::zero() && now - last_trim_ >= kTrimInterval) Trim(now);
}

absl::optional<MonotonicTime> ShardImpl::OldestCommit() const {
  absl::optional<MonotonicTime> oldest;
  for (const auto& [tp, task] : tasks_) {
    if (!task->running() && !task->restoring()) continue;
    MonotonicTime last = last_commit_acknowledged_;
    if (task->dirty() && task->covered_at) last = std::min(last, *task->covered_at);
    if (!oldest || last < *oldest) oldest = last;
  }
  return oldest;
}

void ShardImpl::LookAtLag() {
  const bool reads = phase_ == Phase::kRunning && !fenced_ && !stopping_ && reachable_ &&
                     !begin_deferred_ && !std::exchange(was_full_, full_);
  std::vector<SourceLag::Place> places;
  places.reserve(tasks_.size());
  for (const auto& [tp, task] : tasks_) {
    SourceLag::Place& place = places.emplace_back();
    place.tp = tp;
    if (task->located()) place.next = std::max(task->tracker().next_offset(), task->ended_at);
    const bool awaits_first = !task->located() && task->state() == TaskState::kCreated;
    place.reads = reads && (awaits_first || (task->running() && task->reading));
  }
  lag_.Look(places, reachable_);
  metrics_.lag_records.Set(static_cast<double>(lag_.records()));
  metrics_.partitions_standing_still.Set(static_cast<double>(lag_.standing_still()));
}

void ShardImpl::ReportTasks() {
  std::map<TaskState, int64_t> states;
  int64_t holes = 0;
  int64_t forgotten = 0;
  absl::optional<WallTime> oldest;
  for (auto& [tp, task] : tasks_) {
    ++states[task->state()];
    if (!task->located()) continue;
    holes += task->tracker().holes();
    forgotten += task->forgotten;
    const absl::optional<WallTime> pending = task->OldestPending();
    if (pending && (!oldest || *pending < *oldest)) oldest = pending;
  }
  metrics_.tasks_created.Set(static_cast<double>(states[TaskState::kCreated]));
  metrics_.tasks_restoring.Set(static_cast<double>(states[TaskState::kRestoring]));
  metrics_.tasks_running.Set(static_cast<double>(states[TaskState::kRunning]));
  metrics_.tasks_degraded.Set(static_cast<double>(states[TaskState::kDegraded]));
  metrics_.tasks_failed.Set(static_cast<double>(states[TaskState::kFailed]));
  metrics_.holes.Set(static_cast<double>(holes));
  metrics_.holes_forgotten.Set(static_cast<double>(forgotten));
  metrics_.watermark_age_seconds.Set(oldest ? std::max(0.0, Seconds(loop_.clock().Wall() - *oldest))
                                            : 0);
}

void ShardImpl::Trim(MonotonicTime now) {
  last_trim_ = now;
  if (phase_ != Phase::kRunning || fenced_) return;
  for (auto& [tp, task] : tasks_) {
    if (task->acknowledged()) trimmer_.Trim(tp, task->acknowledged()->offset);
  }
}

}  // namespace internal

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(Log& log, EventLoop& loop, Metrics& metrics,
                                                     const JobOptions& options, int index,
                                                     uint64_t seed, ShardProgramFactory& factory,
                                                     ShardSiblings* siblings) {
  auto shard =
      std::make_unique<internal::ShardImpl>(log, loop, metrics, options, index, seed, siblings);
  RETURN_IF_ERROR(shard->Start(factory));
  return shard;
}

}  // namespace postrider
