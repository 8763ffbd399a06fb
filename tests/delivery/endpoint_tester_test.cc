#include "delivery/endpoint_tester.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/metrics.h"
#include "core/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/signing_keys.h"
#include "tests/fakes/fake_http_sink.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using subscriptions::Endpoint;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class EndpointTesterTest : public ::testing::Test {
 protected:
  EndpointTesterTest() {
    IdBytes id{};
    id[15] = 1;
    endpoint_.customer = subscriptions::CustomerId(id);
    endpoint_.id = subscriptions::EndpointId(id);
    endpoint_.settings.url = "https://receiver.example/hook";
    subscriptions::EndpointSecret secret;
    secret.secret = subscriptions::NewSigningSecret();
    endpoint_.secrets_sealed =
        *subscriptions::SealEndpointSecrets(keys_, endpoint_.customer, endpoint_.id, {secret});
    auto sink = std::make_unique<FakeHttpSink>();
    sink_ = sink.get();
    tester_ = std::make_unique<EndpointTester>(clock_, std::move(sink), keys_, metrics_);
  }
  void Test() {
    tester_->Test(std::make_shared<const Endpoint>(endpoint_),
                  [this](TestResult result) { results_.push_back(std::move(result)); });
  }

  ManualClock clock_;
  Metrics metrics_;
  KeyRing keys_ = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
  Endpoint endpoint_;
  FakeHttpSink* sink_ = nullptr;
  std::unique_ptr<EndpointTester> tester_;
  std::vector<TestResult> results_;
};

TEST_F(EndpointTesterTest, SendsOneSignedMessageAsADeliveryWouldBe) {
  endpoint_.settings.mode = subscriptions::EndpointMode::kStreaming;
  endpoint_.settings.headers = {{"x-own", "mine"}};
  Test();
  ASSERT_EQ(sink_->size(), 1u);
  const FakeHttpSink::Sent& sent = sink_->at(0);
  EXPECT_EQ(sent.request.url.ToString(), "https://receiver.example/hook");
  EXPECT_THAT(sent.Header("webhook-id"), StartsWith("msg_"));
  EXPECT_THAT(sent.Header("webhook-signature"), StartsWith("v1,"));
  EXPECT_EQ(sent.Header("webhook-attempt"), "1");
  EXPECT_EQ(sent.Header("x-own"), "mine");
  ASSERT_OK_AND_ASSIGN(const JsonValue body, JsonValue::Parse(sent.request.body));
  EXPECT_EQ(*body.Find("type")->string(), "postrider.test");
  EXPECT_EQ(*body.Find("id")->string(), sent.Header("webhook-id"));
  EXPECT_EQ(*body.Find("data")->Find("endpoint_id")->string(), endpoint_.id.ToString());
  HttpResult answer;
  answer.status = 200;
  answer.body_excerpt = std::string(3'000, 'x');
  answer.timings.total = std::chrono::milliseconds(7);
  sink_->Answer(0, answer);
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kDelivered);
  EXPECT_EQ(results_[0].status, 200);
  EXPECT_EQ(results_[0].took, std::chrono::milliseconds(7));
  EXPECT_EQ(results_[0].response.size(), EndpointTester::kResponseBytesMax);
  EXPECT_EQ(results_[0].webhook_id, sent.Header("webhook-id"));
  EXPECT_EQ(tester_->in_flight(), 0u);
}

TEST_F(EndpointTesterTest, SendsABatchOfOneWhereBatchesAreSent) {
  Test();
  EXPECT_THAT(sink_->at(0).Header("webhook-id"), StartsWith("bat_"));
  EXPECT_THAT(sink_->at(0).request.body, StartsWith("["));
  sink_->AnswerStatus(0, 503);
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kTemporaryStatus);
  EXPECT_EQ(results_[0].webhook_id, sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(sink_->size(), 1u) << "there is no retry";
}

TEST_F(EndpointTesterTest, BoundsHowLongItWaits) {
  endpoint_.settings.timeout = std::chrono::seconds(60);
  Test();
  EXPECT_EQ(sink_->at(0).request.total_timeout, Duration(EndpointTester::kTimeoutMax));
  sink_->Fail(0, HttpFailure::kTimeout);
  endpoint_.settings.timeout = std::chrono::seconds(2);
  Test();
  EXPECT_EQ(sink_->at(1).request.total_timeout, Duration(std::chrono::seconds(2)));
  sink_->Fail(1, HttpFailure::kTimeout);
  EXPECT_EQ(results_[1].outcome, OutcomeKind::kTimeout);
}

TEST_F(EndpointTesterTest, AHostThatHangsTakesItsPartOfThePlacesOnly) {
  sink_->SetHostRoom("receiver.example:443", 0);
  Test();
  EXPECT_EQ(sink_->size(), 0u);
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kAborted);
}

TEST_F(EndpointTesterTest, TellsNothingOfAnAddressThatIsRefused) {
  Test();
  HttpResult refused;
  refused.failure = HttpFailure::kAddressRefused;
  refused.timings.total = std::chrono::milliseconds(3);
  sink_->Answer(0, refused);
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kAddressRefused);
  EXPECT_EQ(results_[0].took, Duration::zero());
  EXPECT_EQ(results_[0].status, 0);
  EXPECT_THAT(results_[0].response, IsEmpty());
}

TEST_F(EndpointTesterTest, SaysThatNoRequestCanBeMade) {
  endpoint_.secrets_sealed = "nonsense";
  Test();
  EXPECT_EQ(sink_->size(), 0u);
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kConfiguration);
  EXPECT_THAT(results_[0].webhook_id, IsEmpty());
}

TEST_F(EndpointTesterTest, WaitsForATokenAndShowsIt) {
  endpoint_.settings.auth.kind = subscriptions::AuthKind::kOAuth2;
  endpoint_.settings.auth.name = "client";
  endpoint_.settings.auth.token_url = "https://login.example/token";
  endpoint_.auth_sealed = subscriptions::SealSetting(keys_, endpoint_.customer, endpoint_.id,
                                                     subscriptions::SealedSetting::kAuth, "secret");
  Test();
  Test();
  ASSERT_EQ(sink_->size(), 1u) << "one fetch for both";
  EXPECT_EQ(sink_->at(0).request.url.ToString(), "https://login.example/token");
  HttpResult token;
  token.status = 200;
  token.body_excerpt = R"({"access_token":"abc","expires_in":3600})";
  sink_->Answer(0, token);
  ASSERT_EQ(sink_->size(), 3u);
  EXPECT_EQ(sink_->at(2).Header("authorization"), "Bearer abc");
  sink_->AnswerStatus(1, 200);
  sink_->AnswerStatus(2, 200);
  EXPECT_THAT(results_, SizeIs(2));
}

TEST_F(EndpointTesterTest, SaysThatItGotNoToken) {
  endpoint_.settings.auth.kind = subscriptions::AuthKind::kOAuth2;
  endpoint_.settings.auth.name = "client";
  endpoint_.settings.auth.token_url = "https://login.example/token";
  endpoint_.auth_sealed = subscriptions::SealSetting(keys_, endpoint_.customer, endpoint_.id,
                                                     subscriptions::SealedSetting::kAuth, "secret");
  Test();
  sink_->AnswerStatus(0, 401);
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kNoToken);
}

TEST_F(EndpointTesterTest, EndsAllWhenItIsTold) {
  Test();
  tester_->AbortAll();
  sink_->DeliverAborts();
  ASSERT_THAT(results_, SizeIs(1));
  EXPECT_EQ(results_[0].outcome, OutcomeKind::kAborted);
  Test();
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_THAT(results_, SizeIs(2));
  EXPECT_EQ(tester_->in_flight(), 0u);
}

}  // namespace
}  // namespace postrider::delivery
