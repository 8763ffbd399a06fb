#include "dlq/report_indexer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/postgres/transaction.h"
#include "dlq/reports/report_record.h"
#include "dlq/reports/report_store.h"
#include "subscriptions/registry/repository.h"
#include "tests/dlq/letter_database.h"
#include "tests/fakes/fake_task_context.h"

namespace postrider::dlq {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using tests::RunUntil;

class ReportIndexerTest : public LetterDatabaseTest {
 protected:
  struct Indexer {
    Indexer(Pool& pool, ReportIndexerMetrics& metrics, const ReportIndexerLimits& limits)
        : ctx({"reports", 3}),
          function(std::make_unique<ReportIndexerFunction>(pool, metrics, limits)) {
      EXPECT_OK(function->Open(ctx));
    }
    ~Indexer() { ctx.Close(*function); }
    void Read(const std::string& value) {
      OwnedRecord record;
      record.topic = "reports";
      record.partition = 3;
      record.offset = next++;
      record.timestamp = ctx.clock().Wall();
      record.value = value;
      function->OnElement(ctx, record.View());
    }
    void Advance(Duration by) {
      ctx.manual_clock().Advance(by);
      ctx.FireTimers(*function);
    }

    FakeTaskContext ctx;
    std::unique_ptr<ReportIndexerFunction> function;
    int64_t next = 0;
  };

  void SetUp() override {
    LetterDatabaseTest::SetUp();
    pool_ = std::make_unique<Pool>(*loop_, PoolFor(database()->options().indexer_url), 1);
    api_pool_ = std::make_unique<Pool>(*loop_, PoolFor(database()->options().api_url), 2);
  }
  void TearDown() override {
    if (pool_ == nullptr) return;
    EXPECT_TRUE(RunUntil(*loop_, [this] { return pool_->in_use() == 0; }));
    api_pool_.reset();
    loop_->RunOnce(Duration::zero());
  }

  std::unique_ptr<Indexer> Make(Pool* pool = nullptr) {
    return std::make_unique<Indexer>(pool == nullptr ? *pool_ : *pool, metrics_, limits_);
  }
  // Reads all, lets the wait to fill pass, and waits until they are complete.
  void Store(Indexer& indexer, const std::vector<std::string>& values) {
    for (const std::string& value : values) indexer.Read(value);
    indexer.Advance(milliseconds(500));
    ASSERT_TRUE(RunUntil(*loop_, [&indexer] {
      return indexer.ctx.completed().size() == static_cast<size_t>(indexer.next);
    }));
  }

  EndpointStatus NewStatus(int64_t observed_ms, uint32_t part = 0) {
    EndpointStatus status;
    status.customer = customer_;
    status.endpoint = endpoint_;
    status.part = part;
    status.observed_at = WallTimeFromMillis(observed_ms);
    status.state = EndpointHealthState::kDegraded;
    status.reason = "timeout";
    status.held_until = WallTimeFromMillis(observed_ms + 5000);
    status.failing_since = WallTimeFromMillis(1000);
    status.auto_disabled_generation = 2;
    status.backlog_messages = 7;
    status.backlog_bytes = 5'000'000'000;
    status.window = 3;
    status.learned_events_max = 10;
    status.learned_bytes_max = 2048;
    status.learned_messages_per_1000_seconds = 2500;
    status.last_outcome = "timeout";
    status.last_status = 0;
    status.last_attempt_at = WallTimeFromMillis(observed_ms - 1);
    status.last_success_at = WallTimeFromMillis(900);
    return status;
  }
  AttemptReport NewAttempt(std::vector<std::string> tenants = {"t1"}) {
    AttemptReport attempt;
    attempt.id = NewId<AttemptId>(clock_);
    attempt.customer = customer_;
    attempt.endpoint = endpoint_;
    attempt.message_id = "msg_1";
    attempt.messages = 2;
    attempt.attempt = 3;
    attempt.started_at = WallTimeFromMillis(MillisSinceEpoch(clock_.Wall()));
    attempt.duration_ms = 15;
    attempt.outcome = "other_status";
    attempt.status = 500;
    attempt.response = std::string("n\0\\\xff", 4);
    attempt.tenants = std::move(tenants);
    return attempt;
  }

  template <typename T, typename Call>
  T AsOwner(Call call) {
    std::optional<absl::StatusOr<Transaction>> begun;
    Transaction::Begin(*api_pool_, subscriptions::AsCustomer(customer_),
                       [&](absl::StatusOr<Transaction> tx) { begun.emplace(std::move(tx)); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return begun.has_value(); }));
    EXPECT_OK(*begun);
    std::optional<absl::StatusOr<T>> answer;
    call(**begun, [&](absl::StatusOr<T> result) { answer.emplace(std::move(result)); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    EXPECT_OK(*answer);
    return answer->ok() ? **answer : T();
  }
  std::vector<EndpointStatus> Statuses() {
    return AsOwner<std::vector<EndpointStatus>>([this](Transaction& tx, auto done) {
      GetEndpointStatus(tx, customer_, endpoint_, std::move(done));
    });
  }
  Attempts List(AttemptPage page = {}) {
    return AsOwner<Attempts>([this, page](Transaction& tx, auto done) {
      ListAttempts(tx, customer_, endpoint_, page, std::move(done));
    });
  }
  void Grant(const std::string& tenant) {
    auto api = BlockingSession::Open(database()->options().api_url);
    ASSERT_OK(api);
    ASSERT_OK((*api)->Script(absl::StrCat(
        "SET postrider.operator = 'on'; INSERT INTO postrider.customers (id, name) VALUES ('",
        customer_.ToUuid(),
        "', 'n') ON CONFLICT DO NOTHING; INSERT INTO postrider.grants "
        "(customer_id, tenant) VALUES ('",
        customer_.ToUuid(), "', '", tenant, "')")));
  }

  Metrics registry_;
  ReportIndexerMetrics metrics_{registry_};
  ReportIndexerLimits limits_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Pool> api_pool_;
};

TEST_F(ReportIndexerTest, KeepsTheNewestStatusOfEachPart) {
  auto indexer = Make();
  EXPECT_THAT(Statuses(), IsEmpty());
  EndpointStatus newest = NewStatus(20'000);
  newest.state = EndpointHealthState::kHealthy;
  Store(*indexer, {EncodeEndpointStatus(newest), EncodeEndpointStatus(NewStatus(10'000)),
                   EncodeEndpointStatus(NewStatus(10'000, 1))});
  EXPECT_THAT(Statuses(), ElementsAre(newest, NewStatus(10'000, 1)));
  // An older one in a later batch changes nothing, a newer one does.
  Store(*indexer,
        {EncodeEndpointStatus(NewStatus(19'999)), EncodeEndpointStatus(NewStatus(10'001, 1))});
  EXPECT_THAT(Statuses(), ElementsAre(newest, NewStatus(10'001, 1)));
  EXPECT_EQ(metrics_.statuses.value(), 3);
}

TEST_F(ReportIndexerTest, ANewWorkerDoesNotMakeTheLastAttemptUnknown) {
  auto indexer = Make();
  Store(*indexer, {EncodeEndpointStatus(NewStatus(10'000))});
  EndpointStatus fresh = NewStatus(20'000);
  fresh.last_outcome = "";
  fresh.last_attempt_at.reset();
  fresh.last_success_at.reset();
  Store(*indexer, {EncodeEndpointStatus(fresh)});
  fresh.last_outcome = "timeout";
  fresh.last_attempt_at = WallTimeFromMillis(9'999);
  fresh.last_success_at = WallTimeFromMillis(900);
  EXPECT_THAT(Statuses(), ElementsAre(fresh));
}

TEST_F(ReportIndexerTest, AStatusOfAnotherCustomerDoesNotTakeARowOver) {
  auto indexer = Make();
  Store(*indexer, {EncodeEndpointStatus(NewStatus(10'000))});
  EndpointStatus forged = NewStatus(20'000);
  forged.customer = NewId<subscriptions::CustomerId>(clock_);
  Store(*indexer, {EncodeEndpointStatus(forged)});
  EXPECT_THAT(Statuses(), ElementsAre(NewStatus(10'000)));
}

TEST_F(ReportIndexerTest, StoresAnAttemptOnceHoweverOftenItComes) {
  Grant("t1");
  auto indexer = Make();
  const AttemptReport attempt = NewAttempt();
  Store(*indexer, {EncodeAttemptReport(attempt), EncodeAttemptReport(attempt)});
  Store(*indexer, {EncodeAttemptReport(attempt)});
  EXPECT_THAT(List().rows, ElementsAre(attempt));
  EXPECT_EQ(metrics_.attempts.value(), 1);
}

TEST_F(ReportIndexerTest, PagesAttemptsFromTheNewestOn) {
  auto indexer = Make();
  std::vector<AttemptReport> attempts;
  std::vector<std::string> records;
  for (int i = 0; i < 5; ++i) {
    attempts.push_back(NewAttempt({}));
    attempts.back().response = "";
    records.push_back(EncodeAttemptReport(attempts.back()));
  }
  Store(*indexer, records);
  std::vector<AttemptReport> listed;
  AttemptPage page{absl::nullopt, 2};
  int pages = 0;
  do {
    const Attempts part = List(page);
    listed.insert(listed.end(), part.rows.begin(), part.rows.end());
    page.after = part.next;
    ++pages;
  } while (page.after && pages < 10);
  EXPECT_EQ(pages, 3);
  std::sort(attempts.begin(), attempts.end(),
            [](const auto& a, const auto& b) { return b.id < a.id; });
  EXPECT_EQ(listed, attempts);
}

TEST_F(ReportIndexerTest, HidesTheAnswerOfTenantsThatAreNotGranted) {
  Grant("t1");
  auto indexer = Make();
  const AttemptReport own = NewAttempt({"t1"});
  const AttemptReport mixed = NewAttempt({"t1", "t2"});
  const AttemptReport unknown = NewAttempt({});
  Store(*indexer,
        {EncodeAttemptReport(own), EncodeAttemptReport(mixed), EncodeAttemptReport(unknown)});
  const Attempts attempts = List();
  ASSERT_THAT(attempts.rows, SizeIs(3));
  for (const AttemptReport& attempt : attempts.rows) {
    EXPECT_EQ(attempt.response, attempt.id == own.id ? own.response : "");
  }
}

// Their topic waited for longer than erasures look for what comes late.
TEST_F(ReportIndexerTest, LeavesOutAttemptsThatWereToBeForgottenBeforeTheyCame) {
  const std::string tenant = absl::StrCat("t-", customer_.ToUuid());
  Wish("tenant", absl::StrCat("'", tenant, "'"), 60);
  Wish("customer_id", absl::StrCat("'", customer_.ToUuid(), "'"), 120);
  Wish("customer_id, tenant", absl::StrCat("'", customer_.ToUuid(), "', 'another'"), 0);
  const auto attempt_of = [&](int seconds_ago, std::vector<std::string> tenants) {
    AttemptReport attempt = NewAttempt(std::move(tenants));
    attempt.started_at -= std::chrono::seconds(seconds_ago);
    attempt.response = "";
    return attempt;
  };
  auto indexer = Make();
  const AttemptReport later = attempt_of(30, {"t1", tenant});
  const AttemptReport other = attempt_of(90, {"t1"});
  const AttemptReport nobodys = attempt_of(100, {});
  Store(*indexer, {EncodeAttemptReport(attempt_of(90, {"t1", tenant})),
                   EncodeAttemptReport(attempt_of(150, {"t1"})),
                   EncodeAttemptReport(attempt_of(5, {"another"})), EncodeAttemptReport(later),
                   EncodeAttemptReport(other), EncodeAttemptReport(nobodys)});
  std::vector<AttemptId> ids;
  for (const AttemptReport& attempt : List().rows) ids.push_back(attempt.id);
  EXPECT_THAT(ids, UnorderedElementsAre(later.id, other.id, nobodys.id));
}

TEST_F(ReportIndexerTest, ADeletedCustomersStatusDoesNotComeBack) {
  auto indexer = Make();
  Store(*indexer, {EncodeEndpointStatus(NewStatus(10'000))});
  Wish("customer_id, of_deleted", absl::StrCat("'", customer_.ToUuid(), "', true"), 0);
  Store(*indexer, {EncodeEndpointStatus(NewStatus(20'000))});
  EXPECT_THAT(Statuses(), ElementsAre(NewStatus(10'000)));
}

TEST_F(ReportIndexerTest, LeavesOutWhatIsTooOldOrFromTheFuture) {
  auto indexer = Make();
  std::vector<std::string> records;
  for (const int days : {-15, 3}) {
    AttemptReport attempt = NewAttempt();
    const int64_t millis = MillisSinceEpoch(clock_.Wall() + std::chrono::hours(24 * days));
    IdBytes bytes{};
    for (size_t i = 0; i < 6; ++i) bytes[i] = static_cast<uint8_t>(millis >> (8 * (5 - i)));
    attempt.id = AttemptId(bytes);
    records.push_back(EncodeAttemptReport(attempt));
  }
  const AttemptReport good = NewAttempt({});
  records.push_back(EncodeAttemptReport(good));
  Store(*indexer, records);
  EXPECT_THAT(List().rows, SizeIs(1));
}

TEST_F(ReportIndexerTest, CountsAndLeavesOutWhatCannotBeReadOrStored) {
  auto indexer = Make();
  AttemptReport poison = NewAttempt({});
  poison.outcome = std::string("a\0b", 3);  // Postgres has no NUL in texts
  RefusalReport refusal;
  Store(*indexer,
        {"nonsense", EncodeRefusalReport(refusal), EncodeEndpointStatus(NewStatus(1'000)).substr(1),
         EncodeAttemptReport(NewAttempt({})), EncodeAttemptReport(poison),
         EncodeAttemptReport(NewAttempt({}))});
  EXPECT_THAT(List().rows, SizeIs(2));
  EXPECT_EQ(metrics_.unreadable.value(), 2);
  EXPECT_EQ(metrics_.refused.value(), 1);
  EXPECT_EQ(metrics_.failures.value(), 0);
  EXPECT_FALSE(indexer->ctx.failure().has_value());
}

TEST_F(ReportIndexerTest, WaitsForADatabaseThatIsAway) {
  PoolOptions away = PoolFor("postgresql://x@127.0.0.1:1/none");
  away.acquire_timeout = milliseconds(50);
  Pool pool(*loop_, away, 3);
  auto indexer = Make(&pool);
  indexer->Read(EncodeEndpointStatus(NewStatus(1'000)));
  indexer->Advance(milliseconds(500));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return metrics_.failures.value() >= 1; }));
  EXPECT_THAT(indexer->ctx.completed(), IsEmpty());
  indexer->Advance(milliseconds(100));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return metrics_.failures.value() >= 2; }));
  EXPECT_FALSE(indexer->ctx.failure().has_value());
}

}  // namespace
}  // namespace postrider::dlq
