#include "core/postgres/connection.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/postgres/blocking.h"
#include "core/postgres/copy.h"
#include "core/postgres/listener.h"
#include "core/postgres/pool.h"
#include "core/postgres/transaction.h"
#include "core/postgres/url.h"
#include "tests/support/loop_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tcp_relay.h"
#include "tests/support/test_database.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using ::testing::_;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::RunUntil;
using tests::StatusIs;
using tests::TcpRelay;
using tests::TestDatabase;

class PostgresTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto created = TestDatabase::Create();
    if (!created.ok()) {
      *fault() = created.status();
      return;
    }
    database() = std::move(*created);
  }
  static void TearDownTestSuite() { database().reset(); }

  void SetUp() override {
    ASSERT_OK(*fault());
    auto made = EventLoop::Create(clock_);
    ASSERT_OK(made);
    loop_ = *std::move(made);
  }

  static std::unique_ptr<TestDatabase>& database() {
    static std::unique_ptr<TestDatabase> instance;
    return instance;
  }
  static absl::Status* fault() {
    static absl::Status status;
    return &status;
  }

  static std::string url() { return database()->options().url; }

  // The server's URL with the relay in between.
  std::string Relayed(const TcpRelay& relay) const {
    auto parsed = DatabaseUrl::Parse(url());
    parsed->hosts = absl::StrCat("127.0.0.1:", relay.port());
    return parsed->ToString();
  }
  static uint16_t ServerPort() {
    const auto parsed = DatabaseUrl::Parse(url());
    int port = 0;
    const std::vector<std::string> parts = absl::StrSplit(parsed->hosts, ':');
    EXPECT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[1], &port));
    return static_cast<uint16_t>(port);
  }

  static ConnectionOptions Options() {
    ConnectionOptions options;
    options.url = url();
    return options;
  }

  absl::StatusOr<QueryResult> Ask(Connection& connection, Statement statement) {
    std::optional<absl::StatusOr<QueryResult>> answer;
    connection.Query(std::move(statement),
                     [&](absl::StatusOr<QueryResult> result) { answer = std::move(result); });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    if (!RunUntil(*loop_, [&] { return answer.has_value(); })) {
      return absl::DeadlineExceededError("the test waited in vain");
    }
    return *std::move(answer);
  }
  absl::StatusOr<QueryResult> Ask(Connection& connection, std::string sql) {
    return Ask(connection, Statement{std::move(sql), {}});
  }

  absl::StatusOr<PooledConnection> AcquireFrom(Pool& pool) {
    std::optional<absl::StatusOr<PooledConnection>> answer;
    pool.Acquire([&](absl::StatusOr<PooledConnection> got) { answer.emplace(std::move(got)); });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  absl::StatusOr<Transaction> BeginOn(Pool& pool, TransactionOptions options = {}) {
    std::optional<absl::StatusOr<Transaction>> answer;
    Transaction::Begin(pool, std::move(options),
                       [&](absl::StatusOr<Transaction> got) { answer.emplace(std::move(got)); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  absl::StatusOr<QueryResult> Ask(Transaction& tx, std::string sql) {
    std::optional<absl::StatusOr<QueryResult>> answer;
    tx.Query(Statement{std::move(sql), {}},
             [&](absl::StatusOr<QueryResult> result) { answer = std::move(result); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  absl::Status CommitOf(Transaction tx) {
    std::optional<absl::Status> answer;
    tx.Commit([&](absl::Status status) { answer = std::move(status); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    return *answer;
  }

  Duration Took(absl::FunctionRef<void()> what) {
    const MonotonicTime began = clock_.Now();
    what();
    return clock_.Now() - began;
  }

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
};

TEST_F(PostgresTest, AnswersWithTypedColumns) {
  Connection connection(*loop_, Options(), 1);
  const IdBytes id = *ParseUuid("0192f3c4-5e6a-7000-8000-000000000001");
  ASSERT_OK_AND_ASSIGN(
      QueryResult result,
      Ask(connection,
          Statement{"SELECT $1::text AS t, $2::bigint AS i, $3::uuid AS u, $4::bytea AS b, "
                    "$5::text[] AS a, $6::boolean AS f, NULL::text AS n, $7::float8 AS d, "
                    "(extract(epoch FROM $8::timestamptz) * 1000)::bigint AS w, "
                    "'{3,-4}'::bigint[] AS ia, '{}'::bigint[] AS none",
                    {"h\xc3\xa9'llo", SqlParam::Int(-7), SqlParam::Uuid(id),
                     SqlParam::Bytes(absl::string_view("\0\x01\xff", 3)),
                     SqlParam::TextArray(std::vector<std::string>{"x,y", "\"z\\", ""}),
                     SqlParam::Bool(true), SqlParam::Double(1.0 / 3),
                     SqlParam::Time(WallTimeFromMillis(1'704'067'200'123))}}));
  ASSERT_EQ(result.rows(), 1u);
  RowReader row(result, 0);
  EXPECT_EQ(row.Text("t"), "h\xc3\xa9'llo");
  EXPECT_EQ(row.Int("i"), -7);
  EXPECT_EQ(row.Uuid("u"), id);
  EXPECT_EQ(row.Bytes("b"), std::string("\0\x01\xff", 3));
  EXPECT_EQ(row.TextArray("a"), (std::vector<std::string>{"x,y", "\"z\\", ""}));
  EXPECT_TRUE(row.Bool("f"));
  EXPECT_EQ(row.OptionalText("n"), absl::nullopt);
  EXPECT_EQ(row.Double("d"), 1.0 / 3);
  EXPECT_EQ(row.OptionalDouble("d"), 1.0 / 3);
  EXPECT_EQ(row.OptionalDouble("n"), absl::nullopt);
  EXPECT_EQ(row.IntArray("ia"), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(row.IntArray("none"), std::vector<int64_t>());
  EXPECT_EQ(MillisSinceEpoch(row.Time("w")), 1'704'067'200'123);
  ASSERT_OK(row.status());
  EXPECT_EQ(row.Text("n"), "");
  EXPECT_THAT(row.status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("column n")));
  RowReader other(result, 0);
  EXPECT_EQ(other.IntArray("a"), std::vector<int64_t>());
  EXPECT_THAT(other.status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("column a")));
}

TEST_F(PostgresTest, RunsStatementsInTheOrderOfTheCalls) {
  Connection connection(*loop_, Options(), 1);
  std::vector<std::string> order;
  for (int i = 0; i < 50; ++i) {
    connection.Query(Statement{"SELECT $1::text AS t", {SqlParam::Int(i)}},
                     [&](absl::StatusOr<QueryResult> result) {
                       order.push_back(result.ok() ? std::string(result->text(0, 0)) : "fault");
                     });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return order.size() == 50; }));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], absl::StrCat(i));
}

TEST_F(PostgresTest, RefusesAStatementWhenItsQueueIsFull) {
  ConnectionOptions options = Options();
  options.queued_max = 3;
  Connection connection(*loop_, options, 1);
  std::vector<absl::StatusCode> codes;
  for (int i = 0; i < 4; ++i) {
    connection.Query("SELECT 1", [&](absl::StatusOr<QueryResult> result) {
      codes.push_back(result.status().code());
    });
  }
  EXPECT_TRUE(codes.empty());
  ASSERT_TRUE(RunUntil(*loop_, [&] { return codes.size() == 4; }));
  EXPECT_EQ(codes[0], absl::StatusCode::kResourceExhausted) << "the refused one is answered first";
  for (int i = 1; i < 4; ++i) EXPECT_EQ(codes[static_cast<size_t>(i)], absl::StatusCode::kOk);
}

TEST_F(PostgresTest, SaysWhatWentWrongBySqlStateAndNeverByValue) {
  Connection connection(*loop_, Options(), 1);
  ASSERT_OK(Ask(connection,
                "CREATE TEMP TABLE t (k text CONSTRAINT t_key PRIMARY KEY, n integer CONSTRAINT "
                "n_small CHECK (n < 10))"));
  const auto insert = [&](absl::string_view key, absl::string_view number) {
    return Ask(connection, Statement{"INSERT INTO t VALUES ($1, $2::text::integer)", {key, number}})
        .status();
  };
  ASSERT_OK(insert("s3cret", "1"));
  absl::Status twice = insert("s3cret", "1");
  EXPECT_THAT(twice, StatusIs(absl::StatusCode::kAlreadyExists, Not(HasSubstr("s3cret"))));
  EXPECT_EQ(SqlState(twice), "23505");
  EXPECT_EQ(ViolatedConstraint(twice), "t_key");
  absl::Status check = insert("other", "77");
  EXPECT_THAT(check, StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("77"))));
  EXPECT_EQ(ViolatedConstraint(check), "n_small");
  EXPECT_THAT(insert("other", "s3cret"),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("s3cret"))));
  EXPECT_THAT(insert(absl::string_view("nul\0", 4), "1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NUL")));
  EXPECT_THAT(Ask(connection, "SELEKT 1"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("42601")));
  // And it is as good as new.
  EXPECT_OK(insert("other", "9"));
}

TEST_F(PostgresTest, GivesUpAStatementThatTakesTooLong) {
  ConnectionOptions options = Options();
  options.statement_timeout = milliseconds(100);
  Connection connection(*loop_, options, 1);
  const absl::Status status = Ask(connection, "SELECT pg_sleep(30)").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("57014")));
  EXPECT_OK(Ask(connection, "SELECT 1"));
}

TEST_F(PostgresTest, GivesUpAServerThatFallsSilent) {
  TcpRelay relay(ServerPort());
  ConnectionOptions options = Options();
  options.url = Relayed(relay);
  options.statement_timeout = milliseconds(100);
  Connection connection(*loop_, options, 1);
  ASSERT_OK(Ask(connection, "SELECT 1"));
  relay.Set(TcpRelay::Mode::kSilent);
  EXPECT_THAT(Ask(connection, "SELECT 1"), StatusIs(absl::StatusCode::kDeadlineExceeded));
  relay.Set(TcpRelay::Mode::kOpen);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return connection.ready(); }));
  EXPECT_OK(Ask(connection, "SELECT 1"));
}

TEST_F(PostgresTest, SaysUnavailableWithinASecondAndRecoversByItself) {
  TcpRelay relay(ServerPort());
  relay.Set(TcpRelay::Mode::kClosed);
  ConnectionOptions options = Options();
  options.url = Relayed(relay);
  Connection connection(*loop_, options, 1);
  absl::Status status;
  const Duration took = Took([&] { status = Ask(connection, "SELECT 1").status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot connect")));
  EXPECT_LE(took, milliseconds(1500));
  relay.Set(TcpRelay::Mode::kOpen);
  ASSERT_TRUE(RunUntil(
      *loop_, [&] { return connection.ready(); }, milliseconds(5000)));
  EXPECT_OK(Ask(connection, "SELECT 1"));

  // A connection that breaks under a statement.
  const uint64_t epoch = connection.epoch();
  std::vector<absl::StatusCode> codes;
  for (const char* sql : {"SELECT pg_sleep(30)", "SELECT 1"}) {
    connection.Query(
        sql, [&](absl::StatusOr<QueryResult> result) { codes.push_back(result.status().code()); });
  }
  loop_->RunOnce(milliseconds(1));
  relay.Set(TcpRelay::Mode::kClosed);
  ASSERT_TRUE(RunUntil(
      *loop_, [&] { return codes.size() == 2; }, milliseconds(2000)));
  EXPECT_EQ(codes, std::vector<absl::StatusCode>(2, absl::StatusCode::kUnavailable))
      << "what waited behind it belonged to that session";
  relay.Set(TcpRelay::Mode::kOpen);
  ASSERT_TRUE(RunUntil(
      *loop_, [&] { return connection.ready(); }, milliseconds(5000)));
  EXPECT_GT(connection.epoch(), epoch);
  std::optional<absl::Status> stale;
  connection.QueryIn(epoch, Statement{"SELECT 1", {}},
                     [&](absl::StatusOr<QueryResult> result) { stale = result.status(); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return stale.has_value(); }));
  EXPECT_THAT(*stale, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PostgresTest, TakesTheServersWordWhenItEndsTheSession) {
  Connection connection(*loop_, Options(), 1);
  ASSERT_OK_AND_ASSIGN(QueryResult pid, Ask(connection, "SELECT pg_backend_pid()"));
  ASSERT_OK_AND_ASSIGN(auto other, BlockingSession::Open(url()));
  ASSERT_OK(other->Query(Statement{"SELECT pg_terminate_backend($1::integer)", {pid.text(0, 0)}}));
  const uint64_t epoch = connection.epoch();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return connection.epoch() > epoch; }));
  EXPECT_OK(Ask(connection, "SELECT 1"));
}

TEST_F(PostgresTest, RefusesAConnectionThatItsCheckFindsAtFault) {
  ConnectionOptions options = Options();
  options.check_sql = "SELECT 'wrong moon phase'";
  Connection connection(*loop_, options, 1);
  EXPECT_THAT(Ask(connection, "SELECT 1"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("wrong moon phase")));
  options.check_sql = "SELECT * FROM no_such_table";
  options.check_hint = "do something";
  Connection other(*loop_, options, 1);
  EXPECT_THAT(Ask(other, "SELECT 1"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("do something")));
  options.check_sql = "SELECT ''";
  options.setup_sql = "SET application_name = 'set up'";
  Connection good(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(QueryResult name, Ask(good, "SHOW application_name"));
  EXPECT_EQ(name.text(0, 0), "set up");
}

TEST_F(PostgresTest, AnswersWhatWaitsWhenItIsDestroyed) {
  auto connection = std::make_unique<Connection>(*loop_, Options(), 1);
  ASSERT_OK(Ask(*connection, "SELECT 1"));
  std::vector<absl::StatusCode> codes;
  for (int i = 0; i < 2; ++i) {
    connection->Query("SELECT pg_sleep(30)", [&](absl::StatusOr<QueryResult> result) {
      codes.push_back(result.status().code());
    });
  }
  connection.reset();
  EXPECT_TRUE(codes.empty());
  ASSERT_TRUE(RunUntil(*loop_, [&] { return codes.size() == 2; }));
  EXPECT_EQ(codes, std::vector<absl::StatusCode>(2, absl::StatusCode::kCancelled));
}

TEST_F(PostgresTest, MayBeDestroyedByItsOwnCallback) {
  auto connection = std::make_unique<Connection>(*loop_, Options(), 1);
  bool done = false;
  connection->Query("SELECT 1", [&](absl::StatusOr<QueryResult>) {
    connection.reset();
    done = true;
  });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return done; }));
  EXPECT_EQ(connection, nullptr);
}

TEST_F(PostgresTest, CopiesMoreThanASocketHolds) {
  Connection connection(*loop_, Options(), 1);
  ASSERT_OK(Ask(connection, "CREATE TEMP TABLE c (n bigint, t text, b bytea, u uuid)"));
  CopyRows rows;
  const std::string long_text(2000, 'x');
  for (int i = 0; i < 5000; ++i) {
    rows.Int(i).Text(i == 7 ? "tab\tnl\nback\\" : long_text).Bytes("\x01\x02").Null().EndRow();
  }
  EXPECT_EQ(rows.rows(), 5000u);
  std::optional<absl::StatusOr<QueryResult>> answer;
  connection.CopyIn("COPY c FROM STDIN", rows.Take(),
                    [&](absl::StatusOr<QueryResult> result) { answer = std::move(result); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
  ASSERT_OK(*answer);
  EXPECT_EQ((*answer)->affected(), 5000);
  ASSERT_OK_AND_ASSIGN(QueryResult seen,
                       Ask(connection, "SELECT t, b, count(*) OVER () AS n FROM c WHERE n = 7"));
  RowReader row(seen, 0);
  EXPECT_EQ(row.Text("t"), "tab\tnl\nback\\");
  EXPECT_EQ(row.Bytes("b"), "\x01\x02");

  answer.reset();
  connection.CopyIn("COPY c FROM STDIN", "not a number\tx\t\\N\t\\N\n",
                    [&](absl::StatusOr<QueryResult> result) { answer = std::move(result); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
  EXPECT_THAT(*answer,
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("not a number"))));
  answer.reset();
  connection.CopyIn("COPY no_such FROM STDIN", "1\n",
                    [&](absl::StatusOr<QueryResult> result) { answer = std::move(result); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
  EXPECT_THAT(*answer, StatusIs(absl::StatusCode::kInternal));
  EXPECT_OK(Ask(connection, "SELECT 1"));
}

TEST_F(PostgresTest, ListensAndWakesWhenItConnects) {
  int wakes = 0;
  Listener listener(*loop_, Options(), "a_channel", 1, [&] { ++wakes; });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return wakes == 1; })) << "on connecting";
  ASSERT_OK_AND_ASSIGN(auto other, BlockingSession::Open(url()));
  ASSERT_OK(other->Query("SELECT pg_notify('a_channel', '')"));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return wakes == 2; }));
  ASSERT_OK(other->Query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"));
  EXPECT_TRUE(RunUntil(*loop_, [&] { return wakes == 3; })) << "on connecting anew";
}

TEST_F(PostgresTest, LendsNoMoreConnectionsThanItMay) {
  PoolOptions options;
  options.connection = Options();
  options.connections_max = 2;
  options.waiters_max = 1;
  options.acquire_timeout = milliseconds(1000);
  Pool pool(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(PooledConnection first, AcquireFrom(pool));
  ASSERT_OK_AND_ASSIGN(PooledConnection second, AcquireFrom(pool));
  EXPECT_NE(&*first, &*second);
  EXPECT_EQ(pool.in_use(), 2u);

  std::vector<absl::StatusCode> codes;
  PooledConnection third;
  pool.Acquire([&](absl::StatusOr<PooledConnection> got) { codes.push_back(got.status().code()); });
  pool.Acquire([&](absl::StatusOr<PooledConnection> got) { codes.push_back(got.status().code()); });
  EXPECT_EQ(pool.waiting(), 1u);
  ASSERT_TRUE(RunUntil(
      *loop_, [&] { return codes.size() == 1; }, milliseconds(900)))
      << "the one past the bound is refused at once";
  ASSERT_TRUE(RunUntil(*loop_, [&] { return codes.size() == 2; }));
  EXPECT_EQ(codes, std::vector<absl::StatusCode>(2, absl::StatusCode::kResourceExhausted));

  // One that is given back goes to who waits.
  std::optional<absl::StatusOr<PooledConnection>> waited;
  pool.Acquire([&](absl::StatusOr<PooledConnection> got) { waited.emplace(std::move(got)); });
  first.Release();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return waited.has_value(); }));
  EXPECT_OK(*waited);
}

TEST_F(PostgresTest, PoolSaysUnavailableFastAndRecoversByItself) {
  TcpRelay relay(ServerPort());
  PoolOptions options;
  options.connection = Options();
  options.connection.url = Relayed(relay);
  Pool pool(*loop_, options, 1);
  { ASSERT_OK_AND_ASSIGN(PooledConnection first, AcquireFrom(pool)); }
  for (const TcpRelay::Mode mode : {TcpRelay::Mode::kClosed, TcpRelay::Mode::kSilent}) {
    relay.Set(TcpRelay::Mode::kClosed);
    ASSERT_TRUE(RunUntil(*loop_, [&] { return !pool.health().ok(); }));
    relay.Set(mode);
    for (int i = 0; i < 3; ++i) {
      absl::Status status;
      const Duration took = Took([&] { status = AcquireFrom(pool).status(); });
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
      EXPECT_LE(took, milliseconds(1200));
    }
    relay.Set(TcpRelay::Mode::kOpen);
    EXPECT_TRUE(RunUntil(
        *loop_, [&] { return pool.health().ok(); }, milliseconds(6000)));
    EXPECT_OK(AcquireFrom(pool));
  }
}

TEST_F(PostgresTest, CommitsAndRollsBack) {
  PoolOptions options;
  options.connection = Options();
  options.connections_max = 1;
  Pool pool(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(url()));
  ASSERT_OK(session->Script("CREATE TABLE public.tx (k text PRIMARY KEY)"));
  const auto count = [&] {
    auto result = session->Query("SELECT count(*) FROM public.tx");
    return result.ok() ? std::string(result->text(0, 0)) : result.status().ToString();
  };
  {
    ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool));
    ASSERT_OK(Ask(tx, "INSERT INTO public.tx VALUES ('a')"));
    EXPECT_EQ(count(), "0");
  }
  // The only connection is back, and clean.
  ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool));
  EXPECT_EQ(count(), "0");
  ASSERT_OK(Ask(tx, "INSERT INTO public.tx VALUES ('b')"));
  EXPECT_OK(CommitOf(std::move(tx)));
  EXPECT_EQ(count(), "1");

  ASSERT_OK_AND_ASSIGN(Transaction bad, BeginOn(pool));
  EXPECT_THAT(Ask(bad, "INSERT INTO public.tx VALUES ('b')"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Ask(bad, "SELECT 1"), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(CommitOf(std::move(bad)), StatusIs(absl::StatusCode::kAborted));

  std::optional<absl::StatusOr<std::vector<QueryResult>>> all;
  Transaction::Run(
      pool, {}, {{"INSERT INTO public.tx VALUES ($1)", {"c"}}, {"SELECT 5", {}}},
      [&](absl::StatusOr<std::vector<QueryResult>> results) { all.emplace(std::move(results)); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_OK(*all);
  EXPECT_EQ((**all)[1].text(0, 0), "5");
  EXPECT_EQ(count(), "2");
  all.reset();
  Transaction::Run(
      pool, {}, {{"INSERT INTO public.tx VALUES ($1)", {"d"}}, {"SELECT 1/0", {}}},
      [&](absl::StatusOr<std::vector<QueryResult>> results) { all.emplace(std::move(results)); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  EXPECT_THAT(*all, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(count(), "2");
}

TEST_F(PostgresTest, TellsWhenWhatWasRolledBackHoldsNoLockAnyMore) {
  PoolOptions options;
  options.connection = Options();
  options.connections_max = 1;
  Pool pool(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(url()));
  const auto lock = [&] {
    auto result = session->Query("SELECT pg_try_advisory_lock(7)");
    return result.ok() ? std::string(result->text(0, 0)) : result.status().ToString();
  };
  ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool));
  ASSERT_OK(Ask(tx, "SELECT pg_advisory_xact_lock(7)"));
  EXPECT_EQ(lock(), "f");
  bool over = false;
  tx.RollBack([&over] { over = true; });
  EXPECT_FALSE(over) << "not from inside the call";
  ASSERT_TRUE(RunUntil(*loop_, [&over] { return over; }));
  EXPECT_EQ(lock(), "t");
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST_F(PostgresTest, TransactionSettingsEndWithIt) {
  PoolOptions options;
  options.connection = Options();
  options.connections_max = 1;
  Pool pool(*loop_, options, 1);
  TransactionOptions with;
  with.settings.emplace_back("postrider.customer_id", "it's \\me");
  with.access = TransactionOptions::Access::kReadOnly;
  {
    ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool, with));
    ASSERT_OK_AND_ASSIGN(QueryResult seen,
                         Ask(tx, "SELECT current_setting('postrider.customer_id', true)"));
    EXPECT_EQ(seen.text(0, 0), "it's \\me");
    EXPECT_THAT(Ask(tx, "CREATE TABLE public.never (n integer)"),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("25006")));
  }
  ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool));
  ASSERT_OK_AND_ASSIGN(
      QueryResult seen,
      Ask(tx, "SELECT coalesce(current_setting('postrider.customer_id', true), '')"));
  EXPECT_EQ(seen.text(0, 0), "");
}

TEST_F(PostgresTest, ATransactionWhoseConnectionBrokeRunsNothingOnTheNextOne) {
  TcpRelay relay(ServerPort());
  PoolOptions options;
  options.connection = Options();
  options.connection.url = Relayed(relay);
  options.connections_max = 1;
  Pool pool(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(Transaction tx, BeginOn(pool));
  relay.Set(TcpRelay::Mode::kClosed);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return !pool.health().ok(); }));
  relay.Set(TcpRelay::Mode::kOpen);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return pool.health().ok(); }));
  EXPECT_THAT(Ask(tx, "CREATE TABLE public.never (n integer)"),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(CommitOf(std::move(tx)), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(Transaction next, BeginOn(pool));
  ASSERT_OK_AND_ASSIGN(QueryResult seen, Ask(next, "SELECT to_regclass('public.never') IS NULL"));
  EXPECT_EQ(seen.text(0, 0), "t");
}

TEST_F(PostgresTest, ClosesAConnectionThatComesBackInATransaction) {
  PoolOptions options;
  options.connection = Options();
  options.connections_max = 1;
  Pool pool(*loop_, options, 1);
  ASSERT_OK_AND_ASSIGN(PooledConnection held, AcquireFrom(pool));
  ASSERT_OK(Ask(*held, "BEGIN"));
  const uint64_t epoch = held->epoch();
  held.Release();
  ASSERT_OK_AND_ASSIGN(held, AcquireFrom(pool));
  EXPECT_GT(held->epoch(), epoch);
  EXPECT_FALSE(held->in_transaction());
}

}  // namespace
}  // namespace postrider
