#include "delivery/endpoint_health.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/base/random.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using subscriptions::Endpoint;

Outcome Failure() {
  Outcome outcome;
  outcome.kind = OutcomeKind::kOtherStatus;
  outcome.breaker = BreakerEffect::kFailure;
  return outcome;
}
Outcome Success() {
  Outcome outcome;
  outcome.kind = OutcomeKind::kDelivered;
  outcome.breaker = BreakerEffect::kSuccess;
  return outcome;
}
Outcome Gone() {
  Outcome outcome;
  outcome.kind = OutcomeKind::kGone;
  outcome.breaker = BreakerEffect::kNeutral;
  outcome.disable = DisableReason::kGone;
  return outcome;
}

class EndpointHealthTest : public testing::Test {
 protected:
  EndpointHealthTest() {
    endpoint_.settings.url = "https://receiver.example/hook";
    endpoint_.generation = 5;
    Desire();
  }
  EndpointHealth::Change Desire() { return health_.OnDesired(endpoint_, wall_); }
  // As a person's change would.
  EndpointHealth::Change Change() {
    ++endpoint_.generation;
    return Desire();
  }
  EndpointHealth::Judgement Answer(const Outcome& outcome, bool probe = false) {
    return health_.OnOutcome(outcome, probe, now_, wall_, random_);
  }
  void Fail(int times) {
    for (int i = 0; i < times; ++i) Answer(Failure());
  }
  void Wait(Duration by) {
    now_ += by;
    wall_ += std::chrono::duration_cast<std::chrono::milliseconds>(by);
  }
  EndpointHealth::Judgement FailProbe() {
    const MonotonicTime open_until = *health_.MayStartAt();
    if (open_until > now_) Wait(open_until - now_);
    EXPECT_TRUE(health_.OnStart());
    return Answer(Failure(), true);
  }
  // What a successor would have, a while later.
  EndpointHealth Successor() {
    EndpointHealth successor(options_);
    const StateSerializer<HealthRecord> serializer = HealthSerializer();
    successor.Restore(*serializer.decode(serializer.encode(health_.record(), 1), 1), now_, wall_);
    return successor;
  }

  HealthOptions options_;
  EndpointHealth health_{options_};
  Endpoint endpoint_;
  Random random_{7};
  MonotonicTime now_{hours(1'000)};
  WallTime wall_ = WallTimeFromMillis(1'900'000'000'000);
};

TEST_F(EndpointHealthTest, IsHealthyThenDegradedThenProbingThenHealthyAgain) {
  EXPECT_EQ(health_.state(), HealthState::kHealthy);
  Fail(2);
  EXPECT_EQ(health_.state(), HealthState::kHealthy);
  Fail(1);
  EXPECT_EQ(health_.state(), HealthState::kDegraded);
  Fail(6);
  EXPECT_EQ(health_.state(), HealthState::kDegraded);
  EXPECT_TRUE(Answer(Failure()).opened);
  EXPECT_EQ(health_.state(), HealthState::kDegraded);
  Wait(seconds(1));
  ASSERT_TRUE(health_.OnStart());
  EXPECT_EQ(health_.state(), HealthState::kDegraded);
  EXPECT_TRUE(Answer(Success(), true).closed);
  EXPECT_EQ(health_.state(), HealthState::kProbing) << "its window begins slowly";
  health_.OnRecovered();
  EXPECT_EQ(health_.state(), HealthState::kHealthy);
}

TEST_F(EndpointHealthTest, OneFailureNeverDisables) {
  Fail(1);
  Wait(hours(24 * 30));
  EXPECT_FALSE(Answer(Failure()).disabled);
  EXPECT_FALSE(health_.stopped());
}

TEST_F(EndpointHealthTest, AThousandFailuresInASecondDoNotDisable) {
  Fail(1'000);
  EXPECT_FALSE(health_.stopped());
}

TEST_F(EndpointHealthTest, FiveDaysOfFailureDisableAndAreWarnedOfThreeTimes) {
  const MonotonicTime began = now_;
  Fail(10);
  int warned = 0;
  while (!health_.stopped()) {
    const EndpointHealth::Judgement judgement = FailProbe();
    if (judgement.warned) {
      ++warned;
      EXPECT_GE(now_ - began, warned * hours(30));
      EXPECT_LE(now_ - began, warned * hours(30) + minutes(1));
    }
    ASSERT_TRUE(!judgement.disabled || now_ - began >= hours(120));
  }
  EXPECT_EQ(warned, 3);
  EXPECT_LE(now_ - began, hours(120) + minutes(1));
  EXPECT_EQ(health_.state(), HealthState::kDisabled);
  EXPECT_EQ(health_.record().disabled, DisableReason::kFailing);
  EXPECT_FALSE(health_.MayStartAt().has_value());
}

TEST_F(EndpointHealthTest, ASuccessInBetweenBeginsTheFiveDaysAnew) {
  Fail(10);
  while (now_ < MonotonicTime(hours(1'100))) FailProbe();
  Wait(minutes(1));
  health_.OnStart();
  Answer(Success(), true);
  EXPECT_EQ(health_.record().failing_since, WallTime());
  Fail(10);
  Wait(hours(30));
  FailProbe();
  EXPECT_FALSE(health_.stopped());
  EXPECT_EQ(health_.record().warned, 1u) << "of the new ones";
}

TEST_F(EndpointHealthTest, FailingGoesOnOverRestarts) {
  Fail(10);
  Wait(hours(119));
  EndpointHealth successor = Successor();
  successor.OnDesired(endpoint_, wall_);
  EXPECT_EQ(successor.state(), HealthState::kDegraded);
  ASSERT_TRUE(successor.OnStart());
  EXPECT_FALSE(successor.OnOutcome(Failure(), true, now_, wall_, random_).disabled);
  Wait(hours(1) + minutes(1));
  ASSERT_TRUE(successor.OnStart());
  EXPECT_TRUE(successor.OnOutcome(Failure(), true, now_, wall_, random_).disabled);
}

TEST_F(EndpointHealthTest, GoneDisablesAtOnceAndOnce) {
  EXPECT_TRUE(Answer(Gone()).disabled);
  EXPECT_FALSE(Answer(Gone()).disabled) << "another one in flight";
  EXPECT_TRUE(health_.stopped());
  EXPECT_EQ(health_.record().disabled, DisableReason::kGone);
  EXPECT_EQ(health_.record().disabled_generation, 5u);
}

TEST_F(EndpointHealthTest, AHigherGenerationOverrulesADisableOfOurOwnAndTheSameOneDoesNot) {
  Fail(10);
  Answer(Gone());
  EXPECT_FALSE(Desire().resumed);
  EXPECT_TRUE(health_.stopped());
  const EndpointHealth::Change change = Change();
  EXPECT_TRUE(change.resumed);
  EXPECT_TRUE(change.cleared);
  EXPECT_FALSE(health_.stopped());
  EXPECT_EQ(health_.state(), HealthState::kHealthy) << "its counters are cleared";
  Fail(9);
  EXPECT_EQ(health_.state(), HealthState::kDegraded) << "it takes ten new ones";
}

TEST_F(EndpointHealthTest, ADisableOutlivesRestartsUntilItIsOverruled) {
  Answer(Gone());
  EndpointHealth successor = Successor();
  successor.OnDesired(endpoint_, wall_);
  EXPECT_TRUE(successor.stopped());
  ++endpoint_.generation;
  successor.OnDesired(endpoint_, wall_);
  EXPECT_FALSE(successor.stopped());
}

TEST_F(EndpointHealthTest, AChangeOfUrlClearsWhatWasObservedButNoPause) {
  endpoint_.settings.pause.by_operator = true;
  Change();
  Fail(10);
  endpoint_.settings.url = "https://receiver.example/other";
  const EndpointHealth::Change change = Change();
  EXPECT_TRUE(change.cleared);
  EXPECT_FALSE(change.resumed);
  EXPECT_TRUE(health_.stopped());
  EXPECT_FALSE(health_.failing());
  EXPECT_FALSE(health_.answered());
}

TEST_F(EndpointHealthTest, AChangeOfAuthOrTlsClearsAndOneOfTheBatchDoesNot) {
  Fail(10);
  endpoint_.settings.batch.events_max = 7;
  EXPECT_FALSE(Change().cleared);
  EXPECT_TRUE(health_.failing());
  endpoint_.settings.auth.kind = subscriptions::AuthKind::kBearer;
  EXPECT_TRUE(Change().cleared);
  endpoint_.auth_sealed = "another";
  EXPECT_TRUE(Change().cleared);
  endpoint_.settings.tls.ca_pem = "a trust";
  EXPECT_TRUE(Change().cleared);
  EXPECT_FALSE(health_.failing());
}

// A change of the master key: other bytes, the same secrets, and no new generation.
TEST_F(EndpointHealthTest, SecretsThatAreSealedAnewClearNothing) {
  endpoint_.settings.auth.kind = subscriptions::AuthKind::kBearer;
  endpoint_.auth_sealed = "sealed";
  Change();
  Fail(10);
  ASSERT_TRUE(health_.failing());
  endpoint_.auth_sealed = "sealed anew";
  EXPECT_FALSE(Desire().cleared);
  EXPECT_TRUE(health_.failing());
  EndpointHealth successor = Successor();
  endpoint_.auth_sealed = "and once more";
  EXPECT_FALSE(successor.OnDesired(endpoint_, wall_).cleared);
  EXPECT_TRUE(successor.failing());
  ++endpoint_.generation;
  endpoint_.auth_sealed = "another one";
  EXPECT_TRUE(successor.OnDesired(endpoint_, wall_).cleared);
  EXPECT_FALSE(successor.failing());
}

TEST_F(EndpointHealthTest, AChangeOfUrlWhileNobodyOwnedTheEndpointClearsToo) {
  Fail(10);
  EndpointHealth successor = Successor();
  ++endpoint_.generation;
  endpoint_.settings.url = "https://receiver.example/other";
  EXPECT_TRUE(successor.OnDesired(endpoint_, wall_).cleared);
  EXPECT_FALSE(successor.failing());
}

TEST_F(EndpointHealthTest, EnablingAgainClearsTheCounters) {
  Fail(10);
  endpoint_.settings.enabled = false;
  EXPECT_TRUE(Change().stopped);
  EXPECT_EQ(health_.state(), HealthState::kDisabled);
  endpoint_.settings.enabled = true;
  const EndpointHealth::Change change = Change();
  EXPECT_TRUE(change.resumed);
  EXPECT_TRUE(change.cleared);
  EXPECT_EQ(health_.state(), HealthState::kHealthy);
}

TEST_F(EndpointHealthTest, StopsWhileTheCustomerOrTheOperatorHasPausedIt) {
  endpoint_.settings.pause.by_customer = true;
  endpoint_.settings.pause.by_operator = true;
  EXPECT_TRUE(Change().stopped);
  endpoint_.settings.pause.by_customer = false;
  EXPECT_FALSE(Change().resumed);
  EXPECT_EQ(health_.state(), HealthState::kPaused);
  EXPECT_FALSE(health_.MayStartAt().has_value());
  endpoint_.settings.pause.by_operator = false;
  EXPECT_TRUE(Change().resumed);
  EXPECT_EQ(health_.MayStartAt(), MonotonicTime{});
}

TEST_F(EndpointHealthTest, AResumeClearsNothing) {
  Fail(10);
  endpoint_.settings.pause.by_customer = true;
  Change();
  endpoint_.settings.pause.by_customer = false;
  EXPECT_FALSE(Change().cleared);
  EXPECT_TRUE(health_.failing());
}

TEST_F(EndpointHealthTest, CountsHowLongAPersonKeptItStopped) {
  const MonotonicTime first_try = now_;
  Wait(minutes(10));
  endpoint_.settings.pause.by_customer = true;
  Change();
  Wait(minutes(30));
  EXPECT_EQ(health_.PausedSince(first_try, now_, wall_), minutes(30)) << "it goes on";
  endpoint_.settings.pause.by_customer = false;
  Change();
  Wait(minutes(5));
  EXPECT_EQ(health_.PausedSince(first_try, now_, wall_), minutes(30));
  EXPECT_EQ(health_.PausedSince(now_ - minutes(20), now_, wall_), minutes(15)) << "a part of it";
  EXPECT_EQ(health_.PausedSince(now_ - minutes(5), now_, wall_), Duration::zero());
}

TEST_F(EndpointHealthTest, APauseOutlivesRestartsAndEndsWhenItIsSeenToHaveEnded) {
  const MonotonicTime first_try = now_;
  endpoint_.settings.pause.by_customer = true;
  Change();
  Wait(hours(1));
  EndpointHealth successor = Successor();
  successor.OnDesired(endpoint_, wall_);
  Wait(hours(1));
  endpoint_.settings.pause.by_customer = false;
  ++endpoint_.generation;
  EXPECT_TRUE(successor.OnDesired(endpoint_, wall_).resumed);
  Wait(hours(1));
  EXPECT_EQ(successor.PausedSince(first_try, now_, wall_), hours(2));
}

TEST_F(EndpointHealthTest, ADisableOfOurOwnIsNoPause) {
  const MonotonicTime first_try = now_;
  Answer(Gone());
  Wait(hours(1));
  EXPECT_EQ(health_.PausedSince(first_try, now_, wall_), Duration::zero());
}

TEST_F(EndpointHealthTest, ManyPausesStayBoundedAndAreNeverCountedTooShort) {
  const MonotonicTime first_try = now_;
  for (int i = 0; i < 100; ++i) {
    endpoint_.settings.pause.by_customer = true;
    Change();
    Wait(minutes(1));
    endpoint_.settings.pause.by_customer = false;
    Change();
    Wait(minutes(1));
  }
  EXPECT_LE(health_.record().pauses.size(), HealthRecord::kPausesMax);
  EXPECT_GE(health_.PausedSince(first_try, now_, wall_), minutes(100));
  EXPECT_LE(health_.PausedSince(first_try, now_, wall_), minutes(200));
}

TEST_F(EndpointHealthTest, SaysOnceThatItHasChanged) {
  EXPECT_FALSE(health_.TakeChanged()) << "nothing is worth writing of an endpoint never tried";
  Answer(Success());
  EXPECT_TRUE(health_.TakeChanged()) << "it has answered";
  Answer(Success());
  Fail(9);
  EXPECT_FALSE(health_.TakeChanged());
  Fail(1);
  EXPECT_TRUE(health_.TakeChanged());
  EXPECT_FALSE(health_.TakeChanged());
}

TEST_F(EndpointHealthTest, WritesHoldsThatAreWorthIt) {
  health_.OnHeld(now_ + std::chrono::milliseconds(900), now_, wall_);
  EXPECT_FALSE(health_.TakeChanged());
  health_.OnHeld(now_ + seconds(60), now_, wall_);
  EXPECT_TRUE(health_.TakeChanged());
  EXPECT_EQ(health_.record().held_until, wall_ + seconds(60));
  health_.OnHeld(now_ + std::chrono::milliseconds(60'500), now_, wall_);
  EXPECT_FALSE(health_.TakeChanged()) << "nearly the same";
}

TEST(HealthSerializerTest, BringsBackWhatWasWrittenAndRefusesAnythingElse) {
  HealthRecord record;
  record.destination = 0x0123456789abcdefULL;
  record.generation = 9;
  record.answered = true;
  record.failing_since = WallTimeFromMillis(1'900'000'000'123);
  record.opened = 7;
  record.open_until = WallTimeFromMillis(1'900'000'060'000);
  record.held_until = WallTimeFromMillis(1'900'000'070'000);
  record.disabled = DisableReason::kFailing;
  record.disabled_generation = 300;
  record.disabled_at = WallTimeFromMillis(1'900'000'080'000);
  record.warned = 4;
  record.pauses = {{WallTimeFromMillis(1), WallTimeFromMillis(2)},
                   {WallTimeFromMillis(3), WallTime()}};
  const StateSerializer<HealthRecord> serializer = HealthSerializer();
  const std::string bytes = serializer.encode(record, 1);
  EXPECT_EQ(serializer.decode(bytes, 1), record);
  for (size_t size = 0; size + 1 < bytes.size(); ++size) {
    EXPECT_FALSE(serializer.decode(bytes.substr(0, size), 1).has_value()) << size;
  }
  // As the first records were.
  record.generation = 0;
  EXPECT_EQ(serializer.decode(bytes.substr(0, bytes.size() - 1), 1), record);
  EXPECT_FALSE(serializer.decode(bytes + "x", 1).has_value());
}

}  // namespace
}  // namespace postrider::delivery
