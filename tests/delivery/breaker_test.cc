#include "delivery/breaker.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/base/clock.h"
#include "core/base/random.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class BreakerTest : public testing::Test {
 protected:
  void Fail(int times) {
    for (int i = 0; i < times; ++i) breaker_.OnFailure(now_, false, random_);
  }
  void Succeed(int times) {
    for (int i = 0; i < times; ++i) breaker_.OnSuccess(now_, false);
  }
  // Opens it and lets its rest pass.
  void OpenAndRest() {
    Fail(10);
    ASSERT_EQ(breaker_.state(), Breaker::State::kOpen);
    now_ = breaker_.open_until();
  }

  BreakerOptions options_;
  Breaker breaker_{options_};
  Random random_{7};
  MonotonicTime now_{seconds(1'000'000)};
};

TEST_F(BreakerTest, OpensAtTheTenthFailureInARowAndNotAtTheNinth) {
  Fail(9);
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
  EXPECT_EQ(breaker_.MayStartAt(), MonotonicTime{});
  EXPECT_TRUE(breaker_.OnFailure(now_, false, random_));
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
  EXPECT_GT(breaker_.MayStartAt(), now_);
}

TEST_F(BreakerTest, ASuccessBeginsTheRowAnew) {
  Fail(9);
  Succeed(1);
  Fail(9);
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
}

TEST_F(BreakerTest, FailuresInARowCountHoweverLongTheyTake) {
  for (int i = 0; i < 9; ++i) {
    Fail(1);
    now_ += seconds(600);
  }
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
  Fail(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
}

TEST_F(BreakerTest, OpensWhenHalfOfTwentyHaveFailedAndNotOfNineteen) {
  for (int i = 0; i < 9; ++i) {
    Fail(1);
    Succeed(1);
  }
  Succeed(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed) << "9 of 19";
  Fail(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen) << "10 of 20";
}

TEST_F(BreakerTest, StaysClosedWhenLessThanHalfHaveFailed) {
  for (int i = 0; i < 1'000; ++i) {
    Fail(1);
    Succeed(2);
  }
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
}

TEST_F(BreakerTest, OutcomesOfMoreThanThirtySecondsAgoSayNothing) {
  Succeed(15);
  now_ += seconds(30);
  for (int i = 0; i < 9; ++i) {
    Fail(1);
    Succeed(1);
  }
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
  Fail(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed) << "10 of 19";
  Succeed(1);
  Fail(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen) << "11 of 21";
}

TEST_F(BreakerTest, ProbesWithOneRequestWhenItsRestIsOver) {
  OpenAndRest();
  EXPECT_EQ(breaker_.MayStartAt(), now_);
  EXPECT_TRUE(breaker_.OnStart());
  EXPECT_EQ(breaker_.state(), Breaker::State::kProbing);
  EXPECT_FALSE(breaker_.MayStartAt().has_value());
  EXPECT_TRUE(breaker_.OnSuccess(now_, true));
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
  EXPECT_FALSE(breaker_.OnStart()) << "no probe any more";
}

TEST_F(BreakerTest, AfterAProbeTheCountsBeginAnew) {
  OpenAndRest();
  breaker_.OnStart();
  breaker_.OnSuccess(now_, true);
  Fail(9);
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
}

TEST_F(BreakerTest, RestsInTheUpperHalfOfABoundThatDoublesUpToItsMost) {
  OpenAndRest();
  const milliseconds bounds[] = {milliseconds(2'000),  milliseconds(4'000),  milliseconds(8'000),
                                 milliseconds(16'000), milliseconds(32'000), milliseconds(60'000),
                                 milliseconds(60'000)};
  for (const milliseconds bound : bounds) {
    ASSERT_TRUE(breaker_.OnStart());
    breaker_.OnFailure(now_, true, random_);
    const Duration rest = breaker_.open_until() - now_;
    EXPECT_LE(rest, bound);
    EXPECT_GE(rest, bound / 2);
    now_ = breaker_.open_until();
  }
}

TEST_F(BreakerTest, NoTwoRestTheSame) {
  Breaker other(options_);
  Random others_random(8);
  Fail(10);
  for (int i = 0; i < 10; ++i) other.OnFailure(now_, false, others_random);
  EXPECT_NE(breaker_.open_until(), other.open_until());
}

TEST_F(BreakerTest, WhatWasBegunBeforeItOpenedSaysNothing) {
  Fail(10);
  const MonotonicTime until = breaker_.open_until();
  Fail(20);
  Succeed(20);
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
  EXPECT_EQ(breaker_.open_until(), until);
  now_ = until;
  breaker_.OnStart();
  Fail(1);
  Succeed(1);
  EXPECT_EQ(breaker_.state(), Breaker::State::kProbing);
}

TEST_F(BreakerTest, AProbeThatSaysNothingIsFollowedByAnotherOne) {
  OpenAndRest();
  breaker_.OnStart();
  EXPECT_TRUE(breaker_.OnNeutral(now_, true));
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
  EXPECT_EQ(breaker_.MayStartAt(), now_);
  EXPECT_FALSE(breaker_.OnNeutral(now_, false)) << "of another request";
}

// Else what can reach nobody would try without a pause.
TEST_F(BreakerTest, RestsAfterAProbeInOurOwnOutageButNotForLong) {
  OpenAndRest();
  for (int i = 0; i < 20; ++i) {
    breaker_.OnStart();
    EXPECT_FALSE(breaker_.OnOutage(now_, false, random_)) << "of another request";
    EXPECT_TRUE(breaker_.OnOutage(now_, true, random_));
    EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
    const Duration rest = breaker_.open_until() - now_;
    EXPECT_GE(rest, i == 0 ? milliseconds(1'000) : milliseconds(2'000)) << i;
    EXPECT_LE(rest, seconds(10)) << i;
    now_ = breaker_.open_until();
  }
  EXPECT_EQ(breaker_.failures_in_a_row(), 10);
}

TEST_F(BreakerTest, OpensForLongerWhenItOpensAgainSoon) {
  OpenAndRest();
  breaker_.OnStart();
  breaker_.OnSuccess(now_, true);
  now_ += seconds(29);
  Fail(10);
  EXPECT_EQ(breaker_.opened(), 2);
  EXPECT_GE(breaker_.open_until() - now_, seconds(1));
}

TEST_F(BreakerTest, OpensForAShortTimeWhenItWasClosedForLong) {
  OpenAndRest();
  breaker_.OnStart();
  breaker_.OnSuccess(now_, true);
  now_ += seconds(30);
  Fail(10);
  EXPECT_EQ(breaker_.opened(), 1);
  EXPECT_LE(breaker_.open_until() - now_, seconds(1));
}

TEST_F(BreakerTest, GoesOnWhereAPredecessorLeftIt) {
  breaker_.Restore(now_ + seconds(20), 5);
  EXPECT_EQ(breaker_.state(), Breaker::State::kOpen);
  EXPECT_EQ(breaker_.MayStartAt(), now_ + seconds(20));
  EXPECT_EQ(breaker_.opened(), 5);
  breaker_.OnStart();
  breaker_.OnFailure(now_, true, random_);
  EXPECT_GE(breaker_.open_until() - now_, seconds(16)) << "the sixth rest";
}

TEST_F(BreakerTest, IsClosedWhenItIsReset) {
  OpenAndRest();
  breaker_.Reset();
  EXPECT_EQ(breaker_.state(), Breaker::State::kClosed);
  EXPECT_EQ(breaker_.opened(), 0);
  EXPECT_EQ(breaker_.failures_in_a_row(), 0);
}

TEST_F(BreakerTest, ProbesAtOnceWhenToldSo) {
  Fail(10);
  breaker_.ProbeNow(now_);
  EXPECT_EQ(breaker_.MayStartAt(), now_);
}

}  // namespace
}  // namespace postrider::delivery
