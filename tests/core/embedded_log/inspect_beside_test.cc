#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/embedded_log/inspect.h"
#include "core/stream/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"
#include "tests/support/status_matchers.h"

namespace postrider::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A log that is looked at while a service, which is this process, writes it.
class InspectBesideTest : public EmbeddedLogTest {
 protected:
  void LookAmidWrites(const TopicPartition& tp, bool trims);
  void SetUp() override {
    options_.memory_bytes = 2 << 20;  // so that memtables are flushed often
    Open();
    MakeTopic("a", 2, {{"retention.ms", "-1"}});
    MakeTopic("b", 1, {{"cleanup.policy", "compact"}, {"min.compaction.lag.ms", "0"}});
  }
  static std::vector<int64_t> OffsetsOf(LogInspector& log, const TopicPartition& tp, int64_t from) {
    std::vector<int64_t> offsets;
    EXPECT_OK(log.Read(tp, from, [&](const LogRecord& record) {
      offsets.push_back(record.offset);
      return true;
    }));
    return offsets;
  }
};

TEST_F(InspectBesideTest, ShowsWhatWasWrittenUpToTheLastCatchUp) {
  AppendMany({"a", 0}, 3, 100);
  ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::OpenBeside(options_.directory));
  EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 0), ElementsAre(0, 1, 2));
  AppendMany({"a", 0}, 2, 100);
  ASSERT_OK(Trim({"a", 0}, 1));
  EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 1), ElementsAre(1, 2));
  ASSERT_OK(log->CatchUp());
  EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 0), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(log->Topics().size(), 2u);
  EXPECT_EQ(log->Topics()[0].partitions[0].begin, 1);
  EXPECT_EQ(log->Topics()[0].partitions[0].end, 5);
  MakeTopic("c", 1);
  ASSERT_OK(log->CatchUp());
  EXPECT_EQ(log->Topics().size(), 3u);
}

// A list of tables that is put together anew is empty meanwhile, as that of a new log is.
TEST_F(InspectBesideTest, IsUnavailableWhileTheServicePutsTheListOfTablesTogether) {
  AppendMany({"a", 0}, 3, 100);
  const std::string mark = options_.directory + "/db/repairing";
  std::ofstream(mark) << "0";
  const auto amid = LogInspector::OpenBeside(options_.directory);
  EXPECT_TRUE(absl::IsUnavailable(amid.status())) << amid.status();
  fs::remove(mark);
  EXPECT_OK(LogInspector::OpenBeside(options_.directory).status());
}

TEST_F(InspectBesideTest, LosesNothingWhileFilesComeAndGo) {
  const TopicPartition tp{"a", 0};
  ASSERT_OK_AND_ASSIGN(auto log, LogInspector::OpenBeside(options_.directory));
  int64_t next = 0;
  int unreadable = 0;
  constexpr int kRounds = 60;
  constexpr int kRecords = 400;
  const auto look = [&] {
    if (!log->CatchUp().ok()) {
      ++unreadable;
      ASSERT_OK_AND_ASSIGN(log, LogInspector::OpenBeside(options_.directory));
    }
    const int64_t begin = log->Topics()[0].partitions[0].begin;
    ASSERT_LE(begin, next) << "nothing was trimmed that had not been read";
    const absl::Status read = log->Read(tp, next, [&](const LogRecord& record) {
      EXPECT_EQ(record.offset, next);
      EXPECT_EQ(record.key, absl::StrCat("k", next));
      ++next;
      return true;
    });
    if (!read.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(read)) << read;
      ++unreadable;
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    AppendMany(tp, kRecords, 700, round * kRecords);
    for (int i = 0; i < 5; ++i) AppendMany({"b", 0}, 20, 2'000);
    look();
    if (round % 10 == 9) {
      ASSERT_OK(Trim(tp, next - next / 10));
      log_->RunUpkeep();
    }
  }
  look();
  EXPECT_EQ(next, kRounds * kRecords);
  EXPECT_LT(unreadable, kRounds / 4);
  Close();
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(options_.directory));
  EXPECT_EQ(whole->Topics()[0].partitions[0].end, next);
}

// Of a compacted topic no gap is told: each record has a key of its own, so that every one must
// come.
void InspectBesideTest::LookAmidWrites(const TopicPartition& tp, bool trims) {
  constexpr int kRecords = 40'000;
  constexpr size_t kOnTheWayMax = 500;
  std::atomic<int64_t> acknowledged{0};
  std::thread writer([&] {
    const std::unique_ptr<EventLoop> loop = *EventLoop::Create(clock_);
    const std::unique_ptr<LogProducer> producer = *log_->OpenProducer(*loop, ProducerOptions());
    const std::string value(700, 'v');
    for (int i = 0; i < kRecords || producer->pending() > 0;) {
      if (i < kRecords && producer->pending() < kOnTheWayMax &&
          producer->Append(Record(tp, absl::StrCat("k", i), value),
                           [&](const absl::StatusOr<int64_t>&) { ++acknowledged; })) {
        ++i;
      } else {
        loop->RunOnce(std::chrono::milliseconds(1));
      }
    }
  });
  std::unique_ptr<LogInspector> log;
  int64_t next = 0;
  int looks = 0;
  int unreadable = 0;
  while (next < kRecords && looks < 100'000) {
    ++looks;
    const int64_t before = acknowledged;
    if (log == nullptr || !log->CatchUp().ok()) {
      auto opened = LogInspector::OpenBeside(options_.directory);
      log = opened.ok() ? *std::move(opened) : nullptr;
    }
    absl::Status read = absl::UnavailableError("not open");
    if (log != nullptr) {
      read = log->Read(tp, next, [&](const LogRecord& record) {
        EXPECT_EQ(record.offset, next);
        EXPECT_EQ(record.key, absl::StrCat("k", next));
        ++next;
        return true;
      });
    }
    if (read.ok()) {
      EXPECT_GE(next, before) << "what was acknowledged before is there";
    } else {
      EXPECT_TRUE(absl::IsUnavailable(read)) << read;
      ++unreadable;
    }
    if (looks % 50 == 49) {
      if (trims) {
        EXPECT_OK(Trim(tp, next / 2));
      }
      log_->RunUpkeep();
    }
  }
  writer.join();
  EXPECT_EQ(next, kRecords);
  std::printf("%d looks, %d of them not to the end\n", looks, unreadable);
}

TEST_F(InspectBesideTest, LosesNothingAmidWrites) { LookAmidWrites({"a", 1}, true); }

TEST_F(InspectBesideTest, LosesNothingOfACompactedTopicAmidWrites) {
  LookAmidWrites({"b", 0}, false);
}

TEST_F(InspectBesideTest, WritesNothingAndKeepsNoServiceOut) {
  AppendMany({"a", 0}, 3, 100);
  const auto names = [this] {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(options_.directory)) {
      all.push_back(entry.path().string());
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto before = names();
  ASSERT_OK_AND_ASSIGN(auto log, LogInspector::OpenBeside(options_.directory));
  EXPECT_EQ(names(), before);
  Reopen();
  AppendMany({"a", 0}, 1, 100);
  // What it has read of the service before may not be on the disk any more.
  EXPECT_EQ(log->CatchUp().code(), absl::StatusCode::kUnavailable);
  ASSERT_OK_AND_ASSIGN(log, LogInspector::OpenBeside(options_.directory));
  EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 0), ElementsAre(0, 1, 2, 3));
}

TEST_F(InspectBesideTest, ShowsNothingThatIsNotAcknowledged) {
  AppendMany({"a", 0}, 3, 100);
  // As if the sync of the last write had not ended.
  const std::string mark = options_.directory + "/acknowledged";
  fs::rename(mark, mark + ".away");
  const auto log = LogInspector::OpenBeside(options_.directory);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(log.status().message(), HasSubstr("does not acknowledge"));
  fs::rename(mark + ".away", mark);
  EXPECT_OK(LogInspector::OpenBeside(options_.directory));
}

TEST_F(InspectBesideTest, IsCopiedByOneAtATime) {
  ASSERT_OK_AND_ASSIGN(auto hold, LogInspector::HoldCopy(options_.directory));
  const auto second = LogInspector::HoldCopy(options_.directory);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("is being copied by another process"));
  Reopen();  // no service minds
  hold.reset();
  EXPECT_OK(LogInspector::HoldCopy(options_.directory));
  EXPECT_EQ(LogInspector::HoldCopy(directory_.path() + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace postrider::tests
