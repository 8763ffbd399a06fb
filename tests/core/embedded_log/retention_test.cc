#include <chrono>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"

namespace postrider::tests {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST_F(EmbeddedLogTest, KeepsRecordsUntilTheirTimeIsOver) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "3600000"}});
  AppendMany({"a", 0}, 10, 10);
  clock_.Advance(milliseconds(1));
  AppendMany({"a", 0}, 10, 10, 10);
  clock_.Advance(hours(1) - milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 0) << "an hour old, not older";
  clock_.Advance(milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 10);
  clock_.Advance(hours(2));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 20);
  EXPECT_TRUE(ReadAll({"a", 0}).records.empty());
  AppendMany({"a", 0}, 1, 10);
  Reopen();
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), 1u);
}

TEST_F(EmbeddedLogTest, AgesNothingByAClockThatIsSetAhead) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "3600000"}});
  AppendMany({"a", 0}, 10, 10);
  clock_.SetWall(clock_.Wall() + hours(24 * 365));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 0);
  clock_.Advance(hours(1) + milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 10) << "an hour has passed";
}

TEST_F(EmbeddedLogTest, GoesOnAgingWhenTheClockIsSetBack) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "3600000"}});
  AppendMany({"a", 0}, 10, 10);
  clock_.SetWall(clock_.Wall() - hours(24));
  AppendMany({"a", 0}, 10, 10, 10);
  clock_.Advance(hours(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 0);
  clock_.Advance(milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 20);
  // A clock that is still behind at the next start ages nothing too early.
  AppendMany({"a", 0}, 10, 10, 20);
  Reopen();
  clock_.SetWall(clock_.Wall() - hours(48));
  Reopen();
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 20);
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), 10u);
}

TEST_F(EmbeddedLogTest, KeepsWhatIsFreshWhenAClockThatWasAheadIsSetRight) {
  clock_.SetWall(clock_.Wall() + hours(24 * 365));
  Open();
  for (const char* name : {"a", "b", "c"}) MakeTopic(name, 1, {{"retention.ms", "7200000"}});
  AppendMany({"a", 0}, 10, 10);
  clock_.Advance(hours(1));
  clock_.SetWall(clock_.Wall() - hours(24 * 365));
  AppendMany({"a", 0}, 10, 10, 10);
  AppendMany({"b", 0}, 10, 10);
  clock_.Advance(hours(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"b", 0}, kTimeout)->begin, 0) << "an hour old";
  clock_.Advance(milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 10) << "two hours old, and more";
  // By the clock that is right now.
  AppendMany({"b", 0}, 10, 10, 10);
  Reopen();
  AppendMany({"c", 0}, 10, 10);
  clock_.Advance(hours(2));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"b", 0}, kTimeout)->begin, 0) << "kept too long rather than too short";
  EXPECT_EQ(log_->Offsets({"c", 0}, kTimeout)->begin, 0);
  clock_.Advance(milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"c", 0}, kTimeout)->begin, 10);
}

TEST_F(EmbeddedLogTest, LeavesTimeToReadWhatWasStampedByAClockThatWasBehind) {
  const WallTime right = clock_.Wall();
  clock_.SetWall(right - hours(24));
  Open();
  MakeTopic("a", 1, {{"retention.ms", "7200000"}});
  AppendMany({"a", 0}, 10, 10);
  clock_.SetWall(right);
  AppendMany({"a", 0}, 10, 10, 10);
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 0);
  Reopen();
  clock_.Advance(hours(1) - milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), 20u) << "just appended, whatever their stamps say";
  clock_.Advance(milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 10);
}

TEST_F(EmbeddedLogTest, FindsATimeThoughTheClockWasSetBack) {
  Open();
  MakeTopic("a", 1);
  AppendMany({"a", 0}, 10, 10);
  const WallTime before = clock_.Wall();
  clock_.SetWall(before - hours(24));
  clock_.Advance(hours(1));
  AppendMany({"a", 0}, 10, 10, 10);
  clock_.SetWall(before + hours(2));
  AppendMany({"a", 0}, 10, 10, 20);
  EXPECT_EQ(OffsetForTime({"a", 0}, before).value_or(-1), 0);
  EXPECT_EQ(OffsetForTime({"a", 0}, before + milliseconds(1)).value_or(-1), 10)
      << "appended after it, whatever their stamps say";
  EXPECT_EQ(OffsetForTime({"a", 0}, before + hours(2)).value_or(-1), 20);
  EXPECT_EQ(OffsetForTime({"a", 0}, before + hours(3)).value_or(-1), 30) << "the end";
}

TEST_F(EmbeddedLogTest, KeepsForeverWithoutALimit) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "-1"}, {"retention.bytes", "-1"}});
  MakeTopic("week", 1);
  AppendMany({"a", 0}, 10, 10);
  AppendMany({"week", 0}, 10, 10);
  clock_.Advance(hours(24 * 7) + milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->begin, 0);
  EXPECT_EQ(log_->Offsets({"week", 0}, kTimeout)->begin, 10) << "Kafka's default";
}

TEST_F(EmbeddedLogTest, KeepsSoManyBytes) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "-1"}, {"retention.bytes", "500000"}});
  for (int i = 0; i < 1'000; i += 10) AppendMany({"a", 0}, 10, 1'000, i);
  log_->RunUpkeep();
  const auto range = log_->Offsets({"a", 0}, kTimeout);
  EXPECT_GT(range->begin, 500);
  EXPECT_LT(range->begin, 530);
  EXPECT_EQ(range->end, 1'000);
  EXPECT_EQ(ReadAll({"a", 0}).records.front().offset, range->begin);
}

TEST_F(EmbeddedLogTest, TopicsThatSayNothingKeepWhatTheLogIsToldAtEachStart) {
  options_.retention = hours(2);
  Open();
  MakeTopic("silent", 1, {});
  MakeTopic("says", 1, {{"retention.ms", "-1"}});
  for (int i = 0; i < 1'000; i += 10) {
    AppendMany({"silent", 0}, 10, 1'000, i);
    AppendMany({"says", 0}, 10, 1'000, i);
  }
  clock_.Advance(hours(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"silent", 0}, kTimeout)->begin, 0);
  options_.retention_bytes = 500'000;
  Reopen();
  log_->RunUpkeep();
  EXPECT_GT(log_->Offsets({"silent", 0}, kTimeout)->begin, 500);
  EXPECT_LT(log_->Offsets({"silent", 0}, kTimeout)->begin, 530);
  clock_.Advance(hours(1) + milliseconds(1));
  log_->RunUpkeep();
  EXPECT_EQ(log_->Offsets({"silent", 0}, kTimeout)->begin, 1'000);
  EXPECT_EQ(log_->Offsets({"says", 0}, kTimeout)->begin, 0) << "what it says itself rules";
}

TEST_F(EmbeddedLogTest, GivesTheDiskBackThatWasTrimmed) {
  Open();
  MakeTopic("a", 1, {{"retention.ms", "-1"}});
  AppendMany({"a", 0}, 100, 1'000);
  ASSERT_TRUE(Trim({"a", 0}, 50).ok());
  log_->RunUpkeep();
  std::string noise(100'000, '\0');
  uint64_t random = 1;
  int acknowledged = 0;
  for (int i = 0; i < 600; ++i) {
    for (char& byte : noise) {
      random = random * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
      byte = static_cast<char>(random >> 56);
    }
    ASSERT_TRUE(producer().Append(Record({"a", 0}, "k", noise), [&](absl::StatusOr<int64_t> done) {
      acknowledged += done.ok() ? 1 : 0;
    }));
    if (i % 100 == 99) {
      ASSERT_TRUE(Until([&] { return acknowledged == i + 1; }));
    }
  }
  log_->RunUpkeep();
  const double before = Metric("postrider_embedded_log_disk_bytes");
  EXPECT_GT(before, 40e6);
  ASSERT_TRUE(Trim({"a", 0}, 690).ok());
  log_->RunUpkeep();
  EXPECT_LT(Metric("postrider_embedded_log_disk_bytes"), before / 4);
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), 10u);
}

TEST_F(EmbeddedLogTest, GivesBackWhatTheFirstTrimHasFreedWhenTheDiskIsNearlyFull) {
  options_.reserve_bytes = 1'000;
  options_.space = [] { return std::filesystem::space_info{1'000'000, 999, 999}; };
  Open();
  MakeTopic("a", 1, {{"retention.ms", "3600000"}});
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    std::string noise(100'000, '\0');
    for (char& c : noise) c = static_cast<char>(random.Next());
    ASSERT_TRUE(Append(Record({"a", 0}, "k", noise)).ok());
  }
  Reopen();
  log_->RunUpkeep();
  EXPECT_GT(Metric("postrider_embedded_log_disk_bytes"), 5e6);
  clock_.Advance(hours(1) + milliseconds(1));
  log_->RunUpkeep();
  EXPECT_LT(Metric("postrider_embedded_log_disk_bytes"), 1e6);
}

}  // namespace
}  // namespace postrider::tests
