// As many subscriptions as there may be (1,000,000 with POSTRIDER_CASES_SCALE=10), from PostgreSQL
// to what the matcher looks them up in: the memory of each, and what that takes.

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/metrics.h"
#include "subscriptions/matching/index.h"
#include "subscriptions/registry/snapshot_loader.h"
#include "tests/subscriptions/registry/registry_fixture.h"

namespace postrider::subscriptions {
namespace {

using tests::RunUntil;

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

class ManySubscriptionsTest : public RegistryFixture {
 protected:
  // The snapshot, the matcher's index of it, and how long they took.
  struct Loaded {
    std::shared_ptr<const MatchIndex> index;
    double load_seconds = 0;
    double index_seconds = 0;
  };

  double SecondsSince(MonotonicTime begin) const {
    return std::chrono::duration<double>(clock_.Now() - begin).count();
  }
  void Start() {
    ConnectionOptions connection;
    connection.url = database_->options().reader_url;
    connection.check_sql = VersionCheckSql();
    loader_ = std::make_unique<SnapshotLoader>(
        *loop_, connection, SnapshotLoaderOptions(), metrics_, 1,
        [this](std::shared_ptr<const Snapshot> snapshot) { last_ = std::move(snapshot); });
  }
  template <typename Done>
  Loaded LoadedWhen(Done done) {
    const MonotonicTime begin = clock_.Now();
    if (loader_ == nullptr) Start();
    EXPECT_TRUE(RunUntil(
        *loop_, [&] { return last_ != nullptr && done(*last_); }, std::chrono::minutes(2)));
    Loaded loaded;
    loaded.load_seconds = SecondsSince(begin);
    const MonotonicTime loaded_at = clock_.Now();
    loaded.index = MatchIndex::Build(std::move(last_));
    loaded.index_seconds = SecondsSince(loaded_at);
    return loaded;
  }

  Metrics metrics_;
  std::shared_ptr<const Snapshot> last_;
  std::unique_ptr<SnapshotLoader> loader_;
};

TEST_F(ManySubscriptionsTest, EachTakesAtMost200BytesAndTheyAreLoadedInSeconds) {
  const char* scale = std::getenv("POSTRIDER_CASES_SCALE");
  const int64_t count = 100'000 * std::clamp(scale == nullptr ? 1 : std::atoi(scale), 1, 10);
  const CustomerId customer = MakeCustomer({"t0"});
  MakeEndpoint(customer);
  auto session = BlockingSession::Open(database_->options().api_url);
  ASSERT_OK(session);
  BlockingSession& sql = **session;
  // 200 customers, 30,000 tenants of theirs, 10,000 endpoints.
  ASSERT_OK(sql.Script(R"(
      SET postrider.operator = 'on';
      CREATE TEMP TABLE c AS SELECT n, gen_random_uuid() AS id FROM generate_series(0, 199) AS n;
      INSERT INTO postrider.customers (id, name, changed_xid)
        SELECT id, 'c' || n, pg_current_xact_id() FROM c;
      INSERT INTO postrider.grants (customer_id, tenant, changed_xid)
        SELECT c.id, 't' || g.n * 200 + c.n, pg_current_xact_id()
        FROM c, generate_series(0, 149) AS g (n);
      CREATE TEMP TABLE e AS SELECT n, gen_random_uuid() AS id,
        (SELECT id FROM c WHERE c.n = e.n % 200) AS customer_id
        FROM generate_series(0, 9999) AS e (n);
      CREATE TEMP TABLE p AS SELECT to_jsonb(p) AS row FROM postrider.endpoints AS p LIMIT 1;
      INSERT INTO postrider.endpoints
        SELECT (jsonb_populate_record(NULL::postrider.endpoints,
          p.row || jsonb_build_object('id', e.id, 'customer_id', e.customer_id))).* FROM p, e;
      CREATE UNIQUE INDEX ON e (n);
      ANALYZE e)"));
  const auto has_endpoints = [](const Snapshot& s) { return s.endpoints().size() == 10'001; };
  const size_t nothing = HeapBytes();
  Loaded loaded = LoadedWhen(has_endpoints);
  const size_t without = HeapBytes() - nothing;
  loaded = Loaded();
  loader_.reset();
  loop_->RunOnce(Duration::zero());

  // Of two event types each; one in five to all that is granted, the others to one or two tenants.
  ASSERT_OK(sql.Script(absl::StrCat(R"(
      INSERT INTO postrider.subscriptions (id, customer_id, endpoint_id, event_types, scope_kind,
                                           tenants, changed_xid)
        SELECT gen_random_uuid(), e.customer_id, e.id,
               ARRAY['order.type-' || i % 499, 'order.type-' || (i / 7 + 1) % 499],
               CASE WHEN i % 5 = 0 THEN 'granted' ELSE 'tenants' END,
               CASE WHEN i % 5 = 0 THEN '{}'
                    WHEN i % 5 = 1 THEN ARRAY['t' || (i / 11 % 150) * 200 + e.n % 200,
                                              't' || (i / 13 % 150) * 200 + e.n % 200]
                    ELSE ARRAY['t' || (i / 11 % 150) * 200 + e.n % 200] END,
               pg_current_xact_id()
        FROM generate_series(1, )",
                                    count, R"() AS i JOIN e ON e.n = i % 10000)")));
  const auto has_all = [count](const Snapshot& s) {
    return s.subscriptions().size() == static_cast<size_t>(count);
  };
  const size_t before = HeapBytes();
  loaded = LoadedWhen(has_all);
  const size_t with = HeapBytes() - before;
  const Snapshot& snapshot = loaded.index->snapshot();
  ASSERT_TRUE(has_all(snapshot));
  const double each =
      (static_cast<double>(with) - static_cast<double>(without)) / static_cast<double>(count);
  const double told = static_cast<double>(snapshot.memory_bytes() + loaded.index->memory_bytes()) /
                      static_cast<double>(count);
  std::printf(
      "%lld subscriptions: loaded in %.2f s, indexed in %.2f s; %.0f bytes each (%.0f as it is "
      "told, endpoints and grants included)\n",
      static_cast<long long>(count), loaded.load_seconds, loaded.index_seconds, each, told);
  EXPECT_LE(each, 200);
  // They match.
  const auto found =
      std::find_if(snapshot.subscriptions().begin(), snapshot.subscriptions().end(),
                   [](const SubscriptionEntry& one) { return one.scope == ScopeKind::kTenants; });
  ASSERT_NE(found, snapshot.subscriptions().end());
  std::vector<Match> matches;
  loaded.index->Find(loaded.index->PatternsOf(snapshot.StringOf(snapshot.EventTypesOf(*found)[0])),
                     snapshot.StringOf(snapshot.TenantsOf(*found)[0]), absl::nullopt, &matches);
  EXPECT_TRUE(std::any_of(matches.begin(), matches.end(), [&](const Match& match) {
    return match.endpoint_index == found->endpoint_index;
  }));

  // One more: what a change of one row takes when there are so many.
  const Loaded& old = loaded;
  ASSERT_OK(sql.Script(
      "INSERT INTO postrider.subscriptions (id, customer_id, endpoint_id, event_types, scope_kind, "
      "changed_xid) SELECT gen_random_uuid(), customer_id, id, ARRAY['one.more'], 'granted', "
      "pg_current_xact_id() FROM e WHERE n = 0"));
  const Loaded changed = LoadedWhen([count](const Snapshot& s) {
    return s.subscriptions().size() == static_cast<size_t>(count) + 1;
  });
  EXPECT_EQ(old.index->snapshot().subscriptions().size() + 1,
            changed.index->snapshot().subscriptions().size());
  std::printf("one more: known in %.2f s, indexed in %.2f s\n", changed.load_seconds,
              changed.index_seconds);
}

}  // namespace
}  // namespace postrider::subscriptions
