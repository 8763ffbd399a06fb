#include "core/stream/shard.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/stream/hole_map.h"
#include "core/stream/internal/load_ratios.h"
#include "core/stream/internal/restorer.h"
#include "core/stream/internal/result_log.h"
#include "core/stream/internal/shard_metrics.h"
#include "core/stream/internal/task.h"
#include "core/stream/internal/trimmer.h"

namespace postrider {
namespace {

using internal::Task;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Records that one turn of the loop reads, and one poll of it: bounds are looked at between polls.
constexpr size_t kRecordsPerTurn = 1'000;
constexpr size_t kRecordsPerPoll = 100;
// What a record may have before any was seen: polls near the bound of bytes are short.
constexpr int64_t kRecordBytesGuess = 512 << 10;
// While nothing is read, awaited answers are looked for so often, and rebalances at
// kHeldPollInterval. A record that comes with them is taken until the bounds are exceeded by an
// eighth, then it is read again later.
constexpr milliseconds kHeldTick{50};
constexpr seconds kHeldPollInterval{1};
constexpr seconds kLeaseRenewal{1};
constexpr seconds kFinalCommitWait{1};
constexpr seconds kLeaveWait{5};
// Tasks that are restored begin to be read together: each beginning interrupts all fetching. When
// nothing is read yet, the first beginning waits for all of them, but not for long.
constexpr milliseconds kBeginTogether{20};
constexpr milliseconds kFirstBeginWait{300};
constexpr milliseconds kRetryFirst{100};
constexpr seconds kClaimRetryMax{5};
constexpr seconds kReopenMax{30};
// A task that has run for so long is no longer failing.
constexpr seconds kHealthyAfter{30};
constexpr std::chrono::minutes kTrimInterval{1};
// Members of one generation learn of it within this time.
constexpr seconds kOneGeneration{2};

Duration Backoff(int failures, Duration max) {
  const int doublings = std::min(failures - 1, 16);
  return std::min<Duration>(kRetryFirst * (int64_t{1} << doublings), max);
}

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

IdBytes MakeWriter(uint64_t seed) {
  Random random(seed);
  IdBytes writer;
  for (uint8_t& byte : writer) byte = static_cast<uint8_t>(random.Next());
  return writer;
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

class ShardImpl final : public Shard, public GroupHandler, public internal::TaskHost {
 public:
  ShardImpl(Log& log, EventLoop& loop, Metrics& metrics, const JobOptions& options, int index,
            uint64_t seed, ShardSiblings* siblings)
      : log_(log),
        loop_(loop),
        options_(options),
        index_(index),
        writer_(MakeWriter(seed)),
        siblings_(siblings),
        metrics_(internal::MakeShardMetrics(metrics, options.name, index)),
        load_(loop),
        trimmer_(log, loop, options.trim_safety, options.trim_limit, metrics_.trims_failed),
        restorer_(log, loop, options.restores_max, options.restore_prefetch_bytes, metrics_) {}
  ~ShardImpl() override;

  absl::Status Start(ShardProgramFactory& factory);

  // Shard.
  ShardProgram& program() override { return *program_; }
  void Stop(std::function<void()> done) override;
  JobStatus status() const override;

  // GroupHandler.
  void OnAssigned(Assignment assignment) override;
  void OnRevoked() override;
  void OnLost() override;
  void OnRecord(const LogRecord& record) override;
  void OnPartitionEnd(const TopicPartition& tp, int64_t next) override;
  void OnOutOfRange(const TopicPartition& tp, int64_t log_start) override;
  void OnNothingMatches() override { nothing_matches_ = true; }
  void OnReachable(bool reachable) override {
    reachable_ = reachable;
    metrics_.reachable.Set(reachable ? 1 : 0);
  }

  // TaskHost.
  EventLoop& loop() override { return loop_; }
  LogProducer& producer() override { return *producer_; }
  bool ShardMayAct() const override {
    return phase_ == Phase::kRunning && !fenced_ && !(stopping_ && durable()) &&
           Now() < consumer_->LeaseUntil();
  }
  bool TimersRun() const override { return phase_ == Phase::kRunning && !stopping_; }
  bool UnderPressure() const override { return full_; }
  void AddPending(int64_t records, int64_t bytes, int64_t tracked) override {
    pending_records_ += records;
    pending_bytes_ += bytes;
    tracked_ += tracked;
  }
  void TaskWants() override { wants_ = true; }
  const std::vector<ChangelogOptions>& changelogs() const override { return options_.changelogs; }
  internal::Restorer& restorer() override { return restorer_; }
  internal::ShardMetrics& metrics() override { return metrics_; }
  void TaskRestored(Task& task) override;

 private:
  enum class Phase { kIdle, kClaiming, kRunning, kDraining, kReleased, kLingering, kStopped };
  enum class Drain { kNone, kResults, kRecords, kFinalCommit };
  struct TopicKey {
    absl::string_view topic;  // the task's own
    int32_t partition;
    friend bool operator==(const TopicKey&, const TopicKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const TopicKey& key) {
      return H::combine(std::move(h), key.topic, key.partition);
    }
  };
  struct SentCommit {
    TopicPartition tp;
    int64_t created_in;
    int lives;
    uint64_t version;
    CommittedPosition position;
  };
  struct Outstanding {
    int64_t number;
    MonotonicTime issued;
    std::vector<SentCommit> commits;
  };

  MonotonicTime Now() const { return loop_.clock().Now(); }
  bool durable() const { return !options_.changelogs.empty(); }
  // The group is left: the consumer is not used any more.
  bool Gone() const { return phase_ == Phase::kLingering || phase_ == Phase::kStopped; }
  int64_t WallMillis() const { return MillisSinceEpoch(loop_.clock().Wall()); }
  Task* Find(absl::string_view topic, int32_t partition);
  Task* Find(const TopicPartition& tp) { return Find(tp.topic, tp.partition); }

  // Assignment and claim.
  std::unique_ptr<Task> MakeTask(const AssignedPartition& partition);
  StartPosition::At FreshStart(bool group_has_commits);
  void SendClaim();
  void ClaimAnswered();
  void BeginReading();
  void BeginDeferred();
  void ReadRestored();
  bool AnyRestoring() const;
  void OpenTask(Task& task);
  void BeginAnew(Task& task, int64_t offset);
  void LocateFresh(Task& task, int64_t offset);
  void ResumeTasks();

  // Commits.
  void SendCommit(const std::vector<Task*>& tasks);
  void OnCommitAnswer(int64_t number, std::vector<absl::Status> statuses);
  void HandleCommitStatus(Task& task, const SentCommit& sent, const absl::Status& status);
  void ForgetOutstanding();
  std::vector<Task*> Uncommitted();
  void MaybeCommit();

  // Reading.
  bool Holding() const { return phase_ == Phase::kRunning && (full_ || stopping_) && !leaving_; }
  size_t ReadRoom() const;
  void Read();
  bool AtLeast(int64_t denominator, int64_t numerator) const;
  void CheckPressure();
  void TellOfPressure();
  void UpdateWatch();

  // Giving back.
  void DrainTasks(KeyedProcessFunction::Drain kind);
  bool Quiet() const;
  void BeginDrain(Drain step, MonotonicTime deadline);
  void AdvanceDrain();
  void FinishDrain();
  void TellGivenBack();
  void GiveBack();
  void BeginLeave();
  void Linger();
  void AdvanceLinger();
  void Finish();

  // Failures.
  void HandleFailures();
  void Degrade(Task& task, const absl::Status& why);
  void Reopen(Task& task);
  bool AwaitsCommitOf(const Task& task) const;

  void Tick();
  void EverySecond(MonotonicTime now);
  void ReportTasks();
  void Trim(MonotonicTime now);
  void TurnEnd();

  Log& log_;
  EventLoop& loop_;
  const JobOptions options_;
  const int index_;
  const IdBytes writer_;
  ShardSiblings* const siblings_;
  internal::ShardMetrics metrics_;
  internal::LoadRatios load_;
  internal::Trimmer trimmer_;
  internal::Restorer restorer_;
  // Callbacks that may come after the shard hold it weakly.
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);

  std::unique_ptr<LogProducer> producer_;
  std::unique_ptr<internal::ResultLog> results_;
  std::unique_ptr<ShardProgram> program_;
  std::unique_ptr<GroupConsumer> consumer_;
  std::map<TopicPartition, std::unique_ptr<Task>> tasks_;
  absl::flat_hash_map<TopicKey, Task*> index_of_tasks_;
  Task* last_found_ = nullptr;

  Phase phase_ = Phase::kIdle;
  bool ever_ran_ = false;
  bool nothing_matches_ = false;  // there is no topic to read yet
  bool reachable_ = true;
  bool fenced_ =
      false;  // the group has moved on: nothing is committed or done until it assigns again
  bool wants_ = false;   // some task has failed, was refused, or waits for OnResume()
  bool acting_ = false;  // ShardMayAct() at the end of the last turn
  int64_t assignment_ = 0;
  bool fresh_located_ = false;
  bool begin_deferred_ = false;  // Start() waits for what is being restored
  int claim_failures_ = 0;

  absl::optional<Outstanding> outstanding_;
  int64_t commit_number_ = 0;
  MonotonicTime last_commit_issued_;
  MonotonicTime last_commit_acknowledged_;  // when it was issued

  int64_t pending_records_ = 0;
  int64_t pending_bytes_ = 0;
  int64_t tracked_ = 0;
  int64_t largest_record_ = kRecordBytesGuess;  // of late
  bool full_ = false;
  uint32_t watched_ = kFdNone;
  MonotonicTime last_poll_;

  Drain drain_ = Drain::kNone;
  MonotonicTime drain_deadline_;
  bool final_sent_ = false;
  bool give_back_due_ = false;  // OnGivenBack() is to be told
  bool stopping_ = false;
  bool leaving_ = false;
  MonotonicTime linger_until_;
  std::function<void()> stopped_;

  TimerId tick_ = 0;
  TimerId read_timer_ = 0;
  TimerId claim_timer_ = 0;
  TimerId begin_timer_ = 0;
  TimerId linger_timer_ = 0;
  TimerId drain_timer_ = 0;
  TimerId leave_timer_ = 0;
  TimerId done_timer_ = 0;

  MonotonicTime last_second_;
  MonotonicTime last_trim_;
};

// ---- Life ----

absl::Status ShardImpl::Start(ShardProgramFactory& factory) {
  last_poll_ = last_second_ = last_trim_ = Now();
  ASSIGN_OR_RETURN(producer_, log_.OpenProducer(loop_, options_.producer));
  producer_->SetRoomCallback([this] {
    results_->OnRoom();
    for (auto& [tp, task] : tasks_) task->OnRoomIfRefused();
  });
  results_ = std::make_unique<internal::ResultLog>(loop_, *producer_, metrics_.results_appended,
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
  producer_.reset();
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
  status.oldest_commit = last_commit_acknowledged_;
  return status;
}

// ---- Assignment and claim ----

void ShardImpl::OnAssigned(Assignment assignment) {
  ++assignment_;
  metrics_.rebalances.Increment();
  ForgetOutstanding();
  if (leaving_) return;
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
// first is of a topic that was made meanwhile: nothing of it may be left out.
StartPosition::At ShardImpl::FreshStart(bool group_has_commits) {
  if (options_.start == StartPolicy::kLogStart || ever_ran_) return StartPosition::At::kLogStart;
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
  const Duration delay = Backoff(++claim_failures_, kClaimRetryMax);
  loop_.CancelTimer(claim_timer_);
  claim_timer_ = loop_.CallAfter(delay, [this] {
    if (phase_ == Phase::kClaiming && !outstanding_ && !fenced_ && !leaving_) SendClaim();
  });
}

void ShardImpl::BeginReading() {
  phase_ = Phase::kRunning;
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
  if (phase_ != Phase::kRunning || leaving_) return;
  if (phase_ != Phase::kRunning || stopping_) return;
  std::vector<StartPosition> positions;
  for (auto& [tp, task] : tasks_) {
    if (!task->running()) continue;
    task->reading = true;
    positions.push_back({tp, StartPosition::At::kOffset, task->tracker().next_offset()});
  }
  consumer_->Start(std::move(positions));
}

void ShardImpl::TaskRestored(Task&) {
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
void ShardImpl::BeginAnew(Task& task, int64_t offset) {
  task.behind = false;
  task.reading = false;
  if (durable()) {
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
}

void ShardImpl::ResumeTasks() {
  const bool may_act = ShardMayAct();
  if (acting_ && !may_act && phase_ == Phase::kRunning) {
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

// ---- Commits ----

void ShardImpl::SendCommit(const std::vector<Task*>& tasks) {
  POSTRIDER_CHECK(!outstanding_ && !tasks.empty());
  Outstanding sent{++commit_number_, Now(), {}};
  std::vector<CommitEntry> entries;
  for (Task* task : tasks) {
    CommittedPosition position = task->Position(writer_, &task->forgotten);
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
      HandleCommitStatus(*task, sent, status);
    }
  }
  if (acknowledged) {
    last_commit_acknowledged_ = answered.issued;
    for (auto& [tp, task] : tasks_) task->OnCommitAcknowledged(answered.issued);
  }
  if (phase_ == Phase::kClaiming) ClaimAnswered();
  AdvanceDrain();
}

void ShardImpl::HandleCommitStatus(Task& task, const SentCommit& sent, const absl::Status& status) {
  if (status.ok()) {
    task.Acknowledged(sent.position, sent.version);
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
    // Without the right to commit there is no right to send.
    task.Close(TaskState::kFailed);
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

// ---- Reading ----

size_t ShardImpl::ReadRoom() const {
  const int64_t records = options_.pending_records_max - pending_records_;
  const int64_t bytes = (options_.pending_bytes_max - pending_bytes_) / largest_record_;
  const int64_t room = std::min({records, bytes, static_cast<int64_t>(kRecordsPerPoll)});
  return static_cast<size_t>(std::max<int64_t>(room, 1));
}

void ShardImpl::Read() {
  if (Gone()) return;
  last_poll_ = Now();
  size_t taken = 0;
  bool more = true;
  while (more && taken < kRecordsPerTurn && !Holding() && !Gone()) {
    const size_t asked = ReadRoom();
    const size_t got = consumer_->Poll(asked);
    taken += got;
    more = got >= asked;
    CheckPressure();
  }
  UpdateWatch();
  loop_.CancelTimer(read_timer_);
  if (more && !Holding() && !Gone()) {
    read_timer_ = loop_.CallAfter(Duration::zero(), [this] { Read(); });
  }
}

void ShardImpl::OnRecord(const LogRecord& record) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(record.topic, record.partition);
  if (task == nullptr) return;
  if (!task->located()) return LocateFresh(*task, record.offset);
  // What is still fetched for a former life of it comes before Restart(): it is read again then.
  if (!task->running() || !task->reading) return;
  if (task->behind || (full_ && AtLeast(8, 9))) {
    task->behind = true;  // read again when there is room
    return;
  }
  largest_record_ = std::max(largest_record_, static_cast<int64_t>(record.bytes()));
  if (task->OnRecord(record)) {
    metrics_.records_read.Increment();
  } else {
    metrics_.records_skipped.Increment();
  }
}

void ShardImpl::OnPartitionEnd(const TopicPartition& tp, int64_t next) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(tp);
  if (task == nullptr) return;
  if (!task->located()) return LocateFresh(*task, next);
  // One that was passed over for want of room comes before the end.
  if (task->running() && task->reading && !task->behind) task->OnPartitionEnd(next);
}

void ShardImpl::OnOutOfRange(const TopicPartition& tp, int64_t log_start) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(tp);
  if (task == nullptr) return;
  if (!task->located()) return consumer_->Restart(tp, log_start);
  if (!task->running() || !task->reading) return;  // told again when it reads again
  const int64_t position = task->tracker().next_offset();
  if (position < log_start) {
    // What was read and pends goes on; what was not read is gone.
    metrics_.below_log_start.Increment();
    POSTRIDER_LOG(kError, "records were lost: the log was trimmed above the position",
                  {"job", options_.name}, {"partition", tp.ToString()}, {"position", position},
                  {"log_start", log_start}, {"lost_at_most", log_start - position});
    task->SkipTo(log_start);
  } else {
    // Another log stands under this name (or its end was cut off): its offsets name other records.
    metrics_.above_log_end.Increment();
    POSTRIDER_LOG(kError, "position is past the log's end: all of the log is read anew",
                  {"job", options_.name}, {"partition", tp.ToString()}, {"position", position},
                  {"log_start", log_start}, {"pending", task->tracker().pending()});
    task->Close(TaskState::kCreated);
    task->set_incarnation_ms(WallMillis());
    task->Locate(log_start, OffsetSet());
    task->ForceDirty();
    return BeginAnew(*task, log_start);
  }
  consumer_->Restart(tp, log_start);
}

// What pends is at least this part of a bound.
bool ShardImpl::AtLeast(int64_t denominator, int64_t numerator) const {
  const auto reaches = [=](int64_t value, int64_t max) {
    return value >= max / denominator * numerator + max % denominator;
  };
  return reaches(pending_records_, options_.pending_records_max) ||
         reaches(pending_bytes_, options_.pending_bytes_max) ||
         reaches(tracked_, options_.tracked_records_max);
}

void ShardImpl::TellOfPressure() {
  for (auto& [tp, task] : tasks_) {
    if (task->running()) task->function().OnPressure(*task);
  }
}

void ShardImpl::CheckPressure() {
  if (!full_ && AtLeast(1, 1)) {
    full_ = true;
    load_.SetFull(true);
    TellOfPressure();
    return;
  }
  if (!full_ || pending_records_ > options_.pending_records_max / 2 ||
      pending_bytes_ > options_.pending_bytes_max / 2 ||
      tracked_ > options_.tracked_records_max / 2) {
    return;
  }
  full_ = false;
  load_.SetFull(false);
  for (auto& [tp, task] : tasks_) {
    if (!std::exchange(task->behind, false)) continue;
    if (phase_ == Phase::kRunning && task->running()) {
      consumer_->Restart(tp, task->tracker().next_offset());
    }
  }
}

void ShardImpl::UpdateWatch() {
  if (Gone()) return;
  const uint32_t wanted = Holding() ? kFdNone : kFdReadable;
  if (wanted == watched_) return;
  watched_ = wanted;
  loop_.SetEvents(consumer_->wake_fd(), wanted);
}

// ---- Giving back ----

void ShardImpl::OnRevoked() {
  if (leaving_) return GiveBack();
  const bool ran = phase_ == Phase::kRunning;
  phase_ = Phase::kDraining;
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
  if (producer_->pending() > 0) return false;
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

// The last commit is on its way: what completes from now on is known to nobody else.
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
  if (program_->in_flight() > 0 || results_->waiting() > 0 || producer_->pending() > 0) return;
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

// ---- Failures ----

void ShardImpl::HandleFailures() {
  for (auto& [tp, task] : tasks_) {
    if (!task->failure()) continue;
    const absl::Status why = *task->failure();
    Degrade(*task, why);
  }
}

void ShardImpl::Degrade(Task& task, const absl::Status& why) {
  const MonotonicTime now = Now();
  // It may fail before it is opened, again and again.
  if (task.opened_at && now - *task.opened_at >= kHealthyAfter) task.failures = 0;
  task.opened_at.reset();
  const Duration delay = Backoff(++task.failures, kReopenMax);
  metrics_.task_restarts.Increment();
  POSTRIDER_LOG(kError, "task failed", {"job", options_.name},
                {"partition", task.partition().ToString()}, {"status", why.ToString()},
                {"failures", task.failures}, {"again_in_ms", delay});
  task.Close(TaskState::kDegraded);
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
  if (phase_ != Phase::kRunning || fenced_ || !task.acknowledged() || AwaitsCommitOf(task)) {
    task.reopen_timer = loop_.CallAfter(kRetryFirst, [this, &task] { Reopen(task); });
    return;
  }
  const CommittedPosition& position = *task.acknowledged();
  const absl::optional<CommitMetadata> metadata =
      DecodeCommitMetadata(position.metadata, position.offset);
  POSTRIDER_CHECK(metadata.has_value());
  const int64_t offset = position.offset;
  task.Locate(offset, metadata->completed);
  BeginAnew(task, offset);
}

// ---- Once a second ----

void ShardImpl::EverySecond(MonotonicTime now) {
  last_second_ = now;
  // What could not be given up when the shard filled up may be by now.
  if (full_) TellOfPressure();
  results_->Expire();
  for (auto& [tp, task] : tasks_) task->Sweep();
  const internal::LoadRatios::Ratios load = load_.Take();
  metrics_.busy_ratio.Set(load.busy);
  metrics_.pressured_ratio.Set(load.pressured);
  metrics_.idle_ratio.Set(load.idle);
  metrics_.restores_running.Set(static_cast<double>(restorer_.size()));
  metrics_.pending_records.Set(static_cast<double>(pending_records_));
  metrics_.pending_bytes.Set(static_cast<double>(pending_bytes_));
  if (last_commit_acknowledged_ != MonotonicTime()) {
    metrics_.commit_age_seconds.Set(Seconds(now - last_commit_acknowledged_));
  }
  ReportTasks();
  largest_record_ = std::max<int64_t>(1, largest_record_ / 2);
  if (options_.trim_safety > milliseconds::zero() && now - last_trim_ >= kTrimInterval) Trim(now);
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

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(Log& log, EventLoop& loop, Metrics& metrics,
                                                     const JobOptions& options, int index,
                                                     uint64_t seed, ShardProgramFactory& factory,
                                                     ShardSiblings* siblings) {
  auto shard = std::make_unique<ShardImpl>(log, loop, metrics, options, index, seed, siblings);
  RETURN_IF_ERROR(shard->Start(factory));
  return shard;
}

}  // namespace postrider
