// Partial acknowledgements and steering, as the endpoint function follows them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/stream/operation.h"
#include "delivery/flight_result.h"
#include "delivery/partial_ack.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "tests/delivery/splitting_fixture.h"

namespace postrider::delivery {
namespace {

using dlq::DeadReason;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;

class PartialAckDeliveryTest : public SplittingFixture {
 protected:
  PartialAckDeliveryTest() {
    settings_.partial_ack = true;
    settings_.batch.events_max = 4;
  }

  std::string MessageId(int64_t number) {
    return subscriptions::FormatMessageId(MakeRecord(number).message_id);
  }
  // An answer that lists these as failed.
  HttpResult Listing(const std::vector<int64_t>& numbers, int status = 200) {
    std::vector<std::string> ids;
    for (const int64_t number : numbers) ids.push_back(absl::StrCat("\"", MessageId(number), "\""));
    HttpResult result = Status(status);
    result.body_excerpt = absl::StrCat("{\"failed\":[", absl::StrJoin(ids, ","), "]}");
    return result;
  }
  HttpResult Saying(std::string body, int status = 200) {
    HttpResult result = Status(status);
    result.body_excerpt = std::move(body);
    return result;
  }
  void Begin(int64_t last = 4) {
    Publish();
    Start();
    Deliver(1, last);
    Turn();
  }
  bool AllDone(int64_t last) {
    for (int64_t offset = 0; offset < last; ++offset) {
      if (!ctx().IsCompleted(offset)) return false;
    }
    return true;
  }
};

TEST_F(PartialAckDeliveryTest, TheListedOnesAreRetriedAsANewBatchAndTheRestIsDone) {
  Begin();
  EXPECT_EQ(sink_->at(0).request.response_body_bytes_max, kPartialAckBytesMax);
  sink_->Answer(0, Listing({2, 4}));
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_TRUE(ctx().IsCompleted(2));
  EXPECT_FALSE(ctx().IsCompleted(1));
  EXPECT_EQ(metrics_.delivered.value(), 2.0);
  EXPECT_EQ(metrics_.CountOutcome(OutcomeKind::kPartlyDelivered).value(), 1.0);
  Settle();
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(NumbersOf(sink_->at(1)), (Numbers{2, 4}));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  EXPECT_NE(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  sink_->Answer(1, Saying("{\"failed\":[]}"));
  Settle();
  EXPECT_TRUE(AllDone(4));
  EXPECT_EQ(metrics_.backlog_messages.value(), 0.0);
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(PartialAckDeliveryTest, WhenAllAreListedTheBatchIsRetriedAsItIs) {
  Begin();
  sink_->Answer(0, Saying("{\"failed\":[0,1,2,3]}", 207));
  EXPECT_EQ(metrics_.delivered.value(), 0.0);
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(PartialAckDeliveryTest, AnUnreadableBodyOf200IsSuccessAndOf207AFailureOfTheWhole) {
  Begin();
  sink_->Answer(0, Saying("thanks", 200));
  EXPECT_TRUE(AllDone(4));
  Deliver(5, 8);
  Turn();
  sink_->Answer(1, Saying("thanks", 207));
  EXPECT_FALSE(ctx().IsCompleted(4));
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(NumbersOf(sink_->at(2)), (Numbers{5, 6, 7, 8}));
  // Cut off: what is missing may be what matters.
  HttpResult cut = Saying("{\"failed\":[]}", 207);
  cut.body_cut = true;
  sink_->Answer(2, cut);
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 4u);
  sink_->Answer(3, Saying("{\"failed\":[]}", 207));
  Settle();
  EXPECT_EQ(metrics_.delivered.value(), 8.0);
}

TEST_F(PartialAckDeliveryTest, WithoutItTheStatusAloneCounts) {
  settings_.partial_ack = false;
  Begin();
  EXPECT_EQ(sink_->at(0).request.response_body_bytes_max, 16u * 1024);
  sink_->Answer(0, Listing({1, 2}, 207));
  EXPECT_TRUE(AllDone(4));
}

TEST_F(PartialAckDeliveryTest, ForeignIdsAreIgnoredAndCounted) {
  Begin();
  sink_->Answer(0, Listing({99, 3, 100}));
  EXPECT_EQ(metrics_.foreign_acks.value(), 2.0);
  EXPECT_EQ(metrics_.delivered.value(), 3.0);
  Advance(milliseconds(2'001));
  EXPECT_EQ(NumbersOf(sink_->last()), (Numbers{3}));
}

TEST_F(PartialAckDeliveryTest, WhatIsListedAgainAndAgainIsGivenUpAlone) {
  settings_.retry.attempts = 3;
  Begin();
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(sink_->size(), i + 1);
    sink_->Answer(i, Listing({2}));
    Settle();
    Advance(milliseconds(2'001));
  }
  EXPECT_EQ(sink_->size(), 3u);
  EXPECT_EQ(Letters(DeadReason::kAttemptsExhausted), (std::multiset<int64_t>{2}));
  EXPECT_EQ(Letter(0).last_outcome, "partly_delivered");
  EXPECT_EQ(Letter(0).attempts, 3u);
  ctx().AcknowledgeAll();
  Settle();
  EXPECT_EQ(metrics_.backlog_messages.value(), 0.0);
}

TEST_F(PartialAckDeliveryTest, SendsASingleMessageThatWasListedAgain) {
  settings_.mode = subscriptions::EndpointMode::kStreaming;
  Begin(1);
  sink_->Answer(0, Saying("{\"failed\":[0]}"));
  EXPECT_FALSE(ctx().IsCompleted(0));
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(PartialAckDeliveryTest, OfAnOrderedEndpointOnlyThePartBeforeTheFirstFailureCounts) {
  settings_.order.kind = subscriptions::OrderKind::kEndpoint;
  Begin();
  sink_->Answer(0, Listing({2}));
  EXPECT_EQ(metrics_.delivered.value(), 1.0);
  Settle();
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(NumbersOf(sink_->at(1)), (Numbers{2, 3, 4}));
}

// The rest of a batch that waits in the backlog has a record of its own.
TEST_F(PartialAckDeliveryTest, TheRestKeepsItsIdAndItsAttemptsOverARestart) {
  Begin();
  sink_->AnswerStatus(0, 500);
  Settle();
  Settle();
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  sink_->Answer(1, Listing({1, 3}));
  Settle();
  NextLife();
  Publish(12);
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(NumbersOf(sink_->at(2)), (Numbers{1, 3}));
  EXPECT_EQ(sink_->at(2).Header("webhook-attempt"), "3");
  sink_->AnswerStatus(2, 500);
  Settle();
  NextLife();
  Publish(13);
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_EQ(sink_->at(3).Header("webhook-id"), sink_->at(2).Header("webhook-id"));
  sink_->Answer(3, Saying("{\"failed\":[]}"));
  Settle();
  EXPECT_EQ(metrics_.backlog_messages.value(), 0.0);
}

TEST_F(PartialAckDeliveryTest, AListThatIsPassedOnIsFollowedByTheNewOwner) {
  Begin();
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
  sink_->Answer(0, Listing({4}));
  ASSERT_EQ(results_.appended.size(), 1u);
  function_->OnResult(ctx(), results_.appended[0].second);
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_TRUE(ctx().IsCompleted(2));
  EXPECT_FALSE(ctx().IsCompleted(3));
  Settle();
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(NumbersOf(sink_->at(1)), (Numbers{4}));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
}

class SteeringDeliveryTest : public SplittingFixture {
 protected:
  HttpResult Steering(HttpHeaders lines, int status = 200) {
    HttpResult result = Status(status);
    result.kept_headers = std::move(lines);
    return result;
  }
};

TEST_F(SteeringDeliveryTest, AReceiverSaysHowManyMessagesABatchMayHave) {
  settings_.batch.events_max = 8;
  Publish();
  Start();
  Deliver(1, 8);
  Turn();
  EXPECT_EQ(sink_->at(0).request.response_header_prefix, "webhook-");
  // What was gathered and never sent is cut too; what was sent keeps its members.
  Deliver(9, 16);
  Turn();
  ctx().set_may_act(false);
  Deliver(17, 24);
  ctx().set_may_act(true);
  sink_->Answer(0, Steering({{"webhook-batch-max", "3"}}));
  sink_->Answer(1, Steering({}, 500));
  SendAll();
  ASSERT_EQ(sink_->size(), 5u);
  EXPECT_EQ(NumbersOf(sink_->at(2)), (Numbers{17, 18, 19}));
  EXPECT_EQ(NumbersOf(sink_->at(4)), (Numbers{23, 24}));
  Advance(milliseconds(2'001));
  ASSERT_EQ(sink_->size(), 6u);
  EXPECT_EQ(NumbersOf(sink_->at(5)).size(), 8u);
  // It widens it again, up to what the settings say.
  sink_->Answer(2, Steering({{"webhook-batch-max", "5000"}}));
  Deliver(25, 32);
  SendAll();
  EXPECT_EQ(NumbersOf(sink_->last()).size(), 8u);
}

TEST_F(SteeringDeliveryTest, AFailureSteersToo) {
  settings_.batch.events_max = 8;
  Publish();
  Start();
  Deliver(1, 8);
  Turn();
  sink_->Answer(0, Steering({{"webhook-batch-max", "2"}}, 503));
  Deliver(9, 10);
  SendAll();
  EXPECT_EQ(NumbersOf(sink_->last()), (Numbers{9, 10}));
}

TEST_F(SteeringDeliveryTest, WhatAReceiverHasTaughtOutlivesRestartsButNoChangeOfItsEndpoint) {
  settings_.batch.events_max = 8;
  Publish();
  Start();
  Deliver(1, 8);
  Turn();
  sink_->Answer(0, Steering({{"webhook-batch-max", "3"}, {"webhook-rate", "2"}}));
  Settle();
  NextLife();
  Deliver(9, 16);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u) << "the rate";
  EXPECT_EQ(NumbersOf(sink_->at(1)), (Numbers{9, 10, 11}));
  // It repeats what it said, and that is not written again each time.
  const size_t writes = ctx().changelog(kEndpointChangelog).log.size();
  sink_->Answer(1, Steering({{"webhook-batch-max", "3"}, {"webhook-rate", "2"}}));
  EXPECT_EQ(ctx().changelog(kEndpointChangelog).log.size(), writes);
  for (int i = 0; i < 10; ++i) {
    Advance(milliseconds(1'000));
    Serve([&](const Numbers&, size_t) { return Status(200); });
  }
  // Another one by now, as nobody was there to see.
  ++generation_;
  Settle();
  BeginNextLife();
  Publish(11);
  function_->OnResume(ctx());
  RestoreBacklog();
  Deliver(17, 24);
  SendAll();
  EXPECT_EQ(NumbersOf(sink_->last()).size(), 8u);
  Advance(std::chrono::minutes(1));
  Settle();
  // And what was stored of the former one has gone.
  generation_ = 1;
  BeginNextLife();
  Publish(12);
  function_->OnResume(ctx());
  RestoreBacklog();
  const size_t before = sink_->size();
  Deliver(25, 32);
  SendAll();
  ASSERT_EQ(sink_->size(), before + 1);
  EXPECT_EQ(NumbersOf(sink_->last()).size(), 8u);
}

TEST_F(SteeringDeliveryTest, WhatWasTooLargeIsKnownToTheNextOwner) {
  settings_.batch.events_max = 100;
  Publish();
  Start();
  Deliver(1, 100);
  size_t limit = 0;
  Serve([&](const Numbers& numbers, size_t bytes) {
    if (numbers.size() <= 50) limit = std::max(limit, bytes);
    return Status(numbers.size() > 50 ? 413 : 200);
  });
  Settle();
  NextLife();
  Deliver(101, 200);
  Advance(milliseconds(100));
  size_t refused = 0;
  Serve([&](const Numbers& numbers, size_t) {
    refused += numbers.size() > 50 ? 1 : 0;
    return Status(200);
  });
  EXPECT_EQ(refused, 0u);
  ExpectDelivered(1, 200, {});
}

}  // namespace
}  // namespace postrider::delivery
