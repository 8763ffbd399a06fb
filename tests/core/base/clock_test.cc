#include "core/base/clock.h"

#include <chrono>

#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(SystemClockTest, NeverGoesBack) {
  const SystemClock clock;
  MonotonicTime last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClockTest, TellsTheTimeOfDayOfTheSystem) {
  const auto before = std::chrono::floor<milliseconds>(std::chrono::system_clock::now());
  const WallTime wall = SystemClock().Wall();
  EXPECT_GE(wall, before);
  EXPECT_LE(wall, std::chrono::system_clock::now());
}

TEST(WallTimeTest, IsMadeOfMillisecondsSinceTheEpochAndBack) {
  EXPECT_EQ(MillisSinceEpoch(WallTimeFromMillis(1'700'000'000'123)), 1'700'000'000'123);
  EXPECT_EQ(MillisSinceEpoch(WallTimeFromMillis(-1)), -1);
}

TEST(ManualClockTest, MovesBothTimesByWhatItIsAdvanced) {
  ManualClock clock;
  const MonotonicTime now = clock.Now();
  const WallTime wall = clock.Wall();
  EXPECT_EQ(clock.Now(), now);
  clock.Advance(milliseconds(5));
  EXPECT_EQ(clock.Now(), now + milliseconds(5));
  EXPECT_EQ(clock.Wall(), wall + milliseconds(5));
}

TEST(ManualClockTest, AddsUpStepsBelowAMillisecond) {
  ManualClock clock;
  const WallTime wall = clock.Wall();
  clock.Advance(microseconds(999));
  EXPECT_EQ(clock.Wall(), wall);
  clock.Advance(microseconds(1));
  EXPECT_EQ(clock.Wall(), wall + milliseconds(1));
}

TEST(ManualClockTest, JumpsTheWallClockAlone) {
  ManualClock clock;
  const MonotonicTime now = clock.Now();
  const WallTime back = clock.Wall() - hours(1);
  clock.SetWall(back);
  EXPECT_EQ(clock.Wall(), back);
  EXPECT_EQ(clock.Now(), now);
}

}  // namespace
}  // namespace postrider
