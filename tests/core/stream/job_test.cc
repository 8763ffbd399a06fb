#include "core/stream/job.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/stream/completing_program.h"
#include "tests/fakes/memory_log.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

const absl::Duration kPatience = absl::Seconds(20);

using ::testing::HasSubstr;
using tests::CompletingFunction;
using tests::CompletingProgram;
using tests::Seen;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    log_.MakeTopic("t", 4);
    options_.name = "a-job-with-a-long-name";
    options_.group.group = "g";
    options_.group.topics = {"t"};
    options_.shards = 2;
    options_.commit_interval = std::chrono::milliseconds(5);
  }
  ShardProgramFactory Factory() {
    return [this](const ShardEnvironment&) {
      return absl::StatusOr<std::unique_ptr<ShardProgram>>(
          std::make_unique<CompletingProgram>(seen_));
    };
  }
  void WriteEverywhere(int count) {
    for (int32_t partition = 0; partition < 4; ++partition) {
      for (int i = 0; i < count; ++i) log_.Write({"t", partition}, "k", "v");
    }
  }

  SystemClock clock_;
  MemoryLog log_{clock_};
  Metrics metrics_;
  Seen seen_;
  JobOptions options_;
};

TEST_F(JobTest, ReadsAllPartitionsOnItsShardsThreadsAndCommitsBeforeItIsDone) {
  WriteEverywhere(50);
  auto job = *Job::Start(log_, clock_, metrics_, options_, Factory());
  ASSERT_TRUE(seen_.AwaitRecords(200, kPatience));
  WriteEverywhere(50);
  ASSERT_TRUE(seen_.AwaitRecords(400, kPatience));
  EXPECT_GE(seen_.threads(), 1u);
  EXPECT_EQ(job->status().shards, 2);
  absl::Notification stopped;
  job->Stop([&stopped] { stopped.Notify(); });
  ASSERT_TRUE(stopped.WaitForNotificationWithTimeout(kPatience));
  for (int32_t partition = 0; partition < 4; ++partition) {
    EXPECT_EQ(log_.Committed("g", {"t", partition})->offset, 100);
  }
  EXPECT_TRUE(log_.Members("g").empty());
}

TEST_F(JobTest, PostReachesEachShardsProgramOnItsOwnThread) {
  auto job = *Job::Start(log_, clock_, metrics_, options_, Factory());
  absl::Mutex mutex;
  std::set<std::pair<std::thread::id, ShardProgram*>> reached;
  job->Post("look", [&](ShardProgram& program) {
    absl::MutexLock lock(&mutex);
    reached.insert({std::this_thread::get_id(), &program});
  });
  {
    absl::MutexLock lock(&mutex);
    const auto both = [&reached] { return reached.size() == 2; };
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&both), kPatience));
    EXPECT_NE(reached.begin()->first, reached.rbegin()->first);
  }
  job.reset();
}

// What is told once, such as new rules, must not be lost by a shard that is busy just then.
TEST_F(JobTest, PostReachesAShardWhoseLoopIsFull) {
  EventLoop* loop = nullptr;
  options_.shards = 1;
  auto job =
      *Job::Start(log_, clock_, metrics_, options_, [this, &loop](const ShardEnvironment& at) {
        loop = &at.loop;
        return absl::StatusOr<std::unique_ptr<ShardProgram>>(
            std::make_unique<CompletingProgram>(seen_));
      });
  absl::Notification busy;
  absl::Notification go_on;
  job->Post("busy", [&](ShardProgram&) {
    busy.Notify();
    go_on.WaitForNotification();
  });
  ASSERT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
  while (loop->Post([] {})) {
  }
  std::vector<int> made;
  absl::Notification all;
  job->Post("one", [&](ShardProgram&) { made.push_back(1); });
  job->Post("two", [&](ShardProgram&) {
    made.push_back(2);
    all.Notify();
  });
  go_on.Notify();
  EXPECT_TRUE(all.WaitForNotificationWithTimeout(kPatience));
  job.reset();
  EXPECT_EQ(made, (std::vector<int>{1, 2}));
}

// However often one thing is told meanwhile, another one that was told once is not pushed out.
TEST_F(JobTest, OfOneKindAShardHearsTheLastCallAlone) {
  options_.shards = 1;
  auto job = *Job::Start(log_, clock_, metrics_, options_, Factory());
  absl::Notification busy;
  absl::Notification go_on;
  job->Post("busy", [&](ShardProgram&) {
    busy.Notify();
    go_on.WaitForNotification();
  });
  ASSERT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
  std::vector<std::string> made;
  absl::Notification all;
  job->Post("rules", [&](ShardProgram&) { made.push_back("rules"); });
  for (int i = 0; i < 5'000; ++i) {
    job->Post("snapshot", [&made, i](ShardProgram&) { made.push_back(std::to_string(i)); });
  }
  job->Post("end", [&](ShardProgram&) { all.Notify(); });
  go_on.Notify();
  EXPECT_TRUE(all.WaitForNotificationWithTimeout(kPatience));
  job.reset();
  EXPECT_EQ(made, (std::vector<std::string>{"rules", "4999"}));
}

TEST_F(JobTest, StopsAShardWhoseLoopIsFull) {
  EventLoop* loop = nullptr;
  options_.shards = 1;
  auto job =
      *Job::Start(log_, clock_, metrics_, options_, [this, &loop](const ShardEnvironment& at) {
        loop = &at.loop;
        return absl::StatusOr<std::unique_ptr<ShardProgram>>(
            std::make_unique<CompletingProgram>(seen_));
      });
  absl::Notification busy;
  absl::Notification go_on;
  job->Post("busy", [&](ShardProgram&) {
    busy.Notify();
    go_on.WaitForNotification();
  });
  ASSERT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
  while (loop->Post([] {})) {
  }
  absl::Notification stopped;
  job->Stop([&stopped] { stopped.Notify(); });
  go_on.Notify();
  EXPECT_TRUE(stopped.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(log_.Members("g").empty());
}

TEST_F(JobTest, EndsHardWithoutLeavingTheGroup) {
  auto job = *Job::Start(log_, clock_, metrics_, options_, Factory());
  job->StopHard();
  job.reset();
  EXPECT_EQ(log_.Members("g").size(), 2u);
}

TEST_F(JobTest, StopHardCutsAStopShort) {
  log_.SetReachable(false);
  auto job = *Job::Start(log_, clock_, metrics_, options_, Factory());
  job->Stop([] {});
  job->StopHard();
  job.reset();
  EXPECT_EQ(log_.Members("g").size(), 2u);
}

// What a shard was to do is met by its end, for a program may turn the loop then.
TEST_F(JobTest, EndsHardBeforeItsShardHasHeardOfTheStop) {
  class TurnsAtItsEnd final : public ShardProgram {
   public:
    TurnsAtItsEnd(EventLoop& loop, Seen& seen) : loop_(loop), seen_(seen) {}
    ~TurnsAtItsEnd() override { loop_.RunOnce(Duration::zero()); }
    std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
      return std::make_unique<CompletingFunction>(seen_);
    }

   private:
    EventLoop& loop_;
    Seen& seen_;
  };
  options_.shards = 1;
  auto job = *Job::Start(log_, clock_, metrics_, options_, [this](const ShardEnvironment& at) {
    return absl::StatusOr<std::unique_ptr<ShardProgram>>(
        std::make_unique<TurnsAtItsEnd>(at.loop, seen_));
  });
  absl::Notification busy;
  absl::Notification go_on;
  job->Post("busy", [&](ShardProgram&) {
    busy.Notify();
    go_on.WaitForNotification();
  });
  ASSERT_TRUE(busy.WaitForNotificationWithTimeout(kPatience));
  bool done = false;
  job->Stop([&done] { done = true; });
  job->StopHard();
  go_on.Notify();
  job.reset();
  EXPECT_FALSE(done);
  EXPECT_EQ(log_.Members("g").size(), 1u);
}

// A program may turn the loop while it ends, until its requests are through.
TEST_F(JobTest, EndsThoughItsProgramTurnsTheLoopForLong) {
  class SlowToEnd final : public ShardProgram {
   public:
    SlowToEnd(EventLoop& loop, Seen& seen) : loop_(loop), seen_(seen) {}
    ~SlowToEnd() override {
      // Due after whatever the job does on this loop from time to time.
      bool due = false;
      loop_.CallAfter(std::chrono::milliseconds(300), [&due] { due = true; });
      while (!due) loop_.RunOnce(std::chrono::milliseconds(300));
    }
    std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
      return std::make_unique<CompletingFunction>(seen_);
    }

   private:
    EventLoop& loop_;
    Seen& seen_;
  };
  options_.shards = 1;
  auto job = *Job::Start(log_, clock_, metrics_, options_, [this](const ShardEnvironment& at) {
    return absl::StatusOr<std::unique_ptr<ShardProgram>>(
        std::make_unique<SlowToEnd>(at.loop, seen_));
  });
  absl::Notification done;
  job->Stop([&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  job.reset();
  EXPECT_TRUE(log_.Members("g").empty());
}

TEST_F(JobTest, FactorysFailureIsItsOwn) {
  int made = 0;
  const auto job = Job::Start(
      log_, clock_, metrics_, options_,
      [this, &made](const ShardEnvironment& at) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
        EXPECT_EQ(at.index, made);
        if (++made == 2) return absl::InvalidArgumentError("no second one");
        return std::make_unique<CompletingProgram>(seen_);
      });
  EXPECT_EQ(job.status(), absl::InvalidArgumentError("no second one"));
}

TEST(JobStatusTest, SaysWhyAJobIsNotAtWork) {
  const MonotonicTime now(std::chrono::hours(1));
  JobStatus well;
  well.shards = well.shards_assigned = 1;
  well.tasks_running = 4;
  well.lag_records = 1'000'000;
  well.oldest_commit = now - std::chrono::seconds(10);
  EXPECT_OK(AtWork(well, now));
  const auto why = [&](auto change) {
    JobStatus status = well;
    change(status);
    return std::string(AtWork(status, now).message());
  };
  EXPECT_THAT(why([](JobStatus& s) { s.log_reachable = false; }), HasSubstr("log"));
  EXPECT_THAT(why([](JobStatus& s) { s.shards_assigned = 0; }), HasSubstr("0 of 1 shards"));
  EXPECT_THAT(why([](JobStatus& s) { s.tasks_restoring = 2; }), HasSubstr("2 tasks"));
  EXPECT_THAT(why([](JobStatus& s) { s.tasks_failed = 1; }), HasSubstr("1 tasks have failed"));
  EXPECT_THAT(why([](JobStatus& s) { s.oldest_commit -= std::chrono::seconds(1); }),
              HasSubstr("no commit was acknowledged for 11 s"));
  EXPECT_THAT(why([](JobStatus& s) { s.standing_still = 3; }), HasSubstr("3 partitions"));
  JobStatus other = well;
  other.oldest_commit = MonotonicTime::max();
  other.standing_still = 1;
  other += well;
  EXPECT_EQ(other.shards, 2);
  EXPECT_EQ(other.lag_records, 2'000'000);
  EXPECT_EQ(other.oldest_commit, well.oldest_commit);
  EXPECT_EQ(other.standing_still, 1);
  EXPECT_OK(AtWork(JobStatus(), now));
}

TEST_F(JobTest, RefusesANumberOfShardsOutOfRange) {
  for (const int shards : {0, 65, -1}) {
    options_.shards = shards;
    EXPECT_TRUE(
        absl::IsInvalidArgument(Job::Start(log_, clock_, metrics_, options_, Factory()).status()));
  }
}

}  // namespace
}  // namespace postrider
