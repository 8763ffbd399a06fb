// Clocks that are set: STATE-05 as far as the stream core decides. Durable timers are in
// tests/core/state/durable_timers_test.cc, deliveries in tests/system/ops_cases_test.py.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"
#include "tests/core/stream/shard_fixture.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<Duration>& Jumps() {
  static const auto& jumps = *new std::vector<Duration>{hours(1), hours(-1), hours(24), hours(-24)};
  return jumps;
}

class ClockCasesTest : public ShardTest {
 protected:
  void Jump(Duration by) {
    clock_.SetWall(clock_.Wall() + std::chrono::duration_cast<milliseconds>(by));
  }
};
using ClockCasesDurableTest = DurableTest;

TEST_F(ClockCasesTest, STATE_05_RunningTimersFollowTheMonotonicClockAlone) {
  auto a = Join();
  Settle({a.get()});
  for (const Duration jump : Jumps()) {
    a->Take(t0_);
    const MonotonicTime due = clock_.Now() + seconds(10);
    a->At(t0_).ctx().SetTimer("k", 1, due);
    Pass(seconds(5), {a.get()}, milliseconds(50));
    Jump(jump);
    Pass(milliseconds(4'950), {a.get()}, milliseconds(50));
    EXPECT_THAT(a->Take(t0_), IsEmpty());
    Pass(milliseconds(50), {a.get()}, milliseconds(50));
    EXPECT_THAT(a->Take(t0_),
                ElementsAre(absl::StrCat(
                    "timer k 1 ",
                    std::chrono::duration_cast<milliseconds>(due.time_since_epoch()).count())));
  }
}

TEST_F(ClockCasesTest, STATE_05_TheRightToActEndsByTheMonotonicClockAlone) {
  auto a = Join();
  for (const Duration jump : Jumps()) {
    Pass(seconds(2), {a.get()});
    ASSERT_TRUE(a->At(t0_).ctx().MayAct());
    Jump(jump);
    Pass(seconds(10), {a.get()}, milliseconds(50));
    EXPECT_TRUE(a->At(t0_).ctx().MayAct()) << "commits go on";
    log_.SetReachable(false);
    Jump(jump);
    Pass(seconds(3), {a.get()}, milliseconds(50));
    EXPECT_TRUE(a->At(t0_).ctx().MayAct()) << "no jump ends it early";
    Jump(-2 * jump);
    Pass(seconds(2), {a.get()}, milliseconds(50));
    EXPECT_FALSE(a->At(t0_).ctx().MayAct()) << "and none prolongs it";
    log_.SetReachable(true);
    Pass(seconds(2), {a.get()}, milliseconds(50));
  }
  // An answer that comes late is worth what is left of its five seconds.
  EXPECT_GE(a->Metric("postrider_stream_lease_lapses_total"), 4);
}

TEST_F(ClockCasesTest, STATE_05_CommitsGoOnAndNothingIsReadAgainAfterAJumpBetweenLives) {
  for (const Duration jump : Jumps()) {
    Write(t0_, 4);
    const int64_t end = log_.Records(t0_).back().offset + 1;
    auto a = Join();
    Pass(seconds(7), {a.get()}, milliseconds(100));
    a->At(t0_).CompleteAll();
    Jump(jump);
    Pass(milliseconds(400), {a.get()});
    EXPECT_EQ(Committed(t0_), end);
    const int64_t incarnation = Metadata(t0_).incarnation_ms;
    a.reset();  // crashed
    Jump(jump);
    auto b = Join();
    Pass(seconds(7), {b.get()}, milliseconds(100));
    EXPECT_THAT(b->At(t0_).pending(), IsEmpty());
    EXPECT_EQ(Metadata(t0_).incarnation_ms, incarnation) << "identities stay what they were";
    b.reset();
  }
}

// Whatever the clock says, only what is committed is trimmed. One that was set back trims later.
TEST_F(ClockCasesTest, STATE_05_TrimmingNeverPassesTheWatermarkWhateverTheClockSays) {
  for (const Duration jump : Jumps()) {
    const TopicPartition tp{absl::StrCat("trim", jump.count()), 0};
    log_.MakeTopic(tp.topic, 1);
    options_.trim_safety = hours(1);
    options_.group.group = tp.topic;
    options_.group.topics = {tp.topic};
    Write(tp, 10);
    auto a = Join();
    Settle({a.get()});
    for (int64_t offset = 0; offset < 6; ++offset) a->At(tp).Complete(offset);
    Jump(jump);
    Pass(minutes(3), {a.get()}, milliseconds(500));
    const auto records = log_.Records(tp);
    ASSERT_THAT(records, Not(IsEmpty()));
    EXPECT_LE(records.front().offset, 6);
    if (jump < Duration::zero()) {
      EXPECT_EQ(records.front().offset, 0);
    }
    Jump(-jump);
  }
}

// What a predecessor had in flight is held until its deadline by the wall clock of its successor.
// The result that comes in ends the wait whatever that clock says.
TEST_F(ClockCasesDurableTest, STATE_05_AResultEndsTheWaitOfASuccessorWhoseClockIsAnHourBack) {
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  const int64_t offset = Write(t0_, 1);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  auto b = Join();
  bool left = false;
  a->shard->Stop([&left] { left = true; });
  clock_.SetWall(clock_.Wall() - hours(1));
  Pass(seconds(10), {a.get(), b.get()});
  EXPECT_TRUE(left);
  EXPECT_EQ(world_.taken[Name(t0_, offset)], 1);
  EXPECT_EQ(world_.arrived[Name(t0_, offset)], 1);
  EXPECT_EQ(Committed(t0_), offset + 2) << "the record and its result";
}

}  // namespace
}  // namespace postrider
