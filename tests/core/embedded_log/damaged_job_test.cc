#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/stream/job.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"
#include "tests/core/stream/completing_program.h"

namespace postrider::tests {
namespace {

namespace fs = std::filesystem;

const absl::Duration kAtMost = absl::Seconds(60);
constexpr int kRecords = 2'000;

class DamagedJobTest : public EmbeddedLogTest {
 protected:
  // Reads the topic to its end with a group of that name, whose positions are there before.
  size_t ReadWithAJob(const std::string& group) {
    Seen seen;
    JobOptions options;
    options.name = "worker";
    options.group.group = group;
    options.group.topics = {"dispatch"};
    options.shards = 2;
    options.commit_interval = std::chrono::milliseconds(5);
    auto job = Job::Start(*log_, system_clock_, metrics_, options, [&](const ShardEnvironment&) {
      return absl::StatusOr<std::unique_ptr<ShardProgram>>(
          std::make_unique<CompletingProgram>(seen));
    });
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(seen.AwaitEnds(2, kRecords, kAtMost)) << "it stands still at what is lost";
    absl::Notification stopped;
    (*job)->Stop([&stopped] { stopped.Notify(); });
    EXPECT_TRUE(stopped.WaitForNotificationWithTimeout(kAtMost));
    const auto state = log_->DescribeGroup(group, {{"dispatch", 0}, {"dispatch", 1}}, kTimeout);
    for (const AssignedPartition& partition : state->partitions) {
      EXPECT_EQ(partition.committed->offset, kRecords) << "what never comes is complete";
    }
    EXPECT_EQ(seen.repeats(), 0u);
    return seen.records();
  }

  SystemClock system_clock_;
};

// Damage in the middle of a dispatch partition: the worker passes it as it passes what compaction
// took. It is told of by a log line, the damage metric and the alert on it, and by nothing that
// blocks.
TEST_F(DamagedJobTest, DeliversTheRestAndTellsOfTheLossOnce) {
  Open();
  MakeTopic("dispatch", 2);
  Random random(3);
  int acknowledged = 0;
  for (int i = 0; i < kRecords; ++i) {
    for (int32_t partition = 0; partition < 2; ++partition) {
      std::string value;  // does not compress
      while (value.size() < 700) value.push_back(static_cast<char>(random.Below(256)));
      ASSERT_TRUE(producer().Append(
          Record({"dispatch", partition}, "k", value),
          [&](const absl::StatusOr<int64_t>& at) { acknowledged += at.ok() ? 1 : 0; }));
    }
    if (i % 20 == 19) {
      ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
    }
  }
  ASSERT_EQ(acknowledged, 2 * kRecords);
  Close();
  std::string table;
  for (const auto& entry : fs::directory_iterator(options_.directory + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    if (table.empty() || fs::file_size(entry.path()) > fs::file_size(table)) {
      table = entry.path().string();
    }
  }
  {
    std::fstream file(table, std::ios::in | std::ios::out | std::ios::binary);
    // In the first partition's records.
    file.seekp(static_cast<std::streamoff>(fs::file_size(table) / 4));
    file.write("damaged", 7);
  }
  Open();
  const size_t first = ReadWithAJob("worker");
  EXPECT_LT(first, 2u * kRecords);
  EXPECT_GT(first, 2u * kRecords - 200) << "a block or two";
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 1);
  // Others that meet it, wherever they begin, and retention, which looks by halving.
  EXPECT_EQ(ReadWithAJob("another"), first);
  for (int64_t offset = 0; offset < kRecords; offset += 97) {
    ASSERT_TRUE(log_->ResetGroup("third", {{{"dispatch", 0}, {offset, ""}}}, kTimeout).ok());
    ReadWithAJob("third");
  }
  clock_.Advance(std::chrono::hours(24 * 8));
  log_->RunUpkeep();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 1);
}

}  // namespace
}  // namespace postrider::tests
