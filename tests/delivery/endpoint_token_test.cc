// Deliveries with credentials: the header lines, the TLS material, and what waits for a token.

#include <chrono>
#include <string>
#include <utility>

#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using subscriptions::AuthKind;
using subscriptions::EndpointMode;

class EndpointTokenTest : public DeliveryFixture {
 protected:
  void UseOAuth2() {
    settings_.mode = EndpointMode::kStreaming;
    settings_.auth.kind = AuthKind::kOAuth2;
    settings_.auth.name = "client";
    settings_.auth.token_url = "https://login.example/token";
    auth_secret_ = "secret";
    Publish();
    Start();
  }
  void AnswerToken(size_t index, const std::string& token, int expires_in = 3600) {
    HttpResult result;
    result.status = 200;
    result.body_excerpt =
        absl::StrCat(R"({"access_token":")", token, R"(","expires_in":)", expires_in, "}");
    sink_->Answer(index, std::move(result));
  }
  static bool IsTokenRequest(const FakeHttpSink::Sent& sent) {
    return sent.request.url.host == "login.example";
  }
};

TEST_F(EndpointTokenTest, SendsTheCredentialsOfTheMoment) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.auth.kind = AuthKind::kBearer;
  auth_secret_ = "first";
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("authorization"), "Bearer first");
  sink_->AnswerStatus(0, 500);
  auth_secret_ = "second";
  Publish(11);
  Advance(std::chrono::seconds(1));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("authorization"), "Bearer second");
  EXPECT_NE(sink_->at(0).request.connection_group, sink_->at(1).request.connection_group);
}

// The line of the credentials takes the place of the endpoint's own of that name.
TEST_F(EndpointTokenTest, SendsOneAuthorizationLine) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.headers = {{"Authorization", "Bearer custom"}, {"X-Other", "1"}};
  settings_.auth.kind = AuthKind::kBearer;
  auth_secret_ = "real";
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("authorization"), "Bearer real");
  EXPECT_EQ(sink_->at(0).Header("Authorization"), "");
  EXPECT_EQ(sink_->at(0).Header("X-Other"), "1");
}

TEST_F(EndpointTokenTest, BringsItsTlsMaterial) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.tls.ca_pem = "ca";
  settings_.tls.certificate_pem = "certificate";
  tls_key_ = "key";
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  const std::shared_ptr<const TlsMaterial>& tls = sink_->at(0).request.tls;
  ASSERT_NE(tls, nullptr);
  EXPECT_EQ(tls->ca_pem, "ca");
  EXPECT_EQ(tls->certificate_pem, "certificate");
  EXPECT_EQ(tls->key_pem, "key");
  EXPECT_FALSE(tls->digest.empty());
}

TEST_F(EndpointTokenTest, WaitsForTheTokenAndSendsAllThatCameMeanwhile) {
  UseOAuth2();
  Deliver(1, 3);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_TRUE(IsTokenRequest(sink_->at(0)));
  EXPECT_EQ(loop_->RunOnce(Duration::zero()), 0u) << "it must not spin meanwhile";
  AnswerToken(0, "tok");
  SendAll();
  ASSERT_EQ(sink_->size(), 4u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_FALSE(IsTokenRequest(sink_->at(i)));
    EXPECT_EQ(sink_->at(i).Header("authorization"), "Bearer tok");
    EXPECT_EQ(sink_->at(i).Header("webhook-attempt"), "1");
  }
}

TEST_F(EndpointTokenTest, AProviderThatGivesNoTokenIsTheEndpointsFailure) {
  settings_.retry.attempts = 2;
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 500);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u) << "nothing is sent without";
  EXPECT_EQ(metrics_.CountOutcome(OutcomeKind::kNoToken).value(), 1);
  // The next try asks for a token again, when the provider has been left alone for a while.
  for (int i = 0; i < 100 && sink_->size() == 1; ++i) {
    Advance(std::chrono::seconds(5));
    Settle();
  }
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_TRUE(IsTokenRequest(sink_->at(1)));
  AnswerToken(1, "late");
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).Header("authorization"), "Bearer late");
  EXPECT_EQ(sink_->at(2).Header("webhook-attempt"), "2");
}

// One failure to get it is one failure of the endpoint: what else waits is not charged for it.
TEST_F(EndpointTokenTest, AFailedTokenHoldsTheEndpointWhileTheProviderIsLeftAlone) {
  settings_.retry.attempts = 2;
  UseOAuth2();
  Deliver(1, 3);
  Turn();
  sink_->AnswerStatus(0, 500);
  SendAll();
  EXPECT_EQ(metrics_.CountOutcome(OutcomeKind::kNoToken).value(), 1);
  Advance(std::chrono::milliseconds(4'999));
  EXPECT_EQ(metrics_.CountOutcome(OutcomeKind::kNoToken).value(), 1);
  EXPECT_EQ(sink_->size(), 1u);
  Advance(std::chrono::milliseconds(1));
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_TRUE(IsTokenRequest(sink_->at(1)));
  sink_->AnswerStatus(1, 500);
}

// Ten failures open the breaker; the probe's failure charges the endpoint alone.
TEST_F(EndpointTokenTest, AProbeWithoutATokenIsNotChargedToItsMessage) {
  settings_.retry.attempts = 11;
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  for (int i = 0; i < 2'000 && metrics_.CountOutcome(OutcomeKind::kNoToken).value() < 13; ++i) {
    Advance(std::chrono::seconds(5));
    Settle();
    if (sink_->last().open) sink_->AnswerStatus(sink_->size() - 1, 500);
    Turn();
  }
  EXPECT_GE(metrics_.CountOutcome(OutcomeKind::kNoToken).value(), 13);
  EXPECT_TRUE(ctx().emitted().empty()) << "no dead letter by 10 charged attempts and 3 probes";
}

TEST_F(EndpointTokenTest, AReceiverThatRefusesATokenGetsANewOneOnce) {
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  AnswerToken(0, "old");
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 401);
  size_t index = 2;
  for (int i = 0; i < 100 && sink_->size() == index; ++i) Advance(std::chrono::seconds(1));
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_TRUE(IsTokenRequest(sink_->at(2)));
  AnswerToken(2, "new");
  SendAll();
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_EQ(sink_->at(3).Header("authorization"), "Bearer new");
  // And if that is refused as well the provider is not asked for each attempt.
  sink_->AnswerStatus(3, 401);
  for (int i = 0; i < 20 && sink_->size() == 4; ++i) Advance(std::chrono::seconds(1));
  ASSERT_EQ(sink_->size(), 5u);
  EXPECT_FALSE(IsTokenRequest(sink_->at(4)));
  EXPECT_EQ(sink_->at(4).Header("authorization"), "Bearer new");
}

TEST_F(EndpointTokenTest, AClosedFunctionIsNotCalledForItsToken) {
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  Stop();
  AnswerToken(0, "tok");
  Turn();
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointTokenTest, ARequestWhoseTokenHasEndedBeforeItsSlotGetsAnother) {
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  AnswerToken(0, "old", 60);
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  ctx().manual_clock().Advance(std::chrono::milliseconds(54'999));
  ASSERT_TRUE(sink_->MayStart(1));
  ctx().manual_clock().Advance(std::chrono::milliseconds(1));
  ASSERT_FALSE(sink_->MayStart(1));
  sink_->Abort(sink_->at(1).id);
  sink_->DeliverAborts();
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_TRUE(IsTokenRequest(sink_->at(2)));
  AnswerToken(2, "new", 60);
  SendAll();
  ASSERT_EQ(sink_->size(), 4u);
  EXPECT_EQ(sink_->at(3).Header("authorization"), "Bearer new");
  EXPECT_EQ(sink_->at(3).Header("webhook-attempt"), "1");
}

TEST_F(EndpointTokenTest, WhenTheKeyGroupMovesDuringTheFetchTheNextOwnerSends) {
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  EXPECT_TRUE(function_->Operations().empty());
  function_->OnGivenBack(ctx());
  BeginNextLife(KeyedProcessFunction::CloseReason::kMoved);
  DeliverAt(0, MakeRecord(1));
  AnswerToken(0, "tok");
  Turn();
  EXPECT_TRUE(results_.appended.empty());
  function_->OnResume(ctx());
  RestoreBacklog();
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("authorization"), "Bearer tok");
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "1");
}

TEST_F(EndpointTokenTest, ATaskThatComesStraightBackDuringTheFetchSendsOnce) {
  UseOAuth2();
  Deliver(1, 1);
  Turn();
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  function_->OnGivenBack(ctx());
  AnswerToken(0, "tok");
  SendAll();
  EXPECT_EQ(sink_->size(), 1u) << "nobody may send now";
  ctx().set_may_act(true);
  function_->OnResume(ctx());
  SendAll();
  ASSERT_EQ(sink_->size(), 2u);
  sink_->AnswerStatus(1, 200);
  EXPECT_TRUE(ctx().IsCompleted(0));
  SendAll();
  EXPECT_EQ(sink_->size(), 2u);
}

}  // namespace
}  // namespace postrider::delivery
