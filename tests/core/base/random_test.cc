#include "core/base/random.h"

#include "gtest/gtest.h"

namespace postrider {
namespace {

TEST(RandomTest, GivesTheSeriesOfItsSeed) {
  // The reference outputs of SplitMix64 for the seed 1234567.
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
}

TEST(RandomTest, StaysBelowTheBoundAndReachesEveryValue) {
  Random random(7);
  int seen[5] = {};
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random.Below(5);
    ASSERT_LT(value, 5u);
    ++seen[value];
  }
  for (const int count : seen) EXPECT_GT(count, 100);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(RandomTest, GivesFractionsFromZeroToBelowOne) {
  Random random(7);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = random.Fraction();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
}

}  // namespace
}  // namespace postrider
