#include "delivery/backlog_levels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "core/base/id.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {
namespace {

subscriptions::CustomerId Customer(uint8_t n) {
  IdBytes bytes{};
  bytes[15] = n;
  return subscriptions::CustomerId(bytes);
}

// Two functions, of whatever shards.
const int kOne = 0;
const int kOther = 0;

TEST(BacklogLevelsTest, TheLevelLeavesSmallOnesAloneAndFillsTheBoundExactly) {
  EXPECT_EQ(LevelOf({}, 0), UINT64_MAX);
  EXPECT_EQ(LevelOf({400, 600}, 1'000), UINT64_MAX);
  EXPECT_EQ(LevelOf({400, 601}, 1'000), 600u);
  EXPECT_EQ(LevelOf({900, 50, 900, 150}, 1'000), 400u);
  EXPECT_EQ(LevelOf({500, 500}, 0), 0u);
  EXPECT_EQ(LevelOf({700, 700, 700}, 1'000), 333u);
}

TEST(BacklogLevelsTest, ACustomersBoundCountsWhatAllFunctionsOfTheProcessHold) {
  BacklogLevels backlogs(1'000);
  backlogs.Tell(&kOne, {{Customer(1), {500, 300}}, {Customer(2), {1'000}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), UINT64_MAX);
  backlogs.Tell(&kOther, {{Customer(1), {400}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), 350u) << "300 + 350 + 350";
  EXPECT_EQ(backlogs.levels()->Of(Customer(2)), UINT64_MAX) << "at its bound, not beyond it";
}

TEST(BacklogLevelsTest, WhatIsToldTakesThePlaceOfWhatWasToldBefore) {
  BacklogLevels backlogs(1'000);
  backlogs.Tell(&kOne, {{Customer(1), {1'500}}});
  const std::shared_ptr<const BacklogLevels::Levels> before = backlogs.levels();
  EXPECT_EQ(before->Of(Customer(1)), 1'000u);
  backlogs.Tell(&kOne, {{Customer(1), {1'000}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), UINT64_MAX);
  EXPECT_EQ(before->Of(Customer(1)), 1'000u) << "who looks at it sees no change";
}

TEST(BacklogLevelsTest, AFunctionThatIsGoneHoldsNothing) {
  BacklogLevels backlogs(1'000);
  backlogs.Tell(&kOne, {{Customer(1), {700}}});
  backlogs.Tell(&kOther, {{Customer(1), {700}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), 500u);
  backlogs.Forget(&kOther);
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), UINT64_MAX);
}

TEST(BacklogLevelsTest, TheLargestOfAllMakeRoomWhenAllTogetherHaveABound) {
  BacklogLevels backlogs(1'000);
  backlogs.Tell(&kOne, {{Customer(1), {900}}, {Customer(2), {100}}});
  backlogs.Tell(&kOther, {{Customer(3), {500}}});
  EXPECT_EQ(backlogs.held(), 1'500u);
  EXPECT_EQ(backlogs.levels()->Of(Customer(3)), UINT64_MAX);
  backlogs.SetBytesMax(900);
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), 400u);
  EXPECT_EQ(backlogs.levels()->Of(Customer(2)), 400u) << "and has less";
  backlogs.Tell(&kOne, {{Customer(1), {400}}, {Customer(2), {100}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(3)), 400u);
  backlogs.Tell(&kOther, {{Customer(3), {400}}});
  EXPECT_EQ(backlogs.levels()->Of(Customer(3)), UINT64_MAX);
  backlogs.SetBytesMax(899);
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), 399u);
  backlogs.SetBytesMax(UINT64_MAX);
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), UINT64_MAX);
}

TEST(BacklogLevelsTest, TheNarrowerOfTwoBoundsCounts) {
  BacklogLevels backlogs(1'000);
  backlogs.Tell(&kOne, {{Customer(1), {1'500}}, {Customer(2), {1'000}}});
  backlogs.SetBytesMax(2'200);
  EXPECT_EQ(backlogs.levels()->Of(Customer(1)), 1'000u);
  EXPECT_EQ(backlogs.levels()->Of(Customer(2)), 1'200u);
}

}  // namespace
}  // namespace postrider::delivery
