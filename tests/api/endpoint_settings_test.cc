#include "api/internal/endpoint_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "api/internal/endpoint_schema.h"
#include "core/json/writer.h"
#include "gmock/gmock.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "tests/subscriptions/registry/whole_endpoint.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace postrider::api {
namespace {

using subscriptions::AuthKind;
using subscriptions::Endpoint;
using subscriptions::EndpointSeals;
using subscriptions::EndpointSettings;
using subscriptions::FieldFaults;
using subscriptions::SealedSetting;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::kCertificateOne;
using tests::kCertificateTwo;
using tests::kKeyOne;
using tests::kKeyTwo;

std::string Quoted(const std::string& text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

// WholeSettings() as a customer writes them.
std::string WholeBody() {
  return absl::StrCat(
      R"({"url":"https://example.com/a'b","description":"d\"\\","mode":"streaming",
          "batch":{"events_max":7,"bytes_max":2048,"wait_max_ms":3},
          "body":{"format":"cloudevents_binary","compression":"zstd"},
          "headers":{"x-b":"1, {\"}","x-a":""},"signature":"both","partial_ack":true,
          "retry":{"attempts":3,"horizon_ms":5000,"first_delay_ms":20,"factor":1.7,"cap_ms":900,
                   "schedule_ms":[10,86400000]},
          "window_max":5,
          "limits":{"requests_per_second":0.001,"messages_per_second":0.3333333333333333,
                    "bytes_per_second":1000000000},
          "order":{"kind":"key","key_pointer":"/a~1b/0","blocked":"dead_letter"},"parallelism":1,
          "backlog":{"bytes_max":1048577,"age_max_ms":60001,"policy":"collapse_by_key",
                     "collapse_pointer":"/id"},
          "auth":{"kind":"oauth2","client_id":"client","client_secret":"s3cret",
                  "token_url":"https://login.example/token","scope":"a b"},
          "tls":{"ca_pem":)",
      Quoted(kCertificateOne), R"(,"certificate_pem":)", Quoted(kCertificateTwo), R"(,"key_pem":)",
      Quoted(kKeyTwo), R"(},"timeout_ms":2000})");
}

std::vector<std::string> Pointers(const FieldFaults& faults) {
  std::vector<std::string> pointers;
  for (const auto& fault : faults) pointers.push_back(fault.pointer);
  return pointers;
}

JsonValue Parsed(const std::string& text) {
  auto parsed = JsonValue::Parse(text);
  EXPECT_OK(parsed);
  return parsed.ok() ? *std::move(parsed) : JsonValue();
}

FieldFaults Read(const JsonValue& body, EndpointSettings* settings, GivenSecrets* secrets) {
  return ReadSettings(body, *AddressRules::Default(), settings, secrets);
}

TEST(EndpointJsonTest, ReadsEveryField) {
  EndpointSettings settings;
  GivenSecrets secrets;
  EXPECT_THAT(Pointers(Read(Parsed(WholeBody()), &settings, &secrets)), IsEmpty());
  EXPECT_EQ(settings, subscriptions::WholeSettings());
  EXPECT_EQ(secrets.auth, "s3cret");
  EXPECT_EQ(secrets.tls_key, std::string(kKeyTwo));
}

TEST(EndpointJsonTest, WhatIsShownReadsBack) {
  const JsonValue body = Parsed(WholeBody());
  EndpointSettings settings;
  GivenSecrets secrets;
  ASSERT_THAT(Read(body, &settings, &secrets), IsEmpty());
  EndpointSettings again;
  ASSERT_THAT(Read(SettingsToJson(settings), &again, &secrets), IsEmpty());
  EXPECT_EQ(again, settings);
  EndpointSettings defaults;
  defaults.url = "https://example.com/";
  EndpointSettings read;
  ASSERT_THAT(Read(SettingsToJson(defaults), &read, &secrets), IsEmpty());
  EXPECT_EQ(read, defaults);
}

TEST(EndpointJsonTest, EveryFieldOfAWrongKindOrUnknownIsAFault) {
  const std::pair<const char*, const char*> table[] = {
      {R"("body":{"format":"xml"})", "/body/format"},
      {R"("body":{"compression":1})", "/body/compression"},
      {R"("body":{"x":1})", "/body/x"},
      {R"("signature":"rsa")", "/signature"},
      {R"("partial_ack":"yes")", "/partial_ack"},
      {R"("retry":{"schedule_ms":[10,"x"]})", "/retry/schedule_ms/1"},
      {R"("retry":{"schedule_ms":[9]})", "/retry/schedule_ms/0"},
      {R"("retry":{"schedule_ms":10})", "/retry/schedule_ms"},
      {R"("limits":{"requests_per_second":"1"})", "/limits/requests_per_second"},
      {R"("limits":{"requests_per_second":0})", "/limits/requests_per_second"},
      {R"("order":{"kind":"tenant"})", "/order/kind"},
      {R"("order":{"blocked":"drop"})", "/order/blocked"},
      {R"("parallelism":65)", "/parallelism"},
      {R"("parallelism":2,"order":{"kind":"endpoint"})", "/parallelism"},
      {R"("backlog":{"policy":"drop"})", "/backlog/policy"},
      {R"("auth":{})", "/auth/kind"},
      {R"("auth":{"kind":"digest"})", "/auth/kind"},
      {R"("auth":{"kind":"basic"})", "/auth/username"},
      {R"("auth":{"kind":"bearer","token":"x","name":"y"})", "/auth/name"},
      {R"("auth":{"kind":"oauth2","client_id":"x","token_url":"http://127.0.0.1/"})",
       "/auth/token_url"},
      {R"("tls":{"ca_pem":"x"})", "/tls/ca_pem"},
      {R"("enabled":false)", "/enabled"},
  };
  for (const auto& [fields, pointer] : table) {
    EndpointSettings settings;
    GivenSecrets secrets;
    const FieldFaults faults =
        Read(Parsed(absl::StrCat(R"({"url":"https://example.com/",)", fields, "}")), &settings,
             &secrets);
    const bool found = std::any_of(faults.begin(), faults.end(),
                                   [p = pointer](const auto& fault) { return fault.pointer == p; });
    EXPECT_TRUE(found) << fields;
  }
}

TEST(EndpointJsonTest, SSRF_11_NoUrlLeadsToAHostOfOurOwn) {
  AddressRulesOptions options;
  options.own_hosts = {"api.example.com"};
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const AddressRules> rules,
                       AddressRules::Create(options));
  const std::pair<const char*, std::vector<std::string>> table[] = {
      {R"({"url":"https://API.example.com:8443/v1/events"})", {"/url"}},
      {R"({"url":"https://example.com/","auth":{"kind":"oauth2","client_id":"x",
           "client_secret":"y","token_url":"https://api.example.com/"}})",
       {"/auth/token_url"}},
      {R"({"url":"https://example.com/"})", {}}};
  for (const auto& [body, pointers] : table) {
    EndpointSettings settings;
    GivenSecrets secrets;
    EXPECT_EQ(Pointers(ReadSettings(Parsed(body), *rules, &settings, &secrets)), pointers) << body;
  }
}

TEST(EndpointJsonTest, AnAuthOfAnotherKindReplacesTheOneBefore) {
  JsonValue settings = Parsed(R"({"auth":{"kind":"basic","username":"u"},"window_max":3})");
  PatchSettings(settings, Parsed(R"({"auth":{"kind":"bearer","token":"t"}})"));
  EXPECT_EQ(settings.Find("auth")->Serialize(), R"({"kind":"bearer","token":"t"})");
  PatchSettings(settings, Parsed(R"({"auth":{"token":"t2"}})"));
  EXPECT_EQ(settings.Find("auth")->Serialize(), R"({"kind":"bearer","token":"t2"})");
  PatchSettings(settings, Parsed(R"({"auth":{"kind":"bearer","token":"t3"}})"));
  EXPECT_EQ(settings.Find("auth")->Serialize(), R"({"kind":"bearer","token":"t3"})");
  PatchSettings(settings, Parsed(R"({"auth":null})"));
  EXPECT_EQ(settings.Serialize(), R"({"window_max":3})");
}

class SealSettingsTest : public ::testing::Test {
 protected:
  FieldFaults Seal(const EndpointSettings& settings, const GivenSecrets& given,
                   const Endpoint* before = nullptr) {
    seals_ = EndpointSeals();
    return SealSettings(keys_, customer_, endpoint_, settings, given, before, &seals_);
  }
  std::string Open(SealedSetting which, const std::string& sealed) {
    auto opened = OpenSetting(keys_, customer_, endpoint_, which, sealed);
    EXPECT_OK(opened);
    return opened.ok() ? *opened : "";
  }

  KeyRing keys_ = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
  subscriptions::CustomerId customer_{IdBytes{1}};
  subscriptions::EndpointId endpoint_{IdBytes{2}};
  EndpointSeals seals_;
};

TEST_F(SealSettingsTest, AnAuthSecretIsNeededOnceAndAgainForAnotherKind) {
  EndpointSettings settings;
  EXPECT_THAT(Seal(settings, {}), IsEmpty());
  EXPECT_EQ(seals_.auth, "");
  settings.auth = {AuthKind::kBasic, "user", "", ""};
  EXPECT_THAT(Pointers(Seal(settings, {})), ElementsAre("/auth/password"));
  EXPECT_THAT(Pointers(Seal(settings, {.auth = "a\nb"})), ElementsAre("/auth/password"));
  EXPECT_THAT(Seal(settings, {.auth = "s3cret"}), IsEmpty());
  EXPECT_EQ(Open(SealedSetting::kAuth, seals_.auth), "s3cret");
  EXPECT_FALSE(absl::StrContains(seals_.auth, "s3cret"));

  Endpoint before;
  before.settings = settings;
  before.auth_sealed = seals_.auth;
  settings.auth.name = "other";
  EXPECT_THAT(Seal(settings, {}, &before), IsEmpty());
  EXPECT_EQ(seals_.auth, before.auth_sealed);
  EXPECT_THAT(Seal(settings, {.auth = "new"}, &before), IsEmpty());
  EXPECT_EQ(Open(SealedSetting::kAuth, seals_.auth), "new");
  settings.auth = {AuthKind::kBearer, "", "", ""};
  EXPECT_THAT(Pointers(Seal(settings, {}, &before)), ElementsAre("/auth/token"));
  settings.auth = {};
  EXPECT_THAT(Seal(settings, {}, &before), IsEmpty());
  EXPECT_EQ(seals_.auth, "") << "nothing is kept that is not used";
}

TEST_F(SealSettingsTest, AKeyBelongsToItsCertificate) {
  EndpointSettings settings;
  settings.tls.certificate_pem = kCertificateOne;
  EXPECT_THAT(Pointers(Seal(settings, {})), ElementsAre("/tls/key_pem"));
  EXPECT_THAT(Pointers(Seal(settings, {.tls_key = kKeyTwo})), ElementsAre("/tls/key_pem"));
  EXPECT_THAT(Seal(settings, {.tls_key = kKeyOne}), IsEmpty());
  EXPECT_EQ(Open(SealedSetting::kTlsKey, seals_.tls_key), kKeyOne);

  Endpoint before;
  before.settings = settings;
  before.tls_key_sealed = seals_.tls_key;
  EXPECT_THAT(Seal(settings, {}, &before), IsEmpty());
  EXPECT_EQ(seals_.tls_key, before.tls_key_sealed);
  // The same key's, with another chain.
  settings.tls.certificate_pem = absl::StrCat(kCertificateOne, kCertificateTwo);
  EXPECT_THAT(Seal(settings, {}, &before), IsEmpty());
  settings.tls.certificate_pem = kCertificateTwo;
  EXPECT_THAT(Pointers(Seal(settings, {}, &before)), ElementsAre("/tls/key_pem"));
  settings.tls.certificate_pem = "";
  EXPECT_THAT(Seal(settings, {}, &before), IsEmpty());
  EXPECT_EQ(seals_.tls_key, "");
  EXPECT_THAT(Pointers(Seal(settings, {.tls_key = kKeyOne})), ElementsAre("/tls/key_pem"));
}

}  // namespace
}  // namespace postrider::api
