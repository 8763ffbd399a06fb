#include "core/stream/job.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/thread_name.h"
#include "core/stream/shard.h"

namespace postrider {
namespace {

constexpr std::chrono::milliseconds kStatusInterval{200};
// A shard that has something to commit does so once a second at least.
constexpr std::chrono::seconds kCommitAgeMax{10};
constexpr size_t kRoleNameMax = 12;  // so that two digits fit into a thread's name

uint64_t TrueSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// What a shard's thread tells to others.
struct SharedStatus {
  std::atomic<bool> assigned{false};
  std::atomic<int64_t> tasks_running{0};
  std::atomic<int64_t> tasks_restoring{0};
  std::atomic<int64_t> tasks_failed{0};
  std::atomic<bool> reachable{true};
  std::atomic<int64_t> oldest_commit{MonotonicTime::max().time_since_epoch().count()};
  std::atomic<int64_t> lag_records{0};
  std::atomic<int64_t> standing_still{0};
};

class JobImpl final : public Job {
 public:
  JobImpl(Log& log, const Clock& clock, Metrics& metrics, const JobOptions& options,
          ShardProgramFactory factory)
      : log_(log),
        clock_(clock),
        metrics_(metrics),
        options_(options),
        factory_(std::move(factory)) {}
  ~JobImpl() override {
    StopHard();
    for (const auto& runner : runners_) {
      if (runner->thread.joinable()) runner->thread.join();
    }
  }

  absl::Status StartShards();

  void Post(absl::string_view kind, std::function<void(ShardProgram&)> call) override {
    for (const auto& runner : runners_) {
      {
        absl::MutexLock lock(&runner->calls_mutex);
        std::erase_if(runner->calls, [kind](const auto& waiting) { return waiting.first == kind; });
        runner->calls.emplace_back(kind, call);
      }
      LookAtCalls(*runner);
    }
  }

  JobStatus status() const override {
    JobStatus all;
    for (const auto& runner : runners_) {
      ++all.shards;
      all.shards_assigned += runner->status.assigned.load() ? 1 : 0;
      all.tasks_running += runner->status.tasks_running.load();
      all.tasks_restoring += runner->status.tasks_restoring.load();
      all.tasks_failed += runner->status.tasks_failed.load();
      all.log_reachable = all.log_reachable && runner->status.reachable.load();
      all.lag_records += runner->status.lag_records.load();
      all.standing_still += runner->status.standing_still.load();
      all.oldest_commit =
          std::min(all.oldest_commit, MonotonicTime(Duration(runner->status.oldest_commit.load())));
    }
    return all;
  }

  void Stop(std::function<void()> done) override {
    POSTRIDER_CHECK(!stopped_);
    stopped_ = std::move(done);
    for (const auto& runner : runners_) {
      {
        absl::MutexLock lock(&runner->calls_mutex);
        runner->to_stop = true;
      }
      LookAtCalls(*runner);
    }
  }

  void StopHard() override {
    for (const auto& runner : runners_) {
      if (runner->loop != nullptr) runner->loop->Stop();
    }
  }

 private:
  struct Runner {
    int index = 0;
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<Shard> shard;  // touched by its thread only
    SharedStatus status;
    absl::Notification started;
    absl::Status start_status;
    std::thread thread;
    absl::Mutex calls_mutex;
    // By kind, each once, in the order in which they came.
    std::vector<std::pair<std::string, std::function<void(ShardProgram&)>>> calls
        ABSL_GUARDED_BY(calls_mutex);
    bool to_stop ABSL_GUARDED_BY(calls_mutex) = false;  // after them
  };

  // A loop that is full comes to them with its next status.
  void LookAtCalls(Runner& runner) {
    static_cast<void>(runner.loop->Post([this, &runner] { MakeCalls(runner); }));
  }
  void MakeCalls(Runner& runner);
  void StopShard(Runner& runner);
  void Run(Runner& runner);
  void KeepStatus(Runner& runner);

  Log& log_;
  const Clock& clock_;
  Metrics& metrics_;
  const JobOptions options_;
  ShardProgramFactory factory_;
  ShardSiblings siblings_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::atomic<int> running_{0};
  std::function<void()> stopped_;
};

// One after the other, so that the factory's calls do not overlap.
absl::Status JobImpl::StartShards() {
  for (int index = 0; index < options_.shards; ++index) {
    auto runner = std::make_unique<Runner>();
    runner->index = index;
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create(clock_);
    if (!loop.ok()) return loop.status();
    runner->loop = *std::move(loop);
    Runner& started = *runner;
    runners_.push_back(std::move(runner));
    running_.fetch_add(1);
    started.thread = std::thread([this, &started] { Run(started); });
    started.started.WaitForNotification();
    if (!started.start_status.ok()) return started.start_status;
  }
  return absl::OkStatus();
}

void JobImpl::Run(Runner& runner) {
  NameThread(absl::StrCat(options_.name.substr(0, kRoleNameMax), "-", runner.index));
  absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Create(
      log_, *runner.loop, metrics_, options_, runner.index, TrueSeed(), factory_, &siblings_);
  if (!shard.ok()) {
    runner.start_status = shard.status();
    runner.started.Notify();
    return;
  }
  runner.shard = *std::move(shard);
  KeepStatus(runner);
  runner.started.Notify();
  runner.loop->Run();
  runner.shard.reset();
}

// All that wait, in their order.
void JobImpl::MakeCalls(Runner& runner) {
  std::vector<std::pair<std::string, std::function<void(ShardProgram&)>>> calls;
  bool stop = false;
  {
    absl::MutexLock lock(&runner.calls_mutex);
    calls.swap(runner.calls);
    stop = std::exchange(runner.to_stop, false);
  }
  for (const auto& [kind, call] : calls) {
    if (runner.shard == nullptr) return;
    call(runner.shard->program());
  }
  if (stop) StopShard(runner);
}

void JobImpl::StopShard(Runner& runner) {
  if (runner.shard == nullptr) return;  // it ends, by StopHard()
  runner.shard->Stop([this, &runner] {
    runner.loop->Stop();
    if (running_.fetch_sub(1) == 1 && stopped_) stopped_();
  });
}

void JobImpl::KeepStatus(Runner& runner) {
  if (runner.shard == nullptr) return;  // it ends, and turns the loop meanwhile
  MakeCalls(runner);
  const JobStatus status = runner.shard->status();
  runner.status.assigned.store(status.shards_assigned > 0);
  runner.status.tasks_running.store(status.tasks_running);
  runner.status.tasks_restoring.store(status.tasks_restoring);
  runner.status.tasks_failed.store(status.tasks_failed);
  runner.status.reachable.store(status.log_reachable);
  runner.status.oldest_commit.store(status.oldest_commit.time_since_epoch().count());
  runner.status.lag_records.store(status.lag_records);
  runner.status.standing_still.store(status.standing_still);
  runner.loop->CallAfter(kStatusInterval, [this, &runner] { KeepStatus(runner); });
}

}  // namespace

JobStatus& JobStatus::operator+=(const JobStatus& other) {
  shards += other.shards;
  shards_assigned += other.shards_assigned;
  tasks_running += other.tasks_running;
  tasks_restoring += other.tasks_restoring;
  tasks_failed += other.tasks_failed;
  log_reachable = log_reachable && other.log_reachable;
  oldest_commit = std::min(oldest_commit, other.oldest_commit);
  lag_records += other.lag_records;
  standing_still += other.standing_still;
  return *this;
}

absl::Status AtWork(const JobStatus& status, MonotonicTime now) {
  if (!status.log_reachable) return absl::UnavailableError("the log does not answer");
  if (status.shards_assigned < status.shards) {
    return absl::UnavailableError(absl::StrCat(status.shards_assigned, " of ", status.shards,
                                               " shards have their share of the partitions"));
  }
  if (status.tasks_restoring > 0) {
    return absl::UnavailableError(
        absl::StrCat(status.tasks_restoring, " tasks are being restored"));
  }
  if (status.tasks_failed > 0) {
    return absl::UnavailableError(
        absl::StrCat(status.tasks_failed, " tasks have failed and are being restarted"));
  }
  if (status.oldest_commit != MonotonicTime::max() && now - status.oldest_commit > kCommitAgeMax) {
    return absl::UnavailableError(absl::StrCat(
        "no commit was acknowledged for ",
        std::chrono::duration_cast<std::chrono::seconds>(now - status.oldest_commit).count(),
        " s"));
  }
  if (status.standing_still > 0) {
    return absl::UnavailableError(absl::StrCat("nothing is read from ", status.standing_still,
                                               " partitions though there are records: the job is ",
                                               status.lag_records, " behind"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Job>> Job::Start(Log& log, const Clock& clock, Metrics& metrics,
                                                const JobOptions& options,
                                                ShardProgramFactory factory) {
  if (options.shards < 1 || options.shards > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", options.name, ": shards = ", options.shards, ", must be 1 to 64"));
  }
  if (!options.changelogs.empty() &&
      options.changelogs.front().restore != ChangelogOptions::Restore::kFirst) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", options.name, ": its first changelog must be restored first"));
  }
  auto job = std::make_unique<JobImpl>(log, clock, metrics, options, std::move(factory));
  if (absl::Status started = job->StartShards(); !started.ok()) return started;
  return job;
}

}  // namespace postrider
