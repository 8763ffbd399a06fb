// Unit tests of the value types: bounds on both sides, and where a fault points.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "subscriptions/registry/customer.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/subscription.h"
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
       [](EndpointSettings& s, int64_t v) { s.retry.horizon = milliseconds(v); }, 1000, 604'800'000},
      {"/retry/first_delay_ms",
       [](EndpointSettings& s, int64_t v) { s.retry.first_delay = milliseconds(v); }, 10, 86'400'000},
      {"/retry/cap_ms", [](EndpointSettings& s, int64_t v) { s.retry.cap = milliseconds(v); }, 10,
       86'400'000},
      {"/retry/factor",
       [](EndpointSettings& s, int64_t v) { s.retry.factor = static_cast<double>(v); }, 1, 10},
      {"/window_max", [](EndpointSettings& s, int64_t v) { s.window_max = static_cast<int>(v); }, 1,
       256},
      {"/timeout_ms", [](EndpointSettings& s, int64_t v) { s.timeout = milliseconds(v); }, 1000,
       30'000},
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
