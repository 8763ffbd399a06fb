#include "dlq/erasure_job.h"

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
using subscriptions::ErasureId;
using tests::RunUntil;

class ErasureJobTest : public LetterDatabaseTest {
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
  // Of so many seconds ago.
  std::string Wish(const std::string& columns, const std::string& values, int ago) {
    const std::string id = NewId<ErasureId>(clock_).ToUuid();
    EXPECT_OK(operator_->Script(absl::StrCat("INSERT INTO postrider.erasures (id, created_at, ",
                                             columns, ") VALUES ('", id, "', now() - interval '",
                                             ago, " seconds', ", values, ")")));
    return id;
  }
  void Begin() {
    ErasureLimits limits;
    limits.rows_max = 7;
    limits.between_steps = limits.when_idle = limits.after_failure = milliseconds(5);
    job_ = std::make_unique<ErasureJob>(*loop_, *pool_, erasure_metrics_, limits);
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
  std::string Attempts(const std::string& where) {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.attempts WHERE customer_id = '",
                            Customer(), "' AND ", where));
  }

  Metrics metrics_;
  ErasureMetrics erasure_metrics_{metrics_};
  std::unique_ptr<BlockingSession> operator_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<ErasureJob> job_;
};

TEST_F(ErasureJobTest, DeletesWhatATenantHadUntilTheWishAndNothingElse) {
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
  EXPECT_GE(erasure_metrics_.rows.value(), 29);
}

TEST_F(ErasureJobTest, DeletesTheLettersOfAnEventAndTheAttemptsOfItsMessages) {
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

TEST_F(ErasureJobTest, DeletesAllThatIsLeftOfADeletedCustomer) {
  PutLetter("t1", "e", -60);
  PutAttempt("t1", "msg_e");
  ASSERT_OK(indexer_->Script(absl::StrCat(
      "INSERT INTO postrider.endpoint_status (customer_id, endpoint_id, part, observed_at, state) "
      "VALUES ('",
      Customer(), "', '", endpoint_.ToUuid(), "', 0, now(), 'healthy')")));
  const std::string status = absl::StrCat(
      "SELECT count(*) FROM postrider.endpoint_status WHERE customer_id = '", Customer(), "'");
  const std::string first = Wish("customer_id", absl::StrCat("'", Customer(), "'"), 20);
  Begin();
  ASSERT_TRUE(Erased(first));
  EXPECT_EQ(Letters("true"), "0");
  EXPECT_EQ(Attempts("true"), "0");
  EXPECT_EQ(Ask(status), "1") << "its endpoint is there still";
  const std::string second =
      Wish("customer_id, of_deleted", absl::StrCat("'", Customer(), "', true"), 20);
  ASSERT_TRUE(Erased(second));
  EXPECT_EQ(Ask(status), "0");
}

// Until every worker knows of it something may come yet.
TEST_F(ErasureJobTest, IsNotDoneBeforeTenSecondsHavePassed) {
  const std::string young = Wish("customer_id", absl::StrCat("'", Customer(), "'"), 1);
  PutLetter("t1", "e", -60);
  Begin();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return Letters("true") == "0"; }));
  const std::string old = Wish("tenant", "'nobody'", 20);
  ASSERT_TRUE(Erased(old));
  EXPECT_EQ(Ask(absl::StrCat("SELECT state FROM postrider.erasures WHERE id = '", young, "'")),
            "erasing");
}

TEST_F(ErasureJobTest, AWishOfLongAgoIsLookedAtNoMore) {
  const std::string wish = Wish("tenant", "'nobody'", 16 * 86'400);
  Begin();
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    return Ask(absl::StrCat("SELECT deleted_at IS NOT NULL FROM postrider.erasures WHERE id = '",
                            wish, "'")) == "t";
  }));
}

}  // namespace
}  // namespace postrider::dlq
