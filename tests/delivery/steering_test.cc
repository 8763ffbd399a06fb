#include "delivery/steering.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

absl::optional<int64_t> BatchMax(const std::string& value) {
  return ReadSteering({{"webhook-batch-max", value}}).events_max;
}
absl::optional<double> Rate(const std::string& value) {
  return ReadSteering({{"webhook-rate", value}}).messages_per_second;
}

TEST(SteeringTest, ReadsPlainNumbersWithinTheirBounds) {
  EXPECT_EQ(BatchMax("1"), 1);
  EXPECT_EQ(BatchMax(" 250 "), 250);
  EXPECT_EQ(BatchMax("5000"), 5000);
  EXPECT_EQ(BatchMax("5001"), 5000);
  EXPECT_EQ(BatchMax("999999999"), 5000);
  EXPECT_EQ(Rate("10"), 10.0);
  EXPECT_EQ(Rate("12.5"), 12.5);
  EXPECT_EQ(Rate("0.001"), 0.001);
  EXPECT_EQ(Rate("999999999.999"), 999'999'999.999);
}

TEST(SteeringTest, WhatIsNoPlainNumberIsAsIfItWereNotThere) {
  for (const std::string text : {"", "0", "-1", "+1", "1.5", "1e3", "0x10", "ten", "1 0", "1,000",
                                 "9999999999", "NaN", "inf", "1;q=1"}) {
    EXPECT_FALSE(BatchMax(text)) << text;
  }
  for (const std::string text : {"", "0", "0.0", "0.0001", "-1", "+1", ".5", "5.", "1.2.3", "1e3",
                                 "9999999999", "nan", "inf", "1/s", "1.1234"}) {
    EXPECT_FALSE(Rate(text)) << text;
  }
}

TEST(SteeringTest, OfSeveralTheSmallestValidOneCounts) {
  const Steering steering = ReadSteering({{"webhook-batch-max", "50"},
                                          {"webhook-rate", "3"},
                                          {"webhook-batch-max", "no"},
                                          {"webhook-batch-max", "20"},
                                          {"webhook-rate", "4"},
                                          {"webhook-other", "1"},
                                          {"retry-after", "1"}});
  EXPECT_EQ(steering.events_max, 20);
  EXPECT_EQ(steering.messages_per_second, 3.0);
}

TEST(LearnedLimitsTest, HoldForADayFromWhenTheyWereSaidLast) {
  const MonotonicTime start(hours(1));
  LearnedLimits learned;
  EXPECT_TRUE(learned.Learn({20, 3.0}, start));
  EXPECT_FALSE(learned.Learn({20, {}}, start + hours(1)));
  EXPECT_FALSE(learned.Expire(start + hours(24) - nanoseconds(1)));
  EXPECT_TRUE(learned.Expire(start + hours(24)));
  EXPECT_FALSE(learned.messages_per_second);
  EXPECT_EQ(learned.events_max, 20);
  EXPECT_FALSE(learned.Expire(start + hours(25) - nanoseconds(1)));
  EXPECT_TRUE(learned.Expire(start + hours(25)));
  EXPECT_FALSE(learned.any());
  EXPECT_TRUE(learned.Learn({30, {}}, start));
  EXPECT_TRUE(learned.Learn({40, {}}, start)) << "the last one counts";
  EXPECT_EQ(learned.events_max, 40);
}

TEST(LearnedLimitsTest, TooLargeHalvesDownToTheLeastThatMayBeSet) {
  LearnedLimits learned;
  EXPECT_TRUE(learned.LearnTooLarge(100'000, {}));
  EXPECT_EQ(learned.bytes_max, 50'000);
  EXPECT_FALSE(learned.LearnTooLarge(200'000, {})) << "never up again by a larger one";
  EXPECT_TRUE(learned.LearnTooLarge(50'000, {}));
  EXPECT_EQ(learned.bytes_max, 25'000);
  EXPECT_TRUE(learned.LearnTooLarge(10, {}));
  EXPECT_EQ(learned.bytes_max, 1'024);
  EXPECT_FALSE(learned.LearnTooLarge(10, {}));
}

}  // namespace
}  // namespace postrider::delivery
