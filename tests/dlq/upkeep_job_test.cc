#include "dlq/upkeep_job.h"

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/dlq/letter_database.h"

namespace postrider::dlq {
namespace {

using std::chrono::milliseconds;
using subscriptions::CustomerId;
using subscriptions::EndpointId;
using tests::RunUntil;

class UpkeepJobTest : public LetterDatabaseTest {
 protected:
  void SetUp() override {
    LetterDatabaseTest::SetUp();
    ASSERT_OK_AND_ASSIGN(operator_, BlockingSession::Open(database()->options().api_url));
    ASSERT_OK(operator_->Script("SET postrider.operator = 'on'"));
    ASSERT_OK(operator_->Script(absl::StrCat("INSERT INTO postrider.customers (id, name) VALUES ('",
                                             Customer(), "', 'A')")));
    ASSERT_EQ(Ask("SELECT postrider.keep_attempt_days(14) >= 0"), "t");
    pool_ = std::make_unique<Pool>(*loop_, PoolFor(database()->options().indexer_url), 1);
  }
  void TearDown() override {
    job_.reset();
    if (pool_ == nullptr) return;
    EXPECT_TRUE(RunUntil(*loop_, [this] { return pool_->in_use() == 0; }));
    pool_.reset();
    loop_->RunOnce(Duration::zero());
  }

  std::string Customer() const { return customer_.ToUuid(); }
  // `seconds` from now; its id says so too.
  void PutLetter(const std::string& tenant, const std::string& event, int seconds) {
    const std::string id =
        absl::StrCat("(lpad(to_hex(postrider.millis(now() + interval '", seconds,
                     " seconds')), 12, '0') || substr(md5(random()::text), 1, 20))::uuid");
    ASSERT_OK(indexer_->Script(absl::StrCat(
        "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, "
        "event_id, type, tenant, event_time, reason, attempts, data) SELECT "
        "postrider.letter_day(x.id), x.id, '",
        Customer(), "', '", endpoint_.ToUuid(), "', 'msg_", event, "', '", event, "', 'ty', '",
        tenant, "', now(), 'gone', 1, '{}' FROM (SELECT ", id, " AS id) x")));
  }
  void PutAttempt(const std::string& tenant, const std::string& message) {
    ASSERT_OK(indexer_->Script(absl::StrCat(
        "INSERT INTO postrider.attempts (day, id, customer_id, endpoint_id, message_id, messages, "
        "attempt, started_at, duration_ms, outcome, status, response, tenants) VALUES ((now() AT "
        "TIME ZONE 'UTC')::date, gen_random_uuid(), '",
        Customer(), "', '", endpoint_.ToUuid(), "', '", message,
        "', 1, 1, now() - interval '1 minute', 5, 'timeout', 0, '', ARRAY['", tenant, "', 'x'])")));
  }
  void Begin() {
    UpkeepLimits limits;
    limits.rows_max = 7;
    limits.between_steps = limits.after_failure = milliseconds(5);
    limits.when_idle.fill(milliseconds(5));
    job_ = std::make_unique<UpkeepJob>(*loop_, *pool_, upkeep_metrics_, limits);
  }
  bool Erased(const std::string& id) {
    return RunUntil(*loop_, [&] {
      return Ask(absl::StrCat("SELECT state FROM postrider.erasures WHERE id = '", id, "'")) ==
             "erased";
    });
  }
  std::string Letters(const std::string& where) {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.dead_letters WHERE customer_id = '",
                            Customer(), "' AND ", where));
  }
  // An operator's that tells of the customer, and the customer's own.
  void PutAnswers(const std::string& key, const std::string& age) {
    ASSERT_OK(operator_->Script(absl::StrCat(
        "INSERT INTO postrider.idempotency_keys (owner, route, key_sha256, customer_id, "
        "answer_sealed, created_at) SELECT owner, '",
        Customer(), "', sha256('", key, "'), '", Customer(), "', '\\x01', now() - interval '", age,
        "' FROM (VALUES ('", Customer(), "'), ('operators_ke')) AS v(owner)")));
  }
  std::string Answers(const std::string& where) {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.idempotency_keys WHERE customer_id = '",
                            Customer(), "' AND ", where));
  }
  std::string Attempts(const std::string& where) {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.attempts WHERE customer_id = '",
                            Customer(), "' AND ", where));
  }

  Metrics metrics_;
  UpkeepMetrics upkeep_metrics_{metrics_};
  std::unique_ptr<BlockingSession> operator_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<UpkeepJob> job_;
};

TEST_F(UpkeepJobTest, DeletesWhatATenantHadUntilTheWishAndNothingElse) {
  const std::string tenant = absl::StrCat("t-", Customer());
  for (int i = 0; i < 20; ++i) PutLetter(tenant, absl::StrCat("e", i), -60);
  for (int i = 0; i < 3; ++i) PutLetter(tenant, absl::StrCat("late", i), 60);
  for (int i = 0; i < 4; ++i) PutLetter("other", absl::StrCat("o", i), -60);
  for (int i = 0; i < 9; ++i) PutAttempt(tenant, "msg_x");
  PutAttempt("other", "msg_x");
  const std::string wish = Wish("tenant", absl::StrCat("'", tenant, "'"), 20);
  Begin();
  ASSERT_TRUE(Erased(wish));
  EXPECT_EQ(Letters(absl::StrCat("tenant = '", tenant, "'")), "3");
  EXPECT_EQ(Letters("tenant = 'other'"), "4");
  EXPECT_EQ(Attempts("true"), "1");
  EXPECT_EQ(Ask(absl::StrCat("SELECT letters || ' ' || attempts || ' ' || (erased_at IS NOT NULL) "
                             "FROM postrider.erasures WHERE id = '",
                             wish, "'")),
            "20 9 true");
  EXPECT_GE(upkeep_metrics_.gone[0]->value(), 29);
}

TEST_F(UpkeepJobTest, DeletesTheLettersOfAnEventAndTheAttemptsOfItsMessages) {
  PutLetter("t1", "wanted", -60);
  PutLetter("t1", "kept", -60);
  PutAttempt("t1", "msg_wanted");
  PutAttempt("t1", "msg_kept");
  const std::string wish =
      Wish("customer_id, event_id", absl::StrCat("'", Customer(), "', 'wanted'"), 20);
  Begin();
  ASSERT_TRUE(Erased(wish));
  EXPECT_EQ(Letters("event_id = 'wanted'"), "0");
  EXPECT_EQ(Letters("event_id = 'kept'"), "1");
  EXPECT_EQ(Attempts("message_id = 'msg_wanted'"), "0");
  EXPECT_EQ(Attempts("message_id = 'msg_kept'"), "1");
}

TEST_F(UpkeepJobTest, DeletesAllThatIsLeftOfADeletedCustomer) {
  PutLetter("t1", "e", -60);
  PutAttempt("t1", "msg_e");
  ASSERT_OK(indexer_->Script(absl::StrCat(
      "INSERT INTO postrider.endpoint_status (customer_id, endpoint_id, part, observed_at, state) "
      "VALUES ('",
      Customer(), "', '", endpoint_.ToUuid(), "', 0, now(), 'healthy')")));
  const std::string status = absl::StrCat(
      "SELECT count(*) FROM postrider.endpoint_status WHERE customer_id = '", Customer(), "'");
  for (int i = 0; i < 9; ++i) PutAnswers(absl::StrCat("k", i), "1 second");
  const std::string first = Wish("customer_id", absl::StrCat("'", Customer(), "'"), 20);
  Begin();
  ASSERT_TRUE(Erased(first));
  EXPECT_EQ(Letters("true"), "0");
  EXPECT_EQ(Attempts("true"), "0");
  EXPECT_EQ(Ask(status), "1") << "its endpoint is there still";
  EXPECT_EQ(Answers("true"), "18");
  const std::string second =
      Wish("customer_id, of_deleted", absl::StrCat("'", Customer(), "', true"), 20);
  ASSERT_TRUE(Erased(second));
  EXPECT_EQ(Ask(status), "0");
  EXPECT_EQ(Answers("true"), "0");
}

TEST_F(UpkeepJobTest, PurgesStoredAnswersThatAreADayOld) {
  for (int i = 0; i < 9; ++i) PutAnswers(absl::StrCat("old", i), "24 hours");
  PutAnswers("young", "23 hours 59 minutes");
  Begin();
  EXPECT_TRUE(RunUntil(*loop_, [&] { return Answers("true") == "2"; })) << Answers("true");
  EXPECT_EQ(Answers("created_at > now() - interval '24 hours'"), "2");
}

// Until every worker knows of it something may come yet.
TEST_F(UpkeepJobTest, IsNotDoneBeforeTenSecondsHavePassed) {
  const std::string young = Wish("customer_id", absl::StrCat("'", Customer(), "'"), 1);
  PutLetter("t1", "e", -60);
  Begin();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return Letters("true") == "0"; }));
  const std::string old = Wish("tenant", "'nobody'", 20);
  ASSERT_TRUE(Erased(old));
  EXPECT_EQ(Ask(absl::StrCat("SELECT state FROM postrider.erasures WHERE id = '", young, "'")),
            "erasing");
}

TEST_F(UpkeepJobTest, AWishOfLongAgoIsLookedAtNoMore) {
  const std::string wish = Wish("tenant", "'nobody'", 16 * 86'400);
  Begin();
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    return Ask(absl::StrCat("SELECT deleted_at IS NOT NULL FROM postrider.erasures WHERE id = '",
                            wish, "'")) == "t";
  }));
}

// A customer with all that it had, and grants and event types of others.
TEST_F(UpkeepJobTest, PurgesWhatWasDeletedThirtyDaysAgoAndNothingElse) {
  const auto make = [this](const std::string& customer, const std::string& deleted_at) {
    const std::string values = absl::StrCat("'", customer, "', ", deleted_at);
    ASSERT_OK(operator_->Script(absl::StrCat(
        "INSERT INTO postrider.customers (id, name, deleted_at) VALUES ('", customer, "', 'n', ",
        deleted_at, "); UPDATE postrider.grants SET deleted_at = ", deleted_at,
        " WHERE customer_id = '", customer,
        "'; INSERT INTO postrider.grants (tenant, customer_id, deleted_at) SELECT 't' || i, ",
        values, " FROM generate_series(1, 20) i; ",
        "INSERT INTO postrider.endpoints (customer_id, deleted_at, id, url, mode, events_max, "
        "bytes_max, wait_max_ms, attempts, horizon_ms, first_delay_ms, factor, cap_ms, window_max, "
        "timeout_ms, secrets_sealed) VALUES (",
        values, ", '", customer,
        "', 'https://example.com/', 'batch', 1000, 1048576, 1000, 5, 60000, 1000, 2, 20000, 32, "
        "15000, '\\x01'); "
        "INSERT INTO postrider.subscriptions (customer_id, deleted_at, id, endpoint_id, "
        "event_types, scope_kind) VALUES (",
        values, ", '", customer, "', '", customer, "', '{a}', 'granted'); ",
        "INSERT INTO postrider.api_keys (customer_id, revoked_at, key_id, secret_sha256, scope) "
        "VALUES (",
        values, ", substr(md5('", customer, "'), 1, 12), sha256('x'), 'customer'); ",
        "INSERT INTO postrider.erasures (customer_id, id) VALUES ('", customer, "', '", customer,
        "')")));
  };
  const std::string old = NewId<CustomerId>(clock_).ToUuid();
  const std::string young = NewId<CustomerId>(clock_).ToUuid();
  make(old, "now() - interval '31 days'");
  make(young, "now() - interval '29 days'");
  const auto left = [this](const std::string& customer) {
    std::string counts;
    for (const char* table : {"grants", "endpoints", "subscriptions", "api_keys", "erasures"}) {
      absl::StrAppend(&counts,
                      operator_
                          ->Query(absl::StrCat("SELECT count(*) FROM postrider.", table,
                                               " WHERE customer_id = '", customer, "'"))
                          ->text(0, 0),
                      " ");
    }
    return absl::StrCat(
        counts, operator_
                    ->Query(absl::StrCat("SELECT count(*) FROM postrider.customers WHERE id = '",
                                         customer, "'"))
                    ->text(0, 0));
  };
  ASSERT_EQ(left(old), "21 1 1 1 1 1");
  Begin();
  EXPECT_TRUE(RunUntil(*loop_, [&] { return left(old) == "0 0 0 0 0 0"; })) << left(old);
  EXPECT_EQ(left(young), "21 1 1 1 1 1");
  EXPECT_EQ(left(Customer()), "1 0 0 0 0 1") << "with its own tenant";
  // Counted when the answer is in, which is after the rows are gone.
  EXPECT_TRUE(RunUntil(*loop_, [&] { return upkeep_metrics_.gone[1]->value() >= 25; }));
  EXPECT_EQ(upkeep_metrics_.failures[1]->value(), 0);
}

// None comes in: nothing else sees to the days then.
TEST_F(UpkeepJobTest, DropsDaysOfAttemptsThatAreOldAndMakesThoseToCome) {
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(database()->options().url));
  const auto partition = [](const std::string& day) {
    return absl::StrCat("postrider.attempts_", day);
  };
  const auto day = [&](int days_ago) {
    return Ask(absl::StrCat("SELECT to_char((now() AT TIME ZONE 'UTC')::date - ", days_ago,
                            ", 'YYYYMMDD')"));
  };
  const auto there = [&](const std::string& which) {
    return Ask(absl::StrCat("SELECT to_regclass('", partition(which), "') IS NOT NULL")) == "t";
  };
  const std::string last = day(14);
  const std::string next = day(-2);
  ASSERT_OK(owner->Script(absl::StrCat(
      "CREATE TABLE postrider.attempts_20200101 PARTITION OF postrider.attempts FOR VALUES FROM "
      "('2020-01-01') TO ('2020-01-02'); CREATE TABLE ",
      partition(day(15)), " PARTITION OF postrider.attempts FOR VALUES FROM ('", day(15),
      "') TO ('", last, "'); DROP TABLE ", partition(next))));
  Begin();
  EXPECT_TRUE(RunUntil(*loop_, [&] { return upkeep_metrics_.gone[3]->value() >= 2; }));
  EXPECT_FALSE(there("20200101"));
  EXPECT_FALSE(there(day(15)));
  EXPECT_TRUE(there(last));
  EXPECT_TRUE(there(next));
  EXPECT_EQ(upkeep_metrics_.gone[3]->value(), 2) << "what was made is not counted";
  EXPECT_EQ(upkeep_metrics_.failures[3]->value(), 0);
}

}  // namespace
}  // namespace postrider::dlq
