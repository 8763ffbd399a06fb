#include "migrations/runner.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/postgres/blocking.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace postrider {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using tests::StatusIs;
using tests::TestDatabase;

constexpr Migration kTwo[] = {
    {1, "0001_one", "CREATE TABLE postrider.one (n integer)", "aaaa"},
    {2, "0002_two", "CREATE TABLE postrider.two (n integer)", "bbbb"},
};

class MigrateTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(database_, TestDatabase::Create()); }

  const DatabaseOptions& options() const { return database_->options(); }

  std::string Ask(const std::string& sql) {
    auto result = RunBlocking(options().url, Statement{sql, {}});
    if (!result.ok()) return result.status().ToString();
    return result->rows() == 0 ? "" : std::string(result->text(0, 0));
  }

  std::unique_ptr<TestDatabase> database_;
};

TEST_F(MigrateTest, GrantsTheReservedTenantToCustomersThatWereThereBefore) {
  // The tables of before, without the policies of the roles.
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(options().url));
  ASSERT_OK(owner->Script("CREATE SCHEMA postrider"));
  const absl::Span<const Migration> all = Migrations();
  const auto with_it = std::find_if(all.begin(), all.end(), [](const Migration& migration) {
    return absl::StrContains(migration.name, "reserved_tenants");
  });
  ASSERT_NE(with_it, all.end());
  for (auto before = all.begin(); before != with_it; ++before) {
    ASSERT_OK(owner->Script(std::string(before->sql)));
  }
  const auto force = [](const char* how) {
    return absl::StrCat("ALTER TABLE postrider.customers ", how,
                        " ROW LEVEL SECURITY; ALTER TABLE postrider.grants ", how,
                        " ROW LEVEL SECURITY;");
  };
  ASSERT_OK(owner->Script(
      absl::StrCat(force("NO FORCE"),
                   "INSERT INTO postrider.customers (id, name) VALUES "
                   "('0192f3c4-5e6a-7000-8000-00000000000a', 'a'),"
                   "('ffffffff-ffff-ffff-ffff-ffffffffffff', 'b');"
                   "UPDATE postrider.customers SET deleted_at = now() WHERE name = 'b';",
                   force("FORCE"), std::string(with_it->sql), force("NO FORCE"))));
  EXPECT_EQ(Ask("SELECT string_agg(tenant, ',') FROM postrider.grants"),
            "customer:cus_01jbsw8qkae00800000000000a");
}

TEST_F(MigrateTest, BringsAnEmptyDatabaseToTheSchemaAndDoesItOnce) {
  ASSERT_GE(SchemaVersion(), 1);
  ASSERT_OK_AND_ASSIGN(MigrateReport report, Migrate(options()));
  EXPECT_EQ(report.from, 0);
  EXPECT_EQ(report.to, SchemaVersion());
  EXPECT_THAT(report.applied, SizeIs(static_cast<size_t>(SchemaVersion())));
  EXPECT_THAT(report.roles_created, ElementsAre(database_->role("api"), database_->role("indexer"),
                                                database_->role("reader")));
  EXPECT_EQ(Ask("SELECT count(*) FROM postrider.schema_migrations WHERE length(checksum) = 64"),
            absl::StrCat(SchemaVersion()));

  ASSERT_OK_AND_ASSIGN(report, Migrate(options()));
  EXPECT_EQ(report.from, SchemaVersion());
  EXPECT_THAT(report.applied, IsEmpty());
  EXPECT_THAT(report.roles_created, IsEmpty());
  for (const std::string* url :
       {&options().api_url, &options().indexer_url, &options().reader_url}) {
    EXPECT_OK(CheckVersion(*url));
  }
}

TEST_F(MigrateTest, MayRunManyTimesAtOnce) {
  std::vector<absl::Status> results(6);
  std::vector<std::thread> threads;
  for (absl::Status& result : results) {
    threads.emplace_back([&] { result = Migrate(options()).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) EXPECT_OK(result);
  EXPECT_EQ(Ask("SELECT count(*) FROM postrider.schema_migrations"), absl::StrCat(SchemaVersion()));
}

TEST_F(MigrateTest, RefusesADatabaseWhoseMigrationHadAnotherText) {
  ASSERT_OK(Migrate(options()));
  ASSERT_EQ(Ask("UPDATE postrider.schema_migrations SET checksum = 'edited' WHERE number = 1"), "");
  EXPECT_THAT(Migrate(options()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           AllOf(HasSubstr("0001_"), HasSubstr("checksum"))));
}

TEST_F(MigrateTest, RefusesADatabaseThatIsNewer) {
  ASSERT_OK(Migrate(options()));
  const int next = SchemaVersion() + 1;
  ASSERT_EQ(Ask(absl::StrCat("INSERT INTO postrider.schema_migrations VALUES (", next,
                             ", 'later', 'x')")),
            "");
  EXPECT_THAT(Migrate(options()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("newer")));
  EXPECT_THAT(CheckVersion(options().reader_url),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("newer"), HasSubstr("postrider migrate"))));
}

TEST_F(MigrateTest, SaysWhatToDoWithAnOlderDatabase) {
  ASSERT_OK(Migrate(options()));
  ASSERT_EQ(Ask("DELETE FROM postrider.schema_migrations"), "");
  EXPECT_THAT(CheckVersion(options().api_url),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("older"), HasSubstr("run `postrider migrate`"))));
}

TEST_F(MigrateTest, SaysWhatToDoWithAnEmptyDatabase) {
  EXPECT_THAT(CheckVersion(options().url), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("run `postrider migrate`")));
}

TEST_F(MigrateTest, LeavesNothingOfAMigrationThatFails) {
  // The roles' rights need the real schema; so it comes to an end before them, at the third one.
  const Migration three[] = {
      kTwo[0],
      kTwo[1],
      {3, "0003_bad", "CREATE TABLE postrider.three (n integer); SELECT 1/0", "cccc"}};
  EXPECT_THAT(Migrate(options(), three),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0003_bad")));
  EXPECT_EQ(Ask("SELECT count(*) FROM postrider.schema_migrations"), "2");
  EXPECT_EQ(Ask("SELECT to_regclass('postrider.three') IS NULL"), "t");
  EXPECT_EQ(Ask("SELECT to_regclass('postrider.two') IS NOT NULL"), "t");
}

TEST_F(MigrateTest, DoesNotLetTheOwnerPlayTheApi) {
  DatabaseOptions options = database_->options();
  options.api_url = options.url;
  EXPECT_THAT(Migrate(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("database.api_url")));
}

TEST_F(MigrateTest, AnApiRoleThatCouldGetAroundTheWallsIsRefused) {
  ASSERT_OK(Migrate(options()));
  {
    ASSERT_OK_AND_ASSIGN(auto api, BlockingSession::Open(options().api_url));
    EXPECT_OK(CheckApiRole(*api));
  }
  {
    ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(options().url));
    EXPECT_THAT(CheckApiRole(*owner), StatusIs(absl::StatusCode::kFailedPrecondition,
                                               HasSubstr(database_->role("owner"))));
  }
  const auto check = [&] {
    auto api = BlockingSession::Open(options().api_url);
    return api.ok() ? CheckApiRole(**api) : api.status();
  };
  // A member of the owner: SET ROLE would do.
  ASSERT_OK_AND_ASSIGN(auto owner, BlockingSession::Open(options().url));
  ASSERT_OK(owner->Script(
      absl::StrCat("GRANT ", database_->role("owner"), " TO ", database_->role("api"))));
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(owner->Script(
      absl::StrCat("REVOKE ", database_->role("owner"), " FROM ", database_->role("api"))));
  EXPECT_OK(check());
  // The owner of a table.
  ASSERT_OK(
      owner->Script(absl::StrCat("GRANT CREATE ON SCHEMA postrider TO ", database_->role("api"))));
  {
    ASSERT_OK_AND_ASSIGN(auto api, BlockingSession::Open(options().api_url));
    ASSERT_OK(api->Script("CREATE TABLE postrider.mine (n integer)"));
  }
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("owns")));
  {
    ASSERT_OK_AND_ASSIGN(auto api, BlockingSession::Open(options().api_url));
    ASSERT_OK(api->Script("DROP TABLE postrider.mine"));
  }
  EXPECT_OK(check());
  // A table without the second wall.
  ASSERT_OK(owner->Script("ALTER TABLE postrider.endpoints NO FORCE ROW LEVEL SECURITY"));
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("endpoints")));
}

TEST_F(MigrateTest, OnlyASealedColumnHoldsSecrets) {
  ASSERT_OK(Migrate(options()));
  EXPECT_EQ(Ask("SELECT string_agg(table_name || '.' || column_name || ' ' || data_type, ', ' "
                "ORDER BY table_name, column_name) FROM information_schema.columns WHERE "
                "table_schema = 'postrider' AND column_name ~ "
                "'secret|password|token|receipt|sealed|auth_|_key$' "
                "AND table_name !~ '^dead_letters_'"),
            "api_keys.secret_sha256 bytea, dead_letters.receipt_sha256 bytea, "
            "endpoints.auth_kind text, endpoints.auth_name text, endpoints.auth_scope text, "
            "endpoints.auth_sealed bytea, endpoints.auth_token_url text, "
            "endpoints.secrets_sealed bytea, endpoints.tls_key_sealed bytea, "
            "idempotency_keys.answer_sealed bytea");
}

TEST_F(MigrateTest, CompletesTheUrlsOfTheRoles) {
  DatabaseOptions options;
  options.url = "postgresql://o:p@h:1/d";
  options.indexer_url = "postgresql://other:q@h:1/d";
  ASSERT_OK(options.Complete());
  EXPECT_EQ(options.api_url, "postgresql://postrider_api:p@h:1/d");
  EXPECT_EQ(options.indexer_url, "postgresql://other:q@h:1/d");
  EXPECT_EQ(options.reader_url, "postgresql://postrider_reader:p@h:1/d");
  DatabaseOptions bad;
  EXPECT_THAT(bad.Complete(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("database.api_url")));
  bad.url = "mysql://o:s3cret@h/d";
  EXPECT_THAT(bad.Complete(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("database.url"), Not(HasSubstr("s3cret")))));
}

}  // namespace
}  // namespace postrider
