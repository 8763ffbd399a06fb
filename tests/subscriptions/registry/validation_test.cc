// Unit tests of the value types: bounds on both sides, and where a fault points.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "subscriptions/registry/customer.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/subscription.h"
#include "tests/subscriptions/registry/whole_endpoint.h"
#include "tests/support/status_matchers.h"

namespace postrider::subscriptions {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Pointers(const FieldFaults& faults) {
  std::vector<std::string> pointers;
  for (const FieldFault& fault : faults) pointers.push_back(fault.pointer);
  return pointers;
}

EndpointSettings GoodEndpoint() {
  EndpointSettings settings;
  settings.url = "https://example.com/hook";
  return settings;
}

TEST(EndpointSettingsTest, DefaultsAreValid) { EXPECT_THAT(Validate(GoodEndpoint()), IsEmpty()); }

TEST(EndpointSettingsTest, HoldsEveryBoundOnBothSides) {
  struct Case {
    const char* pointer;
    void (*set)(EndpointSettings&, int64_t);
    int64_t least;
    int64_t most;
  };
  const Case cases[] = {
      {"/batch/events_max", [](EndpointSettings& s, int64_t v) { s.batch.events_max = v; }, 1,
       5000},
      {"/batch/bytes_max", [](EndpointSettings& s, int64_t v) { s.batch.bytes_max = v; }, 1024,
       10'485'760},
      {"/batch/wait_max_ms",
       [](EndpointSettings& s, int64_t v) { s.batch.wait_max = milliseconds(v); }, 0, 60'000},
      {"/retry/attempts",
       [](EndpointSettings& s, int64_t v) { s.retry.attempts = static_cast<int>(v); }, 1, 50},
      {"/retry/horizon_ms",
       [](EndpointSettings& s, int64_t v) { s.retry.horizon = milliseconds(v); }, 1000,
       604'800'000},
      {"/retry/first_delay_ms",
       [](EndpointSettings& s, int64_t v) { s.retry.first_delay = milliseconds(v); }, 10,
       86'400'000},
      {"/retry/cap_ms", [](EndpointSettings& s, int64_t v) { s.retry.cap = milliseconds(v); }, 10,
       86'400'000},
      {"/retry/factor",
       [](EndpointSettings& s, int64_t v) { s.retry.factor = static_cast<double>(v); }, 1, 10},
      {"/window_max", [](EndpointSettings& s, int64_t v) { s.window_max = static_cast<int>(v); }, 1,
       256},
      {"/timeout_ms", [](EndpointSettings& s, int64_t v) { s.timeout = milliseconds(v); }, 1000,
       30'000},
      {"/parallelism",
       [](EndpointSettings& s, int64_t v) {
         s.parallelism = static_cast<int>(v);
         s.window_max = 64;
       },
       1, 64},
      {"/backlog/bytes_max", [](EndpointSettings& s, int64_t v) { s.backlog.bytes_max = v; },
       1'048'576, 1'073'741'824},
      {"/backlog/age_max_ms",
       [](EndpointSettings& s, int64_t v) { s.backlog.age_max = milliseconds(v); }, 60'000,
       1'209'600'000},
      {"/retry/schedule_ms/1",
       [](EndpointSettings& s, int64_t v) {
         s.retry.schedule = {milliseconds(10), milliseconds(v)};
       },
       10, 86'400'000},
      {"/description",
       [](EndpointSettings& s, int64_t v) {
         s.description.assign(v < 0 ? 0 : static_cast<size_t>(v), 'x');
       },
       1, 1000},
  };
  for (const Case& one : cases) {
    for (const int64_t good : {one.least, one.most}) {
      EndpointSettings settings = GoodEndpoint();
      one.set(settings, good);
      EXPECT_THAT(Validate(settings), IsEmpty()) << one.pointer << " " << good;
    }
    for (const int64_t bad : {one.least - 1, one.most + 1}) {
      if (std::string(one.pointer) == "/description" && bad < one.most) continue;
      EndpointSettings settings = GoodEndpoint();
      one.set(settings, bad);
      EXPECT_THAT(Pointers(Validate(settings)), ElementsAre(one.pointer)) << bad;
    }
  }
  EndpointSettings settings = GoodEndpoint();
  settings.retry.factor = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/retry/factor"));
}

TEST(EndpointSettingsTest, AllOfThemMayBeSetAtOnce) {
  EXPECT_THAT(Validate(WholeSettings()), IsEmpty());
}

TEST(EndpointSettingsTest, HoldsTheLengthOfASchedule) {
  EndpointSettings settings = GoodEndpoint();
  settings.retry.schedule.assign(49, milliseconds(1000));
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.retry.schedule.assign(50, milliseconds(1000));
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/retry/schedule_ms"));
}

TEST(EndpointSettingsTest, HoldsTheBoundsOfRates) {
  for (const double good : {0.001, 1.0, 1e9}) {
    EndpointSettings settings = GoodEndpoint();
    settings.limits = {good, good, good};
    EXPECT_THAT(Validate(settings), IsEmpty()) << good;
  }
  for (const double bad : {0.0, 0.0009, -1.0, 1.1e9, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EndpointSettings settings = GoodEndpoint();
    settings.limits = {bad, bad, bad};
    EXPECT_THAT(Pointers(Validate(settings)),
                ElementsAre("/limits/requests_per_second", "/limits/messages_per_second",
                            "/limits/bytes_per_second"))
        << bad;
  }
}

TEST(EndpointSettingsTest, BodiesWithoutAnEnvelopeNeedStreaming) {
  for (const BodyFormat format : {BodyFormat::kRaw, BodyFormat::kCloudEventsBinary}) {
    EndpointSettings settings = GoodEndpoint();
    settings.body.format = format;
    EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/body/format"));
    settings.mode = EndpointMode::kStreaming;
    EXPECT_THAT(Validate(settings), IsEmpty());
  }
}

TEST(EndpointSettingsTest, HeadersOfTheEventAreReservedWhereItHasSome) {
  EndpointSettings settings = GoodEndpoint();
  settings.mode = EndpointMode::kStreaming;
  settings.headers = {{"x-a", "1"}, {"Ce-Id", "2"}};
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.body.format = BodyFormat::kCloudEventsBinary;
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/headers/Ce-Id"));
}

TEST(EndpointSettingsTest, EachPartNeedsItsShare) {
  const struct {
    void (*set)(EndpointSettings&);
    int most;
  } table[] = {
      {[](EndpointSettings& s) { s.window_max = 5; }, 5},
      {[](EndpointSettings& s) { s.limits.requests_per_second = 3.9; }, 3},
      {[](EndpointSettings& s) { s.limits.messages_per_second = 4; }, 4},
      {[](EndpointSettings& s) { s.limits.bytes_per_second = 1; }, 32},
      {[](EndpointSettings& s) { s.backlog.bytes_max = 3 * 1'048'576 - 1; }, 2},
      {[](EndpointSettings& s) { s.backlog.policy = BacklogPolicy::kCollapseByKey; }, 1},
      {[](EndpointSettings& s) { s.order.kind = OrderKind::kKey; }, 1},
  };
  for (const auto& one : table) {
    EndpointSettings settings = GoodEndpoint();
    one.set(settings);
    settings.parallelism = one.most;
    EXPECT_THAT(Validate(settings), IsEmpty()) << one.most;
    settings.parallelism = one.most + 1;
    EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/parallelism")) << one.most;
  }
}

TEST(EndpointSettingsTest, OrderAndItsPointers) {
  EndpointSettings settings = GoodEndpoint();
  settings.order.kind = OrderKind::kEndpoint;
  settings.parallelism = 2;
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/parallelism"));
  settings.parallelism = 1;
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.order.key_pointer = "/a";
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/order/key_pointer")) << "has no meaning";
  settings.order.kind = OrderKind::kKey;
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.backlog.collapse_pointer = "/a";
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/backlog/collapse_pointer"));
  settings.backlog.policy = BacklogPolicy::kCollapseByKey;
  EXPECT_THAT(Validate(settings), IsEmpty());
  for (const std::string& bad :
       {std::string("a"), std::string("/~2"), std::string("/\n"), std::string(501, '/')}) {
    settings.order.key_pointer = bad;
    EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/order/key_pointer")) << bad;
  }
}

TEST(EndpointSettingsTest, AuthNeedsWhatItsKindNeeds) {
  struct Case {
    AuthSettings auth;
    const char* pointer;  // empty: none
  };
  const std::string url = "https://login.example/token";
  const Case cases[] = {
      {{AuthKind::kBasic, "user", "", ""}, ""},
      {{AuthKind::kBasic, "", "", ""}, "/auth/username"},
      {{AuthKind::kBasic, "a:b", "", ""}, "/auth/username"},
      {{AuthKind::kBasic, "a\n", "", ""}, "/auth/username"},
      {{AuthKind::kBasic, std::string(1000, 'u'), "", ""}, ""},
      {{AuthKind::kBasic, std::string(1001, 'u'), "", ""}, "/auth/username"},
      {{AuthKind::kBearer, "", "", ""}, ""},
      {{AuthKind::kHeader, "X-Key", "", ""}, ""},
      {{AuthKind::kHeader, "Authorization", "", ""}, ""},
      {{AuthKind::kHeader, "", "", ""}, "/auth/name"},
      {{AuthKind::kHeader, "x key", "", ""}, "/auth/name"},
      {{AuthKind::kHeader, "Webhook-Id", "", ""}, "/auth/name"},
      {{AuthKind::kHeader, "content-length", "", ""}, "/auth/name"},
      {{AuthKind::kHeader, "X-Mine", "", ""}, "/auth/name"},  // set in headers too
      {{AuthKind::kOAuth2, "id", url, ""}, ""},
      {{AuthKind::kOAuth2, "id", url, "a b"}, ""},
      {{AuthKind::kOAuth2, "", url, ""}, "/auth/client_id"},
      {{AuthKind::kOAuth2, "\xc3\xa9", url, ""}, "/auth/client_id"},
      {{AuthKind::kOAuth2, "id", "", ""}, "/auth/token_url"},
      {{AuthKind::kOAuth2, "id", "https://u:p@login.example/", ""}, "/auth/token_url"},
      {{AuthKind::kOAuth2, "id", url, "a\"b"}, "/auth/scope"},
  };
  for (const Case& one : cases) {
    EndpointSettings settings = GoodEndpoint();
    settings.headers = {{"x-mine", "1"}};
    settings.auth = one.auth;
    const std::vector<std::string> pointers = Pointers(Validate(settings));
    if (*one.pointer == '\0') {
      EXPECT_THAT(pointers, IsEmpty()) << one.auth.name;
    } else {
      EXPECT_THAT(pointers, ElementsAre(one.pointer)) << one.auth.name;
    }
  }
  EndpointSettings settings = GoodEndpoint();
  settings.headers = {{"Authorization", "x"}};
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.auth.kind = AuthKind::kBearer;
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/headers/authorization"));
}

TEST(EndpointSettingsTest, AuthSecretsCanBeSent) {
  struct Case {
    AuthKind kind;
    const char* good;
    const char* bad;
    const char* pointer;
  };
  for (const Case& one : {Case{AuthKind::kBasic, "p:\xc3\xa9", "a\nb", "/auth/password"},
                          Case{AuthKind::kBearer, "abc.def=", "a b", "/auth/token"},
                          Case{AuthKind::kHeader, "Key a b", "a\r\nb: c", "/auth/value"},
                          Case{AuthKind::kOAuth2, "a b", "\xc3\xa9", "/auth/client_secret"}}) {
    EXPECT_THAT(ValidateAuthSecret(one.kind, one.good), IsEmpty()) << one.pointer;
    EXPECT_THAT(ValidateAuthSecret(one.kind, std::string(4096, 'x')), IsEmpty()) << one.pointer;
    for (const std::string& bad : {std::string(one.bad), std::string(), std::string(4097, 'x')}) {
      EXPECT_THAT(Pointers(ValidateAuthSecret(one.kind, bad)), ElementsAre(one.pointer)) << bad;
    }
  }
}

TEST(EndpointSettingsTest, CertificatesAreCertificates) {
  EndpointSettings settings = GoodEndpoint();
  settings.tls = {tests::kKeyOne, "hello"};
  const FieldFaults faults = Validate(settings);
  EXPECT_THAT(Pointers(faults), ElementsAre("/tls/ca_pem", "/tls/certificate_pem"));
  for (const FieldFault& fault : faults) EXPECT_THAT(fault.detail, Not(HasSubstr("MIG")));
}

TEST(EndpointNamesTest, EveryChoiceComesBackFromItsName) {
  const auto comes_back = [](auto last, auto name_of, auto parse) {
    using E = decltype(last);
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      const auto value = static_cast<E>(i);
      EXPECT_EQ(parse(name_of(value)), value) << name_of(value);
    }
    EXPECT_FALSE(parse("").has_value());
    EXPECT_FALSE(parse("other").has_value());
  };
  comes_back(BodyFormat::kNdjson, BodyFormatName, ParseBodyFormat);
  comes_back(BodyCompression::kZstd, BodyCompressionName, ParseBodyCompression);
  comes_back(SignatureScheme::kBoth, SignatureSchemeName, ParseSignatureScheme);
  comes_back(OrderKind::kEndpoint, OrderKindName, ParseOrderKind);
  comes_back(BlockedHead::kDeadLetter, BlockedHeadName, ParseBlockedHead);
  comes_back(BacklogPolicy::kCollapseByKey, BacklogPolicyName, ParseBacklogPolicy);
  comes_back(ResumeKind::kNewest, ResumeKindName, ParseResumeKind);
  comes_back(AuthKind::kOAuth2, AuthKindName, ParseAuthKind);
}

TEST(EndpointSettingsTest, RefusesUrlsAndHeadersThatMayNotBeSent) {
  for (const char* url : {"", "ftp://example.com/", "https://user:s3cret@example.com/",
                          "https://exa mple.com/", "https:///x", "example.com"}) {
    EndpointSettings settings = GoodEndpoint();
    settings.url = url;
    const FieldFaults faults = Validate(settings);
    ASSERT_THAT(Pointers(faults), ElementsAre("/url")) << url;
    EXPECT_THAT(faults[0].detail, Not(HasSubstr("s3cret")));
  }
  EndpointSettings settings = GoodEndpoint();
  settings.headers = {{"x-good", "1"}, {"x-bad", "a\r\nevil: 1"}};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/headers/x-bad"));
  settings.headers = {{"Webhook-Id", "1"}};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/headers/Webhook-Id"));
  settings.headers = {{"content~type/x", "1"}};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/headers/content~0type~1x"));
  settings.headers = {{"x-good", "1"}};
  EXPECT_THAT(Validate(settings), IsEmpty());
}

TEST(EventTypeTest, TellsTypesPrefixesAndEveryTypeApart) {
  EXPECT_TRUE(ParseEventTypePattern("order.created").Matches("order.created"));
  EXPECT_FALSE(ParseEventTypePattern("order.created").Matches("order.created.x"));
  EXPECT_TRUE(ParseEventTypePattern("order.*").Matches("order.created"));
  EXPECT_FALSE(ParseEventTypePattern("order.*").Matches("orders.created"));
  EXPECT_FALSE(ParseEventTypePattern("order.*").Matches("order"));
  EXPECT_TRUE(ParseEventTypePattern("*").Matches("anything"));
  const std::vector<std::string> good = {"a", "a.b_c-D9", "a.*", "*", std::string(200, 'x')};
  EXPECT_THAT(ValidateEventTypePatterns(good, "/event_types"), IsEmpty());
  const std::vector<std::string> bad = {"",  "a*", "*.a", ".*", "a b", "a/*", std::string(201, 'x'),
                                        "**"};
  EXPECT_THAT(ValidateEventTypePatterns(bad, "/event_types"), SizeIs(bad.size()));
  EXPECT_THAT(Pointers(ValidateEventTypePatterns({}, "/event_types")), ElementsAre("/event_types"));
  EXPECT_THAT(ValidateEventTypePatterns(std::vector<std::string>(1000, "a"), "/e"), IsEmpty());
  EXPECT_THAT(ValidateEventTypePatterns(std::vector<std::string>(1001, "a"), "/e"), SizeIs(1));
}

TEST(TenantTest, IsPlainTextOfBoundedLength) {
  for (const std::string& good :
       {std::string("t"), std::string(200, 'x'), std::string("M\xc3\xbcnchen"),
        std::string("\xf0\x9f\x98\x80"), std::string("a b/c'\"")}) {
    EXPECT_THAT(ValidateTenant(good, "/t"), IsEmpty()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string(201, 'x'), std::string("a\0b", 3), std::string("a\nb"),
        std::string("\x7f"), std::string("\xc2\x85"), std::string("\xff"), std::string("\xc0\x80"),
        std::string("\xed\xa0\x80"), std::string("\xf4\x90\x80\x80"), std::string("\xe2\x82")}) {
    EXPECT_THAT(Pointers(ValidateTenant(bad, "/t")), ElementsAre("/t"));
  }
}

TEST(SubscriptionSettingsTest, EachScopeHasItsOwnFields) {
  SubscriptionSettings settings;
  settings.event_types = {"a"};
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.tenants = {"t"};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/tenants"));
  settings.scope = ScopeKind::kTenants;
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.tenants = std::vector<std::string>(1001, "t");
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/tenants"));
  settings.tenants = {"t", ""};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/tenants/1"));
  settings.tenants = {};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/tenants"));
  settings.tenants = {"t"};
  settings.departments = {"d"};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/departments"));
  settings.scope = ScopeKind::kDepartments;
  EXPECT_THAT(Validate(settings), IsEmpty());
  settings.departments = {};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/departments"));
  settings.departments = {"d"};
  settings.tenants = {"t", "u"};
  EXPECT_THAT(Pointers(Validate(settings)), ElementsAre("/scope/tenant"));
}

}  // namespace
}  // namespace postrider::subscriptions
