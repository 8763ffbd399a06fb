// Unit tests of the snapshot, its builder, its file and the sealed secrets.
#include "subscriptions/registry/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/random.h"
#include "core/crypto/digest.h"
#include "core/crypto/key_ring.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/pg_snapshot.h"
#include "subscriptions/registry/snapshot_file.h"
#include "tests/fakes/manual_clock.h"
#include "tests/subscriptions/registry/whole_endpoint.h"
#include "tests/support/status_matchers.h"

namespace postrider::subscriptions {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using tests::StatusIs;

template <typename IdType>
IdType MakeId(uint64_t number) {
  IdBytes bytes{};
  for (size_t i = 0; i < 8; ++i) bytes[15 - i] = static_cast<uint8_t>(number >> (8 * i));
  return IdType(bytes);
}

Endpoint MakeEndpoint(uint64_t number, uint64_t customer, uint64_t xid = 1) {
  Endpoint endpoint;
  endpoint.id = MakeId<EndpointId>(number);
  endpoint.customer = MakeId<CustomerId>(customer);
  endpoint.settings.url = absl::StrCat("https://example.com/", number);
  endpoint.secrets_sealed = "sealed";
  endpoint.changed_xid = xid;
  return endpoint;
}

SubscriptionSettings Granted(uint64_t endpoint, std::vector<std::string> types) {
  SubscriptionSettings settings;
  settings.endpoint = MakeId<EndpointId>(endpoint);
  settings.event_types = std::move(types);
  return settings;
}

std::shared_ptr<const Snapshot> Finish(SnapshotBuilder& builder) {
  return builder.Build(*PgSnapshot::Parse("10:20:12,15"), WallTimeFromMillis(5000), "here");
}

std::vector<std::string> Texts(const Snapshot& snapshot, absl::Span<const StringId> ids) {
  std::vector<std::string> texts;
  for (const StringId id : ids) texts.emplace_back(snapshot.StringOf(id));
  return texts;
}

TEST(PgSnapshotTest, SeesWhatHadEndedWhenItWasTaken) {
  const PgSnapshot snapshot = *PgSnapshot::Parse("10:20:12,15");
  EXPECT_TRUE(snapshot.Sees(9));
  EXPECT_TRUE(snapshot.Sees(10)) << "ended, for it is not among those that ran";
  EXPECT_FALSE(snapshot.Sees(12));
  EXPECT_TRUE(snapshot.Sees(13));
  EXPECT_FALSE(snapshot.Sees(15));
  EXPECT_TRUE(snapshot.Sees(19));
  EXPECT_FALSE(snapshot.Sees(20));
  EXPECT_EQ(snapshot.ToString(), "10:20:12,15");
  EXPECT_FALSE(PgSnapshot().Sees(3));
  EXPECT_TRUE(PgSnapshot::Parse("5:5:")->Sees(4));
  EXPECT_FALSE(PgSnapshot::Parse("5:5:")->Sees(5));
}

TEST(PgSnapshotTest, RefusesOtherTexts) {
  for (const char* bad : {"", "1", "1:2", "a:2:", "3:2:", "1:5:7", "2:5:1", "1:5:,", "1:5:2,x"}) {
    EXPECT_FALSE(PgSnapshot::Parse(bad).has_value()) << bad;
  }
}

TEST(SnapshotTest, AnswersByIdTenantAndGrant) {
  SnapshotBuilder builder;
  builder.PutCustomer(MakeId<CustomerId>(1), 3, 11);
  builder.PutCustomer(MakeId<CustomerId>(2), 1, 12);
  builder.PutGrant(MakeId<CustomerId>(1), "t1", 31);
  builder.PutGrant(MakeId<CustomerId>(1), "t2", 33);
  builder.PutGrant(MakeId<CustomerId>(2), "t1", 32);
  builder.PutEndpoint(MakeEndpoint(100, 1, 41));
  builder.PutEventType("b");
  builder.PutEventType("a");
  SubscriptionSettings settings = Granted(100, {"order.*", "a"});
  settings.scope = ScopeKind::kDepartments;
  settings.tenants = {"t1"};
  settings.departments = {"d1", "d2"};
  builder.PutSubscription(MakeId<SubscriptionId>(200), MakeId<CustomerId>(1), settings);
  const auto snapshot = Finish(builder);

  EXPECT_TRUE(snapshot->Sees(13));
  EXPECT_FALSE(snapshot->Sees(12));
  EXPECT_THAT(snapshot->event_types(), ElementsAre("a", "b"));
  const CustomerEntry* customer = snapshot->FindCustomer(MakeId<CustomerId>(1));
  ASSERT_NE(customer, nullptr);
  EXPECT_EQ(customer->generation, 3u);
  EXPECT_EQ(customer->changed_xid, 11u);
  EXPECT_EQ(customer->grants_xid_max, 33u);
  EXPECT_EQ(snapshot->GrantXid(MakeId<CustomerId>(1), "t1"), 31u) << "the grant's own number";
  EXPECT_EQ(snapshot->GrantXid(MakeId<CustomerId>(2), "t2"), absl::nullopt);
  EXPECT_FALSE(snapshot->Granted(MakeId<CustomerId>(1), "nobody's"));
  EXPECT_FALSE(snapshot->Granted(MakeId<CustomerId>(9), "t1"));
  EXPECT_THAT(snapshot->CustomersGranted(*snapshot->FindString("t1")), SizeIs(2));
  EXPECT_THAT(snapshot->CustomersGranted(*snapshot->FindString("t2")), SizeIs(1));
  EXPECT_THAT(snapshot->CustomersGranted(*snapshot->FindString("d1")), IsEmpty());
  EXPECT_EQ(snapshot->grants(), 3u);
  ASSERT_NE(snapshot->FindEndpoint(MakeId<EndpointId>(100)), nullptr);
  EXPECT_EQ(snapshot->FindEndpoint(MakeId<EndpointId>(100))->changed_xid, 41u);
  EXPECT_EQ(snapshot->FindEndpoint(MakeId<EndpointId>(101)), nullptr);
  ASSERT_THAT(snapshot->subscriptions(), SizeIs(1));
  const SubscriptionEntry& entry = snapshot->subscriptions()[0];
  EXPECT_EQ(entry.scope, ScopeKind::kDepartments);
  EXPECT_THAT(Texts(*snapshot, snapshot->EventTypesOf(entry)), ElementsAre("order.*", "a"));
  EXPECT_THAT(Texts(*snapshot, snapshot->TenantsOf(entry)), ElementsAre("t1"));
  EXPECT_THAT(Texts(*snapshot, snapshot->DepartmentsOf(entry)), ElementsAre("d1", "d2"));
  EXPECT_EQ(snapshot->endpoints()[entry.endpoint_index]->id, MakeId<EndpointId>(100));
  EXPECT_EQ(snapshot->customers()[entry.customer_index].id, MakeId<CustomerId>(1));
}

TEST(SnapshotTest, WhatIsDeletedTakesWithItWhatHangsOnIt) {
  SnapshotBuilder builder;
  for (uint64_t c = 1; c <= 2; ++c) {
    builder.PutCustomer(MakeId<CustomerId>(c), 1, 1);
    builder.PutGrant(MakeId<CustomerId>(c), "t", 1);
    for (uint64_t e = 0; e < 2; ++e) {
      builder.PutEndpoint(MakeEndpoint(c * 10 + e, c));
      builder.PutSubscription(MakeId<SubscriptionId>(c * 10 + e), MakeId<CustomerId>(c),
                              Granted(c * 10 + e, {"a"}));
    }
  }
  const auto first = Finish(builder);
  EXPECT_THAT(first->subscriptions(), SizeIs(4));

  SnapshotBuilder second_builder(first);
  second_builder.RemoveEndpoint(MakeId<EndpointId>(10));
  const auto second = Finish(second_builder);
  EXPECT_THAT(second->endpoints(), SizeIs(3));
  EXPECT_THAT(second->subscriptions(), SizeIs(3));

  SnapshotBuilder third_builder(second);
  third_builder.RemoveCustomer(MakeId<CustomerId>(2));
  third_builder.RemoveGrant(MakeId<CustomerId>(1), "t");
  const auto third = Finish(third_builder);
  EXPECT_THAT(third->customers(), SizeIs(1));
  EXPECT_THAT(third->endpoints(), SizeIs(1));
  EXPECT_THAT(third->subscriptions(), SizeIs(1));
  EXPECT_EQ(third->grants(), 0u);
  EXPECT_EQ(third->FindCustomer(MakeId<CustomerId>(1))->grants_xid_max, 0u);
  // The first one is as it was.
  EXPECT_THAT(first->subscriptions(), SizeIs(4));
  EXPECT_TRUE(first->Granted(MakeId<CustomerId>(1), "t"));
}

TEST(SnapshotTest, ASubscriptionToAnotherCustomersEndpointIsNotThere) {
  SnapshotBuilder builder;
  builder.PutCustomer(MakeId<CustomerId>(1), 1, 1);
  builder.PutCustomer(MakeId<CustomerId>(2), 1, 1);
  builder.PutEndpoint(MakeEndpoint(10, 1));
  builder.PutSubscription(MakeId<SubscriptionId>(1), MakeId<CustomerId>(2), Granted(10, {"a"}));
  builder.PutSubscription(MakeId<SubscriptionId>(2), MakeId<CustomerId>(1), Granted(11, {"a"}));
  EXPECT_THAT(Finish(builder)->subscriptions(), IsEmpty());
}

TEST(SnapshotTest, NumbersItsVersionsAndItsContents) {
  SnapshotBuilder builder;
  builder.PutCustomer(MakeId<CustomerId>(1), 1, 1);
  const auto first = Finish(builder);
  SnapshotBuilder same(first);
  EXPECT_TRUE(same.unchanged());
  const auto second = Finish(same);
  EXPECT_EQ(second->version(), first->version() + 1);
  EXPECT_EQ(second->contents_version(), first->contents_version());
  SnapshotBuilder anew(second, SnapshotBuilder::Start::kNothing);
  EXPECT_FALSE(anew.unchanged());
  const auto third = Finish(anew);
  EXPECT_EQ(third->version(), second->version() + 1);
  EXPECT_GT(third->contents_version(), second->contents_version());
  EXPECT_THAT(third->customers(), IsEmpty());
}

// What a snapshot should hold, kept in the plainest way.
struct Model {
  std::map<uint64_t, std::set<std::string>> customers;  // with their grants
  std::map<uint64_t, uint64_t> endpoints;               // to customer
  std::map<uint64_t, std::pair<uint64_t, std::vector<std::string>>> subscriptions;

  std::string Describe() const {
    std::string out;
    for (const auto& [customer, tenants] : customers) {
      absl::StrAppend(&out, "c", customer, ":");
      for (const std::string& tenant : tenants) absl::StrAppend(&out, tenant, ",");
    }
    for (const auto& [endpoint, customer] : endpoints) {
      if (customers.contains(customer)) absl::StrAppend(&out, " e", endpoint, "/", customer);
    }
    for (const auto& [id, row] : subscriptions) {
      const auto endpoint = endpoints.find(row.first);
      if (endpoint == endpoints.end() || !customers.contains(endpoint->second)) continue;
      absl::StrAppend(&out, " s", id, ">", row.first, "=");
      for (const std::string& type : row.second) absl::StrAppend(&out, type, ",");
    }
    return out;
  }
};

uint64_t NumberOf(const IdBytes& bytes) {
  uint64_t number = 0;
  for (size_t i = 8; i < 16; ++i) number = number << 8 | bytes[i];
  return number;
}

std::string Describe(const Snapshot& snapshot) {
  std::string out;
  for (uint32_t i = 0; i < snapshot.customers().size(); ++i) {
    absl::StrAppend(&out, "c", NumberOf(snapshot.customers()[i].id.bytes()), ":");
    std::vector<std::string> tenants = Texts(snapshot, snapshot.TenantsGranted(i));
    std::sort(tenants.begin(), tenants.end());
    for (const std::string& tenant : tenants) {
      absl::StrAppend(&out, tenant, ",");
      const auto holders = snapshot.CustomersGranted(*snapshot.FindString(tenant));
      EXPECT_TRUE(std::find(holders.begin(), holders.end(), i) != holders.end());
    }
  }
  for (const auto& endpoint : snapshot.endpoints()) {
    absl::StrAppend(&out, " e", NumberOf(endpoint->id.bytes()), "/",
                    NumberOf(endpoint->customer.bytes()));
  }
  for (const SubscriptionEntry& entry : snapshot.subscriptions()) {
    absl::StrAppend(&out, " s", NumberOf(entry.id.bytes()), ">",
                    NumberOf(snapshot.endpoints()[entry.endpoint_index]->id.bytes()), "=");
    for (const std::string& type : Texts(snapshot, snapshot.EventTypesOf(entry))) {
      absl::StrAppend(&out, type, ",");
    }
  }
  return out;
}

TEST(SnapshotTest, AnyHistoryOfChangesEndsLikeOneLoad) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    Model model;
    std::shared_ptr<const Snapshot> snapshot;
    for (int round = 0; round < 15; ++round) {
      SnapshotBuilder builder(snapshot);
      for (uint64_t n = random.Below(12); n > 0; --n) {
        const uint64_t customer = 1 + random.Below(4);
        const uint64_t endpoint = 10 + random.Below(8);
        const uint64_t subscription = 100 + random.Below(20);
        const std::string tenant = absl::StrCat("t", random.Below(5));
        switch (random.Below(8)) {
          case 0:
          case 1:
            builder.PutCustomer(MakeId<CustomerId>(customer), 1, 1);
            model.customers.try_emplace(customer);
            break;
          case 2:
            if (random.Below(3) != 0) break;
            // As in the database: what hangs on it goes in the same transaction.
            builder.RemoveCustomer(MakeId<CustomerId>(customer));
            for (int t = 0; t < 5; ++t) {
              builder.RemoveGrant(MakeId<CustomerId>(customer), absl::StrCat("t", t));
            }
            model.customers.erase(customer);
            for (auto row = model.endpoints.begin(); row != model.endpoints.end();) {
              if (row->second != customer) {
                ++row;
                continue;
              }
              builder.RemoveEndpoint(MakeId<EndpointId>(row->first));
              for (auto sub = model.subscriptions.begin(); sub != model.subscriptions.end();) {
                if (sub->second.first == row->first) {
                  builder.RemoveSubscription(MakeId<SubscriptionId>(sub->first));
                  sub = model.subscriptions.erase(sub);
                } else {
                  ++sub;
                }
              }
              row = model.endpoints.erase(row);
            }
            break;
          case 3:
            if (!model.customers.contains(customer)) break;
            builder.PutGrant(MakeId<CustomerId>(customer), tenant, 1);
            model.customers[customer].insert(tenant);
            break;
          case 4:
            builder.RemoveGrant(MakeId<CustomerId>(customer), tenant);
            if (model.customers.contains(customer)) model.customers[customer].erase(tenant);
            break;
          case 5:
            if (model.endpoints.contains(endpoint) || !model.customers.contains(customer)) break;
            builder.PutEndpoint(MakeEndpoint(endpoint, customer));
            model.endpoints[endpoint] = customer;
            break;
          case 6: {
            if (!model.endpoints.contains(endpoint)) break;
            const std::vector<std::string> types = {absl::StrCat("y", random.Below(3)), tenant};
            builder.PutSubscription(MakeId<SubscriptionId>(subscription),
                                    MakeId<CustomerId>(model.endpoints[endpoint]),
                                    Granted(endpoint, types));
            model.subscriptions[subscription] = {endpoint, types};
            break;
          }
          default:
            builder.RemoveSubscription(MakeId<SubscriptionId>(subscription));
            model.subscriptions.erase(subscription);
        }
      }
      snapshot = Finish(builder);
      ASSERT_EQ(Describe(*snapshot), model.Describe());
      ASSERT_OK_AND_ASSIGN(auto decoded, DecodeSnapshot(EncodeSnapshot(*snapshot)));
      ASSERT_EQ(Describe(*decoded), model.Describe());
    }
  }
}

TEST(SnapshotTest, FiftyThousandSubscriptionsAreSmallAndQuickToChange) {
  SnapshotBuilder builder;
  Random random(7);
  for (uint64_t c = 0; c < 1000; ++c) {
    builder.PutCustomer(MakeId<CustomerId>(c), 1, 1);
    for (int g = 0; g < 100; ++g) {
      builder.PutGrant(MakeId<CustomerId>(c), absl::StrCat("tenant-", random.Below(30'000)), 1);
    }
  }
  for (uint64_t e = 0; e < 10'000; ++e) builder.PutEndpoint(MakeEndpoint(e, e % 1000));
  const auto without = [&] {
    SnapshotBuilder empty;
    for (uint64_t c = 0; c < 1000; ++c) empty.PutCustomer(MakeId<CustomerId>(c), 1, 1);
    for (uint64_t e = 0; e < 10'000; ++e) empty.PutEndpoint(MakeEndpoint(e, e % 1000));
    return Finish(empty)->memory_bytes();
  }();
  for (uint64_t s = 0; s < 50'000; ++s) {
    SubscriptionSettings settings = Granted(s % 10'000, {});
    for (int t = 0; t < 3; ++t) {
      settings.event_types.push_back(absl::StrCat("type-", random.Below(500)));
    }
    if (s % 3 == 1) {
      settings.scope = ScopeKind::kTenants;
      for (int t = 0; t < 5; ++t) {
        settings.tenants.push_back(absl::StrCat("tenant-", random.Below(30'000)));
      }
    }
    builder.PutSubscription(MakeId<SubscriptionId>(s), MakeId<CustomerId>(s % 1000), settings);
  }
  const SystemClock clock;
  const MonotonicTime began = clock.Now();
  const auto snapshot = Finish(builder);
  const MonotonicTime built = clock.Now();
  SnapshotBuilder change(snapshot);
  change.PutSubscription(MakeId<SubscriptionId>(7), MakeId<CustomerId>(7), Granted(7, {"new"}));
  const auto next = Finish(change);
  const MonotonicTime changed = clock.Now();
  const std::string bytes = EncodeSnapshot(*next);
  const MonotonicTime encoded = clock.Now();
  const auto milliseconds_of = [](Duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const size_t per_subscription = (next->memory_bytes() - without) / 50'000;
  std::printf("built %.1f ms, one change %.1f ms, encoded %.1f ms (%zu bytes), %zu bytes/sub\n",
              milliseconds_of(built - began), milliseconds_of(changed - built),
              milliseconds_of(encoded - changed), bytes.size(), per_subscription);
  EXPECT_THAT(next->subscriptions(), SizeIs(50'000));
  EXPECT_LE(per_subscription, 200u) << "grants and tenants' names included";
  // Far more than it takes, even unoptimised on a busy machine: this is no benchmark.
  EXPECT_LE(milliseconds_of(changed - built), 10'000);
}

class SnapshotFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/postrider-snapshot-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    SnapshotBuilder builder;
    builder.PutCustomer(MakeId<CustomerId>(1), 3, 11);
    builder.PutGrant(MakeId<CustomerId>(1), "t1", 31);
    Endpoint endpoint = MakeEndpoint(10, 1, 17);
    endpoint.settings = WholeSettings();
    endpoint.settings.enabled = false;
    endpoint.settings.pause = {true, true, ResumeKind::kFrom, WallTimeFromMillis(8),
                               WallTimeFromMillis(9)};
    endpoint.auth_sealed = "sealed too";
    endpoint.tls_key_sealed = "and this";
    endpoint.generation = 4;
    builder.PutEndpoint(endpoint);
    builder.PutSubscription(MakeId<SubscriptionId>(5), MakeId<CustomerId>(1), Granted(10, {"a"}));
    builder.PutEventType("a");
    for (const uint64_t i : {1, 2, 3}) {
      Erasure erasure;
      erasure.id = MakeId<ErasureId>(i);
      if (i != 2) erasure.customer = MakeId<CustomerId>(i);
      if (i != 3) erasure.tenant = absl::StrCat("t", i);
      if (i == 2) erasure.event_id = "\xff";
      erasure.requested_at = WallTimeFromMillis(static_cast<int64_t>(i));
      builder.PutErasure(erasure);
    }
    builder.PutDeadLettered(MakeId<EndpointId>(77));
    snapshot_ = Finish(builder);
  }
  void TearDown() override {
    unlink(path().c_str());
    unlink((path() + ".lock").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  std::string path() const { return folder_ + "/snapshot"; }

  std::string folder_;
  std::shared_ptr<const Snapshot> snapshot_;
};

TEST_F(SnapshotFileTest, KeepsEverything) {
  EXPECT_THAT(ReadSnapshotFile(path()), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(WriteSnapshotFile(path(), *snapshot_));
  struct stat status {};
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_NE(access((path() + ".new").c_str(), F_OK), 0);
  ASSERT_OK_AND_ASSIGN(auto read, ReadSnapshotFile(path()));
  EXPECT_EQ(Describe(*read), Describe(*snapshot_));
  EXPECT_EQ(read->pg_snapshot().ToString(), "10:20:12,15");
  EXPECT_EQ(MillisSinceEpoch(read->confirmed_at()), 5000);
  EXPECT_EQ(read->origin(), "here");
  EXPECT_THAT(read->event_types(), ElementsAre("a"));
  EXPECT_EQ(read->GrantXid(MakeId<CustomerId>(1), "t1"), 31u);
  EXPECT_EQ(read->customers()[0].changed_xid, 11u);
  ASSERT_THAT(read->erasures()->all(), SizeIs(3));
  EXPECT_EQ(read->erasures()->all(), snapshot_->erasures()->all());
  EXPECT_THAT(read->dead_lettered(), ElementsAre(MakeId<EndpointId>(77)));
  const Endpoint& before = *snapshot_->endpoints()[0];
  const Endpoint& after = *read->endpoints()[0];
  EXPECT_EQ(after.settings, before.settings);
  EXPECT_EQ(after.secrets_sealed, before.secrets_sealed);
  EXPECT_EQ(after.auth_sealed, before.auth_sealed);
  EXPECT_EQ(after.tls_key_sealed, before.tls_key_sealed);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.changed_xid, before.changed_xid);
}

// One endpoint as the first version wrote it.
TEST(SnapshotVersionTest, AFileOfTheVersionBeforeIsReadWithDefaults) {
  ByteWriter out;
  out.Raw("postrider snapshot\n");
  out.U8(1);
  out.String("10:20:12,15");
  out.Zigzag(5000);
  out.String("here");
  for (int empty = 0; empty < 2; ++empty) out.Varint(0);  // strings, event types
  out.Varint(1);
  out.Raw(MakeId<CustomerId>(1).view());
  out.Varint(3);
  out.U64(11);
  out.Varint(0);
  out.Varint(1);
  out.Raw(MakeId<EndpointId>(10).view());
  out.Raw(MakeId<CustomerId>(1).view());
  out.Varint(4);
  out.U64(17);
  for (int time = 0; time < 2; ++time) out.Zigzag(0);
  out.String("https://example.com/10");
  out.String("old");
  out.U8(1);
  for (const int64_t batch : {10, 2048, 5}) out.Zigzag(batch);
  out.Varint(0);
  for (const int64_t retry : {3, 4000, 50}) out.Zigzag(retry);
  out.U64(0x4000000000000000);  // 2.0
  for (const int64_t rest : {60, 7, 3000}) out.Zigzag(rest);
  out.U8(0);
  out.String("sealed");
  out.Varint(0);
  out.Raw(DigestView(Sha256(out.bytes())));
  ASSERT_OK_AND_ASSIGN(const auto read, DecodeSnapshot(out.bytes()));
  ASSERT_THAT(read->endpoints(), SizeIs(1));
  const Endpoint& endpoint = *read->endpoints()[0];
  EndpointSettings expected;
  expected.url = "https://example.com/10";
  expected.description = "old";
  expected.mode = EndpointMode::kStreaming;
  expected.batch = {10, 2048, std::chrono::milliseconds(5)};
  expected.retry.attempts = 3;
  expected.retry.horizon = std::chrono::milliseconds(4000);
  expected.retry.first_delay = std::chrono::milliseconds(50);
  expected.retry.cap = std::chrono::milliseconds(60);
  expected.window_max = 7;
  expected.timeout = std::chrono::milliseconds(3000);
  expected.enabled = false;
  EXPECT_EQ(endpoint.settings, expected);
  EXPECT_EQ(endpoint.secrets_sealed, "sealed");
  EXPECT_EQ(endpoint.auth_sealed, "");
}

TEST(SnapshotVersionTest, EndpointsAreSmall) {
  // Beside its texts; 30,000 of them are 25 MB.
  EXPECT_LE(sizeof(Endpoint), 832u);
}

TEST_F(SnapshotFileTest, LeavesTheFileToAnotherProcessThatWritesIt) {
  ASSERT_OK(WriteSnapshotFile(path(), *snapshot_));
  const std::string fresh = path() + ".new";
  std::ofstream(fresh) << "half of what another process writes";
  const int lock = open((path() + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(WriteSnapshotFile(path(), *snapshot_), StatusIs(absl::StatusCode::kUnavailable));
  struct stat status {};
  ASSERT_EQ(stat(fresh.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 35);
  EXPECT_OK(ReadSnapshotFile(path()));
  close(lock);
  EXPECT_OK(WriteSnapshotFile(path(), *snapshot_));
  EXPECT_OK(ReadSnapshotFile(path()));
}

TEST_F(SnapshotFileTest, RefusesEveryDamage) {
  const std::string bytes = EncodeSnapshot(*snapshot_);
  ASSERT_OK(DecodeSnapshot(bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(DecodeSnapshot(absl::string_view(bytes).substr(0, i)),
                StatusIs(absl::StatusCode::kDataLoss));
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_THAT(DecodeSnapshot(changed), StatusIs(absl::StatusCode::kDataLoss)) << "byte " << i;
  }
  EXPECT_THAT(DecodeSnapshot(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss));
  std::ofstream(path()) << "something else";
  EXPECT_THAT(ReadSnapshotFile(path()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(SnapshotFileTest, SaysWhenItCannotBeWritten) {
  EXPECT_THAT(WriteSnapshotFile(folder_ + "/no/such/folder", *snapshot_),
              StatusIs(absl::StatusCode::kInternal));
}

TEST(EndpointSecretsTest, OpenOnlyInTheirOwnRow) {
  ASSERT_OK_AND_ASSIGN(const KeyRing keys, KeyRing::Parse(KeyRing::NewKeyLine("k1")));
  const auto customer = MakeId<CustomerId>(1);
  const auto endpoint = MakeId<EndpointId>(2);
  const std::vector<EndpointSecret> secrets = {
      {"whsec_fresh", WallTimeFromMillis(10), absl::nullopt, "whsk_fresh"},
      {"whsec_old", WallTimeFromMillis(5), WallTimeFromMillis(20)}};
  ASSERT_OK_AND_ASSIGN(const std::string sealed,
                       SealEndpointSecrets(keys, customer, endpoint, secrets));
  EXPECT_FALSE(absl::StrContains(sealed, "whsec"));
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenEndpointSecrets(keys, customer, endpoint, sealed));
  ASSERT_THAT(opened, SizeIs(2));
  EXPECT_EQ(opened[0].secret, "whsec_fresh");
  EXPECT_FALSE(opened[0].expires_at.has_value());
  EXPECT_EQ(opened[0].private_key, "whsk_fresh");
  EXPECT_EQ(opened[1].secret, "whsec_old");
  EXPECT_EQ(opened[1].private_key, "");
  EXPECT_TRUE(opened[1].active(WallTimeFromMillis(19)));
  EXPECT_FALSE(opened[1].active(WallTimeFromMillis(20)));
  EXPECT_THAT(OpenEndpointSecrets(keys, customer, MakeId<EndpointId>(3), sealed),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(OpenEndpointSecrets(keys, MakeId<CustomerId>(9), endpoint, sealed),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(EndpointSecretsTest, OpensWhatWasSealedBeforeThereWereKeyPairs) {
  const KeyRing keys = *KeyRing::Parse(KeyRing::NewKeyLine("k"));
  const auto customer = MakeId<CustomerId>(1);
  const auto endpoint = MakeId<EndpointId>(2);
  ByteWriter old;
  old.U8(1);
  old.Varint(1);
  old.String("whsec_old");
  old.Zigzag(10);
  old.U8(1);
  old.Zigzag(20);
  const std::string sealed =
      keys.Seal(old.bytes(), {"endpoints", "secrets_sealed", endpoint.ToUuid(), customer.ToUuid()});
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenEndpointSecrets(keys, customer, endpoint, sealed));
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].secret, "whsec_old");
  EXPECT_EQ(opened[0].expires_at, WallTimeFromMillis(20));
  EXPECT_EQ(opened[0].private_key, "");
}

TEST(EndpointSecretsTest, OtherSealedSettingsOpenInTheirOwnColumnOnly) {
  ASSERT_OK_AND_ASSIGN(const KeyRing keys, KeyRing::Parse(KeyRing::NewKeyLine("k1")));
  const auto customer = MakeId<CustomerId>(1);
  const auto endpoint = MakeId<EndpointId>(2);
  const std::string sealed = SealSetting(keys, customer, endpoint, SealedSetting::kAuth, "s3cret");
  EXPECT_FALSE(absl::StrContains(sealed, "s3cret"));
  ASSERT_OK_AND_ASSIGN(const std::string opened,
                       OpenSetting(keys, customer, endpoint, SealedSetting::kAuth, sealed));
  EXPECT_EQ(opened, "s3cret");
  EXPECT_THAT(OpenSetting(keys, customer, endpoint, SealedSetting::kTlsKey, sealed),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(OpenEndpointSecrets(keys, customer, endpoint, sealed),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(OpenSetting(keys, customer, MakeId<EndpointId>(3), SealedSetting::kAuth, sealed),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(EndpointSecretsTest, RotationLetsTheOldOnesRunOut) {
  std::vector<EndpointSecret> secrets = {{"a", WallTimeFromMillis(0), absl::nullopt}};
  secrets =
      RotateSecrets(std::move(secrets), "b", WallTimeFromMillis(1000), std::chrono::seconds(10));
  ASSERT_THAT(secrets, SizeIs(2));
  EXPECT_EQ(secrets[0].secret, "b");
  EXPECT_EQ(*secrets[1].expires_at, WallTimeFromMillis(11'000));
  // A longer overlap later does not lengthen a life.
  secrets =
      RotateSecrets(std::move(secrets), "c", WallTimeFromMillis(2000), std::chrono::seconds(100));
  ASSERT_THAT(secrets, SizeIs(3));
  EXPECT_EQ(*secrets[2].expires_at, WallTimeFromMillis(11'000));
  EXPECT_EQ(*secrets[1].expires_at, WallTimeFromMillis(102'000));
  // No overlap: the old ones are gone at once.
  secrets =
      RotateSecrets(std::move(secrets), "d", WallTimeFromMillis(3000), std::chrono::seconds(0));
  ASSERT_THAT(secrets, SizeIs(1));
  EXPECT_EQ(secrets[0].secret, "d");
  for (int i = 0; i < 20; ++i) {
    secrets = RotateSecrets(std::move(secrets), absl::StrCat("n", i), WallTimeFromMillis(4000),
                            std::chrono::hours(1));
  }
  EXPECT_THAT(secrets, SizeIs(kEndpointSecretsMax));
  EXPECT_EQ(secrets[0].secret, "n19");
}

}  // namespace
}  // namespace postrider::subscriptions
