#include "subscriptions/matching/index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "tests/subscriptions/matching/snapshot_fixture.h"

namespace postrider::subscriptions {
namespace {

// The numbers of the endpoints that get the event.
std::vector<uint32_t> Find(const MatchIndex& index, absl::string_view type,
                           absl::string_view tenant,
                           absl::optional<absl::string_view> department = absl::nullopt) {
  std::vector<Match> matches(3);  // overwritten
  const MatchIndex::TypePatterns patterns = index.PatternsOf(type);
  index.Find(patterns, tenant, department, &matches);
  std::vector<uint32_t> numbers;
  for (const Match& match : matches) {
    const IdBytes& bytes = match.endpoint.bytes();
    numbers.push_back(uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
                      uint32_t{bytes[2]} << 8 | bytes[3]);
  }
  if (!numbers.empty()) {
    EXPECT_TRUE(index.MayMatch(patterns, tenant));
  }
  return numbers;
}

using Numbers = std::vector<uint32_t>;

TEST(MatchIndexTest, AnEmptySnapshotMatchesNothing) {
  const auto index = MatchIndex::Build(SnapshotFixture().Build());
  EXPECT_EQ(Find(*index, "order.created", "t1"), Numbers());
  EXPECT_FALSE(index->MayMatch(index->PatternsOf("order.created"), "t1"));
}

TEST(MatchIndexTest, MATCH_06_PatternsMeanWhatTheTableSays) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"});
  const std::vector<std::string> patterns = {"*", "order.*", "order.created", "Order.created"};
  for (uint32_t i = 0; i < patterns.size(); ++i) {
    fixture.Endpoint(i, 1).Granted(i, {patterns[i]});
  }
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_EQ(Find(*index, "order", "t1"), Numbers({0}));
  EXPECT_EQ(Find(*index, "order.created", "t1"), Numbers({0, 1, 2}));
  EXPECT_EQ(Find(*index, "order.created.v2", "t1"), Numbers({0, 1}));
  EXPECT_EQ(Find(*index, "orders.created", "t1"), Numbers({0}));
  EXPECT_EQ(Find(*index, "ORDER.CREATED", "t1"), Numbers({0}));
  EXPECT_EQ(Find(*index, "order.", "t1"), Numbers({0, 1}));
  EXPECT_EQ(Find(*index, "order.*", "t1"), Numbers({0, 1}));  // a type that looks like a pattern
  EXPECT_EQ(Find(*index, "*", "t1"), Numbers({0}));
  EXPECT_EQ(Find(*index, "", "t1"), Numbers({0}));
}

TEST(MatchIndexTest, PrefixesOfEveryDepthCount) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"}).Endpoint(1, 1).Endpoint(2, 1).Endpoint(3, 1);
  fixture.Granted(1, {"a.*"}).Tenants(2, {"a.b.*"}, {"t1"}).Tenants(3, {"a.b.c.*"}, {"t1"});
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_EQ(Find(*index, "a.b.c", "t1"), Numbers({1, 2}));
  EXPECT_EQ(Find(*index, "a.b.c.d", "t1"), Numbers({1, 2, 3}));
  EXPECT_EQ(Find(*index, "a.bb", "t1"), Numbers({1}));
}

TEST(MatchIndexTest, EveryScopeMatchesItsOwn) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1", "t2", "t3"}).Endpoint(1, 1).Endpoint(2, 1).Endpoint(3, 1);
  fixture.Granted(1, {"a"})
      .Tenants(2, {"a"}, {"t1", "t2"})
      .Departments(3, {"a"}, "t1", {"d1", "d2"});
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_EQ(Find(*index, "a", "t1"), Numbers({1, 2}));
  EXPECT_EQ(Find(*index, "a", "t1", "d1"), Numbers({1, 2, 3}));
  EXPECT_EQ(Find(*index, "a", "t1", "d2"), Numbers({1, 2, 3}));
  EXPECT_EQ(Find(*index, "a", "t1", "d3"), Numbers({1, 2}));
  EXPECT_EQ(Find(*index, "a", "t1", "D1"), Numbers({1, 2}));
  EXPECT_EQ(Find(*index, "a", "t2", "d1"), Numbers({1, 2}));
  EXPECT_EQ(Find(*index, "a", "t3"), Numbers({1}));
  EXPECT_EQ(Find(*index, "a", "t4"), Numbers());
  EXPECT_EQ(Find(*index, "b", "t1"), Numbers());
}

TEST(MatchIndexTest, NothingMatchesWithoutItsGrant) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"}).Customer(2, {"t2"}).Endpoint(1, 1).Endpoint(2, 2).Endpoint(3, 2);
  // Customer 2's grant of t1 was withdrawn after its subscriptions were made.
  fixture.Granted(1, {"a"}).Tenants(2, {"a"}, {"t1", "t2"}).Departments(3, {"a"}, "t1", {"d1"});
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_EQ(Find(*index, "a", "t1", "d1"), Numbers({1}));
  EXPECT_EQ(Find(*index, "a", "t2", "d1"), Numbers({2}));
}

TEST(MatchIndexTest, AnEndpointWithSeveralMatchingSubscriptionsIsFoundOnce) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"}).Endpoint(9, 1).Endpoint(4, 1);
  fixture.Granted(9, {"a.b", "a.*", "*"}).Granted(9, {"a.b"}).Tenants(9, {"a.b", "*"}, {"t1"});
  fixture.Departments(9, {"a.*"}, "t1", {"d1"}).Granted(4, {"a.b"});
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_EQ(Find(*index, "a.b", "t1", "d1"), Numbers({4, 9}));
}

TEST(MatchIndexTest, SaysWhichRowsMadeTheMatch) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t0", "t1"}).Endpoint(5, 1).Granted(5, {"a"});
  const auto index = MatchIndex::Build(fixture.Build());
  std::vector<Match> matches;
  index->Find(index->PatternsOf("a"), "t1", absl::nullopt, &matches);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].endpoint, EndpointNumber(5));
  EXPECT_EQ(matches[0].customer, CustomerNumber(1));
  EXPECT_EQ(matches[0].endpoint_xid, 1'005u);
  EXPECT_EQ(matches[0].grants_xid, 102u);
}

TEST(MatchIndexTest, AProductOfPatternsAndTenantsStaysSmallAndMatches) {
  SnapshotFixture fixture;
  std::vector<std::string> types, tenants;
  for (int i = 0; i < 1'000; ++i) {
    types.push_back("type" + std::to_string(i) + (i % 10 == 0 ? ".*" : ""));
    tenants.push_back("t" + std::to_string(i));
  }
  fixture.Customer(1, tenants).Endpoint(1, 1).Tenants(1, types, tenants);
  const auto index = MatchIndex::Build(fixture.Build());
  EXPECT_LT(index->memory_bytes(), 200'000u);
  EXPECT_EQ(Find(*index, "type999", "t999"), Numbers({1}));
  EXPECT_EQ(Find(*index, "type10.x", "t5"), Numbers({1}));
  EXPECT_EQ(Find(*index, "type10", "t5"), Numbers());
  EXPECT_EQ(Find(*index, "type999", "t1000"), Numbers());
}

TEST(MatchIndexTest, TENANT_01_OnlyTheExactTenantMatches) {
  SnapshotFixture fixture;
  for (uint32_t i = 0; i < 100; ++i) {
    const std::string tenant = "t" + std::to_string(i);
    fixture.Customer(i, {tenant}).Endpoint(i, i);
    switch (i % 3) {
      case 0:
        fixture.Granted(i, {"a"});
        break;
      case 1:
        fixture.Tenants(i, {"a"}, {tenant});
        break;
      default:
        fixture.Departments(i, {"a"}, tenant, {"d"});
        break;
    }
  }
  const auto index = MatchIndex::Build(fixture.Build());
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Find(*index, "a", "t" + std::to_string(i), "d"), Numbers({i}));
  }
  for (const char* tenant : {"", "T1", "t1 ", " t1", "t100", "null", "d", "a", "*", "t1\n"}) {
    EXPECT_EQ(Find(*index, "a", tenant, "d"), Numbers()) << tenant;
  }
}

// Against the plainest way to say it: every subscription is asked.
struct Plain {
  uint32_t endpoint;
  uint32_t customer;
  std::vector<std::string> types;
  ScopeKind scope;
  std::vector<std::string> tenants;
  std::vector<std::string> departments;
};

TEST(MatchIndexTest, FindsWhatAskingEverySubscriptionFinds) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    const auto tenant_name = [&] { return "t" + std::to_string(random.Below(12)); };
    const std::vector<std::string> patterns = {"*",   "a.*", "a.b", "a.b.*", "a.b.c",
                                               "b.*", "b",   "c.d", "c.*",   "a"};
    SnapshotFixture fixture;
    std::map<uint32_t, std::set<std::string>> grants;
    for (uint32_t customer = 0; customer < 8; ++customer) {
      for (uint64_t n = random.Below(8); n-- > 0;) grants[customer].insert(tenant_name());
      fixture.Customer(customer, {grants[customer].begin(), grants[customer].end()});
    }
    for (uint32_t endpoint = 0; endpoint < 20; ++endpoint) fixture.Endpoint(endpoint, endpoint % 8);
    std::vector<Plain> all;
    for (uint32_t i = 0; i < 60; ++i) {
      Plain plain;
      plain.endpoint = static_cast<uint32_t>(random.Below(20));
      plain.customer = plain.endpoint % 8;
      std::set<std::string> types, tenants;
      for (uint64_t n = 1 + random.Below(8); n-- > 0;)
        types.insert(patterns[random.Below(patterns.size())]);
      for (uint64_t n = 1 + random.Below(10); n-- > 0;) tenants.insert(tenant_name());
      plain.types.assign(types.begin(), types.end());
      plain.scope = static_cast<ScopeKind>(random.Below(3));
      if (plain.scope == ScopeKind::kGranted) fixture.Granted(plain.endpoint, plain.types);
      if (plain.scope == ScopeKind::kTenants) {
        plain.tenants.assign(tenants.begin(), tenants.end());
        fixture.Tenants(plain.endpoint, plain.types, plain.tenants);
      }
      if (plain.scope == ScopeKind::kDepartments) {
        plain.tenants = {tenant_name()};
        plain.departments = {"d" + std::to_string(random.Below(3)), "d7"};
        fixture.Departments(plain.endpoint, plain.types, plain.tenants[0], plain.departments);
      }
      all.push_back(std::move(plain));
    }
    const auto index = MatchIndex::Build(fixture.Build());
    for (const char* type : {"a", "a.b", "a.b.c", "a.b.c.d", "b", "b.x", "c", "c.d", "z"}) {
      for (int t = 0; t < 13; ++t) {
        for (const char* department : {"", "d0", "d1", "d7", "d8"}) {
          const std::string tenant = "t" + std::to_string(t);
          absl::optional<absl::string_view> with;
          if (*department != '\0') with = department;
          std::set<uint32_t> wanted;
          for (const Plain& plain : all) {
            const auto has = [](const std::vector<std::string>& list, absl::string_view what) {
              return std::find(list.begin(), list.end(), what) != list.end();
            };
            const bool type_fits =
                std::any_of(plain.types.begin(), plain.types.end(), [&](const std::string& p) {
                  if (p == "*") return true;
                  if (p.back() != '*') return p == type;
                  return absl::string_view(type).substr(0, p.size() - 1) ==
                         p.substr(0, p.size() - 1);
                });
            if (!type_fits || !grants[plain.customer].contains(tenant)) continue;
            if (plain.scope != ScopeKind::kGranted && !has(plain.tenants, tenant)) continue;
            if (plain.scope == ScopeKind::kDepartments &&
                (!with || !has(plain.departments, *with))) {
              continue;
            }
            wanted.insert(plain.endpoint);
          }
          ASSERT_EQ(Find(*index, type, tenant, with), Numbers(wanted.begin(), wanted.end()))
              << "seed " << seed << " " << type << " " << tenant << " " << department;
        }
      }
    }
  }
}

// The mission's size. The bounds are wide, for sanitizers and busy machines; what was measured is
// in the property that the test records.
TEST(MatchIndexTest, FiftyThousandSubscriptionsStayWithinTheirSizeAndBuildSoon) {
  Random random(99);
  SnapshotFixture fixture;
  constexpr uint32_t kCustomers = 1'000;
  const auto tenant_name = [](uint64_t n) { return "tenant-" + std::to_string(n); };
  for (uint32_t customer = 0; customer < kCustomers; ++customer) {
    std::vector<std::string> tenants;
    for (uint32_t n = 0; n < 30; ++n) tenants.push_back(tenant_name(customer * 30 + n));
    fixture.Customer(customer, tenants);
  }
  for (uint32_t endpoint = 0; endpoint < 10'000; ++endpoint) {
    fixture.Endpoint(endpoint, endpoint % kCustomers);
  }
  for (uint32_t i = 0; i < 50'000; ++i) {
    const auto endpoint = static_cast<uint32_t>(random.Below(10'000));
    const uint64_t first_tenant = endpoint % kCustomers * 30;
    const std::vector<std::string> types = {"type-" + std::to_string(random.Below(500))};
    switch (i % 3) {
      case 0:
        fixture.Granted(endpoint, types);
        break;
      case 1:
        fixture.Tenants(endpoint, types,
                        {tenant_name(first_tenant + random.Below(15)),
                         tenant_name(first_tenant + 15 + random.Below(15))});
        break;
      default:
        fixture.Departments(endpoint, types, tenant_name(first_tenant + random.Below(30)),
                            {"d1", "d2"});
        break;
    }
  }
  const std::shared_ptr<const Snapshot> snapshot = fixture.Build();
  const auto begun = std::chrono::steady_clock::now();
  const auto index = MatchIndex::Build(snapshot);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  const size_t per_subscription = index->memory_bytes() / 50'000;
  EXPECT_LE(per_subscription, 200u);
  EXPECT_LT(took.count(), 5'000);

  std::vector<MatchIndex::TypePatterns> patterns;
  for (int i = 0; i < 500; ++i) patterns.push_back(index->PatternsOf("type-" + std::to_string(i)));
  std::vector<std::string> tenants;
  for (uint64_t i = 0; i < 30'000; ++i) tenants.push_back(tenant_name(i));
  std::vector<Match> matches;
  size_t found = 0;
  const auto matching = std::chrono::steady_clock::now();
  constexpr int kEvents = 100'000;
  for (int i = 0; i < kEvents; ++i) {
    index->Find(patterns[random.Below(500)], tenants[random.Below(30'000)], "d1", &matches);
    found += matches.size();
  }
  const std::chrono::duration<double, std::micro> matched =
      std::chrono::steady_clock::now() - matching;
  EXPECT_GT(found, 0u);
  RecordProperty("index_bytes_per_subscription", static_cast<int>(per_subscription));
  RecordProperty("build_ms", std::to_string(took.count()));
  RecordProperty("match_us", std::to_string(matched.count() / kEvents));
}

}  // namespace
}  // namespace postrider::subscriptions
