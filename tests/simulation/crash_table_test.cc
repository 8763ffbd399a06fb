#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/stream/changelog.h"
#include "core/stream/state_key.h"
#include "gtest/gtest.h"
#include "tests/simulation/world.h"

namespace postrider::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One partition, one record at offset 0. A process is killed at a certain point; another one goes
// on.
class CrashTable : public ::testing::Test {
 protected:
  CrashTable() {
    world_.receive = [this](int32_t, const std::vector<int64_t>& offsets, int) {
      arrived_.insert(arrived_.end(), offsets.begin(), offsets.end());
      return Answer{takes_, takes_, milliseconds(20)};
    };
    EXPECT_EQ(world_.Produce(0, "k0"), 0);
  }

  static bool IsBacklog(const AppendRecord& record, ChangelogKind kind) {
    if (record.topic != Oracle::kBacklog) return false;
    const auto decoded = DecodeChangelogRecord(record.key, record.value);
    if (!decoded.ok() || decoded->kind != kind) return false;
    const auto key = DecodeStateKey(decoded->identity);
    return key && key->state == Oracle::kBacklogId;
  }
  // Runs until the process has died of what `arm` has set, and stands by while its session ends.
  void Kill(const std::function<void(Process&)>& arm) {
    Process& process = world_.Start();
    arm(process);
    ASSERT_TRUE(world_.PassUntil([this] { return world_.processes.empty(); }, seconds(10)));
    ASSERT_FALSE(world_.oracle.fault()) << *world_.oracle.fault();
    arrived_before_ = arrived_.size();
  }
  void GoOn() {
    takes_ = true;
    world_.Start();
    const bool ended = world_.PassUntil([this] { return !world_.Unfinished(); }, seconds(20));
    EXPECT_FALSE(world_.oracle.fault()) << *world_.oracle.fault();
    ASSERT_TRUE(ended) << *world_.Unfinished();
    world_.Pass(seconds(1));
    world_.processes.clear();
    world_.BeginAgain();
    EXPECT_FALSE(world_.oracle.fault()) << *world_.oracle.fault();
  }
  size_t arrived_after() const { return arrived_.size() - arrived_before_; }

  World world_{1, 1};
  bool takes_ = true;
  std::vector<int64_t> arrived_;
  size_t arrived_before_ = 0;
};

TEST_F(CrashTable, KilledAfterProduceSendsTheParkedRecordOnce) {
  takes_ = false;
  Kill([](Process& process) {
    process.log->after_append = [&process](const AppendRecord& record) {
      if (IsBacklog(record, ChangelogKind::kPut)) process.log_faults.dead = true;
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 1u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 1);
}

TEST_F(CrashTable, KilledAfterAcknowledgedSendsTheParkedRecordOnce) {
  takes_ = false;
  Kill([](Process& process) {
    process.log->after_answer = [&process](const AppendRecord& record) {
      if (IsBacklog(record, ChangelogKind::kPut)) process.log_faults.dead = true;
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 1u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 1);
}

TEST_F(CrashTable, KilledAfterCommitReadsTheRecordNoMoreAndSendsItOnce) {
  takes_ = false;
  Kill([](Process& process) {
    process.log->after_commit = [&process](const CommitEntry& entry) {
      if (entry.position.offset == 1) process.log_faults.dead = true;
    };
  });
  EXPECT_EQ(world_.Committed(0), 1);
  GoOn();
  EXPECT_EQ(arrived_after(), 1u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 1);
}

TEST_F(CrashTable, KilledAfterTheReceiversAnswerRepeatsAFreshRecordOnce) {
  Kill([](Process& process) {
    process.surroundings.on_answer = [&process](bool) { process.log_faults.dead = true; };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 1u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 2);
}

TEST_F(CrashTable, KilledBetweenTheReceiversAnswerAndTheDeleteRepeatsAnEntryOnce) {
  takes_ = false;
  Kill([this](Process& process) {
    process.surroundings.on_answer = [this, &process](bool ok) {
      if (ok) process.log_faults.dead = true;
      takes_ = true;  // the first attempt only is refused
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 1u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 2);
}

TEST_F(CrashTable, KilledAfterTheDeleteRepeatsNothing) {
  takes_ = false;
  Kill([this](Process& process) {
    process.surroundings.on_answer = [this](bool) { takes_ = true; };
    process.log->after_append = [&process](const AppendRecord& record) {
      if (IsBacklog(record, ChangelogKind::kErase)) process.log_faults.dead = true;
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 0u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 1);
}

TEST_F(CrashTable, KilledBetweenTheLetterAndTheDeleteWritesTheLetterAgainAndSendsNothing) {
  takes_ = false;
  world_.surroundings.attempts_max = 0;
  Kill([](Process& process) {
    process.log->after_append = [&process](const AppendRecord& record) {
      if (record.topic == Oracle::kLetters) process.log_faults.dead = true;
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 0u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 0);
  EXPECT_EQ(world_.log.Records({Oracle::kLetters, 0}).size(), 2u);
}

TEST_F(CrashTable, KilledAfterTheLetterWasAcknowledgedWritesItAgainAndSendsNothing) {
  takes_ = false;
  world_.surroundings.attempts_max = 0;
  Kill([](Process& process) {
    process.log->after_answer = [&process](const AppendRecord& record) {
      if (record.topic == Oracle::kLetters) process.log_faults.dead = true;
    };
  });
  GoOn();
  EXPECT_EQ(arrived_after(), 0u);
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 0);
  EXPECT_EQ(world_.log.Records({Oracle::kLetters, 0}).size(), 2u);
}

// Before anything of it is durable: as if it had never been there.
TEST_F(CrashTable, KilledBeforeTheClaimIsAcknowledgedSendsTheRecordOnce) {
  Kill([](Process& process) {
    process.log->after_commit = [&process](const CommitEntry&) { process.log_faults.dead = true; };
  });
  EXPECT_EQ(arrived_before_, 0u);
  GoOn();
  EXPECT_EQ(world_.oracle.deliveries(0, 0), 1);
}

}  // namespace
}  // namespace postrider::simulation
