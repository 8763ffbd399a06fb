#include "delivery/retry_policy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// RETRY-05
TEST(RetryPolicyTest, TheBoundNeverFallsAndNeverLeavesItsRange) {
  for (const Duration first :
       {Duration(milliseconds(1)), Duration(seconds(1)), Duration(hours(1)), Duration(hours(24))}) {
    for (const double factor : {1.0, 1.5, 2.0, 10.0}) {
      RetryPolicy policy;
      policy.first_delay = first;
      policy.factor = factor;
      policy.cap = hours(48);
      Duration last = first;
      for (const uint32_t retries :
           {0u, 1u, 23u, 24u, 31u, 32u, 40u, 62u, 63u, 64u, 1'000u, UINT32_MAX}) {
        const Duration bound = BackoffBound(policy, retries);
        EXPECT_GE(bound, last) << retries;
        EXPECT_LE(bound, policy.cap) << retries;
        last = bound;
      }
    }
  }
}

TEST(RetryPolicyTest, GrowsByTheFactorUpToTheCap) {
  RetryPolicy policy;
  policy.first_delay = seconds(1);
  policy.cap = seconds(20);
  EXPECT_EQ(BackoffBound(policy, 0), seconds(1));
  EXPECT_EQ(BackoffBound(policy, 1), seconds(2));
  EXPECT_EQ(BackoffBound(policy, 4), seconds(16));
  EXPECT_EQ(BackoffBound(policy, 5), seconds(20));
}

TEST(RetryPolicyTest, OddPoliciesStaySound) {
  RetryPolicy policy;
  policy.cap = milliseconds(10);
  EXPECT_EQ(BackoffBound(policy, 0), milliseconds(10));
  policy.cap = Duration::zero();
  EXPECT_EQ(BackoffBound(policy, UINT32_MAX), Duration::zero());
  policy.factor = std::numeric_limits<double>::quiet_NaN();
  policy.cap = seconds(5);
  EXPECT_LE(BackoffBound(policy, 7), seconds(5));
  policy.cap = Duration::max();
  policy.factor = 10;
  EXPECT_EQ(BackoffBound(policy, UINT32_MAX), Duration::max());
  Random random(1);
  EXPECT_GE(Backoff(policy, UINT32_MAX, random), Duration::zero());
}

// RETRY-04
TEST(RetryPolicyTest, DelaysAreSpreadEvenly) {
  constexpr int kDraws = 10'000;
  constexpr size_t kBuckets = 50;
  const RetryPolicy policy;
  Random random(20'300'101);
  for (uint32_t retries = 0; retries < 5; ++retries) {
    const auto bound = static_cast<double>(BackoffBound(policy, retries).count());
    std::array<int, kBuckets> buckets{};
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto delay = static_cast<double>(Backoff(policy, retries, random).count());
      ASSERT_GE(delay, 0);
      ASSERT_LE(delay, bound);
      sum += delay;
      ++buckets[std::min(kBuckets - 1, static_cast<size_t>(delay / bound * kBuckets))];
    }
    EXPECT_NEAR(sum / kDraws, bound / 2, bound / 2 * 0.02);
    double chi_square = 0;
    for (const int count : buckets) {
      constexpr double kExpected = static_cast<double>(kDraws) / kBuckets;
      chi_square += (count - kExpected) * (count - kExpected) / kExpected;
    }
    EXPECT_LT(chi_square, 85.35);  // 0.1 %, 49 degrees of freedom
  }
}

// RETRY-04
TEST(RetryPolicyTest, TwoWorkersDrawDifferently) {
  const RetryPolicy policy;
  Random one(1);
  Random two(2);
  EXPECT_NE(Backoff(policy, 3, one), Backoff(policy, 3, two));
}

TEST(RetryPolicyTest, EndsWhenTheAttemptsAreUsedUp) {
  const RetryPolicy policy;
  Random random(1);
  for (int made = 0; made < policy.attempts; ++made) {
    const absl::optional<Duration> delay = NextDelay(policy, made, random);
    ASSERT_TRUE(delay) << made;
    EXPECT_LE(*delay, BackoffBound(policy, made == 0 ? 0 : static_cast<uint32_t>(made - 1)));
  }
  EXPECT_FALSE(NextDelay(policy, policy.attempts, random));
  EXPECT_FALSE(NextDelay(policy, policy.attempts + 1, random));
}

TEST(RetryPolicyTest, AScheduleIsKeptToAndItsLastDelayHoldsForAllLaterOnes) {
  RetryPolicy policy;
  policy.attempts = 6;
  policy.schedule = {std::chrono::seconds(1), std::chrono::minutes(1), std::chrono::hours(1)};
  Random random(5);
  for (int attempts = 1; attempts < policy.attempts; ++attempts) {
    const size_t index = std::min<size_t>(static_cast<size_t>(attempts - 1), 2);
    const Duration wanted = policy.schedule[index];
    Duration least = Duration::max();
    Duration most{};
    for (int i = 0; i < 1'000; ++i) {
      const Duration delay = *NextDelay(policy, attempts, random);
      least = std::min(least, delay);
      most = std::max(most, delay);
    }
    EXPECT_GE(least, wanted) << attempts;
    EXPECT_LT(least, wanted * 101 / 100) << attempts;
    EXPECT_LE(most, wanted * 11 / 10) << attempts;
    EXPECT_GT(most, wanted * 109 / 100) << attempts;
  }
  EXPECT_FALSE(NextDelay(policy, 6, random));
}

TEST(RetryPolicyTest, TheHorizonSaturates) {
  RetryPolicy policy;
  policy.horizon = seconds(60);
  EXPECT_EQ(GiveUpAt(policy, MonotonicTime(seconds(5))), MonotonicTime(seconds(65)));
  policy.horizon = Duration::max();
  EXPECT_EQ(GiveUpAt(policy, MonotonicTime(seconds(5))), MonotonicTime::max());
}

}  // namespace
}  // namespace postrider::delivery
