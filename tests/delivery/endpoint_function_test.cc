#include "delivery/endpoint_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/crypto/key_ring.h"
#include "delivery/body.h"
#include "delivery/delivery_program.h"
#include "dlq/letters/dead_letter_record.h"
#include "dlq/reports/report_record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/snapshot.h"
#include "tests/delivery/delivery_fixture.h"
#include "tests/fakes/fake_task_context.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::CustomerId;
using subscriptions::DispatchRecord;
using subscriptions::Endpoint;
using subscriptions::EndpointId;
using subscriptions::EndpointMode;
using subscriptions::EndpointSettings;
using subscriptions::PgSnapshot;
using subscriptions::SnapshotBuilder;

class EndpointFunctionTest : public DeliveryFixture {};

TEST_F(EndpointFunctionTest, SendsAStreamingMessageAtOnceAndCompletesItWhenTheReceiverTookIt) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-id").substr(0, 4), "msg_");
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "1");
  EXPECT_EQ(sink_->at(0).Header("webhook-attempt"), "1");
  EXPECT_EQ(sink_->at(0).request.body.front(), '{');
  EXPECT_TRUE(absl::EndsWith(sink_->at(0).request.body, "\"data\":{\"n\":1}}"));
  EXPECT_FALSE(ctx().IsCompleted(0));
  sink_->AnswerStatus(0, 204);
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, ClosesABatchAtItsCountAndNotOneMessageEarlier) {
  settings_.batch.events_max = 3;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  Deliver(3, 3);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "3");
  EXPECT_EQ(sink_->at(0).Header("webhook-id").substr(0, 4), "bat_");
  EXPECT_EQ(sink_->at(0).request.body.front(), '[');
}

TEST_F(EndpointFunctionTest, ClosesABatchWhenItsFirstMessageIsAsOldAsWaitMax) {
  settings_.batch.wait_max = milliseconds(1000);
  Publish();
  Start();
  Deliver(1, 1);
  Advance(milliseconds(600));
  Deliver(2, 2);
  Advance(milliseconds(399));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "2");
}

TEST_F(EndpointFunctionTest, CountsTheWaitFromTheDispatchSoThatARestartAddsNone) {
  Publish();
  Start();
  DispatchRecord record = MakeRecord(1);
  record.dispatch_time -= milliseconds(700);
  Deliver(record);
  Advance(milliseconds(299));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, ABatchThatIsDueOnArrivalWaitsForThePartitionsEnd) {
  Publish();
  Start();
  DispatchRecord record = MakeRecord(1);
  record.dispatch_time -= seconds(30);
  Deliver(record);
  Advance(milliseconds(100));
  EXPECT_EQ(sink_->size(), 0u) << "there is more to read";
  function_->OnPartitionEnd(ctx(), 1);
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, ABatchThatIsDueOnArrivalNeverWaitsLongerThanWaitMax) {
  Publish();
  Start();
  DispatchRecord record = MakeRecord(1);
  record.dispatch_time -= seconds(30);
  Deliver(record);
  Advance(milliseconds(999));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, AMessageThatWouldMakeTheBatchTooLargeBeginsTheNextOne) {
  settings_.batch.bytes_max = 1024;
  Publish();
  Start();
  DispatchRecord large = MakeRecord(2);
  large.data = absl::StrCat("\"", std::string(1'000, 'x'), "\"");
  Deliver(1, 1);
  Deliver(large);
  Turn();
  Turn();
  ASSERT_EQ(sink_->size(), 2u) << "the second is at its bound alone";
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "1");
  EXPECT_EQ(sink_->at(1).Header("webhook-batch-size"), "1");
}

TEST_F(EndpointFunctionTest, WithWaitMaxZeroGathersWhileARequestIsInFlight) {
  settings_.batch.wait_max = milliseconds(0);
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  Deliver(2, 4);
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-batch-size"), "3");
}

TEST_F(EndpointFunctionTest, ARetryKeepsTheBatchAndItsIdAndCountsTheAttempt) {
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  sink_->AnswerStatus(0, 500);
  Deliver(3, 3);
  Advance(milliseconds(100));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  EXPECT_EQ(sink_->at(1).request.body, sink_->at(0).request.body);
}

TEST_F(EndpointFunctionTest, GivesUpWhenTheAttemptsAreUsedUpAndCompletesWhenTheLetterIsDurable) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.attempts = 2;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 503);
  Advance(milliseconds(100));
  ASSERT_EQ(sink_->size(), 2u);
  sink_->Fail(1, HttpFailure::kTimeout);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kAttemptsExhausted);
  EXPECT_EQ(Letter(0).attempts, 2u);
  EXPECT_EQ(Letter(0).last_outcome, "timeout");
  EXPECT_EQ(Letter(0).data, "{\"n\":1}");
  EXPECT_FALSE(ctx().IsCompleted(0));
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, FailsTheTaskWhenALetterCannotBeWritten) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 422);
  ctx().Answer(0, absl::NotFoundError("no such topic"));
  EXPECT_FALSE(ctx().IsCompleted(0));
  EXPECT_TRUE(ctx().failure().has_value());
}

// HTTP-04
TEST_F(EndpointFunctionTest, AReceiverThatIsGoneGetsNothingMoreAndNothingIsGivenUp) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.horizon = seconds(60);
  settings_.retry.attempts = 1;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 410);
  Deliver(2, 9);
  Advance(std::chrono::minutes(30));
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_TRUE(ctx().emitted().empty());
}

TEST_F(EndpointFunctionTest, RetryAfterHoldsTheWholeEndpoint) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HttpResult throttled;
  throttled.status = 429;
  throttled.retry_after = {"10"};
  sink_->Answer(0, std::move(throttled));
  Deliver(2, 2);
  Advance(milliseconds(9'999));
  EXPECT_EQ(sink_->size(), 1u);
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointFunctionTest, ARetryAfterPastTheHorizonIsCutAndTheMessageGetsOneTryAfterIt) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.horizon = seconds(60);
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HttpResult throttled;
  throttled.status = 503;
  throttled.retry_after = {"3600"};
  // Held four times for a quarter of the horizon: the last try begins at its end.
  for (size_t i = 0; i < 4; ++i) {
    sink_->Answer(i, throttled);
    Advance(milliseconds(14'999));
    EXPECT_EQ(sink_->size(), i + 1);
    Advance(milliseconds(1));
    ASSERT_EQ(sink_->size(), i + 2);
    EXPECT_TRUE(ctx().emitted().empty());
  }
  Advance(milliseconds(1));
  sink_->Answer(4, throttled);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kHorizon);
  EXPECT_EQ(Letter(0).attempts, 5u);
}

TEST_F(EndpointFunctionTest, WithholdsWhatIsNoLongerGrantedAndReportsIt) {
  settings_.batch.events_max = 2;
  Publish(10);
  Start();
  DispatchRecord other = MakeRecord(2);
  other.tenant = "t2";
  other.grants_xid = 5;
  Deliver(1, 1);
  Deliver(other);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "1");
  EXPECT_FALSE(absl::StrContains(sink_->at(0).request.body, "t2"));
  ASSERT_EQ(ctx().emitted().size(), 1u);
  const auto report = dlq::DecodeRefusalReport(ctx().emitted()[0].record.value);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->reason, dlq::RefusalReason::kGrantWithdrawn);
  EXPECT_EQ(report->event_id, "e2");
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(1));
  EXPECT_FALSE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, WaitsForASnapshotAsNewAsTheMatchersBeforeItSaysDeleted) {
  settings_.mode = EndpointMode::kStreaming;
  endpoint_exists_ = false;
  Publish(10);
  Start();
  DispatchRecord record = MakeRecord(1);
  record.endpoint_xid = 10;  // 10 had not ended in our snapshot
  Deliver(record);
  Advance(seconds(2));
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_TRUE(ctx().emitted().empty());
  endpoint_exists_ = true;
  Publish(11);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).request.body.front(), '{') << "streaming, although gathered unknown";
}

TEST_F(EndpointFunctionTest, DiscardsForADeletedEndpoint) {
  endpoint_exists_ = false;
  Publish(10);
  Start();
  Deliver(1, 1);
  Advance(seconds(1));
  EXPECT_EQ(sink_->size(), 0u);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  const auto report = dlq::DecodeRefusalReport(ctx().emitted()[0].record.value);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->reason, dlq::RefusalReason::kEndpointDeleted);
}

TEST_F(EndpointFunctionTest, SendsNothingWithASnapshotThatIsTooOld) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  ctx().manual_clock().Advance(std::chrono::hours(24) + milliseconds(1));
  Deliver(1, 1);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  Publish(11);
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, DropsAMessageMetBeforeAtALowerOffset) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Deliver(1, 1);
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_TRUE(ctx().IsCompleted(1));
  EXPECT_FALSE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, StartsNothingWhileItMayNotActAndGoesOnAfterwards) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  ctx().set_may_act(false);
  Deliver(1, 1);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  ctx().set_may_act(true);
  function_->OnResume(ctx());
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, ARequestThatGetsItsSlotWhenItMayNotActIsNotSentAndNotCounted) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_TRUE(sink_->MayStart(0));
  ctx().set_may_act(false);
  EXPECT_FALSE(sink_->MayStart(0));
  sink_->Abort(1);
  sink_->DeliverAborts();
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_EQ(function_->in_flight(), 0u);
  ctx().set_may_act(true);
  function_->OnResume(ctx());
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "1");
  ctx().Close(*function_);
  EXPECT_FALSE(sink_->MayStart(1));
}

TEST_F(EndpointFunctionTest, AStopSendsOpenBatchesAtOnce) {
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  EXPECT_EQ(function_->in_flight(), 0u);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kShutdown);
  EXPECT_EQ(function_->in_flight(), 1u);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  EXPECT_EQ(function_->in_flight(), 0u);
}

TEST_F(EndpointFunctionTest, AHandoverStartsNothing) {
  Publish();
  Start();
  Deliver(1, 2);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_EQ(function_->in_flight(), 0u);
}

TEST_F(EndpointFunctionTest, NeverHasMoreInFlightThanItsWindow) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 2;
  Publish();
  Start();
  Deliver(1, 10);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(0, 200);
  Turn();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointFunctionTest, WaitsInLineWhileItsHostHasNoRoom) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  sink_->SetHostRoom("receiver.example:80", 0);
  Deliver(1, 3);
  for (int i = 0; i < 5; ++i) Turn();
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_EQ(loop_->RunOnce(Duration::zero()), 0u) << "it must not spin meanwhile";
  sink_->SetHostRoom("receiver.example:80", 10);
  SendAll();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointFunctionTest, WhileItsHostHasNoRoomAStopWaitsAndACloseForgetsIt) {
  Publish();
  Start();
  sink_->SetHostRoom("receiver.example:80", 0);
  Deliver(1, 2);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kShutdown);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_EQ(function_->in_flight(), 1u);
  Stop();
  sink_->SetHostRoom("receiver.example:80", 10);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
}

TEST_F(EndpointFunctionTest, ATimeoutNarrowsTheWindowToOne) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 2;
  Publish();
  Start();
  Deliver(1, 10);
  for (int i = 0; i < 10; ++i) Turn();
  sink_->Fail(0, HttpFailure::kTimeout);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(sink_->in_flight(), 1u);
}

TEST_F(EndpointFunctionTest, KeepsLettersInOrderWhileTheProducerIsFull) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 8;
  Publish();
  Start();
  Deliver(1, 3);
  for (int i = 0; i < 3; ++i) Turn();
  ASSERT_EQ(sink_->size(), 3u);
  ctx().set_emit_room(1);
  for (size_t i = 0; i < 3; ++i) sink_->AnswerStatus(i, 422);
  EXPECT_EQ(ctx().emitted().size(), 1u);
  ctx().set_emit_room(10);
  function_->OnRoom(ctx());
  ASSERT_EQ(ctx().emitted().size(), 3u);
  EXPECT_EQ(Letter(1).event_id, "e2");
  EXPECT_EQ(Letter(2).event_id, "e3");
  ctx().AcknowledgeAll();
  EXPECT_EQ(ctx().completed().size(), 3u);
}

TEST_F(EndpointFunctionTest, AnEndpointWhoseSecretCannotBeOpenedEndsInLetters) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.attempts = 2;
  Publish();
  Start();
  const KeyRing other = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
  SnapshotBuilder builder;
  builder.PutCustomer(customer_, 1, 1);
  builder.PutGrant(customer_, "t1", 1);
  Endpoint endpoint;
  endpoint.id = endpoint_;
  endpoint.customer = customer_;
  endpoint.settings = settings_;
  endpoint.secrets_sealed = *subscriptions::SealEndpointSecrets(
      other, customer_, endpoint_,
      {{"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", ctx().clock().Wall(), {}}});
  builder.PutEndpoint(std::move(endpoint));
  program_->SetSnapshot(builder.Build(*PgSnapshot::Parse("10:10:"), ctx().clock().Wall(), "o"));
  Deliver(1, 1);
  Turn();
  Advance(milliseconds(100));
  EXPECT_EQ(sink_->size(), 0u);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kMisconfigured);
}

TEST_F(EndpointFunctionTest, KeepsADamagedRecordForInspectionAndGoesOn) {
  Publish();
  Start();
  OwnedRecord damaged;
  damaged.key = std::string(endpoint_.view());
  damaged.value = "nonsense";
  function_->OnElement(ctx(), damaged.View());
  ASSERT_EQ(ctx().emitted().size(), 1u);
  const AppendRecord& rejected = ctx().emitted()[0].record;
  EXPECT_EQ(rejected.topic, "postrider.rejected");
  EXPECT_EQ(rejected.key, damaged.key);
  EXPECT_EQ(rejected.value, "nonsense");
  EXPECT_THAT(rejected.headers,
              testing::IsSupersetOf({testing::Pair("reason", "undecodable_dispatch_record"),
                                     testing::Pair("offset", "0")}));
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, ARecordOfANewerVersionWaitsForAWorkerThatReadsIt) {
  Publish();
  Start();
  OwnedRecord newer;
  newer.key = std::string(endpoint_.view());
  newer.value = subscriptions::EncodeDispatchRecord(MakeRecord(1));
  (*newer.value)[0] = 4;
  function_->OnElement(ctx(), newer.View());
  EXPECT_TRUE(ctx().failure().has_value());
  EXPECT_TRUE(ctx().emitted().empty());
  EXPECT_FALSE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, DropsARepeatOfWhatAPredecessorHadCompleted) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  OwnedRecord done;
  done.key = std::string(endpoint_.view());
  done.value = subscriptions::EncodeDispatchRecord(MakeRecord(1));
  function_->OnSkipped(ctx(), done.View());
  next_offset_ = 1;
  Deliver(1, 1);
  Turn();
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_TRUE(ctx().IsCompleted(1));
}

TEST_F(EndpointFunctionTest, WhatIsGatheredNeverGoesBeyondBoundsThatWereLoweredMeanwhile) {
  Publish();
  Start();
  Deliver(1, 5);
  settings_.batch.events_max = 2;
  Publish(11);
  for (int i = 0; i < 3; ++i) Turn();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "2");
  EXPECT_EQ(sink_->at(1).Header("webhook-batch-size"), "2");
  EXPECT_EQ(sink_->at(2).Header("webhook-batch-size"), "1");
}

TEST_F(EndpointFunctionTest, WhatIsGatheredIsCutWhereFewerBytesFit) {
  Publish();
  Start();
  for (int64_t n = 1; n <= 4; ++n) {
    DispatchRecord record = MakeRecord(n);
    record.data = absl::StrCat("\"", std::string(400, 'x'), "\"");
    Deliver(record);
  }
  settings_.batch.bytes_max = 1'400;
  Publish(11);
  for (int i = 0; i < 4; ++i) Turn();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "2");
  EXPECT_LE(sink_->at(0).request.body.size(), 1'400u);
}

TEST_F(EndpointFunctionTest, AShorterWaitHoldsForTheOpenBatchToo) {
  settings_.batch.wait_max = milliseconds(4'000);
  Publish();
  Start();
  Deliver(1, 1);
  Advance(milliseconds(100));
  settings_.batch.wait_max = milliseconds(500);
  Publish(11);
  Advance(milliseconds(399));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, AThrottlingReceiverIsLeftAloneForTheBackoffEvenWithoutRetryAfter) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.first_delay = seconds(5);
  settings_.retry.cap = seconds(5);
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 429);
  Deliver(2, 9);
  Turn();
  EXPECT_EQ(sink_->size(), 1u) << "the endpoint is held, not its message alone";
  Advance(seconds(5));
  Turn();
  EXPECT_GT(sink_->size(), 1u);
}

// RETRY-14: the rests grow while it goes on refusing, and begin anew after a success.
TEST_F(EndpointFunctionTest, AReceiverThatGoesOnThrottlingIsAskedLessAndLess) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.retry.schedule = {seconds(1), seconds(10), seconds(100)};
  settings_.window_max = 1;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  size_t sent = 0;
  for (const int rest : {1, 10, 100, 100}) {
    sink_->AnswerStatus(sent++, 429);
    Advance(seconds(rest) - milliseconds(1));
    EXPECT_EQ(sink_->size(), sent) << rest;
    Advance(milliseconds(rest * 100 + 1));  // a tenth more, for the spread
    ASSERT_EQ(sink_->size(), sent + 1) << rest;
  }
  sink_->AnswerStatus(sent++, 200);
  Deliver(2, 2);
  Turn();
  sink_->AnswerStatus(sent++, 429);
  Advance(milliseconds(1'100));
  EXPECT_EQ(sink_->size(), sent + 1);
}

TEST_F(EndpointFunctionTest, WithWaitMaxZeroARetryWaitsForNoRequestInFlight) {
  settings_.batch.wait_max = milliseconds(0);
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 500);
  Deliver(2, 2);
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  Deliver(3, 3);  // gathers
  Turn();
  Advance(milliseconds(100));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).Header("webhook-attempt"), "2");
  EXPECT_EQ(sink_->at(2).Header("webhook-batch-size"), "1");
  sink_->AnswerStatus(1, 200);
  sink_->AnswerStatus(2, 200);
  Turn();
  EXPECT_EQ(sink_->size(), 4u);
}

TEST_F(EndpointFunctionTest, AStopDoesNotWaitForARetryThatBecomesDueMeanwhile) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 2);
  Turn();
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(0, 500);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kShutdown);
  EXPECT_EQ(function_->in_flight(), 1u);
  ctx().manual_clock().Advance(milliseconds(100));  // timers fire no more
  Turn();
  EXPECT_EQ(function_->in_flight(), 1u) << "nobody would send it";
  sink_->AnswerStatus(1, 200);
  Turn();
  while (sink_->in_flight() > 0) sink_->AnswerStatus(sink_->size() - 1, 200);
  EXPECT_EQ(function_->in_flight(), 0u);
}

TEST_F(EndpointFunctionTest, AStopWithoutTheRightToSendWaitsForWhatIsInFlightOnly) {
  Publish();
  Start();
  Deliver(1, 2);
  ctx().set_may_act(false);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kShutdown);
  Turn();
  EXPECT_EQ(function_->in_flight(), 0u);
}

TEST_F(EndpointFunctionTest, TimesFromAnyCenturyAreSurvived) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  const int64_t millis[] = {INT64_MIN, -62'135'596'800'000, 253'402'300'799'999, INT64_MAX};
  for (int64_t n = 0; n < 4; ++n) {
    DispatchRecord record = MakeRecord(n);
    record.event_time = WallTimeFromMillis(millis[n]);
    Deliver(record);
  }
  for (int i = 0; i < 4; ++i) Turn();
  ASSERT_EQ(sink_->size(), 4u);
  for (size_t i = 0; i < 4; ++i) sink_->AnswerStatus(i, 200);
  EXPECT_EQ(ctx().completed().size(), 4u);
  EXPECT_FALSE(absl::StrContains(all_metrics_.Expose(), "_sum -")) << "no time is negative";
}

TEST_F(EndpointFunctionTest, ABatchDispatchedInTheFutureWaitsNoLongerThanWaitMax) {
  Publish();
  Start();
  DispatchRecord record = MakeRecord(1);
  record.dispatch_time += std::chrono::hours(1);
  Deliver(record);
  Advance(milliseconds(1'000));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointFunctionTest, ForgetsAnEndpointThatHadNothingToDoForLong) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 2;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 200);
  auto& function = static_cast<EndpointFunction&>(*function_);
  for (int i = 0; i < 9; ++i) Advance(std::chrono::minutes(1));
  EXPECT_EQ(function.endpoints(), 1u);
  Advance(std::chrono::minutes(1));
  EXPECT_EQ(function.endpoints(), 0u);
  EXPECT_EQ(ctx().timers(), 0u);
  Deliver(2, 2);
  Turn();
  EXPECT_EQ(sink_->size(), 2u);
}

TEST_F(EndpointFunctionTest, ForgetsADeletedEndpointWithinAMinuteOfItsLastMessage) {
  endpoint_exists_ = false;
  Publish();
  Start();
  Deliver(1, 1);
  Advance(seconds(1));
  auto& function = static_cast<EndpointFunction&>(*function_);
  EXPECT_EQ(function.endpoints(), 1u);
  Advance(seconds(59));
  EXPECT_EQ(function.endpoints(), 0u);
}

TEST_F(EndpointFunctionTest, NeverForgetsAnEndpointWhoseRequestHangs) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  for (int i = 0; i < 20; ++i) Advance(std::chrono::minutes(1));
  sink_->AnswerStatus(0, 200);
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(EndpointFunctionTest, LagListsAnEndpointOnceHoweverManyBatchesItOpens) {
  settings_.batch.events_max = 1;
  Publish();
  Start();
  settings_.batch.events_max = 2;
  Publish(11);
  for (int64_t n = 0; n < 101; ++n) {
    DispatchRecord record = MakeRecord(n);
    record.dispatch_time -= seconds(30);
    Deliver(record);
  }
  EXPECT_EQ(static_cast<EndpointFunction&>(*function_).waiting_for_partition_end(), 1u);
  ctx().manual_clock().Advance(milliseconds(100));
  function_->OnPartitionEnd(ctx(), 101);
  EXPECT_EQ(static_cast<EndpointFunction&>(*function_).waiting_for_partition_end(), 0u);
}

TEST_F(EndpointFunctionTest, SendsWhileTheSinkHasRoom) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 8;
  Publish();
  Start();
  Deliver(1, 3);
  sink_->SetRoom(1);
  Turn();
  EXPECT_EQ(sink_->size(), 1u) << "no more than there is room for";
  sink_->SetRoom(3);
  Turn();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointFunctionTest, HasNoMoreInFlightThanTheShardHasSlots) {
  Stop();
  options_.requests_max = 2;
  program_.reset();
  MakeProgram();
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 8;
  Publish();
  Start();
  Deliver(1, 3);
  Turn();
  Turn();
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(0, 200);
  Turn();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointFunctionTest, AbortsWhatIsInFlightWhenItIsClosed) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ctx().Close(*function_);
  EXPECT_TRUE(sink_->at(0).aborted);
  function_.reset();
  sink_->DeliverAborts();
  EXPECT_FALSE(ctx().IsCompleted(0));
}

}  // namespace
}  // namespace postrider::delivery
