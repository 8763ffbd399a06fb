#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::BlockedHead;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;
using subscriptions::OrderKind;
using testing::ElementsAre;
using testing::IsEmpty;
using CloseReason = KeyedProcessFunction::CloseReason;

// Endpoints that ask for an order: all retries after exactly two seconds at most.
class OrderingTest : public DeliveryFixture {
 protected:
  OrderingTest() {
    granted_ = {"t1", "t2", "t3"};
    settings_.mode = EndpointMode::kStreaming;
    settings_.order.kind = OrderKind::kEndpoint;
    settings_.retry.attempts = 3;
    settings_.retry.horizon = seconds(60);
    settings_.retry.first_delay = seconds(2);
    settings_.retry.cap = seconds(2);
  }

  void Begin() {
    Publish();
    Start();
  }
  // Event 1 was sent and waits for its retry, parked.
  void BeginWithOneThatFails() {
    Begin();
    Deliver(Of(1, "t1"));
    SendAll();
    sink_->AnswerStatus(0, 500);
    Settle();
  }
  DispatchRecord Of(int64_t number, const std::string& tenant) {
    DispatchRecord record = MakeRecord(number);
    record.tenant = tenant;
    return record;
  }
  // The numbers of the events of a request.
  static std::vector<std::string> Events(const FakeHttpSink::Sent& sent) {
    std::vector<std::string> ids;
    const std::string mark = "\"event_id\":\"e";
    const std::string& body = sent.request.body;
    for (size_t at = body.find(mark); at != std::string::npos; at = body.find(mark, at)) {
      at += mark.size();
      ids.push_back(body.substr(at, body.find('"', at) - at));
    }
    return ids;
  }
  std::vector<std::string> EventsSentFrom(size_t first) {
    std::vector<std::string> ids;
    for (size_t i = first; i < sink_->size(); ++i) {
      for (std::string& id : Events(sink_->at(i))) ids.push_back(std::move(id));
    }
    return ids;
  }
  // Every request is answered with 200 until none is made any more; the events that were sent.
  std::vector<std::string> TakeAll() {
    const size_t first = sink_->size();
    for (size_t next = first; true; ++next) {
      SendAll();
      Settle();
      SendAll();
      if (next == sink_->size()) return EventsSentFrom(first);
      sink_->AnswerStatus(next, 200);
    }
  }
  void EndReading() { function_->OnPartitionEnd(ctx(), next_offset_); }
  double Backlogged() const { return metrics_.backlog_messages.value(); }
  size_t OpenRequests() { return sink_->in_flight(); }
};

TEST_F(OrderingTest, AnEndpointsMessagesAreSentOneAfterTheOther) {
  Begin();
  Deliver(1, 3);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3"));
}

TEST_F(OrderingTest, ABatchGathersWhileOneIsInFlight) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  settings_.batch.wait_max = milliseconds(0);
  Begin();
  Deliver(1, 1);
  SendAll();
  Deliver(2, 7);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("2", "3", "4", "5"));
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("6", "7"));
}

TEST_F(OrderingTest, ARetryIsNeverOvertaken) {
  Begin();
  Deliver(1, 2);
  SendAll();
  sink_->AnswerStatus(0, 500);
  Deliver(3, 3);
  SendAll();
  Settle();
  Deliver(4, 4);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("1"));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3", "4"));
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(OrderingTest, OnlyTheKeyOfAFailedMessageWaits) {
  settings_.order.kind = OrderKind::kKey;
  BeginWithOneThatFails();
  Deliver(Of(2, "t1"));
  Deliver(Of(3, "t2"));
  Deliver(Of(4, "t1"));
  Deliver(Of(5, "t2"));
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("3"));
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("5"));
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_THAT(Events(sink_->at(3)), ElementsAre("1"));
  sink_->AnswerStatus(3, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "4"));
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(OrderingTest, DifferentKeysAreInFlightTogether) {
  settings_.order.kind = OrderKind::kKey;
  settings_.order.key_pointer = "/n";
  Begin();
  Deliver(1, 2);
  DispatchRecord again = MakeRecord(3);
  again.data = "{\"n\":1}";
  Deliver(again);
  Deliver(4, 4);
  SendAll();
  EXPECT_THAT(EventsSentFrom(0), ElementsAre("1", "2", "4"));
  sink_->AnswerStatus(0, 200);
  SendAll();
  EXPECT_THAT(EventsSentFrom(3), ElementsAre("3"));
  for (const size_t i : {1u, 2u, 3u}) sink_->AnswerStatus(i, 200);
}

TEST_F(OrderingTest, ABatchTakesWhatFollowsOfKeysThatAreFree) {
  settings_.order.kind = OrderKind::kKey;
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  Begin();
  for (const auto& [n, tenant] : std::vector<std::pair<int64_t, std::string>>{
           {1, "t1"}, {2, "t1"}, {3, "t1"}, {4, "t2"}, {5, "t2"}, {6, "t3"}}) {
    Deliver(Of(n, tenant));
  }
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(Events(sink_->at(0)), ElementsAre("1", "2"));
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("4", "5"));
  EXPECT_THAT(Events(sink_->at(2)), ElementsAre("6"));
  sink_->AnswerStatus(0, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("3"));
  sink_->AnswerStatus(1, 200);
  sink_->AnswerStatus(2, 200);
}

TEST_F(OrderingTest, AHeldHeadIsTriedBeyondItsAttemptsUntilItIsTooOld) {
  Begin();
  Deliver(1, 2);
  size_t tried = 0;
  while (ctx().emitted().empty() && tried < 100) {
    SendAll();
    if (tried < sink_->size()) {
      ASSERT_THAT(Events(sink_->at(tried)), ElementsAre("1"));
      sink_->AnswerStatus(tried++, 500);
    }
    Settle();
    Advance(seconds(2));
  }
  EXPECT_GT(tried, static_cast<size_t>(settings_.retry.attempts)) << "probes, in the end";
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kHorizon);
  ctx().AcknowledgeAll();
  Advance(std::chrono::minutes(1));  // its breaker rests
  ASSERT_EQ(sink_->size(), tried + 1);
  EXPECT_THAT(Events(sink_->at(tried)), ElementsAre("2"));
  sink_->AnswerStatus(tried, 200);
}

TEST_F(OrderingTest, ADeadLetteredHeadFreesItsKeyWhenTheLetterIsDurable) {
  settings_.order.blocked = BlockedHead::kDeadLetter;
  settings_.retry.attempts = 1;
  Begin();
  Deliver(1, 2);
  SendAll();
  sink_->AnswerStatus(0, 500);
  SendAll();
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kAttemptsExhausted);
  Advance(seconds(2));
  EXPECT_EQ(sink_->size(), 1u);  // the first could come again yet
  ctx().AcknowledgeAll();
  EXPECT_THAT(TakeAll(), ElementsAre("2"));
}

TEST_F(OrderingTest, NewMessagesQueueBehindTheBacklogOfAPredecessor) {
  BeginWithOneThatFails();
  Deliver(2, 3);
  Advance(milliseconds(0));
  Settle();
  BeginNextLife();
  function_->OnResume(ctx());
  EndReading();
  Deliver(4, 5);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u);  // nothing before the backlog is known
  RestoreBacklog();
  Deliver(6, 6);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("1"));
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3", "4", "5", "6"));
  EXPECT_EQ(Backlogged(), 0);
}

// A matcher that was killed sends again what its successor cannot know; of that the worker, which
// was killed too, reads again only what it had not finished.
TEST_F(OrderingTest, ARepeatThatIsReadBeforeItsEntryKeepsTheEntrysPlace) {
  BeginWithOneThatFails();
  Deliver(2, 3);
  Settle();
  BeginNextLife();
  function_->OnResume(ctx());
  DeliverAt(3, MakeRecord(2));
  EndReading();
  for (int i = 0; i < 20 && !ctx().IsCompleted(3); ++i) {  // parked, as it pends for long
    Advance(seconds(1));
    Settle();
  }
  ASSERT_TRUE(ctx().IsCompleted(3));
  const size_t sent = sink_->size();
  RestoreBacklog();
  Settle();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), sent + 1);
  EXPECT_THAT(Events(sink_->at(sent)), ElementsAre("1"));
  sink_->AnswerStatus(sent, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3"));
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(OrderingTest, AnEntryWaitsForRecordsBeforeItThatComeAgain) {
  Begin();
  Deliver(1, 1);
  SendAll();
  Deliver(2, 2);
  sink_->AnswerStatus(0, 500);
  Settle();
  Deliver(3, 3);  // behind the one that waits
  Settle();
  ASSERT_TRUE(ctx().IsCompleted(0));
  ASSERT_FALSE(ctx().IsCompleted(1));
  ASSERT_TRUE(ctx().IsCompleted(2));
  NextLife();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  SendAll();
  EXPECT_EQ(sink_->size(), 2u);
  DeliverAt(1, MakeRecord(2));
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(Events(sink_->at(2)), ElementsAre("2"));
  sink_->AnswerStatus(2, 200);
  EndReading();
  EXPECT_THAT(TakeAll(), ElementsAre("3"));
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(OrderingTest, AfterARestartOnlyTheKeysOfWhatWaitsStandStill) {
  settings_.order.kind = OrderKind::kKey;
  BeginWithOneThatFails();
  Deliver(Of(2, "t1"));
  SendAll();
  Settle();
  NextLife();
  EndReading();
  Deliver(Of(3, "t2"));
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("3"));
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), IsEmpty());
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(Events(sink_->at(2)), ElementsAre("1"));
  sink_->AnswerStatus(2, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2"));
}

TEST_F(OrderingTest, AHandoverAbortsWhatIsInFlightAndPassesNothingOn) {
  Begin();
  Deliver(1, 2);
  SendAll();
  ASSERT_TRUE(sink_->MayStart(0));
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  EXPECT_THAT(function_->Operations(), IsEmpty());
  function_->OnGivenBack(ctx());
  BeginNextLife(CloseReason::kMoved);
  EXPECT_TRUE(sink_->at(0).aborted);
  EXPECT_THAT(results_.appended, IsEmpty());
  function_->OnResume(ctx());
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  DeliverAt(1, MakeRecord(2));
  EXPECT_THAT(TakeAll(), ElementsAre("1", "2"));
}

TEST_F(OrderingTest, ATaskThatComesStraightBackKeepsWhatIsInFlight) {
  Begin();
  Deliver(1, 2);
  SendAll();
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  function_->OnGivenBack(ctx());
  sink_->AnswerStatus(0, 200);
  ctx().set_may_act(true);
  function_->OnResume(ctx());
  EXPECT_THAT(TakeAll(), ElementsAre("2"));
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(OrderingTest, OrderThatIsAskedForLaterHoldsFromThenOn) {
  settings_.order.kind = OrderKind::kNone;
  Begin();
  Deliver(1, 2);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  Deliver(3, 3);
  settings_.order.kind = OrderKind::kKey;
  Publish(11);
  Deliver(4, 4);
  SendAll();
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  SendAll();
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(0, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("3", "4"));
}

TEST_F(OrderingTest, WithoutOrderAgainTheWholeBacklogIsDrained) {
  BeginWithOneThatFails();
  Deliver(2, 4);
  SendAll();
  Settle();
  settings_.order.kind = OrderKind::kNone;
  Publish(11);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3", "4"));
  Advance(seconds(2));
  EXPECT_THAT(EventsSentFrom(4), ElementsAre("1"));
  sink_->AnswerStatus(4, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(OrderingTest, ManyEntriesOfABlockedKeyKeepNoOtherWaiting) {
  settings_.order.kind = OrderKind::kKey;
  BeginWithOneThatFails();
  for (int64_t n = 2; n <= 12'000; ++n) {
    Deliver(Of(n, "t1"));
    if (n % 500 == 0) Settle();
  }
  Settle();
  Deliver(Of(20'000, "t2"));
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("20000"));
  sink_->AnswerStatus(1, 200);
  // Also when they were all left by a predecessor, and have to be read.
  NextLife();
  EndReading();
  for (int turn = 0; turn < 10 && sink_->size() == 2; ++turn) Turn();
  Deliver(Of(20'001, "t3"));
  for (int turn = 0; turn < 10 && sink_->size() == 2; ++turn) Turn();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(Events(sink_->at(2)), ElementsAre("20001"));
  sink_->AnswerStatus(2, 200);
}

TEST_F(OrderingTest, AStopSendsWhatStandsBeforeTheBacklogOnly) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 1;
  settings_.order.kind = OrderKind::kKey;
  BeginWithOneThatFails();
  Deliver(Of(2, "t1"));  // parked behind the first
  Deliver(Of(3, "t2"));
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kShutdown);
  SendAll();
  EXPECT_THAT(EventsSentFrom(1), ElementsAre("3"));
  EXPECT_EQ(function_->in_flight(), 1u);
  sink_->AnswerStatus(1, 200);
  EXPECT_EQ(function_->in_flight(), 0u);
}

TEST_F(OrderingTest, OnlyWhatComesBeforeTheFirstFailedOneOfItsKeyIsAcknowledged) {
  settings_.order.kind = OrderKind::kKey;
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 5;
  settings_.partial_ack = true;
  Begin();
  for (const auto& [n, tenant] : std::vector<std::pair<int64_t, std::string>>{
           {1, "t1"}, {2, "t2"}, {3, "t1"}, {4, "t2"}, {5, "t1"}}) {
    Deliver(Of(n, tenant));
  }
  SendAll();
  HttpResult result;
  result.status = 200;
  result.body_excerpt = "{\"failed\":[2]}";
  sink_->Answer(0, std::move(result));
  Settle();
  Deliver(Of(6, "t2"));
  Deliver(Of(7, "t1"));
  Advance(seconds(2));
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(EventsSentFrom(1), testing::UnorderedElementsAre("3", "5", "6"));
  sink_->AnswerStatus(1, 200);
  sink_->AnswerStatus(2, 200);
  Advance(seconds(2));
  EXPECT_THAT(TakeAll(), IsEmpty());
  EXPECT_THAT(EventsSentFrom(3), ElementsAre("7"));
}

TEST_F(OrderingTest, ARefusedBatchIsSentInPiecesFromTheLeft) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  Begin();
  Deliver(1, 8);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 400);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(Events(sink_->at(1)), ElementsAre("1", "2"));
  sink_->AnswerStatus(1, 400);
  SendAll();
  EXPECT_THAT(EventsSentFrom(2), ElementsAre("1"));
  sink_->AnswerStatus(2, 400);  // the one at fault: a dead letter, for whose end the others wait
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  ctx().AcknowledgeAll();
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3", "4", "5", "6", "7", "8"));
}

TEST_F(OrderingTest, RoomThatIsRefusedReordersNothing) {
  BeginWithOneThatFails();
  ctx().changelog(kBacklogChangelog).room = 0;
  Deliver(2, 3);
  ctx().changelog(kBacklogChangelog).room = 1000;
  ctx().GiveRoom(*function_);
  Deliver(4, 5);
  Settle();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  EXPECT_THAT(TakeAll(), ElementsAre("2", "3", "4", "5"));
}

}  // namespace
}  // namespace postrider::delivery
