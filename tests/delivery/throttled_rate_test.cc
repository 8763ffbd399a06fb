#include "delivery/throttled_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "core/base/clock.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr MonotonicTime kStart{seconds(1'000'000)};
constexpr auto kHold = seconds(3);

// Takes so many in each second, and refuses the rest of it.
class ByTheSecond {
 public:
  explicit ByTheSecond(int rate) : rate_(rate) {}
  void SetRate(int rate) { rate_ = rate; }
  bool Takes(MonotonicTime now) {
    const auto second = std::chrono::duration_cast<seconds>(now.time_since_epoch()).count();
    if (second_ != second) {
      second_ = second;
      asked_ = 0;
    }
    return ++asked_ <= rate_;
  }
  int asked() const { return asked_; }

 private:
  int rate_;
  int64_t second_ = -1;
  int asked_ = 0;
};

// Takes a burst, and otherwise so many per second.
class ByTokens {
 public:
  ByTokens(double rate, double burst) : rate_(rate), burst_(burst), tokens_(burst) {}
  bool Takes(MonotonicTime now) {
    const double seconds_gone = std::chrono::duration<double>(now - last_).count();
    tokens_ = std::min(burst_, tokens_ + seconds_gone * rate_);
    last_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  double rate_;
  double burst_;
  double tokens_;
  MonotonicTime last_ = kStart;
};

// One request at a time, a millisecond each, and a hold after each refusal.
struct Sender {
  ThrottledRate rate;
  MonotonicTime now = kStart;
  int taken = 0;
  int refused = 0;

  void Send(Duration span, const std::function<bool(MonotonicTime)>& takes) {
    MonotonicTime held = now;
    for (const MonotonicTime end = now + span; now < end; now += milliseconds(1)) {
      if (now < held || now < rate.MayStartAt()) continue;
      rate.OnStart(now);
      if (takes(now)) {
        rate.OnTaken(now);
        ++taken;
      } else {
        rate.OnRefused(now);
        ++refused;
        held = now + kHold;
      }
    }
  }
};

TEST(ThrottledRateTest, NothingWaitsBeforeTheFirstRefusal) {
  ThrottledRate rate;
  for (int i = 0; i < 1'000; ++i) {
    rate.OnStart(kStart);
    rate.OnTaken(kStart);
  }
  EXPECT_LE(rate.MayStartAt(), kStart);
  EXPECT_FALSE(rate.rate());
}

TEST(ThrottledRateTest, ItIsNineTenthsOfWhatWasTakenInTheLastSecond) {
  ThrottledRate rate;
  for (int i = 0; i < 7; ++i) rate.OnTaken(kStart - seconds(2));
  for (int i = 0; i < 20; ++i) rate.OnTaken(kStart - milliseconds(i * 40));
  rate.OnRefused(kStart);
  ASSERT_TRUE(rate.rate());
  EXPECT_DOUBLE_EQ(*rate.rate(), 18);
}

TEST(ThrottledRateTest, ARefusalOfTheFirstOrSecondSaysNothingOfARate) {
  ThrottledRate rate;
  rate.OnRefused(kStart);
  EXPECT_FALSE(rate.rate());
  rate.OnTaken(kStart);
  rate.OnRefused(kStart);
  EXPECT_FALSE(rate.rate());
  rate.OnTaken(kStart);
  rate.OnRefused(kStart);
  EXPECT_TRUE(rate.rate());
}

TEST(ThrottledRateTest, TakesMostOfWhatAReceiverGivesPerSecond) {
  ByTheSecond receiver(20);
  Sender sender;
  int most = 0;
  sender.Send(minutes(5), [&](MonotonicTime now) {
    const bool takes = receiver.Takes(now);
    most = std::max(most, receiver.asked());
    return takes;
  });
  EXPECT_GT(sender.taken, 20 * 300 * 8 / 10);
  EXPECT_LE(most, 21) << "nothing is sent above its rate but what is refused";
  EXPECT_LE(sender.refused, 15);
}

TEST(ThrottledRateTest, TakesMostOfWhatAReceiverGivesBeyondABurst) {
  ByTokens receiver(20, 100);
  Sender sender;
  sender.Send(minutes(10), [&](MonotonicTime now) { return receiver.Takes(now); });
  EXPECT_GT(sender.taken, 20 * 600 * 8 / 10);
}

TEST(ThrottledRateTest, FollowsAReceiverThatHasBecomeFaster) {
  ByTheSecond receiver(20);
  Sender sender;
  sender.Send(minutes(2), [&](MonotonicTime now) { return receiver.Takes(now); });
  receiver.SetRate(200);
  sender.Send(minutes(2), [&](MonotonicTime now) { return receiver.Takes(now); });
  EXPECT_GT(*sender.rate.rate(), 150);
}

TEST(ThrottledRateTest, FollowsAReceiverThatHasBecomeSlower) {
  ByTheSecond receiver(200);
  Sender sender;
  sender.Send(minutes(2), [&](MonotonicTime now) { return receiver.Takes(now); });
  receiver.SetRate(20);
  sender.Send(minutes(2), [&](MonotonicTime now) { return receiver.Takes(now); });
  EXPECT_LT(*sender.rate.rate(), 22);
}

TEST(ThrottledRateTest, DoesNotGrowWhileItIsNotUsed) {
  ThrottledRate rate;
  for (int i = 0; i < 20; ++i) rate.OnTaken(kStart);
  rate.OnRefused(kStart);
  rate.OnStart(kStart + seconds(300));
  EXPECT_DOUBLE_EQ(*rate.rate(), 18);
}

TEST(ThrottledRateTest, IsNeverBelowOnePerSecond) {
  ThrottledRate rate;
  for (int i = 0; i < 4; ++i) rate.OnTaken(kStart);
  for (int i = 0; i < 100; ++i) rate.OnRefused(kStart + i * kHold);
  EXPECT_DOUBLE_EQ(*rate.rate(), ThrottledRate::kLeast);
}

TEST(ThrottledRateTest, IsForgottenTenMinutesAfterTheLastRefusal) {
  ThrottledRate rate;
  for (int i = 0; i < 20; ++i) rate.OnTaken(kStart);
  rate.OnRefused(kStart);
  rate.OnStart(kStart + ThrottledRate::kKept - milliseconds(1));
  EXPECT_TRUE(rate.rate());
  rate.OnStart(kStart + ThrottledRate::kKept);
  EXPECT_FALSE(rate.rate());
  EXPECT_LE(rate.MayStartAt(), kStart);
}

}  // namespace
}  // namespace postrider::delivery
