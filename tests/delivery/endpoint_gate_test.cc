// When an endpoint is sent to: breaker, pauses, disables, limits, hosts that cannot be reached.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "delivery/backlog_state.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using subscriptions::EndpointId;
using subscriptions::EndpointMode;

class EndpointGateTest : public DeliveryFixture {
 protected:
  EndpointGateTest() {
    settings_.mode = EndpointMode::kStreaming;
    settings_.retry.attempts = 50;
    settings_.retry.first_delay = milliseconds(100);
    settings_.retry.cap = milliseconds(100);
  }
  void Begin() {
    Publish();
    Start();
  }
  // What is written meanwhile is durable at once.
  void Step(Duration by = milliseconds(10)) {
    Advance(by);
    Settle();
    SendAll();
  }
  size_t Open() const { return sink_->in_flight(); }
  void AnswerAll(int status) {
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open) sink_->AnswerStatus(i, status);
    }
    Settle();
  }
  void FailAll(HttpFailure failure) {
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open) sink_->Fail(i, failure);
    }
    Settle();
  }
  // Lets every request fail until the breaker is open.
  void OpenBreaker() {
    for (int i = 0; i < 100 && metrics_.breakers_opened.value() == 0; ++i) {
      Step(milliseconds(100));
      AnswerAll(500);
    }
    ASSERT_EQ(metrics_.breakers_opened.value(), 1);
    ASSERT_EQ(Open(), 0u);
  }
  // Goes on until so many requests are in flight.
  void StepUntilOpen(size_t count, Duration most) {
    for (Duration gone{}; Open() < count && gone < most; gone += milliseconds(50)) {
      Step(milliseconds(50));
    }
    ASSERT_EQ(Open(), count);
  }
  double Endpoints(HealthState state) { return metrics_.OfHealth(state).value(); }
};

TEST_F(EndpointGateTest, AfterTenFailuresOnlyOneProbeIsSent) {
  Begin();
  Deliver(1, 20);
  OpenBreaker();
  EXPECT_EQ(Endpoints(HealthState::kDegraded), 1);
  const size_t before = sink_->size();
  EXPECT_LE(before, 13u) << "ten, and what was in flight beside";
  Step(milliseconds(499));
  EXPECT_EQ(sink_->size(), before) << "it rests for half a second at least";
  StepUntilOpen(1, seconds(1));
  Step(seconds(20));
  EXPECT_EQ(sink_->size(), before + 1) << "nothing beside a probe that hangs";
  AnswerAll(503);
  EXPECT_EQ(metrics_.breakers_opened.value(), 2);
  Step(milliseconds(999));
  EXPECT_EQ(Open(), 0u) << "the second rest is at least a second";
  StepUntilOpen(1, seconds(2));
  EXPECT_EQ(metrics_.probes.value(), 2);
}

TEST_F(EndpointGateTest, AfterASuccessfulProbeTheWindowDoublesPerSuccess) {
  Begin();
  Deliver(1, 100);
  OpenBreaker();
  StepUntilOpen(1, seconds(2));
  AnswerAll(200);
  EXPECT_EQ(Endpoints(HealthState::kDegraded), 0);
  EXPECT_EQ(Endpoints(HealthState::kProbing), 1);
  Step(milliseconds(200));
  for (const size_t size : {1u, 2u, 8u, 32u, 32u}) {
    EXPECT_EQ(Open(), size);
    AnswerAll(200);
    Step(milliseconds(1));
  }
  EXPECT_EQ(Endpoints(HealthState::kProbing), 0);
}

TEST_F(EndpointGateTest, AFailedProbeChargesTheEndpointAndNotTheMessage) {
  settings_.retry.attempts = 8;
  Begin();
  Deliver(1, 5);
  OpenBreaker();
  for (int i = 0; i < 45; ++i) {
    StepUntilOpen(1, seconds(61));
    AnswerAll(500);
  }
  EXPECT_EQ(ctx().emitted().size(), 0u) << "no letter: nothing was charged";
  StepUntilOpen(1, seconds(61));
  AnswerAll(200);
  Step(milliseconds(200));
  while (Open() > 0) {
    AnswerAll(200);
    Step(milliseconds(200));
  }
  EXPECT_EQ(metrics_.delivered.value(), 5);
}

TEST_F(EndpointGateTest, AProbeDoesNotWaitForTheTimeThatFailuresHaveSet) {
  settings_.retry.first_delay = hours(1);
  settings_.retry.cap = hours(1);
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  StepUntilOpen(1, seconds(2));
  EXPECT_EQ(sink_->last().Header("webhook-attempt"), "2");
}

TEST_F(EndpointGateTest, WhileItIsOpenNewMessagesGoToTheBacklog) {
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  const int64_t first = next_offset_;
  Deliver(101, 200);
  Settle();
  for (int64_t offset = first; offset < next_offset_; ++offset) {
    EXPECT_TRUE(ctx().IsCompleted(offset)) << offset;
  }
  EXPECT_GE(metrics_.backlog_messages.value(), 100);
}

TEST_F(EndpointGateTest, AFailedProbeGivesUpAllThatHaveWaitedForLongerThanTheirHorizon) {
  settings_.retry.horizon = seconds(30);
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  for (int i = 0; i < 20 && ctx().emitted().empty(); ++i) {
    StepUntilOpen(1, seconds(61));
    AnswerAll(500);
  }
  EXPECT_GE(ctx().emitted().size(), 10u);
  for (size_t i = 0; i < ctx().emitted().size(); ++i) {
    EXPECT_EQ(Letter(i).reason, dlq::DeadReason::kHorizon);
  }
}

TEST_F(EndpointGateTest, ASuccessorGoesOnWithAProbe) {
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  Step();
  NextLife();
  function_->OnPartitionEnd(ctx(), next_offset_);
  Settle();
  const size_t before = sink_->size();
  EXPECT_EQ(Endpoints(HealthState::kDegraded), 1);
  Step(milliseconds(1));
  StepUntilOpen(1, seconds(2));
  Step(seconds(20));
  EXPECT_EQ(sink_->size(), before + 1);
}

TEST_F(EndpointGateTest, APausedEndpointIsSentNothingAndKeepsItsBacklogUntilItIsResumed) {
  Begin();
  Deliver(1, 1);
  SendAll();
  ASSERT_EQ(Open(), 1u);
  settings_.pause.by_customer = true;
  Publish(11);
  Deliver(2, 50);
  Settle();
  Step(hours(30));
  EXPECT_EQ(sink_->size(), 1u);
  AnswerAll(200);
  EXPECT_EQ(metrics_.delivered.value(), 1) << "what was in flight ends and counts";
  EXPECT_EQ(Endpoints(HealthState::kPaused), 1);
  settings_.pause.by_customer = false;
  Publish(12);
  Step();
  while (Open() > 0) {
    AnswerAll(200);
    Step();
  }
  EXPECT_EQ(metrics_.delivered.value(), 50);
  EXPECT_EQ(Endpoints(HealthState::kPaused), 0);
  EXPECT_EQ(ctx().emitted().size(), 0u);
}

TEST_F(EndpointGateTest, TheOperatorsPauseAndADisabledEndpointStopToo) {
  for (int kind = 0; kind < 2; ++kind) {
    (kind == 0 ? settings_.pause.by_operator : settings_.enabled) = kind == 0;
    if (kind == 0) {
      Begin();
    } else {
      Publish(20);
    }
    const size_t before = sink_->size();
    Deliver(kind * 10 + 1, kind * 10 + 3);
    Settle();
    Step(minutes(1));
    EXPECT_EQ(sink_->size(), before);
    settings_.pause.by_operator = false;
    settings_.enabled = true;
    Publish(30);
    Step();
    EXPECT_GT(sink_->size(), before);
    while (Open() > 0) {
      AnswerAll(200);
      Step();
    }
  }
  EXPECT_EQ(metrics_.delivered.value(), 6);
}

TEST_F(EndpointGateTest, ARequestThatWaitsForASlotIsNotBegunWhenItsEndpointWasPaused) {
  Begin();
  Deliver(1, 1);
  SendAll();
  ASSERT_EQ(Open(), 1u);
  EXPECT_TRUE(sink_->MayStart(0));
  settings_.pause.by_customer = true;
  Publish(11);
  EXPECT_FALSE(sink_->MayStart(0));
}

TEST_F(EndpointGateTest, APauseHoldsOverRestarts) {
  settings_.pause.by_customer = true;
  Begin();
  Deliver(1, 3);
  Settle();
  Step(seconds(10));
  NextLife();
  Step(minutes(10));
  EXPECT_EQ(sink_->size(), 0u);
  settings_.pause.by_customer = false;
  Publish(12);
  Step();
  EXPECT_EQ(Open(), 3u);
}

TEST_F(EndpointGateTest, TheHorizonDoesNotRunWhileAPersonHasPausedTheEndpoint) {
  settings_.retry.horizon = minutes(10);
  Begin();
  Deliver(1, 1);
  SendAll();
  AnswerAll(500);
  settings_.pause.by_customer = true;
  Publish(11);
  Step(hours(5));
  NextLife();
  Step(hours(5));
  settings_.pause.by_customer = false;
  Publish(12);
  Step(seconds(1));
  ASSERT_EQ(Open(), 1u);
  AnswerAll(500);
  EXPECT_EQ(ctx().emitted().size(), 0u) << "it is a few seconds old";
  Step(minutes(11));
  ASSERT_EQ(Open(), 1u);
  AnswerAll(500);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kHorizon);
}

TEST_F(EndpointGateTest, GoneKeepsTheMessagesAndDisablesUntilAPersonChangesTheEndpoint) {
  Begin();
  Deliver(1, 30);
  SendAll();
  const size_t in_flight = Open();
  AnswerAll(410);
  Step(hours(1));
  NextLife();
  Step(hours(1));
  EXPECT_EQ(sink_->size(), in_flight) << "what was in flight at the first 410, and nothing after";
  EXPECT_EQ(ctx().emitted().size(), 0u);
  EXPECT_EQ(Endpoints(HealthState::kDisabled), 1);
  ++generation_;
  Publish(12);
  Step();
  EXPECT_GT(Open(), 0u);
  while (Open() > 0) {
    AnswerAll(200);
    Step(milliseconds(200));
  }
  EXPECT_EQ(metrics_.delivered.value(), 30);
  EXPECT_EQ(Endpoints(HealthState::kDisabled), 0);
}

TEST_F(EndpointGateTest, FiveDaysOfFailureDisable) {
  options_.health.auto_disable_after = hours(1);
  MakeProgram();
  settings_.retry.horizon = hours(48);
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  for (Duration gone{}; gone < minutes(70); gone += seconds(1)) {
    Step(seconds(1));
    AnswerAll(500);
  }
  EXPECT_EQ(Endpoints(HealthState::kDisabled), 1);
  const size_t before = sink_->size();
  Step(hours(5));
  EXPECT_EQ(sink_->size(), before);
  EXPECT_EQ(ctx().emitted().size(), 0u) << "the backlog keeps it";
}

TEST_F(EndpointGateTest, WhatWaitsGoesToANewUrlAtOnceWithItsIdsAndAttempts) {
  settings_.retry.first_delay = hours(1);
  settings_.retry.cap = hours(1);
  Begin();
  Deliver(1, 12);
  OpenBreaker();
  const std::string id = sink_->at(0).Header("webhook-id");
  settings_.url = "http://other.example/hook";
  ++generation_;
  Publish(11);
  std::vector<std::string> ids;
  for (size_t i = sink_->size(); metrics_.delivered.value() < 12;) {
    Step(milliseconds(1));
    ASSERT_GT(Open(), 0u);
    for (; i < sink_->size(); ++i) {
      EXPECT_EQ(sink_->at(i).request.url.host, "other.example");
      if (sink_->at(i).Header("webhook-id") == id) {
        EXPECT_EQ(sink_->at(i).Header("webhook-attempt"), "2");
        ids.push_back(id);
      }
    }
    AnswerAll(200);
  }
  EXPECT_EQ(ids.size(), 1u);
}

TEST_F(EndpointGateTest, KeepsToTheCustomersRateOfMessages) {
  settings_.limits.messages_per_second = 10;
  Begin();
  Deliver(1, 60);
  Settle();
  for (int i = 0; i < 300; ++i) {
    Step(milliseconds(10));
    AnswerAll(200);
  }
  EXPECT_NEAR(metrics_.delivered.value(), 30, 2);
}

TEST_F(EndpointGateTest, KeepsToTheCustomersRateOfRequestsForRetriesToo) {
  settings_.limits.requests_per_second = 5;
  Begin();
  Deliver(1, 60);
  Settle();
  for (int i = 0; i < 200; ++i) {
    Step(milliseconds(10));
    AnswerAll(i % 3 == 0 ? 429 : 200);
  }
  EXPECT_LE(sink_->size(), 11u);
}

TEST_F(EndpointGateTest, ALimitOfBytesBelowOneMessageDelaysButNeverStarves) {
  settings_.limits.bytes_per_second = 100;
  Begin();
  Deliver(1, 5);
  Settle();
  for (int i = 0; i < 300; ++i) {
    Step(milliseconds(100));
    AnswerAll(200);
  }
  EXPECT_EQ(metrics_.delivered.value(), 5);
  EXPECT_GT(sink_->at(0).request.body.size(), 100u);
}

// Takes twenty requests in each second, and refuses the rest without a word of when to come again.
class ThrottlingTest : public EndpointGateTest {
 protected:
  ThrottlingTest() { settings_.retry.first_delay = settings_.retry.cap = seconds(5); }
  void AnswerFor(Duration span) {
    for (Duration gone{}; gone < span; gone += milliseconds(10)) {
      Step(milliseconds(10));
      const auto second =
          std::chrono::duration_cast<seconds>(ctx().clock().Now().time_since_epoch());
      if (std::exchange(second_, second) != second) asked_ = 0;
      for (size_t i = 0; i < sink_->size(); ++i) {
        if (!sink_->at(i).open) continue;
        sink_->AnswerStatus(i, ++asked_ <= 20 ? 200 : 429);
        most_ = std::max(most_, asked_);
      }
      Settle();
    }
  }

  seconds second_{};
  int asked_ = 0;
  int most_ = 0;  // of a second
};

TEST_F(ThrottlingTest, ABacklogDrainsAtMostOfWhatItsReceiverTakes) {
  Begin();
  Deliver(1, 1'500);
  AnswerFor(minutes(1));
  EXPECT_GE(metrics_.delivered.value(), 1'200 * 3 / 4);
  EXPECT_LT(most_, 60) << "it would break down";
}

TEST_F(ThrottlingTest, AnotherReceiverIsSentToAtFullSpeed) {
  Begin();
  Deliver(1, 500);
  AnswerFor(seconds(10));
  ASSERT_LT(metrics_.delivered.value(), 300);
  settings_.url = "http://other.example/hook";
  ++generation_;
  Publish(11);
  for (int i = 0; i < 100; ++i) {
    Step(milliseconds(10));
    AnswerAll(200);
  }
  EXPECT_EQ(metrics_.delivered.value(), 500);
}

class UnprovenTest : public EndpointGateTest {
 protected:
  UnprovenTest() {
    unproven_brake_ = true;
    options_.unproven_interval = seconds(1);
    MakeProgram();
  }
};

TEST_F(UnprovenTest, WhoHasNeverAnsweredWellIsSentOneRequestPerSecond) {
  Begin();
  Deliver(1, 20);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u);
  Step(milliseconds(999));
  EXPECT_EQ(sink_->size(), 1u);
  Step(milliseconds(1));
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(0, 204);
  Step(milliseconds(1));
  EXPECT_GT(sink_->size(), 4u);
}

TEST_F(UnprovenTest, WhoHasAnsweredOnceIsProvenOverRestarts) {
  Begin();
  Deliver(1, 1);
  SendAll();
  AnswerAll(204);
  NextLife();
  Deliver(2, 20);
  Step(milliseconds(1));
  EXPECT_GE(Open(), 4u);
}

class UnreachedTest : public EndpointGateTest {
 protected:
  static constexpr int kEndpoints = 5;
  // Endpoints of one host, each with messages that can be sent at once.
  void BeginMany() {
    for (uint8_t i = 0; i < kEndpoints; ++i) {
      others_.emplace_back(EndpointId(Bytes(static_cast<uint8_t>(100 + i))), settings_);
    }
    Begin();
    for (int n = 1; n <= 4; ++n) {
      for (const auto& [id, settings] : others_) {
        subscriptions::DispatchRecord record = MakeRecord(n);
        record.identity.endpoint = id;
        Deliver(record);
      }
    }
    Settle();
  }
  // Forty hosts cannot be reached just now.
  void OutageGoesOn() {
    for (int host = 0; host < 40; ++host) {
      program_->own_outage().OnUnreached(absl::StrCat("host", host, ".example"),
                                         ctx().clock().Now());
    }
  }
};

TEST_F(UnreachedTest, EndpointsOfOneHostThatCannotBeReachedShareAProbe) {
  BeginMany();
  SendAll();
  ASSERT_EQ(Open(), 20u);
  FailAll(HttpFailure::kConnect);
  const size_t before = sink_->size();
  StepUntilOpen(1, seconds(2));
  Step(seconds(10));
  EXPECT_EQ(sink_->size(), before + 1) << "one for all five";
  FailAll(HttpFailure::kDns);
  StepUntilOpen(1, seconds(3));
  EXPECT_EQ(sink_->size(), before + 2);
  AnswerAll(200);
  Step(milliseconds(200));
  EXPECT_GE(Open(), 5u) << "all five go on at once";
}

TEST_F(UnreachedTest, StatusesNeverGroup) {
  BeginMany();
  SendAll();
  AnswerAll(500);
  Step(milliseconds(200));
  EXPECT_EQ(Open(), 20u) << "each has four failures of its own";
}

TEST_F(UnreachedTest, AHostThatRefusesOneEndpointByStatusIsReachedForAll) {
  BeginMany();
  SendAll();
  FailAll(HttpFailure::kConnect);
  StepUntilOpen(1, seconds(2));
  AnswerAll(500);
  Step(milliseconds(200));
  EXPECT_GE(Open(), 5u);
}

TEST_F(UnreachedTest, AProbeThatMovesWithItsKeyGroupKeepsNobodyWaiting) {
  BeginMany();
  SendAll();
  FailAll(HttpFailure::kConnect);
  StepUntilOpen(1, seconds(2));
  BeginNextLife(KeyedProcessFunction::CloseReason::kMoved);
  function_->OnResume(ctx());
  RestoreBacklog();
  const size_t before = sink_->size();
  for (int i = 0; i < 40 && sink_->size() == before; ++i) Step(milliseconds(50));
  EXPECT_GT(sink_->size(), before);
  FailAll(HttpFailure::kConnect);
}

TEST_F(UnreachedTest, OurOwnOutageIsChargedToNobody) {
  settings_.retry.attempts = 2;
  settings_.retry.horizon = seconds(20);
  Begin();
  OutageGoesOn();
  Deliver(1, 4);
  SendAll();
  for (int i = 0; i < 200; ++i) {
    OutageGoesOn();
    FailAll(HttpFailure::kConnect);
    Step(milliseconds(200));
  }
  EXPECT_GE(metrics_.own_outage_failures.value(), 4 * 5);
  EXPECT_EQ(ctx().emitted().size(), 0u) << "neither for their attempts nor for their age";
  EXPECT_EQ(metrics_.breakers_opened.value(), 0);
  StepUntilOpen(4, seconds(11));
  AnswerAll(200);
  EXPECT_EQ(metrics_.delivered.value(), 4);
}

// Without a socket to be had: whatever its attempts and its age, and not all the time.
TEST_F(UnreachedTest, WhatThisMachineHadNoSocketForIsChargedToNobody) {
  settings_.retry.attempts = 2;
  settings_.retry.horizon = seconds(20);
  Begin();
  Deliver(1, 4);
  SendAll();
  for (int i = 0; i < 200; ++i) {
    FailAll(HttpFailure::kOwnLimit);
    Step(milliseconds(200));
  }
  EXPECT_EQ(ctx().emitted().size(), 0u) << "neither for their attempts nor for their age";
  EXPECT_EQ(metrics_.breakers_opened.value(), 0);
  EXPECT_LE(sink_->size(), 4u * 12u) << "40 s with rests of up to 10";
  EXPECT_GE(sink_->size(), 4u * 4u);
  StepUntilOpen(4, seconds(11));
  AnswerAll(200);
  EXPECT_EQ(metrics_.delivered.value(), 4);
}

// All of it is tried together, after rests that grow to ten seconds; and as ever when it is over.
TEST_F(UnreachedTest, RestsForLongerEachTimeInOurOwnOutageThoughNoBreakerOpens) {
  settings_.retry.attempts = 2;
  settings_.retry.horizon = hours(24);
  settings_.window_max = 4;
  Begin();
  OutageGoesOn();
  Deliver(1, 4);
  SendAll();
  const auto wait = [this] {
    Duration waited{};
    while (Open() == 0 && waited < minutes(2)) {
      OutageGoesOn();
      Step(milliseconds(10));
      waited += milliseconds(10);
    }
    return waited;
  };
  for (const int bound : {1, 2, 4, 8, 10, 10, 10}) {
    OutageGoesOn();
    FailAll(HttpFailure::kConnect);
    const Duration rest = wait();
    EXPECT_GE(rest, seconds(bound) / 2);
    EXPECT_LE(rest, seconds(bound) + milliseconds(200)) << "and then its own delay";
  }
  EXPECT_LE(sink_->size(), 4u * 8u);
  // Reached again, whatever it says: the next outage begins with a short rest.
  AnswerAll(429);
  ctx().manual_clock().Advance(OwnOutage::kSpan);
  Step(seconds(1));
  OutageGoesOn();
  ASSERT_GT(Open(), 0u);
  FailAll(HttpFailure::kConnect);
  EXPECT_LE(wait(), milliseconds(1'200));
}

// Where the next owner is, there may be no outage.
TEST_F(UnreachedTest, ASuccessorDoesNotRestForAnOutageThatWasNotItsOwn) {
  settings_.retry.horizon = hours(24);
  Begin();
  OutageGoesOn();
  Deliver(1, 1);
  SendAll();
  for (int i = 0; i < 200; ++i) {
    OutageGoesOn();
    FailAll(HttpFailure::kConnect);
    Step(milliseconds(100));
  }
  FailAll(HttpFailure::kConnect);
  NextLife();
  StepUntilOpen(1, milliseconds(300));
}

TEST_F(UnreachedTest, ProbesWithRestsInOurOwnOutage) {
  BeginMany();
  SendAll();
  FailAll(HttpFailure::kConnect);
  const size_t before = sink_->size();
  for (int i = 0; i < 200; ++i) {
    OutageGoesOn();
    FailAll(HttpFailure::kConnect);
    Step(milliseconds(100));
  }
  const size_t probes = sink_->size() - before;
  EXPECT_GE(probes, 2u) << "at least one in ten seconds";
  EXPECT_LE(probes, 10u) << "of the one host, in twenty seconds";
}

}  // namespace
}  // namespace postrider::delivery
