#include "delivery/backlog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/stream/operation.h"
#include "delivery/flight_result.h"
#include "dlq/reports/report_record.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;
using testing::ElementsAre;
using testing::IsEmpty;
using CloseReason = KeyedProcessFunction::CloseReason;

// What waits in the backlog over restarts, and how it comes back.
class BacklogTest : public DeliveryFixture {
 protected:
  BacklogTest() {
    settings_.mode = EndpointMode::kStreaming;
    settings_.retry.attempts = 10;
    settings_.retry.horizon = seconds(60);
    settings_.retry.first_delay = seconds(2);
    settings_.retry.cap = seconds(2);
  }

  double Parked(ParkReason reason) { return metrics_.CountParked(reason).value(); }
  // Sends the first messages, which fail and are parked.
  void ParkOneBatch(int64_t first, int64_t last, int status = 500) {
    Deliver(first, last);
    Turn();
    sink_->AnswerStatus(sink_->size() - 1, status);
    Settle();
  }
};

TEST_F(BacklogTest, ParksAFailedMessageAtOnceAndCompletesItWhenThatIsDurable) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 500);
  EXPECT_EQ(ctx().changelog(kBacklogChangelog).log.size(), 0u) << "has_backlog comes first";
  ctx().changelog(kEndpointChangelog).AnswerAll();
  EXPECT_GT(ctx().changelog(kBacklogChangelog).waiting(), 0u);
  EXPECT_FALSE(ctx().IsCompleted(0));
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_EQ(Backlogged(), 1);
  EXPECT_EQ(Parked(ParkReason::kFailed), 1);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).request.body, sink_->at(0).request.body);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  sink_->AnswerStatus(1, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, ABatchThatFailedKeepsItsCompositionItsIdAndItsAttemptsOverARestart) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 3;
  Publish();
  Start();
  ParkOneBatch(1, 3);
  Deliver(4, 4);
  NextLife();
  DeliverAt(3, MakeRecord(4));  // pending when the former life ended
  Advance(seconds(2));
  Turn();
  ASSERT_EQ(sink_->size(), 3u);
  const bool retry_first = EventIds(sink_->at(1)).size() == 3;
  const FakeHttpSink::Sent& retry = sink_->at(retry_first ? 1 : 2);
  EXPECT_THAT(EventIds(retry), ElementsAre("e1", "e2", "e3"));
  EXPECT_EQ(retry.Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(retry.Header("webhook-attempt"), "2");
  EXPECT_THAT(EventIds(sink_->at(retry_first ? 2 : 1)), ElementsAre("e4"));
}

TEST_F(BacklogTest, SaysHowManyMessagesAndBytesWaitAlsoAfterARestart) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 3;
  Publish();
  Start();
  ParkOneBatch(1, 3);
  const double bytes = metrics_.backlog_bytes.value();
  EXPECT_EQ(bytes,
            3.0 * static_cast<double>(subscriptions::EncodeDispatchRecord(MakeRecord(1)).size()));
  NextLife();
  EXPECT_EQ(Backlogged(), 3);
  EXPECT_EQ(metrics_.backlog_bytes.value(), bytes);
  Advance(seconds(2));
  sink_->AnswerStatus(1, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(metrics_.backlog_bytes.value(), 0);
  Stop();
  EXPECT_EQ(metrics_.backlog_bytes.value(), 0);
}

TEST_F(BacklogTest, CountsAttemptsOverRestartsUntilTheyAreUsedUp) {
  settings_.retry.attempts = 3;
  Publish();
  Start();
  ParkOneBatch(1, 1);
  for (size_t life = 1; life <= 2; ++life) {
    NextLife();
    Advance(seconds(2));
    ASSERT_EQ(sink_->size(), life + 1);
    sink_->AnswerStatus(life, 500);
    Settle();
  }
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kAttemptsExhausted);
  EXPECT_EQ(Letter(0).attempts, 3u);
  EXPECT_EQ(Letter(0).data, "{\"n\":1}");
  EXPECT_EQ(Backlogged(), 1) << "until the letter is durable";
  ctx().AcknowledgeAll();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  NextLife();
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(BacklogTest, TheHorizonCountsFromTheFirstTryOverRestarts) {
  settings_.retry.horizon = seconds(5);
  Publish();
  Start();
  ParkOneBatch(1, 1);
  ctx().manual_clock().Advance(seconds(6));
  NextLife();
  Advance(milliseconds(0));
  ASSERT_EQ(sink_->size(), 2u) << "after a rest every message gets one try";
  sink_->AnswerStatus(1, 500);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kHorizon);
}

TEST_F(BacklogTest, AClockSetBackDelaysNoRetryBeyondADayAndKeepsTheHorizon) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  ctx().manual_clock().SetWall(ctx().clock().Wall() - std::chrono::hours(24 * 30));
  NextLife();
  Publish(12);
  Advance(std::chrono::hours(24));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(BacklogTest, ACrashBeforeHasBacklogIsDurableLosesNothing) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 500);
  NextLife();
  EXPECT_EQ(Backlogged(), 0);
  DeliverAt(0, MakeRecord(1));
  Turn();
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(BacklogTest, ACrashBetweenThePushAndItsCommitSendsOneCopyOnly) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  NextLife();
  DeliverAt(0, MakeRecord(1));  // its completion was not committed
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0)) << "it is an entry already";
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  Advance(seconds(2));
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  Settle();
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(BacklogTest, ARecordThatIsReadAgainBeforeTheBacklogIsKnownIsNotSentBesideItsEntry) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  BeginNextLife();
  function_->OnResume(ctx());
  DeliverAt(0, MakeRecord(1));
  Turn();
  ASSERT_EQ(sink_->size(), 2u) << "it cannot be known";
  RestoreBacklog();
  EXPECT_TRUE(ctx().IsCompleted(0));
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  NextLife();
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(BacklogTest, ARecordWhoseEntryHasEndedAlreadyIsNotSentAgain) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  NextLife();
  Advance(seconds(10));
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  Settle();
  ASSERT_EQ(Backlogged(), 0);
  DeliverAt(0, MakeRecord(1));
  Advance(seconds(10));
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_EQ(sink_->size(), 2u);
  DeliverAt(1, MakeRecord(2));
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(BacklogTest, WhatEndsBeforeTheBacklogIsKnownIsNotRevivedByIt) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  BeginNextLife();
  function_->OnResume(ctx());
  DeliverAt(0, MakeRecord(1));
  Turn();
  sink_->AnswerStatus(1, 200);
  EXPECT_TRUE(ctx().IsCompleted(0));
  RestoreBacklog();
  EXPECT_EQ(Backlogged(), 0);
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
  Settle();
  NextLife();
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(BacklogTest, ACrashAfterTheReceiverTookItAndBeforeTheRemovalRepeatsIt) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  sink_->AnswerStatus(1, 200);  // the removal is not acknowledged
  NextLife();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(BacklogTest, ACrashAfterTheLetterAndBeforeTheRemovalWritesTheSameLetterAgain) {
  settings_.retry.attempts = 2;
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  sink_->AnswerStatus(1, 500);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  const dlq::DeadLetterRecord first = Letter(0);
  ctx().AcknowledgeAll();
  NextLife();  // the removal was not acknowledged
  Advance(seconds(2));
  sink_->AnswerStatus(2, 500);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).letter, first.letter);
  ctx().AcknowledgeAll();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, WhatIsWithheldLeavesTheBacklogWhenThatIsReported) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  granted_.clear();
  Publish(11);
  Advance(seconds(2));
  EXPECT_EQ(sink_->size(), 1u);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(dlq::DecodeRefusalReport(ctx().emitted()[0].record.value)->reason,
            dlq::RefusalReason::kGrantWithdrawn);
  EXPECT_EQ(Backlogged(), 1);
  ctx().AcknowledgeAll();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, MessagesBeyondTheShareWaitInTheBacklogAndComeBackInOrder) {
  settings_.window_max = 1;
  settings_.batch.bytes_max = 1024;
  Publish();
  Start();
  Deliver(0, 0);
  Turn();
  sink_->AnswerStatus(0, 503);  // has a backlog from here on
  Settle();
  Deliver(100, 100);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);  // hangs
  const std::string data = absl::StrCat("\"", std::string(300'000, 'x'), "\"");
  for (int64_t n = 1; n <= 10; ++n) {
    DispatchRecord record = MakeRecord(n);
    record.data = data;
    Deliver(record);
    Settle();
  }
  EXPECT_EQ(Parked(ParkReason::kShare), 4) << "6 x 300 KB are less than 2 MB";
  EXPECT_EQ(ctx().completed().size(), 5u);
  sink_->AnswerStatus(1, 200);
  std::vector<std::string> sent;
  for (int i = 0; i < 40 && Backlogged() + static_cast<double>(sent.size()) >= 0; ++i) {
    Advance(milliseconds(100));
    while (sink_->in_flight() > 0) {
      sent.push_back(EventIds(sink_->last()).front());
      sink_->AnswerStatus(sink_->size() - 1, 200);
      Settle();
    }
  }
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(ctx().completed().size(), 12u);
  ASSERT_EQ(sent.size(), 11u);
  const auto place = [&](const std::string& id) {
    return std::find(sent.begin(), sent.end(), id) - sent.begin();
  };
  EXPECT_LT(place("e7"), place("e8"));
  EXPECT_LT(place("e9"), place("e10"));
}

TEST_F(BacklogTest, ParksWhatHasPendedForFiveSecondsAndNotWhatHasForLess) {
  settings_.window_max = 1;
  Publish();
  Start();
  Deliver(1, 3);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  Advance(milliseconds(4'900));
  Settle();
  EXPECT_THAT(ctx().completed(), IsEmpty());
  Advance(milliseconds(1'100));
  Settle();
  EXPECT_EQ(ctx().completed().size(), 3u);
  EXPECT_EQ(Parked(ParkReason::kAge), 3);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u) << "what is in flight is not sent beside";
  sink_->AnswerStatus(0, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 2);
  for (size_t i = 1; i < 3; ++i) {
    Turn();
    ASSERT_EQ(sink_->size(), i + 1);
    EXPECT_THAT(EventIds(sink_->at(i)), ElementsAre(absl::StrCat("e", i + 1)));
    sink_->AnswerStatus(i, 200);
    Settle();
  }
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, WhatIsParkedInFlightAndFailsKeepsItsBatch) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  Advance(seconds(6));
  Settle();
  EXPECT_EQ(ctx().completed().size(), 2u);
  sink_->Fail(0, HttpFailure::kTimeout);
  Settle();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(sink_->at(1).request.body, sink_->at(0).request.body);
}

TEST_F(BacklogTest, WhatWasParkedInFlightWhenTheWorkerCrashedIsSentAgainAsTheSameBatch) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  Advance(seconds(6));
  Settle();
  NextLife();
  Turn();
  Advance(seconds(20));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(BacklogTest, UnderPressureWhatFailsMakesRoomAndWhatMovesStays) {
  settings_.window_max = 1;
  Publish();
  Start();
  Deliver(1, 3);
  Turn();
  function_->OnPressure(ctx());
  Settle();
  EXPECT_THAT(ctx().completed(), IsEmpty()) << "neither failed nor hanging";
  sink_->AnswerStatus(0, 500);
  Turn();
  function_->OnPressure(ctx());
  Settle();
  EXPECT_EQ(ctx().completed().size(), 3u);
}

TEST_F(BacklogTest, WhatHoldsTooManyCompletedOnesIsParkedWhereItStands) {
  settings_.window_max = 2;
  Publish();
  Start();
  Deliver(1, 4);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  function_->OnHoles(ctx(), 0);
  Settle();
  EXPECT_THAT(ctx().completed(), IsEmpty()) << "nothing pends below the watermark";
  function_->OnHoles(ctx(), 1);
  Settle();
  EXPECT_EQ(ctx().completed().size(), 4u) << "all of an endpoint, so that its order stays";
  EXPECT_EQ(Parked(ParkReason::kHoles), 4);
  EXPECT_EQ(sink_->size(), 2u) << "what is in flight is not sent again";
  sink_->AnswerStatus(0, 200);
  sink_->AnswerStatus(1, 200);
  Advance(seconds(1));
  ASSERT_EQ(sink_->size(), 4u);
  sink_->AnswerStatus(2, 200);
  sink_->AnswerStatus(3, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, AnOpenBatchThatWaitsForLongIsParkedFromItsFirstMessageOn) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.wait_max = seconds(30);
  Publish();
  Start();
  Deliver(1, 1);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0));
  Deliver(2, 2);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(1));
  EXPECT_EQ(Parked(ParkReason::kLongWait), 2);
  Advance(milliseconds(29'999));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_THAT(EventIds(sink_->at(0)), ElementsAre("e1", "e2"));
  sink_->AnswerStatus(0, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, AnOpenBatchThatWaitsForFourSecondsIsNotParked) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.wait_max = seconds(4);
  Publish();
  Start();
  Deliver(1, 1);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogTest, AnOpenBatchGathersAgainAfterARestartAndWaitsNoSecondTime) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.wait_max = seconds(30);
  Publish();
  Start();
  Deliver(1, 2);
  Settle();
  Advance(seconds(10));
  NextLife();
  Turn();
  next_offset_ = 2;
  Deliver(3, 3);
  Advance(milliseconds(19'999));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_THAT(EventIds(sink_->at(0)), ElementsAre("e1", "e2", "e3"));
}

TEST_F(BacklogTest, WithoutRoomForAWriteWhatFailedStaysInMemoryAndIsParkedWhenThereIsRoom) {
  Publish();
  Start();
  ctx().changelog(kEndpointChangelog).room = 0;
  ctx().changelog(kBacklogChangelog).room = 0;
  ParkOneBatch(1, 1);
  EXPECT_FALSE(ctx().IsCompleted(0));
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u) << "it is tried from memory";
  sink_->AnswerStatus(1, 500);
  ctx().changelog(kEndpointChangelog).room = 1'000;
  ctx().changelog(kBacklogChangelog).room = 1'000;
  ctx().GiveRoom(*function_);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_EQ(Backlogged(), 1);
}

TEST_F(BacklogTest, ARemovalThatFindsNoRoomIsMadeUpForLater) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  ctx().changelog(kBacklogChangelog).room = 0;
  sink_->AnswerStatus(1, 200);
  EXPECT_EQ(Backlogged(), 1);
  SendAll();
  EXPECT_EQ(sink_->size(), 2u) << "it is not drained meanwhile";
  Deliver(2, 2);
  Turn();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(EventIds(sink_->at(2)), ElementsAre("e2"));
  sink_->AnswerStatus(2, 500);
  EXPECT_FALSE(ctx().IsCompleted(1));
  ctx().changelog(kBacklogChangelog).room = 1'000;
  ctx().GiveRoom(*function_);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(1));
  EXPECT_EQ(Backlogged(), 1) << "the second one alone";
  NextLife();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_THAT(EventIds(sink_->at(3)), ElementsAre("e2"));
}

TEST_F(BacklogTest, AnEndpointThatFailsTriesNoMoreThanAFewOfItsMessages) {
  settings_.window_max = 32;
  Publish();
  Start();
  Deliver(1, 500);
  for (int i = 0; i < 2'000 && sink_->size() < 400; ++i) {
    Turn();
    while (sink_->in_flight() > 0) {
      for (size_t at = 0; at < sink_->size(); ++at) {
        if (sink_->at(at).open) sink_->AnswerStatus(at, 500);
      }
    }
    Settle();
  }
  EXPECT_LE(sink_->size(), 140u);
  Advance(seconds(6));
  Settle();
  EXPECT_EQ(ctx().completed().size(), 500u);
  EXPECT_EQ(Backlogged(), 500);
}

TEST_F(BacklogTest, AnEndpointWithoutEntriesHasNoBacklogAnyMore) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  sink_->AnswerStatus(1, 200);
  Settle();
  BeginNextLife();
  function_->OnResume(ctx());
  const size_t writes = ctx().changelog(kBacklogChangelog).log.size();
  next_offset_ = 1;
  Deliver(2, 2);
  Turn();
  sink_->AnswerStatus(2, 200);
  EXPECT_EQ(ctx().changelog(kBacklogChangelog).log.size(), writes)
      << "nothing is removed for an endpoint without a backlog";
}

// ---- Handover ----

class HandoverTest : public BacklogTest {
 protected:
  // The key group is given back and comes to the next owner, who reads pending records again.
  void HandOver() {
    function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
    ctx().set_may_act(false);
    operations_ = function_->Operations();
    Settle();
    function_->OnGivenBack(ctx());
    BeginNextLife(CloseReason::kMoved);
    function_->OnInherited(ctx(), operations_);
    function_->OnResume(ctx());
  }
  std::vector<Operation> operations_;
};

TEST_F(HandoverTest, WhatIsInFlightIsHeldUntilItsResultAndThenDone) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HandOver();
  RestoreBacklog();
  ASSERT_EQ(operations_.size(), 1u);
  EXPECT_THAT(operations_[0].offsets, ElementsAre(0));
  DeliverAt(0, MakeRecord(1));
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  ASSERT_EQ(results_.appended.size(), 1u);
  EXPECT_EQ(results_.appended[0].first, ctx().partition());
  EXPECT_FALSE(ctx().IsCompleted(0));
  function_->OnResult(ctx(), results_.appended[0].second);
  EXPECT_TRUE(ctx().IsCompleted(0));
  function_->OnResult(ctx(), results_.appended[0].second);
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(HandoverTest, AFailureThatIsPassedOnCountsAndIsRetriedAsTheSameBatch) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  HandOver();
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  DeliverAt(1, MakeRecord(2));
  sink_->AnswerStatus(0, 500);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0)) << "parked";
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(HandoverTest, WithoutAResultItIsTriedAgainAtTheDeadline) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_TRUE(sink_->MayStart(0));
  HandOver();
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  function_->OnPartitionEnd(ctx(), 1);
  Advance(milliseconds(15'999));
  EXPECT_EQ(sink_->size(), 1u);
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 2u);
  EXPECT_EQ(function().inherited(), 0u);
}

TEST_F(HandoverTest, AResultThatStandsInTheLogIsSeenThoughTheHandoverOutlastedTheDeadline) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_TRUE(sink_->MayStart(0));
  ctx().manual_clock().Advance(seconds(10));
  HandOver();
  sink_->AnswerStatus(0, 200);
  Advance(seconds(7));
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  function_->OnPartitionEnd(ctx(), 2);
  Turn();
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(HandoverTest, PastTheDeadlineItIsTriedAgainAtThePartitionsEndOrFiveSecondsLater) {
  for (const bool lags : {false, true}) {
    SCOPED_TRACE(lags);
    Publish();
    Start();
    const size_t before = sink_->size();
    Deliver(1, 1);
    Turn();
    ASSERT_TRUE(sink_->MayStart(before));
    const int64_t offset = next_offset_ - 1;
    HandOver();
    ctx().manual_clock().Advance(seconds(17));
    RestoreBacklog();
    function_->OnInherited(ctx(), operations_);
    DeliverAt(offset, MakeRecord(1));
    Advance(milliseconds(4'999));
    EXPECT_EQ(sink_->size(), before + 1);
    if (lags) {
      Advance(milliseconds(1));
    } else {
      function_->OnPartitionEnd(ctx(), offset + 1);
      Turn();
    }
    EXPECT_EQ(sink_->size(), before + 2);
    Stop();
    lives_.push_back(std::make_unique<FakeTaskContext>());
    ctx().manual_clock().SetWall(WallTimeFromMillis(1'900'000'000'000));
  }
}

TEST_F(HandoverTest, ARetryWhoseResultStandsInTheLogIsNotSentAtItsDeadline) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  ASSERT_TRUE(sink_->MayStart(1));
  HandOver();
  sink_->AnswerStatus(1, 200);
  Advance(seconds(17));  // nothing has been read meanwhile
  RestoreBacklog();
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 2u);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  function_->OnPartitionEnd(ctx(), 2);
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(HandoverTest, ARetryWithoutAResultGoesOnAtThePartitionsEnd) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  ASSERT_TRUE(sink_->MayStart(1));
  HandOver();
  Advance(seconds(17));
  RestoreBacklog();
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 2u);
  function_->OnPartitionEnd(ctx(), 2);
  Turn();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(HandoverTest, AResultThatIsReadBeforeTheRestoreEndsItsRetryThoughThatIsDue) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  ASSERT_TRUE(sink_->MayStart(1));
  HandOver();
  sink_->AnswerStatus(1, 200);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Advance(seconds(17));
  RestoreBacklog();
  Turn();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(HandoverTest, ARequestThatHadNoSlotYetIsPassedOnAsUntried) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HandOver();
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  EXPECT_FALSE(sink_->MayStart(0));
  sink_->Abort(1);
  sink_->DeliverAborts();
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "1");
}

TEST_F(HandoverTest, ARetryInFlightIsKnownByItsRecordAlsoWhenTheResultComesFirst) {
  Publish();
  Start();
  ParkOneBatch(1, 1);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  HandOver();
  ASSERT_EQ(operations_.size(), 1u);
  EXPECT_THAT(operations_[0].offsets, IsEmpty());
  sink_->AnswerStatus(1, 200);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  RestoreBacklog();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
  NextLife();
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(HandoverTest, ARetryInFlightIsNotSentBesideAndItsFailureCounts) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 2;
  Publish();
  Start();
  ParkOneBatch(1, 2);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  ASSERT_TRUE(sink_->MayStart(1));
  HandOver();
  RestoreBacklog();
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 500);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Settle();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).Header("webhook-attempt"), "3");
  EXPECT_EQ(sink_->at(2).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(HandoverTest, ADrainedMessageInFlightIsHeldThoughItHadNoRecord) {
  settings_.window_max = 1;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  Advance(seconds(6));
  Settle();  // both are parked, the second never tried
  sink_->AnswerStatus(0, 200);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  ASSERT_TRUE(sink_->MayStart(1));
  HandOver();
  RestoreBacklog();
  Turn();
  Advance(seconds(10));
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Settle();
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 2u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(HandoverTest, ATaskThatComesStraightBackSettlesWhatCameInMeanwhile) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  static_cast<void>(function_->Operations());
  function_->OnGivenBack(ctx());
  sink_->AnswerStatus(0, 200);
  EXPECT_FALSE(ctx().IsCompleted(0));
  function_->OnResume(ctx());
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_THAT(results_.appended, IsEmpty());
}

TEST_F(HandoverTest, WhatCameInAfterTheLastCommitIsPassedOnWhenTheTaskHasMoved) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  static_cast<void>(function_->Operations());
  function_->OnGivenBack(ctx());
  sink_->AnswerStatus(0, 204);
  Stop(CloseReason::kMoved);
  ASSERT_EQ(results_.appended.size(), 1u);
  const absl::StatusOr<FlightResult> result =
      DecodeFlightResult(results_.appended[0].second.outcome);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcome.status, 204);
  EXPECT_EQ(metrics_.requests_in_flight.value(), 0);
}

TEST_F(HandoverTest, AResultWhoseMessageIsNotHeldFinishesItWhereItStands) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HandOver();
  RestoreBacklog();
  sink_->AnswerStatus(0, 200);
  NextLife();  // crashed: nobody knows of the operation any more
  ctx().set_may_act(false);
  DeliverAt(0, MakeRecord(1));
  function_->OnResult(ctx(), results_.appended.at(0).second);
  EXPECT_TRUE(ctx().IsCompleted(0));
  ctx().set_may_act(true);
  function_->OnResume(ctx());
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(HandoverTest, AnInheritedOperationIsPassedOnToTheNextOwner) {
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HandOver();
  RestoreBacklog();
  DeliverAt(0, MakeRecord(1));
  const std::vector<Operation> first = operations_;
  HandOver();
  EXPECT_EQ(operations_, first);
  DeliverAt(0, MakeRecord(1));
  sink_->AnswerStatus(0, 200);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(HandoverTest, AResultOfANewerVersionWaitsForAWorkerThatReadsIt) {
  Publish();
  Start();
  OperationResult result;
  result.key = std::string(endpoint_.view());
  result.outcome = EncodeFlightResult(FlightResult());
  result.outcome[0] = 2;
  function_->OnResult(ctx(), result);
  EXPECT_TRUE(ctx().failure().has_value());
}

}  // namespace
}  // namespace postrider::delivery
