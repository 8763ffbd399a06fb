// What the worker tells of endpoints and attempts.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"
#include "dlq/reports/report_record.h"
#include "gmock/gmock.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EndpointObservedTest : public DeliveryFixture {
 protected:
  void Begin(int64_t success_sample = 1) {
    options_.reports.emplace();
    options_.reports->success_sample = success_sample;
    MakeProgram();
    settings_.mode = subscriptions::EndpointMode::kStreaming;
    Publish();
    Start();
  }
  std::vector<dlq::AttemptReport> Attempts() {
    std::vector<dlq::AttemptReport> attempts;
    for (const auto& emitted : ctx().emitted()) {
      if (dlq::ReportKindOf(emitted.record.value) != dlq::ReportKind::kAttempt) continue;
      EXPECT_EQ(emitted.record.topic, "postrider.reports");
      attempts.push_back(*dlq::DecodeAttemptReport(emitted.record.value));
    }
    return attempts;
  }
  std::vector<dlq::EndpointStatus> Statuses() {
    std::vector<dlq::EndpointStatus> statuses;
    for (const auto& emitted : ctx().emitted()) {
      if (dlq::ReportKindOf(emitted.record.value) != dlq::ReportKind::kEndpointStatus) continue;
      statuses.push_back(*dlq::DecodeEndpointStatus(emitted.record.value));
    }
    return statuses;
  }
  // The states that were told, with their reasons.
  std::vector<std::string> Told() {
    std::vector<std::string> told;
    for (const dlq::EndpointStatus& status : Statuses()) {
      told.emplace_back(dlq::EndpointHealthStateName(status.state));
      if (!status.reason.empty()) absl::StrAppend(&told.back(), " ", status.reason);
    }
    return told;
  }
};

TEST_F(EndpointObservedTest, TellsAnAttemptWithWhatTheReceiverSaid) {
  Begin();
  Deliver(1, 1);
  SendAll();
  HttpResult result;
  result.status = 500;
  result.request_sent = true;
  result.body_excerpt = std::string(3000, 'x');
  result.timings.total = std::chrono::milliseconds(15);
  sink_->Answer(0, result);
  ASSERT_THAT(Attempts(), SizeIs(1));
  const dlq::AttemptReport attempt = Attempts()[0];
  EXPECT_EQ(attempt.customer, customer_);
  EXPECT_EQ(attempt.endpoint, endpoint_);
  EXPECT_EQ(attempt.message_id, sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(attempt.messages, 1u);
  EXPECT_EQ(attempt.attempt, 1u);
  EXPECT_EQ(attempt.started_at, WallTimeFromMillis(1'900'000'000'000));
  EXPECT_EQ(attempt.duration_ms, 15u);
  EXPECT_EQ(attempt.outcome, "other_status");
  EXPECT_EQ(attempt.status, 500u);
  EXPECT_EQ(attempt.response, std::string(2048, 'x'));
  EXPECT_THAT(attempt.tenants, ElementsAre("t1"));
}

TEST_F(EndpointObservedTest, TellsNoSuccessWhereNoneIsWantedAndAllFailures) {
  Begin(0);
  Deliver(1, 2);
  SendAll();
  HttpResult good;
  good.status = 200;
  good.request_sent = true;
  sink_->Answer(0, good);
  EXPECT_THAT(Attempts(), IsEmpty());
  HttpResult bad;
  bad.failure = HttpFailure::kConnect;
  sink_->Answer(1, bad);
  ASSERT_THAT(Attempts(), SizeIs(1));
  EXPECT_EQ(Attempts()[0].outcome, "connect");
  EXPECT_EQ(Attempts()[0].status, 0u);
}

TEST_F(EndpointObservedTest, SSRF_09_OfAnAddressThatIsNotAllowedNothingIsToldButThat) {
  Begin();
  Deliver(1, 4);
  SendAll();
  // Whatever the sink should have seen of it: an open port with an answer, a closed one, a hole.
  for (size_t i = 0; i < 4; ++i) {
    HttpResult refused;
    refused.failure = HttpFailure::kAddressRefused;
    refused.timings.total = std::chrono::milliseconds(1 + 999 * i);
    refused.body_excerpt = i == 1 ? "inside" : "";
    refused.timed_out = i == 3;
    sink_->Answer(i, refused);
  }
  ASSERT_THAT(Attempts(), SizeIs(4));
  for (dlq::AttemptReport attempt : Attempts()) {
    EXPECT_EQ(attempt.outcome, "address_not_allowed");
    EXPECT_EQ(attempt.response, "");
    EXPECT_EQ(attempt.duration_ms, 0u);
    attempt.id = Attempts()[0].id;
    attempt.message_id = Attempts()[0].message_id;
    EXPECT_EQ(attempt, Attempts()[0]);
  }
}

// Such failures use up tries as others do.
TEST_F(EndpointObservedTest, TellsOfTriesForWhichNoTokenWasGiven) {
  settings_.auth.kind = subscriptions::AuthKind::kOAuth2;
  settings_.auth.name = "client";
  settings_.auth.token_url = "https://login.example/token";
  auth_secret_ = "secret";
  Begin(0);
  Deliver(1, 1);
  Turn();
  sink_->AnswerStatus(0, 500);
  SendAll();
  ASSERT_THAT(Attempts(), SizeIs(1));
  const dlq::AttemptReport attempt = Attempts()[0];
  EXPECT_EQ(attempt.outcome, "no_token");
  EXPECT_EQ(attempt.customer, customer_);
  EXPECT_EQ(attempt.endpoint, endpoint_);
  EXPECT_EQ(attempt.message_id, subscriptions::FormatMessageId(MakeRecord(1).message_id));
  EXPECT_EQ(attempt.messages, 1u);
  EXPECT_EQ(attempt.attempt, 1u);
  EXPECT_EQ(attempt.started_at, WallTimeFromMillis(1'900'000'000'000));
  EXPECT_EQ(attempt.duration_ms, 0u);
  EXPECT_EQ(attempt.status, 0u);
  EXPECT_EQ(attempt.response, "");
  EXPECT_THAT(attempt.tenants, ElementsAre("t1"));
}

TEST_F(EndpointObservedTest, TellsOfTriesThatCouldNotBeSigned) {
  settings_.retry.attempts = 2;
  secrets_ = {{kSecret, ctx().clock().Wall(), ctx().clock().Wall(), kPrivateKey}};
  Begin(0);
  Deliver(1, 1);
  Turn();
  Settle();
  Advance(std::chrono::milliseconds(100));
  EXPECT_EQ(sink_->size(), 0u);
  ASSERT_THAT(Attempts(), SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Attempts()[i].outcome, "configuration");
    EXPECT_EQ(Attempts()[i].attempt, i + 1);
    EXPECT_EQ(Attempts()[i].message_id, subscriptions::FormatMessageId(MakeRecord(1).message_id));
  }
}

// Nobody else has its answer: the new owner learns the outcome alone.
TEST_F(EndpointObservedTest, TellsAttemptsWhoseKeyGroupHasMovedMeanwhile) {
  Begin();
  Deliver(1, 2);
  SendAll();
  ctx().manual_clock().Advance(std::chrono::milliseconds(40));
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  function_->OnGivenBack(ctx());
  Stop(KeyedProcessFunction::CloseReason::kMoved);
  HttpResult bad;
  bad.status = 503;
  bad.body_excerpt = "busy";
  bad.timings.total = std::chrono::milliseconds(40);
  sink_->Answer(0, bad);
  sink_->AnswerStatus(1, 200);
  ASSERT_THAT(producer_.appended, SizeIs(2));
  EXPECT_THAT(results_.appended, SizeIs(2));
  EXPECT_EQ(producer_.appended[0].topic, "postrider.reports");
  const auto attempt = dlq::DecodeAttemptReport(producer_.appended[0].value);
  ASSERT_TRUE(attempt.ok());
  EXPECT_EQ(attempt->customer, customer_);
  EXPECT_EQ(attempt->endpoint, endpoint_);
  EXPECT_EQ(attempt->message_id, sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(attempt->messages, 1u);
  EXPECT_EQ(attempt->attempt, 1u);
  EXPECT_EQ(attempt->started_at, WallTimeFromMillis(1'900'000'000'000));
  EXPECT_EQ(attempt->duration_ms, 40u);
  EXPECT_EQ(attempt->outcome, "temporary_status");
  EXPECT_EQ(attempt->status, 503u);
  EXPECT_EQ(attempt->response, "busy");
  EXPECT_THAT(attempt->tenants, ElementsAre("t1"));
  EXPECT_EQ(dlq::DecodeAttemptReport(producer_.appended[1].value)->outcome, "delivered");
  EXPECT_EQ(metrics_.reports.attempts.value(), 2);
}

TEST_F(EndpointObservedTest, WithoutRoomDeliveryGoesOn) {
  Begin();
  Deliver(1, 1);
  SendAll();
  ctx().set_emit_room(0);
  HttpResult good;
  good.status = 200;
  good.request_sent = true;
  sink_->Answer(0, good);
  EXPECT_TRUE(ctx().IsCompleted(0));
  EXPECT_EQ(metrics_.reports.attempts_dropped.value(), 1);
}

TEST_F(EndpointObservedTest, TellsEachChangeOfAnEndpointsStateAtOnceAndOnce) {
  settings_.retry.attempts = 50;
  settings_.retry.first_delay = std::chrono::milliseconds(10);
  settings_.retry.cap = std::chrono::milliseconds(10);
  Begin();
  Deliver(1, 12);
  for (int i = 0; i < 30; ++i) {
    SendAll();
    for (size_t sent = 0; sent < sink_->size(); ++sent) {
      if (sink_->at(sent).open) sink_->AnswerStatus(sent, 500);
    }
    Advance(std::chrono::milliseconds(10));
    Settle();
  }
  std::vector<std::string> told = Told();
  EXPECT_THAT(told, ElementsAre("healthy", "degraded failing", "degraded breaker_open"));
  settings_.pause.by_operator = true;
  ++generation_;
  Publish(11);
  EXPECT_EQ(Told().back(), "paused by_operator");
  EXPECT_GT(Statuses().back().backlog_messages, 0u);
  EXPECT_EQ(Statuses().back().last_outcome, "other_status");
  EXPECT_EQ(Statuses().back().last_status, 500u);
  EXPECT_TRUE(Statuses().back().failing_since.has_value());
  const size_t before = Told().size();
  Advance(std::chrono::minutes(5));
  EXPECT_LE(Told().size(), before + 1) << "nothing happens";
}

TEST_F(EndpointObservedTest, TellsOfADisableByOurselvesWithItsGeneration) {
  Begin();
  Deliver(1, 3);
  SendAll();
  for (size_t i = 0; i < 3; ++i) sink_->AnswerStatus(i, 410);
  ASSERT_EQ(Told().back(), "disabled gone");
  EXPECT_EQ(Statuses().back().auto_disabled_generation, generation_);
  ++generation_;
  Publish(11);
  EXPECT_EQ(Told().back(), "healthy");
  EXPECT_EQ(Statuses().back().auto_disabled_generation, 0u);
}

}  // namespace
}  // namespace postrider::delivery
