#include "delivery/bisection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/stream/operation.h"
#include "delivery/flight_result.h"
#include "tests/delivery/splitting_fixture.h"

namespace postrider::delivery {
namespace {

using dlq::DeadReason;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(BisectionRequestsTest, AreTwiceTheLogarithmAndOne) {
  for (size_t n = 1; n <= 5'000; ++n) {
    const double wanted = std::floor(2 * std::log2(static_cast<double>(n)) + 1e-9) + 1;
    EXPECT_EQ(Bisection::RequestsMax(n), static_cast<size_t>(wanted)) << n;
  }
}

class BisectionTest : public SplittingFixture {
 protected:
  // A batch of 1 to `last`.
  void Begin(int64_t last) {
    settings_.batch.events_max = last;
    Publish();
    Start();
    Deliver(1, last);
  }
};

TEST_F(BisectionTest, FindsTheOneAtFaultAtOnceWhereverItStandsAndDeliversAllOthers) {
  int64_t next = 1;
  std::set<int64_t> poison;
  settings_.batch.events_max = 5'000;
  Publish();
  Start();
  for (int64_t n = 2; n <= 33; ++n) {
    for (int64_t place = 0; place < n; ++place) {
      settings_.batch.events_max = n;
      Publish();
      poison.insert(next + place);
      Deliver(next, next + n - 1);
      Serve(Refusing({next + place}));
      EXPECT_GT(requests_, 2u) << n << " " << place;
      const size_t most = 1 + Bisection::RequestsMax(static_cast<size_t>(n));
      EXPECT_LE(requests_, most) << n << " " << place;
      EXPECT_EQ(in_flight_most_, 1u) << n << " " << place;
      next += n;
    }
  }
  // With a number of messages that is no power of two the last request may be one too many.
  for (int i = 0; i < 4; ++i) {
    Advance(seconds(2));
    Serve(Refusing(poison));
  }
  ExpectDelivered(1, next - 1, poison);
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver),
            std::multiset<int64_t>(poison.begin(), poison.end()));
  EXPECT_EQ(metrics_.bisections.value(), static_cast<double>(poison.size()));
}

TEST_F(BisectionTest, OfAThousandMessagesOneIsFoundWithTwentyRequests) {
  Begin(1'000);
  Serve(Refusing({777}));
  EXPECT_LE(requests_, 21u);
  ExpectDelivered(1, 1'000, {777});
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver), (std::multiset<int64_t>{777}));
  EXPECT_EQ(Letter(0).last_status, 422);
  for (int64_t offset = 0; offset < 1'000; ++offset) {
    EXPECT_EQ(ctx().IsCompleted(offset), offset != 776) << "until its letter is durable";
  }
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(776));
}

TEST_F(BisectionTest, EachStatusThatRefusesABatchIsLookedInto) {
  int64_t next = 1;
  settings_.batch.events_max = 8;
  Publish();
  Start();
  std::set<int64_t> poison;
  for (const int status : {400, 413, 422}) {
    Send(next, next + 7);
    poison.insert(next + 5);
    Serve(Refusing({next + 5}, status));
    next += 8;
  }
  ExpectDelivered(1, next - 1, poison);
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver),
            std::multiset<int64_t>(poison.begin(), poison.end()));
}

TEST_F(BisectionTest, AReceiverThatRefusesBothHalvesHasFailedItself) {
  settings_.retry.attempts = 3;
  Begin(64);
  Serve([](const Numbers&, size_t) { return Status(400); });
  EXPECT_EQ(requests_, 3u) << "the batch and its two halves";
  EXPECT_TRUE(ctx().emitted().empty()) << "it is not the messages' fault";
  Serve(Refusing({}));
  EXPECT_EQ(requests_, 0u) << "not before the backoff";
  // It has come back to its senses.
  Advance(seconds(2));
  Serve(Refusing({}));
  EXPECT_LE(requests_, 4u);
  ExpectDelivered(1, 64, {});
}

TEST_F(BisectionTest, AReceiverThatGoesOnRefusingCostsEveryMessageItsAttemptsAndNoMore) {
  settings_.retry.attempts = 3;
  Begin(64);
  for (int i = 0; i < 10; ++i) {
    Serve([](const Numbers&, size_t) { return Status(400); });
    Advance(seconds(2));
  }
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver).size(), 64u);
  EXPECT_LE(sink_->size(), 100u);
  EXPECT_THAT(delivered_, IsEmpty());
}

TEST_F(BisectionTest, SeveralAtFaultAreFoundInTheEnd) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    const int64_t base = round * 1'000;
    if (round == 0) {
      settings_.batch.events_max = 1'000;
      Publish();
      Start();
    }
    std::set<int64_t> poison;
    while (poison.size() < 5) poison.insert(base + 1 + static_cast<int64_t>(random() % 1'000));
    Deliver(base + 1, base + 1'000);
    const size_t before = ctx().emitted().size();
    size_t requests = 0;
    for (int i = 0; i < 12; ++i) {
      Serve(Refusing(poison));
      requests += requests_;
      Advance(milliseconds(2'001));
    }
    ExpectDelivered(base + 1, base + 1'000, poison);
    EXPECT_EQ(ctx().emitted().size() - before, poison.size());
    EXPECT_LE(requests, 150u);
  }
}

TEST_F(BisectionTest, ItsRequestsGoOneByOneAndFreshOnesBeside) {
  settings_.batch.events_max = 16;
  Publish();
  Start();
  Deliver(1, 16);
  Turn();
  sink_->AnswerStatus(0, 422);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(NumbersOf(sink_->at(1)).size(), 8u);
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  Deliver(17, 48);
  SendAll();
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_EQ(NumbersOf(sink_->at(2)).front(), 17);
  EXPECT_EQ(NumbersOf(sink_->at(3)).front(), 33);
  // A second batch that is refused meanwhile waits for the first one's end.
  sink_->AnswerStatus(2, 422);
  SendAll();
  EXPECT_EQ(sink_->size(), 4u);
  sink_->AnswerStatus(1, 200);
  SendAll();
  ASSERT_EQ(sink_->size(), 5u);
  EXPECT_EQ(NumbersOf(sink_->at(4)).front(), 9) << "the other half of the first one";
  sink_->AnswerStatus(4, 200);
  SendAll();
  ASSERT_EQ(sink_->size(), 6u);
  EXPECT_EQ(NumbersOf(sink_->at(5)).front(), 17);
}

TEST_F(BisectionTest, OfAnOrderedEndpointTheLeftHalfIsDoneBeforeTheRightOneIsSent) {
  settings_.order.kind = subscriptions::OrderKind::kEndpoint;
  Begin(64);
  int64_t last = 0;
  Serve([&](const Numbers& numbers, size_t) {
    const bool poison = std::find(numbers.begin(), numbers.end(), 20) != numbers.end();
    if (poison) {
      if (numbers.size() == 1) last = std::max(last, numbers.back());
      return Status(422);
    }
    EXPECT_GT(numbers.front(), last);
    last = numbers.back();
    return Status(200);
  });
  ctx().AcknowledgeAll();
  Serve(Refusing({20}));
  ExpectDelivered(1, 64, {20});
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver), (std::multiset<int64_t>{20}));
}

TEST_F(BisectionTest, AnyOtherOutcomeEndsItForAllThatIsLeftAndChargesThatOnce) {
  settings_.retry.attempts = 2;
  Begin(8);
  Turn();
  sink_->AnswerStatus(0, 422);
  Turn();
  sink_->AnswerStatus(1, 200);  // 1 to 4
  Turn();
  ASSERT_EQ(NumbersOf(sink_->at(2)), (Numbers{5, 6, 7, 8}));
  sink_->AnswerStatus(2, 422);
  Turn();
  ASSERT_EQ(NumbersOf(sink_->at(3)), (Numbers{5, 6}));
  sink_->AnswerStatus(3, 500);
  SendAll();
  EXPECT_EQ(sink_->size(), 4u);
  served_ = 4;
  Advance(seconds(2));
  SendAll();
  ASSERT_EQ(sink_->size(), 6u) << "two batches of their own";
  EXPECT_EQ(NumbersOf(sink_->at(4)), (Numbers{5, 6}));
  EXPECT_EQ(NumbersOf(sink_->at(5)), (Numbers{7, 8}));
  EXPECT_NE(sink_->at(4).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  // Of two attempts one was charged: this one is the last.
  sink_->AnswerStatus(4, 500);
  sink_->AnswerStatus(5, 500);
  EXPECT_EQ(Letters(DeadReason::kAttemptsExhausted), (std::multiset<int64_t>{5, 6, 7, 8}));
}

TEST_F(BisectionTest, AThrottlingReceiverIsWaitedForAndChargesNothing) {
  settings_.retry.attempts = 1;
  Begin(4);
  Turn();
  sink_->AnswerStatus(0, 422);
  Turn();
  HttpResult throttled = Status(429);
  throttled.retry_after = {"30"};
  sink_->Answer(1, throttled);
  served_ = 2;
  Advance(milliseconds(29'999));
  Serve(Refusing({}));
  EXPECT_EQ(requests_, 0u);
  Advance(milliseconds(1));
  Serve(Refusing({}));
  EXPECT_EQ(requests_, 2u);
  ExpectDelivered(1, 4, {});
}

// BATCH-06
TEST_F(BisectionTest, TooLargeIsLearnedAndASingleMessageThatIsTooLargeIsGivenUp) {
  settings_.batch.events_max = 1'001;
  settings_.batch.bytes_max = 10 << 20;
  Publish();
  Start();
  const size_t limit = 30'000;  // about a hundred of them
  const Receiver receiver = [&](const Numbers&, size_t bytes) {
    return Status(bytes > limit ? 413 : 200);
  };
  Deliver(1, 500);
  subscriptions::DispatchRecord large = MakeRecord(501);
  large.data = absl::StrCat("{\"n\":501,\"text\":\"", std::string(60'000, 'x'), "\"}");
  Deliver(large);
  Deliver(502, 1'001);
  Serve(receiver);
  size_t requests = requests_;
  Advance(milliseconds(2'001));
  Serve(receiver);
  requests += requests_;
  EXPECT_LE(requests, 60u);
  ExpectDelivered(1, 1'001, {501});
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver), (std::multiset<int64_t>{501}));
  EXPECT_EQ(Letter(0).last_status, 413);
  // The next ones begin with what was learned.
  Send(2'001, 3'001);
  Serve([&](const Numbers&, size_t bytes) {
    EXPECT_LE(bytes, limit);
    return Status(200);
  });
  ExpectDelivered(2'001, 3'001, {});
  // Until the endpoint is changed.
  settings_.description = "changed";
  ++generation_;
  Publish(11);
  Deliver(4'001, 5'001);
  SendAll();
  EXPECT_EQ(NumbersOf(sink_->last()).size(), 1'001u);
}

TEST_F(BisectionTest, WhatWasLearnedIsForgottenAfterADay) {
  settings_.batch.events_max = 100;
  Publish();
  Start();
  Deliver(1, 100);
  Serve([&](const Numbers& numbers, size_t) { return Status(numbers.size() > 50 ? 413 : 200); });
  const auto largest = [this](int64_t first) {
    Send(first, first + 99);
    size_t most = 0;
    Serve([&](const Numbers& numbers, size_t) {
      most = std::max(most, numbers.size());
      return Status(200);
    });
    return most;
  };
  EXPECT_LE(largest(101), 50u);
  for (int minute = 0; minute < 24 * 60 - 1; ++minute) Advance(std::chrono::minutes(1));
  Publish(11);
  EXPECT_LE(largest(201), 50u) << "an endpoint that was idle keeps it";
  for (int minute = 0; minute < 2; ++minute) Advance(std::chrono::minutes(1));
  EXPECT_EQ(largest(301), 100u);
}

TEST_F(BisectionTest, ARequestThatWasNeverSentIsNotCounted) {
  Begin(4);
  Turn();
  sink_->AnswerStatus(0, 422);
  for (size_t i = 1; i < 20; ++i) {
    Turn();
    ASSERT_EQ(sink_->size(), i + 1);
    ASSERT_EQ(NumbersOf(sink_->at(i)), (Numbers{1, 2}));
    sink_->Abort(sink_->at(i).id);
    sink_->DeliverAborts();
  }
  served_ = 20;
  Serve(Refusing({4}));
  ExpectDelivered(1, 4, {4});
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver), (std::multiset<int64_t>{4}));
  EXPECT_EQ(Letter(0).attempts, 3u);
}

// What a batch that waits in the backlog is cut into has records of its own: whenever the worker
// dies, nothing is lost, and what was done is not done again.
TEST_F(BisectionTest, ACrashAtAnyMomentLosesNothingAndRepeatsNothingThatWasDone) {
  for (int crash_after = 0; crash_after < 30; ++crash_after) {
    SCOPED_TRACE(crash_after);
    Stop();
    logs_[0].clear();
    logs_[1].clear();
    lives_.push_back(std::make_unique<FakeTaskContext>());
    ctx().manual_clock().SetWall(WallTimeFromMillis(1'900'000'000'000));
    delivered_.clear();
    next_offset_ = 0;
    settings_.batch.events_max = 32;
    MakeProgram();
    served_ = 0;
    Publish();
    Start();
    Deliver(1, 32);
    Turn();
    sink_->AnswerStatus(0, 500);  // it is in the backlog, with a record
    ++served_;
    Settle();
    Settle();
    Advance(seconds(2));
    std::multiset<int64_t> letters;
    int answered = 0;
    bool crashed = false;
    for (int i = 0; i < 40; ++i) {
      SendAll();
      while (served_ < sink_->size()) {
        AnswerBy(served_++, Refusing({5, 6, 30}));
        ctx().AcknowledgeAll();
        Settle();
        if (++answered == crash_after) {
          crashed = true;
          letters = Letters(DeadReason::kRejectedByReceiver);
          // What is open then has not reached anybody.
          NextLife();
          Publish(12);
          served_ = sink_->size();
        }
        SendAll();
      }
      Advance(seconds(2));
    }
    EXPECT_EQ(crashed, crash_after > 0 && answered >= crash_after);
    const std::multiset<int64_t> later = Letters(DeadReason::kRejectedByReceiver);
    if (crashed) letters.insert(later.begin(), later.end());
    if (!crashed) letters = later;
    ExpectDelivered(1, 32, {5, 6, 30});
    EXPECT_EQ(letters, (std::multiset<int64_t>{5, 6, 30}));
    EXPECT_EQ(metrics_.backlog_messages.value(), 0.0);
  }
}

// The result of a batch whose key group has moved is looked into by its new owner.
TEST_F(BisectionTest, ARefusalThatIsPassedOnIsLookedIntoByTheNewOwner) {
  Begin(4);
  Turn();
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  const std::vector<Operation> operations = function_->Operations();
  Settle();
  function_->OnGivenBack(ctx());
  BeginNextLife(KeyedProcessFunction::CloseReason::kMoved);
  function_->OnInherited(ctx(), operations);
  function_->OnResume(ctx());
  RestoreBacklog();
  for (int64_t n = 1; n <= 4; ++n) DeliverAt(n - 1, MakeRecord(n));
  AnswerBy(0, Refusing({3}));
  served_ = 1;
  ASSERT_EQ(results_.appended.size(), 1u);
  function_->OnResult(ctx(), results_.appended[0].second);
  Serve(Refusing({3}));
  ExpectDelivered(1, 4, {3});
  EXPECT_EQ(Letters(DeadReason::kRejectedByReceiver), (std::multiset<int64_t>{3}));
}

}  // namespace
}  // namespace postrider::delivery
