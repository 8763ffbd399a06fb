#include "loadtest/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/event_source.h"
#include "loadtest/zipf.h"

namespace postrider::loadtest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanOptions SmallOptions() {
  PlanOptions options;
  options.topics = 25;
  options.tenants = 400;
  options.customers = 40;
  options.large_customers = 8;
  options.endpoints = 120;
  options.subscriptions = 400;
  options.addresses = 30;
  return options;
}

// Straight from the rules, without an index: what an event must reach.
std::vector<uint32_t> MatchByRules(const Plan& plan, const EventFields& event) {
  std::set<uint32_t> reached;
  for (const Plan::Subscription& subscription : plan.subscriptions()) {
    bool type = subscription.every_type;
    for (uint16_t area : subscription.areas) type = type || event.type / 10 == area;
    for (uint16_t listed : subscription.types) type = type || event.type == listed;
    const std::vector<uint32_t>& granted =
        plan.customers()[plan.endpoints()[subscription.endpoint].customer].tenants;
    const bool is_granted = std::count(granted.begin(), granted.end(), event.tenant) > 0;
    bool scope = is_granted;
    if (subscription.scope != ScopeKind::kGranted) {
      scope = is_granted && std::count(subscription.tenants.begin(), subscription.tenants.end(),
                                       event.tenant) > 0;
    }
    if (subscription.scope == ScopeKind::kDepartments) {
      scope = scope && std::count(subscription.departments.begin(), subscription.departments.end(),
                                  event.department) > 0;
    }
    if (type && scope) reached.insert(subscription.endpoint);
  }
  return {reached.begin(), reached.end()};
}

TEST(ZipfTest, GivesRanksTheirShare) {
  const Zipf zipf(30000, 1.1);
  double sum = 0;
  for (uint32_t rank = 0; rank < zipf.size(); ++rank) sum += zipf.Probability(rank);
  EXPECT_NEAR(sum, 1.0, 1e-9);
  EXPECT_NEAR(zipf.Probability(0) / zipf.Probability(9), std::pow(10.0, 1.1), 1e-6);
  EXPECT_EQ(zipf.Rank(0), 0U);
  EXPECT_EQ(zipf.Rank(zipf.Probability(0) - 1e-12), 0U);
  EXPECT_EQ(zipf.Rank(zipf.Probability(0) + 1e-12), 1U);
  EXPECT_EQ(zipf.Rank(0.9999999999999999), 29999U);
}

TEST(ZipfTest, IsEvenWithoutSkew) {
  const Zipf zipf(4, 0);
  EXPECT_EQ(zipf.Rank(0.24), 0U);
  EXPECT_EQ(zipf.Rank(0.26), 1U);
  EXPECT_EQ(zipf.Rank(0.76), 3U);
}

TEST(PlanTest, IsTheSameForTheSameOptionsAndAnotherForAnotherSeed) {
  const auto one = Plan::Build(SmallOptions());
  const auto again = Plan::Build(SmallOptions());
  PlanOptions options = SmallOptions();
  options.seed = 2;
  const auto other = Plan::Build(options);
  ASSERT_TRUE(one.ok() && again.ok() && other.ok());
  EXPECT_EQ(one->fingerprint(), again->fingerprint());
  EXPECT_NE(one->fingerprint(), other->fingerprint());
}

TEST(PlanTest, MatchesWhatTheRulesSay) {
  const auto plan = Plan::Build(SmallOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const EventSource source(*plan, 5, 300, 300);
  std::vector<uint32_t> matched;
  size_t messages = 0;
  for (uint64_t n = 0; n < 3000; ++n) {
    const EventFields event = source.At(n);
    plan->Match(event, &matched);
    ASSERT_EQ(matched, MatchByRules(*plan, event)) << "event " << n;
    messages += matched.size();
  }
  EXPECT_GT(messages, 3000U);
}

TEST(PlanTest, MatchesNothingOutsideThePlan) {
  const auto plan = Plan::Build(SmallOptions());
  ASSERT_TRUE(plan.ok());
  std::vector<uint32_t> matched = {1};
  plan->Match({0, 400, kNoDepartment}, &matched);
  EXPECT_TRUE(matched.empty());
  plan->Match({25, 0, kNoDepartment}, &matched);
  EXPECT_TRUE(matched.empty());
}

TEST(PlanTest, MeetsTheFanOutOfTheMissionAndFillsBatches) {
  const auto plan = Plan::Build(PlanOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Plan::Expectation expected = plan->Expect(5000, 50000);
  EXPECT_NEAR(expected.fan_out, 3.0, 0.15);
  EXPECT_GE(expected.messages_per_request, 20);
  std::set<ScopeKind> scopes;
  for (const auto& subscription : plan->subscriptions()) scopes.insert(subscription.scope);
  EXPECT_EQ(scopes.size(), 3U);
  std::set<uint32_t> addresses;
  for (const auto& endpoint : plan->endpoints()) addresses.insert(endpoint.address);
  EXPECT_EQ(addresses.size(), 2000U);
  EXPECT_EQ(plan->subscriptions().size(), 50000U);
}

TEST(PlanTest, MeetsASmallFanOutToo) {
  PlanOptions options = SmallOptions();
  options.tenants = 2000;
  options.topics = 20;
  options.fan_out = 1;
  const auto plan = Plan::Build(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(plan->Expect(1000, 50000).fan_out, 1.0, 0.1);
}

TEST(PlanTest, KeepsToTheBoundsOfTheApi) {
  const auto plan = Plan::Build(PlanOptions());
  ASSERT_TRUE(plan.ok());
  for (const auto& subscription : plan->subscriptions()) {
    const std::vector<std::string> patterns = plan->TypePatterns(subscription);
    ASSERT_GE(patterns.size(), 1U);
    ASSERT_LE(patterns.size(), 1000U);
    const auto& granted =
        plan->customers()[plan->endpoints()[subscription.endpoint].customer].tenants;
    if (subscription.scope != ScopeKind::kGranted) {
      ASSERT_GE(subscription.tenants.size(), 1U);
      ASSERT_LE(subscription.tenants.size(), 1000U);
      ASSERT_TRUE(std::includes(granted.begin(), granted.end(), subscription.tenants.begin(),
                                subscription.tenants.end()));
    }
    if (subscription.scope == ScopeKind::kDepartments) {
      ASSERT_EQ(subscription.tenants.size(), 1U);
      ASSERT_GE(subscription.departments.size(), 1U);
    }
  }
}

TEST(PlanTest, RefusesOptionsOutOfRange) {
  PlanOptions options = SmallOptions();
  options.endpoints = 23;
  EXPECT_EQ(Plan::Build(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = SmallOptions();
  options.subscriptions = 10;
  EXPECT_THAT(std::string(Plan::Build(options).status().message()), HasSubstr("subscriptions >="));
  options = SmallOptions();
  options.mode = "both";
  EXPECT_FALSE(Plan::Build(options).ok());
}

TEST(PlanTest, ComesBackFromItsFileAndRefusesADamagedOne) {
  const std::string path = ::testing::TempDir() + "plan_" + std::to_string(getpid()) + ".json";
  PlanOptions options = SmallOptions();
  options.failing = 6;
  options.ordered = 4;
  options.mode = "streaming";
  const auto plan = Plan::Build(options);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->Save(path).ok());
  const auto loaded = Plan::Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->fingerprint(), plan->fingerprint());
  EXPECT_EQ(loaded->options().mode, "streaming");
  EXPECT_EQ(loaded->options().ordered, 4U);
  EXPECT_EQ(loaded->endpoints()[0].order, PlannedOrder::kEndpoint);
  EXPECT_EQ(loaded->endpoints()[1].order, PlannedOrder::kNone);
  std::ofstream(path) << R"({"options":{"seed":1},"fingerprint":"00"})";
  EXPECT_EQ(Plan::Load(path).status().code(), absl::StatusCode::kDataLoss);
  std::remove(path.c_str());
  EXPECT_EQ(Plan::Load(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(PlanTest, NamesThingsAsTheWireSpellsThem) {
  PlanOptions options = SmallOptions();
  options.failing = 1;
  const auto plan = Plan::Build(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->TypeName(24), "area02.event4");
  EXPECT_EQ(plan->Topic(3), "events.area00.event3");
  EXPECT_EQ(plan->TenantName(42), "t00042");
  EXPECT_EQ(plan->Url(0, 81), "http://127.16.0.1:81/answer/500/e/0");
  EXPECT_EQ(plan->Url(31, 81), "http://127.16.0.2:81/e/31");
  Plan::Subscription subscription;
  subscription.areas = {1};
  subscription.types = {0, 24};
  EXPECT_THAT(plan->TypePatterns(subscription),
              ElementsAre("area01.*", "area00.event0", "area02.event4"));
  subscription.every_type = true;
  EXPECT_THAT(plan->TypePatterns(subscription), ElementsAre("*"));
}

TEST(PlanTest, MixesModesAndTellsItsTenantsFromAnotherPlans) {
  PlanOptions options = SmallOptions();
  EXPECT_FALSE(Plan::Build(options)->Streams(0));
  options.mode = "streaming";
  EXPECT_TRUE(Plan::Build(options)->Streams(1));
  options.mode = "mixed";
  options.tenant_prefix = "other";
  const auto plan = Plan::Build(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->Streams(0));
  EXPECT_FALSE(plan->Streams(1));
  EXPECT_EQ(plan->TenantName(42), "other00042");
}

TEST(PlanTest, CanHaveTheBroadSubscriptionsOnly) {
  PlanOptions options = SmallOptions();
  options.endpoints = 3 * options.large_customers;
  options.subscriptions = 0;
  const auto plan = Plan::Build(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->subscriptions().size(), options.large_customers * 5);
  EXPECT_NEAR(plan->Expect(1, 20000).fan_out, options.fan_out, 0.3);
}

TEST(EventSourceTest, MakesPayloadsOfTheSizeAskedForThatProveThemselves) {
  const auto plan = Plan::Build(SmallOptions());
  ASSERT_TRUE(plan.ok());
  const EventSource source(*plan, 9, 500, 900);
  std::string payload;
  std::string again;
  for (uint64_t n = 0; n < 500; ++n) {
    source.Payload(n, 1700000000000001, &payload);
    ASSERT_GE(payload.size(), 500U);
    ASSERT_LE(payload.size(), 900U);
    PayloadFields fields;
    ASSERT_TRUE(ParsePayload(payload, &fields)) << payload;
    ASSERT_EQ(fields.number, n);
    ASSERT_EQ(fields.sent_us, 1700000000000001);
    const EventFields event = source.At(n);
    ASSERT_EQ(fields.type, plan->TypeName(event.type));
    ASSERT_EQ(fields.tenant, plan->TenantName(event.tenant));
    ASSERT_EQ(fields.department,
              event.department == kNoDepartment ? "" : Plan::DepartmentName(event.department));
    source.Payload(n, 1700000000000001, &again);
    ASSERT_EQ(again, payload);
    payload[payload.size() / 2] = payload[payload.size() / 2] == 'x' ? 'y' : 'x';
    ASSERT_FALSE(ParsePayload(payload, &fields));
  }
}

TEST(EventSourceTest, TellsItsOwnIdsFromOthers) {
  const auto plan = Plan::Build(SmallOptions());
  ASSERT_TRUE(plan.ok());
  const EventSource source(*plan, 9, 500, 900);
  uint32_t run = 0;
  uint64_t number = 0;
  ASSERT_TRUE(ParseEventId(source.Id(123456789012), &run, &number));
  EXPECT_EQ(run, source.run());
  EXPECT_EQ(number, 123456789012U);
  for (const char* id : {"", "ev-", "ev-0000000g-1", "ev-00000000-", "ev-00000000-+1",
                         "xx-00000000-1", "ev-00000000_1", "ev-00000000-1x"}) {
    EXPECT_FALSE(ParseEventId(id, &run, &number)) << id;
  }
}

}  // namespace
}  // namespace postrider::loadtest
