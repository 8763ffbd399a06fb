// A request that has waited for its slot in the sink, while what it was made by has changed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "dlq/reports/report_record.h"
#include "tests/delivery/delivery_fixture.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::DispatchRecord;
using subscriptions::EndpointMode;
using testing::ElementsAre;

class StartingTest : public DeliveryFixture {
 protected:
  StartingTest() {
    granted_ = {"t1", "t2"};
    settings_.batch.events_max = 2;
    settings_.retry.first_delay = settings_.retry.cap = seconds(2);
  }
  void Begin() {
    Publish(10);
    Start();
  }
  DispatchRecord Of(int64_t number, const std::string& tenant) {
    DispatchRecord record = MakeRecord(number);
    record.tenant = tenant;
    return record;
  }
  // A batch of two tenants' messages is made, and waits for its slot.
  void BeginWithARequest() {
    Begin();
    Deliver(Of(1, "t1"));
    Deliver(Of(2, "t2"));
    SendAll();
    ASSERT_EQ(sink_->size(), 1u);
  }
  // It has its slot. What may not start ends as the sink ends it.
  bool Starts(size_t index) {
    if (sink_->MayStart(index)) return true;
    sink_->Abort(sink_->at(index).id);
    sink_->DeliverAborts();
    SendAll();
    return false;
  }
  dlq::RefusalReason Refused(size_t index) {
    const auto report = dlq::DecodeRefusalReport(ctx().emitted().at(index).record.value);
    EXPECT_THAT(report, tests::IsOk());
    return report->reason;
  }
};

TEST_F(StartingTest, StartsWhenWhatHasChangedIsNoneOfItsBusiness) {
  BeginWithARequest();
  granted_ = {"t1", "t2", "t3"};
  others_ = {{subscriptions::EndpointId(Bytes(9)), settings_}};
  Publish(11);
  EXPECT_TRUE(Starts(0));
  sink_->AnswerStatus(0, 200);
  EXPECT_TRUE(ctx().IsCompleted(1));
}

TEST_F(StartingTest, IsNotStartedForADeletedEndpoint) {
  BeginWithARequest();
  endpoint_exists_ = false;
  Publish(11);
  EXPECT_FALSE(Starts(0));
  EXPECT_EQ(sink_->size(), 1u);
  ASSERT_EQ(ctx().emitted().size(), 2u);
  EXPECT_EQ(Refused(0), dlq::RefusalReason::kEndpointDeleted);
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_TRUE(ctx().IsCompleted(1));
}

TEST_F(StartingTest, IsMadeAnewWithoutAMessageThatIsNotGrantedAnyMore) {
  BeginWithARequest();
  granted_ = {"t1"};
  Publish(11);
  EXPECT_FALSE(Starts(0));
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(Refused(0), dlq::RefusalReason::kGrantWithdrawn);
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(EventIds(sink_->at(1)), ElementsAre("e1"));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "1");
  EXPECT_TRUE(Starts(1));
  sink_->AnswerStatus(1, 200);
  EXPECT_TRUE(ctx().IsCompleted(0));
}

TEST_F(StartingTest, IsMadeAnewWithoutAMessageThatIsToBeForgotten) {
  BeginWithARequest();
  subscriptions::Erasure wish;
  wish.id = subscriptions::ErasureId(Bytes(1));
  wish.event_id = "e2";
  wish.requested_at = ctx().clock().Wall() + seconds(1);
  erasures_ = {wish};
  Publish(11);
  EXPECT_FALSE(Starts(0));
  ASSERT_GE(ctx().emitted().size(), 1u);
  EXPECT_EQ(Refused(0), dlq::RefusalReason::kErased);
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(EventIds(sink_->at(1)), ElementsAre("e1"));
  EXPECT_TRUE(Starts(1));
}

TEST_F(StartingTest, KnowsItsTenantsWhenItsMessagesWereParkedMeanwhile) {
  BeginWithARequest();
  for (int i = 0; i < 8; ++i) {
    Advance(seconds(1));
    Settle();
  }
  ASSERT_EQ(Backlogged(), 2) << "they have pended for long";
  granted_ = {"t1"};
  Publish(11);
  EXPECT_FALSE(Starts(0));
  EXPECT_EQ(Refused(0), dlq::RefusalReason::kGrantWithdrawn);
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_THAT(EventIds(sink_->at(1)), ElementsAre("e1"));
  EXPECT_TRUE(Starts(1));
}

TEST_F(StartingTest, KnowsTheTenantsOfWhatWasReadBack) {
  BeginWithARequest();
  ASSERT_TRUE(Starts(0));
  sink_->AnswerStatus(0, 500);
  Settle();
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  granted_ = {"t2"};
  Publish(11);
  EXPECT_FALSE(Starts(1));
  EXPECT_EQ(Refused(0), dlq::RefusalReason::kGrantWithdrawn);
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_THAT(EventIds(sink_->at(2)), ElementsAre("e2"));
  EXPECT_EQ(sink_->at(2).Header("webhook-attempt"), "2");
}

TEST_F(StartingTest, GoesToTheUrlOfTheMomentWhenItStarts) {
  BeginWithARequest();
  settings_.url = "http://elsewhere.example/hook";
  ++generation_;
  Publish(11);
  EXPECT_FALSE(Starts(0));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).request.url.authority(), "elsewhere.example:80");
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "1");
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_TRUE(Starts(1));
}

TEST_F(StartingTest, IsNotStartedWithASnapshotThatIsTooOld) {
  BeginWithARequest();
  ctx().manual_clock().Advance(std::chrono::hours(24) + milliseconds(1));
  EXPECT_FALSE(Starts(0));
  EXPECT_EQ(sink_->size(), 1u);
  Publish(11);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_TRUE(Starts(1));
}

TEST_F(StartingTest, IsNotStartedBeforeTheTimeThatAnotherAnswerHasNamed) {
  settings_.mode = EndpointMode::kStreaming;
  Begin();
  Deliver(1, 2);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  HttpResult throttled;
  throttled.status = 429;
  throttled.retry_after = {"10"};
  sink_->Answer(0, std::move(throttled));
  EXPECT_FALSE(Starts(1));
  Settle();
  Advance(milliseconds(9'999));
  EXPECT_EQ(sink_->size(), 2u);
  Advance(milliseconds(1));
  ASSERT_GE(sink_->size(), 3u);
  EXPECT_TRUE(Starts(2));
}

TEST_F(StartingTest, OnlyTheProbeIsStartedWhenTheBreakerHasOpened) {
  settings_.mode = EndpointMode::kStreaming;
  Begin();
  Deliver(1, 12);
  for (size_t i = 0; i < 9; ++i) {
    SendAll();
    sink_->AnswerStatus(i, 500);
    Settle();
  }
  SendAll();
  ASSERT_EQ(sink_->size(), 12u);
  EXPECT_TRUE(sink_->MayStart(10)) << "nine failures are not ten";
  sink_->AnswerStatus(9, 500);
  EXPECT_FALSE(Starts(11));
  Settle();
  for (int i = 0; i < 100 && sink_->size() == 12; ++i) {
    Advance(milliseconds(50));
    Settle();
  }
  ASSERT_EQ(sink_->size(), 13u);
  EXPECT_TRUE(Starts(12));
}

TEST_F(StartingTest, IsNotStartedToAHostThatNobodyReaches) {
  settings_.mode = EndpointMode::kStreaming;
  const subscriptions::EndpointId other(Bytes(9));
  others_ = {{other, settings_}};
  Begin();
  DispatchRecord record = MakeRecord(1);
  record.identity.endpoint = other;
  Deliver(record);
  SendAll();
  Deliver(2, 11);
  for (size_t i = 1; i <= 10; ++i) {
    SendAll();
    ASSERT_GT(sink_->size(), i);
    sink_->Fail(i, HttpFailure::kConnect);
    Settle();
  }
  EXPECT_FALSE(Starts(0));
  EXPECT_FALSE(ctx().IsCompleted(0));
}

}  // namespace
}  // namespace postrider::delivery
