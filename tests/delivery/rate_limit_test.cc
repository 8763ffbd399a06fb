#include "delivery/rate_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>

#include "core/base/clock.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr MonotonicTime kStart{seconds(1'000'000)};

// How many requests of `messages` start within `span`, by who tries every millisecond.
int Started(RateLimit& limit, Duration span, size_t messages = 1, size_t bytes = 100) {
  int started = 0;
  for (MonotonicTime now = kStart; now < kStart + span; now += milliseconds(1)) {
    while (limit.MayStartAt() <= now) {
      limit.OnStart(now, messages, bytes);
      ++started;
      if (started > 1'000'000) return started;
    }
  }
  return started;
}

TEST(RateLimitTest, WithoutLimitsNothingWaits) {
  RateLimit limit;
  for (int i = 0; i < 100; ++i) limit.OnStart(kStart, 5'000, 10 << 20);
  EXPECT_LE(limit.MayStartAt(), kStart);
}

TEST(RateLimitTest, NoSecondHasMoreRequestsThanAllowed) {
  RateLimit limit;
  limit.SetRequests(5);
  std::deque<MonotonicTime> second;
  for (MonotonicTime now = kStart; now < kStart + seconds(60); now += milliseconds(1)) {
    if (limit.MayStartAt() > now) continue;
    limit.OnStart(now, 1, 1);
    second.push_back(now);
    while (second.front() <= now - seconds(1)) second.pop_front();
    ASSERT_LE(second.size(), 5u);
  }
}

TEST(RateLimitTest, ReachesItsRate) {
  for (const double rate : {1.0, 5.0, 10.0, 500.0}) {
    RateLimit limit;
    limit.SetRequests(rate);
    EXPECT_NEAR(Started(limit, seconds(20)), rate * 20, rate / 10 + 1) << rate;
  }
}

TEST(RateLimitTest, TakesATenthOfASecondInAdvanceAfterARest) {
  RateLimit limit;
  limit.SetRequests(100);
  int at_once = 0;
  while (limit.MayStartAt() <= kStart) {
    limit.OnStart(kStart, 1, 1);
    ++at_once;
  }
  EXPECT_EQ(at_once, 11);
}

TEST(RateLimitTest, CountsMessagesOfBatches) {
  RateLimit limit;
  limit.SetMessages(500);
  EXPECT_NEAR(Started(limit, seconds(20), 1'000), 10, 1);
}

TEST(RateLimitTest, AMessageLargerThanASecondsWorthGoesAndIsPaidForAfterwards) {
  RateLimit limit;
  limit.SetBytes(10);
  EXPECT_LE(limit.MayStartAt(), kStart);
  limit.OnStart(kStart, 1, 1'000);
  EXPECT_EQ(limit.MayStartAt(), kStart - RateBucket::kAdvance + seconds(100));
}

TEST(RateLimitTest, ADebtEndsWithinADay) {
  RateLimit limit;
  limit.SetBytes(0.001);
  limit.OnStart(kStart, 1, 10 << 20);
  EXPECT_EQ(limit.MayStartAt(), kStart + std::chrono::hours(24));
}

TEST(RateLimitTest, TheTightestLimitHolds) {
  RateLimit limit;
  limit.SetRequests(100);
  limit.SetMessages(1'000);
  limit.SetLearned(10);
  EXPECT_NEAR(Started(limit, seconds(10), 10), 10, 1);
}

TEST(RateLimitTest, ALimitThatIsTakenBackLeavesNoDebt) {
  RateLimit limit;
  limit.SetMessages(1);
  limit.OnStart(kStart, 1'000, 1);
  limit.SetMessages(absl::nullopt);
  EXPECT_LE(limit.MayStartAt(), kStart);
  limit.SetMessages(1);
  EXPECT_LE(limit.MayStartAt(), kStart);
}

}  // namespace
}  // namespace postrider::delivery
