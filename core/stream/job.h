#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "core/stream/log.h"
#include "core/stream/memory_account.h"
#include "core/stream/state_store.h"

namespace postrider {

// Where a partition begins that has no commit of ours.
enum class StartPolicy {
  kLogStart,                 // own topics; source topics too, by default
  kLogStartOnceEstablished,  // the log start if the group has any commit, else the end
};

// A changelog: a compacted topic with as many partitions as the job's own, from which the durable
// state of its tasks is restored.
struct ChangelogOptions {
  std::string topic;
  // kFirst: a task reads no record before its part is restored; small ones. kBeside: in the
  // background, a few tasks at a time.
  enum class Restore { kFirst, kBeside };
  Restore restore = Restore::kFirst;
  // How long its records wait for company on their way into the log, 0 for not at all: so many
  // fewer requests to the log, so much later is a write durable. Not while a shard hands over.
  std::chrono::milliseconds gather{0};
  // The same for what is put, of which the records are there to be read again until it is durable.
  // At least `gather`.
  std::chrono::milliseconds gather_puts{0};
  // A new, empty store for the task of that partition. Called on the shard's thread.
  std::function<absl::StatusOr<std::unique_ptr<StateStore>>(const TopicPartition&)> open_store;
  // See StateBackendOptions.
  size_t overlay_bytes_max = 4 << 20;
  MemoryAccount* overlays = nullptr;  // outlives the job
};

struct JobOptions {
  std::string name;  // "matcher", "worker": the label of its metrics and log lines
  GroupOptions group;
  ProducerOptions producer;
  // How long what functions emit waits for company on its way into the log, at most, and for each
  // partition for which something waits: a shard so sends one request in `gather_per_partition`,
  // or one for each partition in `gather`. 0: not at all. Not while a shard hands over.
  std::chrono::milliseconds gather{0};
  std::chrono::microseconds gather_per_partition{500};
  StartPolicy start = StartPolicy::kLogStart;
  // It is known from elsewhere that the group has committed before: without any commit it has lost
  // them, and nothing may be left out.
  bool group_had_commits = false;
  int shards = 1;                         // 1..64
  int64_t pending_records_max = 100'000;  // per shard; at either bound it stops reading
  int64_t pending_bytes_max = 64 << 20;
  // Records read above their partition's watermark, complete ones too: the third bound, for one
  // record that stays pending while all others are completed.
  int64_t tracked_records_max = 1'000'000;
  // Per partition, of what was completed above its watermark: from either on the function is asked
  // to let the watermark pass (OnHoles()).
  int64_t holes_max = 20'000;
  int64_t hole_bytes_max = 64 << 20;
  std::chrono::milliseconds commit_interval{200};
  std::chrono::milliseconds revoke_wait_max{250};   // for results of what is in flight
  std::chrono::milliseconds stop_wait_max{20'000};  // the same when the process stops
  // Once a minute the topic is trimmed to the committed watermark, but nothing that was appended
  // less than this ago. 0: never.
  std::chrono::milliseconds trim_safety{0};
  // The lowest offset of a partition that trimming must leave, if any. Called on a shard's thread.
  std::function<absl::optional<int64_t>(const TopicPartition&)> trim_limit;
  // Of the tasks' durable state, in the order of TaskContext::state(). In-flight records are kept
  // in the first one, which is restored first (else kInvalidArgument); without any, a handover
  // names nothing.
  std::vector<ChangelogOptions> changelogs;
  // Tasks of a shard that restore beside records at the same time.
  int restores_max = 4;
  int64_t restore_prefetch_bytes = 16 << 20;  // read ahead for restores, per shard
  // What such restores hold in memory of a shard: beyond it one goes on alone until it ends.
  int64_t restore_bytes_max = 64 << 20;
};

enum class TaskState { kCreated, kRestoring, kRunning, kDegraded, kFailed, kClosed };

struct JobStatus {
  int shards = 0;
  // Have taken part in a rebalance and run, or know that there is no topic to read yet.
  int shards_assigned = 0;
  int64_t tasks_running = 0;
  int64_t tasks_restoring = 0;  // assigned, and not running yet
  int64_t tasks_failed = 0;
  bool log_reachable = true;
  // Of the shard or partition whose last acknowledged commit is the oldest, with something to
  // commit; MonotonicTime::max() when nobody has.
  MonotonicTime oldest_commit = MonotonicTime::max();
  int64_t lag_records = 0;     // not read yet
  int64_t standing_still = 0;  // partitions of which nothing is read though there is something

  // Of two jobs together.
  JobStatus& operator+=(const JobStatus& other);
};

// Why a job is not at work, if it is not.
absl::Status AtWork(const JobStatus& status, MonotonicTime now);

// A role's shards in one process: each a thread with a loop, a consumer, a producer and the tasks
// of the partitions that the group gave it.
//
// Threads: Start, Stop, Post and status from any one control thread.
class Job {
 public:
  // `factory` is called on each shard's thread. `log`, `clock` and `metrics` outlive the job.
  static absl::StatusOr<std::unique_ptr<Job>> Start(Log& log, const Clock& clock, Metrics& metrics,
                                                    const JobOptions& options,
                                                    ShardProgramFactory factory);
  virtual ~Job() = default;

  // Runs `call` on every shard's thread with its program, soon. Calls of one kind say how the same
  // thing is now: of those that wait for a shard the last one counts. A handful of kinds.
  virtual void Post(absl::string_view kind, std::function<void(ShardProgram&)> call) = 0;
  virtual JobStatus status() const = 0;
  // The two steps of a stop: refuse new work, drain (OnDrain, at most stop_wait_max), commit, leave
  // the group. With durable state the partitions are given back first, as in a rebalance, and what
  // is in flight is awaited afterwards. `done` runs on some thread when all shards are through.
  // StopHard() gives up waiting.
  virtual void Stop(std::function<void()> done) = 0;
  virtual void StopHard() = 0;
};

}  // namespace postrider
