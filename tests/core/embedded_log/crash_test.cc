#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/random.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/fault_file_system.h"
#include "tests/core/embedded_log/log_fixture.h"
#include "tests/support/status_matchers.h"

namespace postrider::tests {
namespace {

constexpr int32_t kPartitions = 3;

// The value that belongs at an offset, so that whatever is read can be told from damage.
std::string ValueAt(int32_t partition, int64_t offset) {
  return absl::StrCat(partition, "/", offset, ":",
                      std::string(static_cast<size_t>(offset * 37 % 900), 'v'));
}

class CrashTest : public EmbeddedLogTest {
 protected:
  // Keeps `ahead` records on their way and tells of every one that is acknowledged, forever or
  // until `go_on` says no; also of those that are acknowledged after that.
  void AppendOn(size_t ahead, const std::function<void(int32_t, int64_t)>& acknowledged,
                const std::function<bool()>& go_on) {
    POSTRIDER_CHECK(producer().pending() == 0);  // else their offsets were not known
    std::vector<int64_t> next;
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      next.push_back(log_->Offsets({"a", partition}, kTimeout)->end);
    }
    size_t turn = 0;
    while (go_on()) {
      while (producer().pending() < ahead) {
        const auto partition = static_cast<int32_t>(turn++ % kPartitions);
        const int64_t offset = next[static_cast<size_t>(partition)]++;
        const bool taken =
            producer().Append(Record({"a", partition}, "k", ValueAt(partition, offset)),
                              [acknowledged, partition, offset](const absl::StatusOr<int64_t>& at) {
                                if (!at.ok()) return;
                                POSTRIDER_CHECK(*at == offset);
                                acknowledged(partition, offset);
                              });
        POSTRIDER_CHECK(taken);
      }
      loop_->RunOnce(std::chrono::milliseconds(1));
    }
  }
  // All below `ends` is there; what is there is right.
  void Check(const std::vector<int64_t>& ends) {
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      const WholeReader reader = ReadAll({"a", partition});
      ASSERT_GE(static_cast<int64_t>(reader.records.size()), ends[static_cast<size_t>(partition)])
          << "lost of partition " << partition;
      int64_t offset = 0;
      for (const KeptRecord& record : reader.records) {
        ASSERT_EQ(record.offset, offset);
        ASSERT_EQ(record.value, ValueAt(partition, offset));
        ++offset;
      }
    }
  }
};

TEST_F(CrashTest, KeepsWhatItHasAcknowledgedWhenItIsKilled) {
  Open();
  MakeTopic("a", kPartitions);
  Close();
  Random random(11);
  std::vector<int64_t> ends(kPartitions, 0);
  for (int round = 0; round < 6; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_fds[0]);
      Open();
      AppendOn(
          200,
          [&](int32_t partition, int64_t offset) {
            const int64_t told[2] = {partition, offset};
            POSTRIDER_CHECK(write(pipe_fds[1], told, sizeof(told)) == sizeof(told));
          },
          [] { return true; });
      _exit(0);
    }
    close(pipe_fds[1]);
    const auto kill_after = static_cast<int64_t>(random.Below(3'000)) + 1;
    int64_t acknowledged = 0;
    int64_t told[2];
    while (read(pipe_fds[0], told, sizeof(told)) == sizeof(told)) {
      int64_t& end = ends[static_cast<size_t>(told[0])];
      end = std::max(end, told[1] + 1);
      if (++acknowledged == kill_after) kill(child, SIGKILL);
    }
    close(pipe_fds[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    ASSERT_GE(acknowledged, kill_after);
    Open();
    Check(ends);
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      ends[static_cast<size_t>(partition)] = log_->Offsets({"a", partition}, kTimeout)->end;
    }
    Close();
  }
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 0);
}

TEST_F(CrashTest, KeepsWhatItHasAcknowledgedWhenThePowerGoes) {
  FaultDisk disk;
  options_.env = disk.env();
  Open();
  MakeTopic("a", kPartitions);
  Random random(5);
  std::vector<int64_t> ends(kPartitions, 0);
  int64_t lost = 0;
  for (int round = 0; round < 10; ++round) {
    // In the middle of a group, of a sync or of a flush.
    disk.CutPowerAfter(1 + random.Below(120));
    AppendOn(
        1 + random.Below(300),
        [&](int32_t partition, int64_t offset) {
          ends[static_cast<size_t>(partition)] = offset + 1;
        },
        [&] { return !disk.cut(); });
    lost += static_cast<int64_t>(producer().pending());
    Close();
    disk.LoseUnsynced(random);
    Open();
    Check(ends);
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      ends[static_cast<size_t>(partition)] = log_->Offsets({"a", partition}, kTimeout)->end;
    }
  }
  EXPECT_GT(lost, 0) << "the power went while something was on its way";
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 0) << "a torn end is no damage";
  Close();
}

TEST_F(CrashTest, WaitsForRoomOnAFullDiskAndGoesOnByItself) {
  FaultDisk disk;
  options_.env = disk.env();
  Open();
  MakeTopic("a", kPartitions);
  std::vector<int64_t> ends(kPartitions, 0);
  const auto acknowledged = [&](int32_t partition, int64_t offset) {
    ends[static_cast<size_t>(partition)] = offset + 1;
  };
  AppendOn(50, acknowledged, [&] { return ends[0] < 300; });
  ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
  for (int round = 0; round < 3; ++round) {
    disk.SetFull(true);
    const int64_t before = ends[0];
    absl::optional<absl::StatusOr<int64_t>> answer;
    ASSERT_TRUE(producer().Append(Record({"a", 0}, "k", ValueAt(0, before)),
                                  [&](absl::StatusOr<int64_t> at) { answer = std::move(at); }));
    ASSERT_TRUE(Until([&] { return !log_->Ping(kTimeout).ok(); }));
    EXPECT_EQ(log_->Ping(kTimeout).code(), absl::StatusCode::kResourceExhausted)
        << log_->Ping(kTimeout);
    EXPECT_EQ(ReadAll({"a", 0}).records.size(), static_cast<size_t>(before)) << "reads go on";
    EXPECT_FALSE(answer.has_value());
    EXPECT_EQ(Metric("postrider_embedded_log_writable"), 0);
    disk.SetFull(false);
    ASSERT_TRUE(Until([&] { return answer.has_value(); }));
    EXPECT_EQ(answer->value_or(-1), before);
    ASSERT_TRUE(Until([&] { return log_->Ping(kTimeout).ok(); }));
    ends[0] = before + 1;
    AppendOn(50, acknowledged, [&] { return ends[0] < before + 100; });
    ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
  }
  Check(ends);
  Reopen();
  Check(ends);
  Close();
}

TEST_F(CrashTest, TellsOfADiskThatHangsUntilItGoesOn) {
  FaultDisk disk;
  options_.env = disk.env();
  options_.slow_after = std::chrono::milliseconds(30);
  Open();
  MakeTopic("a", 1);
  disk.SetSyncHangs(true);
  absl::optional<absl::StatusOr<int64_t>> answer;
  ASSERT_TRUE(producer().Append(Record({"a", 0}, "k", "v"),
                                [&](absl::StatusOr<int64_t> at) { answer = std::move(at); }));
  ASSERT_TRUE(Until([&] { return !log_->Ping(kTimeout).ok(); }));
  EXPECT_EQ(log_->Ping(kTimeout).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Metric("postrider_embedded_log_writable"), 0);
  EXPECT_FALSE(answer.has_value());
  disk.SetSyncHangs(false);
  ASSERT_TRUE(Until([&] { return answer.has_value() && log_->Ping(kTimeout).ok(); }));
  EXPECT_OK(*answer);
  EXPECT_EQ(Metric("postrider_embedded_log_writable"), 1);
  Close();
}

TEST_F(CrashTest, RefusesEventsOnADiskThatIsNearlyFullAndTakesAllElse) {
  std::atomic<uint64_t> available{2'000};
  std::atomic<int> looks{0};
  options_.reserve_bytes = 1'000;
  options_.slow_after = std::chrono::milliseconds(60);  // a third of it between two looks
  options_.space = [&] {
    ++looks;
    return std::filesystem::space_info{1'000'000, available, available};
  };
  Open();
  MakeTopic("events", 1);
  MakeTopic("dispatch", 1, {{"retention.ms", "-1"}});
  MakeTopic("state", 1, {{"cleanup.policy", "compact"}});
  const auto append = [&](const std::string& topic) {
    return Append(Record({topic, 0}, "k", "v")).status();
  };
  EXPECT_OK(append("events"));
  available = 999;
  ASSERT_TRUE(Until([&] { return absl::IsResourceExhausted(append("events")); }));
  EXPECT_OK(append("dispatch"));
  EXPECT_OK(append("state"));
  EXPECT_EQ(Metric("postrider_embedded_log_takes_events"), 0);
  EXPECT_OK(log_->Ping(kTimeout)) << "what is there is delivered";
  available = 1'100;
  ASSERT_TRUE(Until([&, before = looks.load()] { return looks > before + 1; }));
  EXPECT_TRUE(absl::IsResourceExhausted(append("events"))) << "a quarter more";
  available = 1'250;
  ASSERT_TRUE(Until([&] { return Metric("postrider_embedded_log_takes_events") == 1; }))
      << "though nothing is written";
  EXPECT_OK(append("events"));
  Close();
}

TEST_F(CrashTest, DoesNotBelieveADiskThatFailedToSync) {
  FaultDisk disk;
  options_.env = disk.env();
  Open();
  MakeTopic("a", kPartitions);
  Random random(3);
  std::vector<int64_t> ends(kPartitions, 0);
  const auto acknowledged = [&](int32_t partition, int64_t offset) {
    ends[static_cast<size_t>(partition)] = offset + 1;
  };
  AppendOn(50, acknowledged, [&] { return ends[0] < 100; });
  ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
  disk.SetSyncFails(true);
  AppendOn(50, acknowledged, [&] { return log_->Ping(kTimeout).ok(); });
  const int64_t before = ends[0];
  disk.SetSyncFails(false);
  ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
  EXPECT_GT(ends[0], before);
  disk.CutPowerAfter(0);
  Close();
  disk.LoseUnsynced(random);
  Open();
  Check(ends);
  Close();
}

}  // namespace
}  // namespace postrider::tests
