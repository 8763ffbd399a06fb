// Row-level security, role by role, on the real schema.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/postgres/blocking.h"
#include "migrations/runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace postrider {
namespace {

using tests::StatusIs;
using tests::TestDatabase;

constexpr char kCustomerA[] = "0192f3c4-5e6a-7000-8000-00000000000a";
constexpr char kCustomerB[] = "0192f3c4-5e6a-7000-8000-00000000000b";
constexpr char kEndpointA[] = "0192f3c4-5e6a-7000-8000-0000000000ea";
constexpr char kEndpointB[] = "0192f3c4-5e6a-7000-8000-0000000000eb";

class WallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create());
    ASSERT_OK(Migrate(database_->options()));
    ASSERT_OK_AND_ASSIGN(api_, BlockingSession::Open(database_->options().api_url));
    ASSERT_OK_AND_ASSIGN(indexer_, BlockingSession::Open(database_->options().indexer_url));
    ASSERT_OK_AND_ASSIGN(reader_, BlockingSession::Open(database_->options().reader_url));
    ASSERT_OK(As("postrider.operator", "on"));
    for (const char* customer : {kCustomerA, kCustomerB}) {
      ASSERT_OK(api_->Script(absl::StrCat(
          "INSERT INTO postrider.customers (id, name) VALUES ('", customer, "', 'n');",
          "INSERT INTO postrider.grants (customer_id, tenant) VALUES ('", customer, "', 't1');",
          "INSERT INTO postrider.api_keys (key_id, secret_sha256, scope, customer_id) VALUES ('",
          "key00000000", absl::string_view(customer).substr(35), "', sha256('x'), 'customer', '",
          customer, "')")));
    }
    ASSERT_OK(InsertEndpoint(kCustomerA, kEndpointA));
    ASSERT_OK(InsertEndpoint(kCustomerB, kEndpointB));
    ASSERT_OK(indexer_->Script(absl::StrCat(LetterSql(kCustomerA, kEndpointA, "a"), ";",
                                            LetterSql(kCustomerB, kEndpointB, "b"))));
    ASSERT_OK(indexer_->Script("SELECT postrider.keep_attempt_days(14)"));
    for (const auto& [customer, endpoint] :
         {std::pair(kCustomerA, kEndpointA), std::pair(kCustomerB, kEndpointB)}) {
      ASSERT_OK(indexer_->Script(absl::StrCat(
          "INSERT INTO postrider.endpoint_status (endpoint_id, part, customer_id, observed_at, "
          "state) VALUES ('",
          endpoint, "', 0, '", customer, "', now(), 'healthy');",
          "INSERT INTO postrider.attempts (day, id, customer_id, endpoint_id, message_id, "
          "messages, attempt, started_at, duration_ms, outcome, status, response, tenants) VALUES "
          "(current_date, gen_random_uuid(), '",
          customer, "', '", endpoint, "', 'msg_x', 1, 1, now(), 5, 'gone', 410, '', '{t1}')")));
    }
    ASSERT_OK(Nobody());
  }

  static std::string LetterSql(const char* customer, const char* endpoint, const char* id) {
    return absl::StrCat(
        "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, "
        "event_id, type, tenant, event_time, reason, attempts, data) SELECT "
        "postrider.letter_day(l.id), l.id, '",
        customer, "', '", endpoint,
        "', 'msg_x', '\\x00', 't', 't1', now(), 'gone', 1, '\\x7b7d' FROM (SELECT "
        "'0192f3c4-5e6a-7000-8000-00000000001",
        id, "'::uuid AS id) AS l");
  }

  absl::Status InsertEndpoint(const char* customer, const char* endpoint) {
    return api_->Script(absl::StrCat(
        "INSERT INTO postrider.endpoints (id, customer_id, url, mode, events_max, bytes_max, "
        "wait_max_ms, attempts, horizon_ms, first_delay_ms, factor, cap_ms, window_max, "
        "timeout_ms, secrets_sealed) VALUES ('",
        endpoint, "', '", customer,
        "', 'https://example.com/', 'batch', 1000, 1048576, 1000, 5, 60000, 1000, 2, 20000, 32, "
        "15000, '\\x01')"));
  }

  absl::Status Nobody() {
    return api_->Script(
        "RESET postrider.operator; RESET postrider.customer_id; RESET "
        "postrider.key_id");
  }
  absl::Status As(const char* setting, const char* value) {
    RETURN_IF_ERROR(Nobody());
    return api_->Script(absl::StrCat("SET ", setting, " = '", value, "'"));
  }

  static std::string Count(BlockingSession& session, const std::string& table) {
    auto result = session.Query(absl::StrCat("SELECT count(*) FROM postrider.", table));
    return result.ok() ? std::string(result->text(0, 0)) : SqlState(result.status());
  }
  std::string Touched(const std::string& sql) {
    auto result = api_->Query(sql);
    return result.ok() ? absl::StrCat(result->affected()) : SqlState(result.status());
  }

  std::unique_ptr<TestDatabase> database_;
  std::unique_ptr<BlockingSession> api_;
  std::unique_ptr<BlockingSession> indexer_;
  std::unique_ptr<BlockingSession> reader_;
};

constexpr const char* kTables[] = {
    "customers",    "grants",          "endpoints", "subscriptions", "api_keys",
    "dead_letters", "endpoint_status", "attempts",  "erasures",      "idempotency_keys"};

TEST_F(WallsTest, WithoutASettingOrWithAnEmptyOneTheApiIsNobody) {
  for (const char* setting :
       {"", "postrider.customer_id", "postrider.operator", "postrider.key_id"}) {
    if (*setting != '\0') {
      ASSERT_OK(As(setting, ""));
    }
    for (const char* table : kTables) EXPECT_EQ(Count(*api_, table), "0") << setting << table;
    EXPECT_EQ(Touched("UPDATE postrider.endpoints SET url = 'https://evil.example/'"), "0");
    EXPECT_EQ(Touched("UPDATE postrider.dead_letters SET state = 'leased'"), "0");
    EXPECT_THAT(InsertEndpoint(kCustomerA, "0192f3c4-5e6a-7000-8000-0000000000ff"),
                StatusIs(absl::StatusCode::kPermissionDenied));
    EXPECT_EQ(Touched("INSERT INTO postrider.event_types (name) VALUES ('x')"), "42501");
  }
}

TEST_F(WallsTest, ACustomerSeesAndChangesItsOwnRowsOnly) {
  ASSERT_OK(As("postrider.customer_id", kCustomerA));
  EXPECT_EQ(Count(*api_, "customers"), "1");
  EXPECT_EQ(Count(*api_, "grants"), "2") << "one of them came with the customer";
  EXPECT_EQ(Count(*api_, "endpoints"), "1");
  EXPECT_EQ(Count(*api_, "dead_letters"), "1");
  EXPECT_EQ(Count(*api_, "endpoint_status"), "1");
  EXPECT_EQ(Count(*api_, "attempts"), "1");
  EXPECT_EQ(Touched("UPDATE postrider.endpoint_status SET state = 'paused'"), "42501");
  EXPECT_EQ(Touched("UPDATE postrider.attempts SET status = 200"), "42501");
  EXPECT_EQ(Count(*api_, "api_keys"), "0") << "keys are the operator's";
  EXPECT_EQ(Touched("UPDATE postrider.endpoints SET description = 'mine'"), "1");
  EXPECT_EQ(
      Touched(absl::StrCat("UPDATE postrider.endpoints SET customer_id = '", kCustomerB, "'")),
      "42501")
      << "nor can a row be given away";
  EXPECT_THAT(InsertEndpoint(kCustomerB, "0192f3c4-5e6a-7000-8000-0000000000ff"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(Touched("UPDATE postrider.customers SET name = 'x'"), "0");
  EXPECT_EQ(Touched("UPDATE postrider.grants SET deleted_at = now()"), "42501");
  EXPECT_EQ(Touched(absl::StrCat("INSERT INTO postrider.grants (customer_id, tenant) VALUES ('",
                                 kCustomerA, "', 't2')")),
            "42501")
      << "a customer grants itself nothing";
  // Not even another customer's endpoint under its own name.
  EXPECT_EQ(Touched(absl::StrCat(
                "INSERT INTO postrider.subscriptions (id, customer_id, endpoint_id, event_types, "
                "scope_kind) VALUES (gen_random_uuid(), '",
                kCustomerA, "', '", kEndpointB, "', '{a}', 'granted')")),
            "23503");
}

TEST_F(WallsTest, NobodyIsGrantedTheReservedTenantOfAnother) {
  ASSERT_OK(As("postrider.operator", "on"));
  const auto grant = [this](const char* customer, const char* of) {
    return Touched(absl::StrCat("INSERT INTO postrider.grants (customer_id, tenant) SELECT '",
                                customer, "', postrider.reserved_tenant('", of, "')"));
  };
  EXPECT_EQ(grant(kCustomerA, kCustomerB), "23514");
  EXPECT_EQ(grant(kCustomerA, kCustomerA), "23505") << "its own it has";
  EXPECT_EQ(Touched(absl::StrCat("UPDATE postrider.grants SET tenant = 'customer:x' WHERE "
                                 "customer_id = '",
                                 kCustomerA, "' AND tenant = 't1'")),
            "23514");
}

TEST_F(WallsTest, AKeyLookupSeesThatKeyAndItsCustomer) {
  ASSERT_OK(As("postrider.key_id", "key00000000a"));
  EXPECT_EQ(Count(*api_, "api_keys"), "1");
  EXPECT_EQ(Count(*api_, "customers"), "1");
  EXPECT_EQ(Count(*api_, "endpoints"), "0");
  EXPECT_EQ(Touched("UPDATE postrider.api_keys SET scope = 'operator', customer_id = NULL"), "0");
}

TEST_F(WallsTest, TheOperatorSeesAllButLetters) {
  ASSERT_OK(As("postrider.operator", "on"));
  EXPECT_EQ(Count(*api_, "customers"), "2");
  EXPECT_EQ(Count(*api_, "endpoints"), "2");
  EXPECT_EQ(Count(*api_, "api_keys"), "2");
  EXPECT_EQ(Count(*api_, "dead_letters"), "0");
}

TEST_F(WallsTest, AStoredAnswerIsItsOwners) {
  const auto insert = [this](const std::string& owner, const std::string& customer) {
    return Touched(absl::StrCat(
        "INSERT INTO postrider.idempotency_keys (owner, route, key_sha256, customer_id, "
        "answer_sealed) VALUES ('",
        owner, "', 'r', sha256('k'), ", customer, ", '\\x01')"));
  };
  const std::string a = absl::StrCat("'", kCustomerA, "'");
  const std::string b = absl::StrCat("'", kCustomerB, "'");
  ASSERT_OK(As("postrider.operator", "on"));
  EXPECT_EQ(insert("operators_ke", a), "1") << "one that tells of the customer";
  ASSERT_OK(As("postrider.customer_id", kCustomerA));
  EXPECT_EQ(Count(*api_, "idempotency_keys"), "0") << "is the operator's";
  EXPECT_EQ(insert(kCustomerA, a), "1");
  EXPECT_EQ(insert(kCustomerB, b), "42501");
  EXPECT_EQ(insert("operators_k2", a), "42501");
  EXPECT_EQ(Touched(absl::StrCat("UPDATE postrider.idempotency_keys SET customer_id = ", b)),
            "42501");
  ASSERT_OK(As("postrider.customer_id", kCustomerB));
  EXPECT_EQ(Count(*api_, "idempotency_keys"), "0");
  EXPECT_EQ(Touched("UPDATE postrider.idempotency_keys SET created_at = now()"), "0");
  ASSERT_OK(As("postrider.key_id", "key00000000a"));
  EXPECT_EQ(Count(*api_, "idempotency_keys"), "0");
  EXPECT_EQ(Count(*reader_, "idempotency_keys"), "42501");
  // The indexer deletes them and reads no answer.
  EXPECT_EQ(Count(*indexer_, "idempotency_keys"), "2");
  for (const char* sql : {"SELECT answer_sealed FROM postrider.idempotency_keys",
                          "UPDATE postrider.idempotency_keys SET created_at = now()"}) {
    EXPECT_THAT(indexer_->Script(sql), StatusIs(absl::StatusCode::kPermissionDenied));
  }
  ASSERT_OK(indexer_->Script("DELETE FROM postrider.idempotency_keys WHERE route = 'r'"));
  EXPECT_EQ(Count(*indexer_, "idempotency_keys"), "0");
}

TEST_F(WallsTest, NobodyDeletesRowsOrReachesAPartition) {
  ASSERT_OK(As("postrider.operator", "on"));
  for (const char* table : kTables) {
    EXPECT_EQ(Touched(absl::StrCat("DELETE FROM postrider.", table)), "42501");
    EXPECT_EQ(Touched(absl::StrCat("TRUNCATE postrider.", table)), "42501");
  }
  EXPECT_EQ(Count(*api_, "dead_letters_default"), "42501");
  EXPECT_EQ(Count(*indexer_, "dead_letters_default"), "42501");
  EXPECT_EQ(Touched("ALTER TABLE postrider.endpoints DISABLE ROW LEVEL SECURITY"), "42501");
  EXPECT_EQ(Touched("SET ROLE " + database_->role("owner")), "42501");
  EXPECT_EQ(Touched("SELECT postrider.ensure_letter_days(current_date, current_date)"), "42501");
  EXPECT_EQ(Touched("CREATE TABLE postrider.x (n integer)"), "42501");
  // Switching the walls off makes a statement fail, not see.
  ASSERT_OK(api_->Script("SET row_security = off"));
  EXPECT_EQ(Count(*api_, "endpoints"), "42501");
}

TEST_F(WallsTest, TheOwnerIsHeldByTheWallsToo) {
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database_->options().url));
  for (const char* table : kTables) EXPECT_EQ(Count(*owner, table), "0") << table;
}

TEST_F(WallsTest, TheIndexerWritesLettersAndNothingElse) {
  EXPECT_EQ(Count(*indexer_, "dead_letters"), "2");
  for (const char* table :
       {"customers", "grants", "endpoints", "subscriptions", "api_keys", "event_types"}) {
    EXPECT_EQ(Count(*indexer_, table), "0") << table << ": what was deleted long ago, to purge it";
    ASSERT_OK(indexer_->Script(absl::StrCat("DELETE FROM postrider.", table)));
  }
  EXPECT_THAT(indexer_->Script("SELECT secrets_sealed FROM postrider.endpoints"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(indexer_->Script("UPDATE postrider.endpoints SET enabled = false"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  ASSERT_OK(As("postrider.operator", "on"));
  EXPECT_EQ(Count(*api_, "customers"), "2");
  EXPECT_EQ(Count(*api_, "endpoints"), "2");
  EXPECT_EQ(Count(*api_, "api_keys"), "2");
  EXPECT_EQ(Count(*indexer_, "erasures"), "0");
  EXPECT_FALSE(indexer_
                   ->Script("INSERT INTO postrider.erasures (id, tenant) VALUES "
                            "(gen_random_uuid(), 't')")
                   .ok())
      << "it erases what others ask for";
  ASSERT_OK(indexer_->Script(
      "INSERT INTO postrider.indexer_offsets (topic, partition, next_offset) VALUES ('t', 0, 5)"));
  ASSERT_OK(indexer_->Script("CREATE TEMP TABLE incoming (id uuid)"));
}

TEST_F(WallsTest, TheReaderReadsDesiredStateAndWritesNothing) {
  EXPECT_EQ(Count(*reader_, "customers"), "2");
  EXPECT_EQ(Count(*reader_, "grants"), "4");
  EXPECT_EQ(Count(*reader_, "endpoints"), "2");
  EXPECT_EQ(Count(*reader_, "api_keys"), "42501");
  EXPECT_EQ(Count(*reader_, "dead_letters"), "42501");
  EXPECT_THAT(reader_->Script("UPDATE postrider.endpoints SET url = 'x'"),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(WallsTest, ADayOfLettersGoesWhenNoneOfItIsYoung) {
  ASSERT_OK(indexer_->Script(
      "SELECT postrider.ensure_letter_days(current_date - 20, current_date - 10)"));
  const auto put = [this](int days_ago, const char* created_at) {
    ASSERT_OK(indexer_->Script(absl::StrCat(
        "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, "
        "event_id, type, tenant, event_time, reason, attempts, data, created_at) VALUES "
        "(current_date - ",
        days_ago, ", gen_random_uuid(), '", kCustomerA, "', '", kEndpointA,
        "', 'msg_z', '', 't', 't1', now(), 'gone', 1, '', ", created_at, ")")));
  };
  put(20, "now() - interval '15 days'");
  put(19, "now() - interval '15 days'");
  put(19, "now() - interval '13 days'");
  put(12, "now() - interval '15 days'");
  const auto drop = [this] {
    auto dropped = indexer_->Query("SELECT postrider.drop_letter_days(14)");
    return dropped.ok() ? std::string(dropped->text(0, 0)) : SqlState(dropped.status());
  };
  // 20, 18, 17 and 16 days ago.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(drop(), "1");
  EXPECT_EQ(drop(), "0");
  EXPECT_EQ(Count(*indexer_, "dead_letters WHERE message_id = 'msg_z'"), "3");
  // One that is of such a day all the same.
  ASSERT_OK_AND_ASSIGN(QueryResult made,
                       indexer_->Query("SELECT postrider.ensure_letter_days(current_date - 20, "
                                       "current_date - 20)"));
  EXPECT_EQ(made.text(0, 0), "1");
  // By nobody's word is a day dropped that may have young ones.
  ASSERT_OK(indexer_->Script("SELECT postrider.drop_letter_day(current_date - 12)"));
  EXPECT_EQ(Count(*indexer_, "dead_letters WHERE day = current_date - 12"), "1");
  EXPECT_EQ(Touched("SELECT postrider.drop_letter_days(14)"), "42501");
  EXPECT_EQ(Touched("SELECT postrider.purge_some(10)"), "42501");
}

TEST_F(WallsTest, LettersGetAPartitionPerDay) {
  ASSERT_OK_AND_ASSIGN(
      QueryResult made,
      indexer_->Query("SELECT postrider.ensure_letter_days(current_date - 1, current_date + 100)"));
  EXPECT_EQ(made.text(0, 0), "9") << "yesterday, today and seven days ahead";
  ASSERT_OK_AND_ASSIGN(
      made, indexer_->Query("SELECT postrider.ensure_letter_days(current_date - 1, current_date)"));
  EXPECT_EQ(made.text(0, 0), "0");
  // Today's letters stand in today's partition, behind the same wall.
  ASSERT_OK(indexer_->Script(absl::StrCat(
      "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, "
      "event_id, type, tenant, event_time, reason, attempts, data) VALUES (current_date, "
      "gen_random_uuid(), '",
      kCustomerA, "', '", kEndpointA, "', 'msg_y', '', 't', 't1', now(), 'gone', 1, '')")));
  ASSERT_OK_AND_ASSIGN(QueryResult where,
                       indexer_->Query("SELECT tableoid::regclass::text = "
                                       "'postrider.dead_letters_' || to_char(current_date, "
                                       "'YYYYMMDD') FROM postrider.dead_letters WHERE message_id "
                                       "= 'msg_y'"));
  EXPECT_EQ(where.text(0, 0), "t");
  ASSERT_OK(As("postrider.customer_id", kCustomerB));
  EXPECT_EQ(Count(*api_, "dead_letters"), "1");
}

TEST_F(WallsTest, AttemptsHaveAPartitionPerDayUntilTheyAreOld) {
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database_->options().url));
  ASSERT_OK(
      owner->Script("CREATE TABLE postrider.attempts_20200101 PARTITION OF postrider.attempts "
                    "FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')"));
  const auto keep = [&](int days) {
    auto result = indexer_->Query(absl::StrCat("SELECT postrider.keep_attempt_days(", days, ")"));
    EXPECT_OK(result);
    return result.ok() ? std::string(result->text(0, 0)) : "";
  };
  EXPECT_EQ(keep(14), "1") << "the old one is dropped";
  EXPECT_EQ(keep(14), "0");
  EXPECT_EQ(keep(3), "11") << "those of fourteen to four days ago";
  EXPECT_EQ(keep(4), "1");
  EXPECT_EQ(Count(*indexer_, "attempts"), "2");
  EXPECT_EQ(Touched("SELECT postrider.keep_attempt_days(1)"), "42501");
  ASSERT_OK_AND_ASSIGN(
      const QueryResult walls,
      owner->Query(
          "SELECT count(*) FROM pg_class WHERE relname ~ '^attempts_2' AND relkind = 'r' AND NOT "
          "(relrowsecurity AND relforcerowsecurity)"));
  EXPECT_EQ(walls.text(0, 0), "0");
}

TEST_F(WallsTest, EachChangeRaisesTheGenerationAndNamesItsTransaction) {
  ASSERT_OK(As("postrider.operator", "on"));
  ASSERT_OK(
      api_->Script("UPDATE postrider.customers SET name = 'm', generation = 99, changed_xid = "
                   "'1', created_at = 'epoch'"));
  ASSERT_OK_AND_ASSIGN(
      QueryResult seen,
      api_->Query("SELECT bool_and(generation = 2), bool_and(changed_xid > '1'::xid8), "
                  "bool_and(created_at > 'epoch') FROM postrider.customers"));
  EXPECT_EQ(seen.text(0, 0), "t");
  EXPECT_EQ(seen.text(0, 1), "t");
  EXPECT_EQ(seen.text(0, 2), "t");
}

}  // namespace
}  // namespace postrider
