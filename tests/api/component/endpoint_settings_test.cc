// Settings and verbs of endpoints over HTTP.
#include <string>

#include "absl/strings/str_cat.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using EndpointSettingsTest = ApiFixture;

TEST_F(EndpointSettingsTest, BodySignatureAndScheduleAreKeptAndPatched) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(
      customer, R"({"url":"https://example.com/","mode":"streaming","body":{"format":"raw",
                    "compression":"gzip"},"signature":"both","retry":{"schedule_ms":[10,20]}})");
  EXPECT_EQ(made["body"].Serialize(), R"({"format":"raw","compression":"gzip"})");
  EXPECT_EQ(made.Text("signature"), "both");
  EXPECT_EQ(made["retry"].Find("schedule_ms")->Serialize(), "[10,20]");
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"mode":"batch"})").Faults(), "/body/format");
  const JsonReply changed = Call("PATCH", path, customer.key,
                                 R"({"mode":"batch","body":{"format":null},
                                     "retry":{"schedule_ms":[30]}})");
  EXPECT_EQ(changed.status, 200) << changed.text;
  EXPECT_EQ(changed["body"].Serialize(), R"({"format":"envelope","compression":"gzip"})");
  EXPECT_EQ(changed["retry"].Find("schedule_ms")->Serialize(), "[30]");
  const JsonReply got = Call("GET", path, customer.key);
  EXPECT_EQ(got["body"].Serialize(), changed["body"].Serialize());
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"body":{"format":"soap"}})").Faults(),
            "/body/format");
}

TEST_F(EndpointSettingsTest, PublicKeysAreShownAndPrivateOnesNever) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  EXPECT_THAT(made.Text("public_key"), StartsWith("whpk_"));
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  const JsonReply rotated = Call("POST", path + "/rotate-secret", customer.key);
  EXPECT_THAT(rotated.Text("public_key"), StartsWith("whpk_"));
  EXPECT_NE(rotated.Text("public_key"), made.Text("public_key"));
  const JsonReply got = Call("GET", path, customer.key);
  EXPECT_EQ(got["public_keys"].Serialize(), absl::StrCat("[\"", rotated.Text("public_key"), "\",\"",
                                                         made.Text("public_key"), "\"]"));
  EXPECT_EQ(Call("POST", path + "/rotate-secret", customer.key, R"({"overlap_s":0})").status, 200);
  EXPECT_EQ(Call("GET", path, customer.key)["public_keys"].array()->size(), 1u);
  for (const JsonReply* reply : {&made, &rotated, &got}) {
    EXPECT_THAT(reply->text, Not(HasSubstr("whsk_")));
  }
}

TEST_F(EndpointSettingsTest, AnEndpointFromBeforeKeyPairsGetsOneWhenItIsToSignWithIt) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const auto id = *subscriptions::EndpointId::Parse(made.Text("id"));
  const auto owner = *subscriptions::CustomerId::Parse(customer.id);
  ASSERT_OK_AND_ASSIGN(
      const std::string old,
      SealEndpointSecrets(suite()->keys, owner, id,
                          {{made.Text("secret"), suite()->clock.Wall(), absl::nullopt, ""}}));
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(suite()->database->options().api_url));
  ASSERT_OK(session->Script(absl::StrCat("SET postrider.customer_id = '", owner.ToUuid(), "'")));
  ASSERT_OK(session->Query(
      Statement{"UPDATE postrider.endpoints SET secrets_sealed = $2::bytea WHERE id = $1::uuid",
                {SqlParam::Uuid(id.bytes()), SqlParam::Bytes(old)}}));
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  EXPECT_EQ(Call("GET", path, customer.key)["public_keys"].Serialize(), "[]");
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"signature":"ed25519"})").status, 200);
  EXPECT_EQ(Call("GET", path, customer.key)["public_keys"].array()->size(), 1u);
}

TEST_F(EndpointSettingsTest, ParallelismIsWithinWhatTheEndpointMayHave) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  EXPECT_EQ(made["parallelism"].integer(), 1);
  const JsonReply spread = Call("PATCH", path, customer.key, R"({"parallelism":4})");
  EXPECT_EQ(spread.status, 200) << spread.text;
  EXPECT_EQ(Call("GET", path, customer.key)["parallelism"].integer(), 4);
  for (const char* patch :
       {R"({"parallelism":65})", R"({"parallelism":33})", R"({"window_max":3})",
        R"({"limits":{"messages_per_second":3}})", R"({"order":{"kind":"key"}})",
        R"({"backlog":{"policy":"collapse_by_key"}})"}) {
    EXPECT_EQ(Call("PATCH", path, customer.key, patch).Faults(), "/parallelism") << patch;
  }
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"parallelism":null})").status, 200);
  EXPECT_EQ(Call("GET", path, customer.key)["parallelism"].integer(), 1);
}

TEST_F(EndpointSettingsTest, EndpointsAreDisabledAndEnabled) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  const JsonReply disabled = Call("POST", path + "/disable", customer.key);
  EXPECT_EQ(disabled["enabled"].boolean(), false);
  EXPECT_EQ(disabled.etag, "\"g2\"");
  EXPECT_EQ(Call("POST", path + "/enable", customer.key, "", {{"if-match", made.etag}}).status,
            412);
  // Once more: it overrules an automatic disable.
  for (const char* etag : {"\"g3\"", "\"g4\""}) {
    const JsonReply enabled = Call("POST", path + "/enable", customer.key);
    EXPECT_EQ(enabled["enabled"].boolean(), true);
    EXPECT_EQ(enabled.etag, etag);
  }
  EXPECT_EQ(Call("POST", path + "/enable", customer.key, R"({"x":1})").Faults(), "/x");
}

TEST_F(EndpointSettingsTest, EndpointsArePausedByTheirCustomerAndByOperators) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  const std::string theirs =
      absl::StrCat("/v1/customers/", customer.id, "/endpoints/", made.Text("id"));
  const JsonReply paused = Call("POST", path + "/pause", customer.key);
  EXPECT_EQ(paused["pause"].Serialize(), R"({"by_customer":true,"by_operator":false})");
  EXPECT_EQ(Call("POST", path + "/pause", customer.key).etag, paused.etag) << "nothing changed";
  EXPECT_EQ(Call("POST", theirs + "/pause", operator_key())["pause"].Serialize(),
            R"({"by_customer":true,"by_operator":true})");
  // A customer's word ends the customer's pause alone.
  EXPECT_EQ(
      Call("POST", path + "/resume", customer.key, R"({"from":"newest"})")["pause"].Serialize(),
      R"({"by_customer":false,"by_operator":true})");
  EXPECT_EQ(Call("POST", theirs + "/resume", operator_key())["pause"].Serialize(),
            R"({"by_customer":false,"by_operator":false})");
  for (const char* from : {"all", "2030-01-01T00:00:00Z"}) {
    EXPECT_EQ(
        Call("POST", path + "/resume", customer.key, absl::StrCat(R"({"from":")", from, "\"}"))
            .status,
        200);
  }
  EXPECT_EQ(Call("POST", path + "/resume", customer.key, R"({"from":"yesterday"})").Faults(),
            "/from");
  EXPECT_EQ(Call("POST", theirs + "/pause", customer.key).status, 403);
  const std::string stranger = MakeCustomer().id;
  EXPECT_EQ(Call("POST",
                 absl::StrCat("/v1/customers/", stranger, "/endpoints/", made.Text("id"), "/pause"),
                 operator_key())
                .status,
            404);
}

}  // namespace
}  // namespace postrider::api
