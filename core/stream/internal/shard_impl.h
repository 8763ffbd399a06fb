#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/id.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "core/stream/internal/append_gatherer.h"
#include "core/stream/internal/load_ratios.h"
#include "core/stream/internal/restorer.h"
#include "core/stream/internal/result_log.h"
#include "core/stream/internal/shard_metrics.h"
#include "core/stream/internal/source_lag.h"
#include "core/stream/internal/task.h"
#include "core/stream/internal/trimmer.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "core/stream/shard.h"

namespace postrider::internal {

// Its code stands in core/stream/shard.cc (life, failures, what is done each second) and, by
// subject, in shard_claim.cc, shard_commits.cc, shard_reading.cc and shard_draining.cc.
//
// Threads: its loop's.
class ShardImpl final : public Shard, public GroupHandler, public TaskHost {
 public:
  ShardImpl(Log& log, EventLoop& loop, Metrics& metrics, const JobOptions& options, int index,
            uint64_t seed, ShardSiblings* siblings)
      : log_(log),
        loop_(loop),
        options_(options),
        index_(index),
        writer_(MakeWriter(seed)),
        siblings_(siblings),
        metrics_(MakeShardMetrics(metrics, options.name, index)),
        load_(loop),
        trimmer_(log, loop, options.trim_safety, options.trim_limit, metrics_.trims_failed),
        restorer_(log, loop, options.restores_max, options.restore_prefetch_bytes,
                  options.restore_bytes_max, metrics_),
        lag_(log, loop) {}
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
  LogProducer& outputs() override {
    return outputs_ != nullptr ? static_cast<LogProducer&>(*outputs_) : *producer_;
  }
  LogProducer& changelog_producer(size_t changelog) override {
    AppendGatherer* const gatherer = gatherers_[changelog].get();
    return gatherer != nullptr ? *gatherer : *producer_;
  }
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
  Restorer& restorer() override { return restorer_; }
  ShardMetrics& metrics() override { return metrics_; }
  void TaskRestored(Task& task) override;

 private:
  // A record may have so many bytes before any was seen: polls near the bound of bytes are short.
  static constexpr int64_t kRecordBytesGuess = 512 << 10;

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

  static IdBytes MakeWriter(uint64_t seed);
  // Before the next try after so many failures in a row.
  static Duration RetryDelay(int failures, Duration max);
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
  enum class Claim { kStands, kAnew };
  void BeginAnew(Task& task, int64_t offset, Claim claim = Claim::kStands);
  void LocateFresh(Task& task, int64_t offset);
  // Tells that the group had a commit of the partition, as `why` shows, which is gone.
  void CommitIsGone(Task& task, absl::string_view why);
  void ResumeTasks();

  // Commits.
  void SendCommit(const std::vector<Task*>& tasks);
  void OnCommitAnswer(int64_t number, std::vector<absl::Status> statuses);
  void HandleCommitStatus(Task& task, const SentCommit& sent, const absl::Status& status,
                          MonotonicTime issued);
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
  void TellOfHoles();
  void UpdateWatch();

  // Giving back.
  void DrainTasks(KeyedProcessFunction::Drain kind);
  bool Quiet() const;
  void SetGathering(bool gathering);
  // Those that the log has not answered, handed on or not.
  size_t PendingAppends() const;
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
  // Ends its function's life; a new one is tried after a while.
  void Degrade(Task& task, const absl::Status& why, TaskState state = TaskState::kDegraded);
  void Reopen(Task& task);
  bool AwaitsCommitOf(const Task& task) const;

  void Tick();
  void EverySecond(MonotonicTime now);
  // The last acknowledged commit; of a partition that waits for one the last that covered it, if
  // that is older. None: there is nothing to commit.
  absl::optional<MonotonicTime> OldestCommit() const;
  void LookAtLag();
  void ReportTasks();
  void Trim(MonotonicTime now);
  void TurnEnd();

  Log& log_;
  EventLoop& loop_;
  const JobOptions options_;
  const int index_;
  const IdBytes writer_;
  ShardSiblings* const siblings_;
  ShardMetrics metrics_;
  LoadRatios load_;
  Trimmer trimmer_;
  Restorer restorer_;
  SourceLag lag_;
  // Callbacks that may come after the shard hold it weakly.
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);

  std::unique_ptr<LogProducer> producer_;
  std::unique_ptr<AppendGatherer> outputs_;  // none where there is nothing to gather
  // By changelog; none where there is nothing to gather.
  std::vector<std::unique_ptr<AppendGatherer>> gatherers_;
  std::unique_ptr<ResultLog> results_;
  std::unique_ptr<ShardProgram> program_;
  std::unique_ptr<GroupConsumer> consumer_;
  std::map<TopicPartition, std::unique_ptr<Task>> tasks_;
  absl::flat_hash_map<TopicKey, Task*> index_of_tasks_;
  // The last acknowledged offsets of partitions that this shard has given back.
  std::map<TopicPartition, int64_t> committed_before_;
  Task* last_found_ = nullptr;

  Phase phase_ = Phase::kIdle;
  bool ever_ran_ = false;
  bool group_lost_commits_ = false;  // in the present assignment
  bool nothing_matches_ = false;     // there is no topic to read yet
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
  bool was_full_ = false;  // since the last look at the lag
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

}  // namespace postrider::internal
