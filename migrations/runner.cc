#include "migrations/runner.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "core/postgres/connection.h"
#include "core/postgres/url.h"
#include "migrations/internal/embedded.h"

namespace postrider {
namespace {

// Of this program's migrations in a database; any number that only we use.
constexpr int64_t kLockKey = 0x706f737472696472;  // "postridr"

constexpr char kBootstrap[] = R"sql(
CREATE SCHEMA IF NOT EXISTS postrider;
CREATE TABLE IF NOT EXISTS postrider.schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
-- Which roles.sql was run, and for which roles: one row at most.
CREATE TABLE IF NOT EXISTS postrider.schema_roles (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    roles      text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
)sql";

absl::Status Wrap(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("migrate: ", what, ": ", status.message()));
}

absl::Status Fault(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("migrate: ", what));
}

struct Applied {
  int number;
  std::string name;
  std::string checksum;
};

absl::StatusOr<std::vector<Applied>> ReadApplied(BlockingSession& session) {
  ASSIGN_OR_RETURN(QueryResult result,
                   session.Query("SELECT number, name, checksum FROM postrider.schema_migrations "
                                 "ORDER BY number"));
  std::vector<Applied> applied;
  for (size_t i = 0; i < result.rows(); ++i) {
    RowReader row(result, i);
    applied.push_back(
        {static_cast<int>(row.Int("number")), row.Text("name"), row.Text("checksum")});
    RETURN_IF_ERROR(row.status());
  }
  return applied;
}

// What was applied is the beginning of what we have.
absl::Status CompareApplied(absl::Span<const Migration> migrations,
                            const std::vector<Applied>& applied) {
  for (size_t i = 0; i < applied.size(); ++i) {
    const Applied& row = applied[i];
    if (i >= migrations.size()) {
      return Fault(absl::StrCat("the database is at version ", applied.back().number,
                                ", newer than this program's ", migrations.size(),
                                ": run a newer postrider"));
    }
    const Migration& ours = migrations[i];
    if (row.number != ours.number || row.name != ours.name) {
      return Fault(absl::StrCat("the database has migration ", row.name, " where this program has ",
                                ours.name));
    }
    if (row.checksum != ours.checksum) {
      return Fault(absl::StrCat("migration ", ours.name,
                                " was applied with another text than this program has (checksum "
                                "differs): a merged migration is never edited"));
    }
  }
  return absl::OkStatus();
}

// Any transaction in which `statements` run; rolls back at a fault.
absl::Status InTransaction(BlockingSession& session, const std::vector<std::string>& scripts,
                           const std::vector<Statement>& statements) {
  absl::Status status = session.Script("BEGIN");
  for (size_t i = 0; status.ok() && i < scripts.size(); ++i) status = session.Script(scripts[i]);
  for (size_t i = 0; status.ok() && i < statements.size(); ++i) {
    status = session.Query(statements[i]).status();
  }
  if (status.ok()) return session.Script("COMMIT");
  session.Script("ROLLBACK").IgnoreError();
  return status;
}

struct Role {
  const char* option;
  const std::string* url;
  DatabaseUrl parsed;
};

absl::StatusOr<std::vector<Role>> ParseRoles(const DatabaseOptions& options) {
  std::vector<Role> roles = {{"database.api_url", &options.api_url, {}},
                             {"database.indexer_url", &options.indexer_url, {}},
                             {"database.reader_url", &options.reader_url, {}}};
  ASSIGN_OR_RETURN(DatabaseUrl owner, DatabaseUrl::Parse(options.url));
  for (Role& role : roles) {
    ASSIGN_OR_RETURN(role.parsed, DatabaseUrl::Parse(*role.url));
    if (role.parsed.user.empty() || role.parsed.user == owner.user) {
      return absl::InvalidArgumentError(absl::StrCat(
          "migrate: option ", role.option,
          " must name a user of its own: the owner is not held by row-level security's walls"));
    }
  }
  return roles;
}

absl::StatusOr<bool> RoleExists(BlockingSession& session, const std::string& name) {
  ASSIGN_OR_RETURN(QueryResult result,
                   session.Query(Statement{"SELECT 1 FROM pg_roles WHERE rolname = $1", {name}}));
  return result.rows() == 1;
}

// Creates the login roles that are missing. Roles belong to the whole server, which our lock does
// not cover: losing a race against another database's migration is as good as winning it.
absl::Status CreateRoles(BlockingSession& session, const std::vector<Role>& roles,
                         MigrateReport* report) {
  for (const Role& role : roles) {
    ASSIGN_OR_RETURN(bool exists, RoleExists(session, role.parsed.user));
    if (exists) continue;
    std::string sql = absl::StrCat("CREATE ROLE ", QuoteIdentifier(role.parsed.user),
                                   " LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS "
                                   "NOREPLICATION");
    if (!role.parsed.password.empty()) {
      absl::StrAppend(&sql, " PASSWORD ", QuoteLiteral(role.parsed.password));
    }
    const absl::Status created = session.Script(sql);
    if (created.ok()) {
      report->roles_created.push_back(role.parsed.user);
      continue;
    }
    ASSIGN_OR_RETURN(exists, RoleExists(session, role.parsed.user));
    if (!exists) {
      return Wrap(created, absl::StrCat("role ", role.parsed.user, " (", role.option,
                                        ") does not exist and cannot be created"));
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyRoles(BlockingSession& session, const std::vector<Role>& roles) {
  std::vector<std::string> names;
  for (const Role& role : roles) names.push_back(QuoteIdentifier(role.parsed.user));
  ASSIGN_OR_RETURN(QueryResult version, session.Query("SELECT coalesce(max(number), 0) AS number "
                                                      "FROM postrider.schema_migrations"));
  const std::string wanted =
      absl::StrCat(absl::StrJoin(names, " "), " ", internal::EmbeddedRolesChecksum(), " at ",
                   version.text(0, 0));
  ASSIGN_OR_RETURN(QueryResult had, session.Query("SELECT roles FROM postrider.schema_roles"));
  if (had.rows() == 1 && had.text(0, 0) == wanted) return absl::OkStatus();
  const std::string script =
      absl::StrReplaceAll(internal::EmbeddedRoles(),
                          {{":api", names[0]}, {":indexer", names[1]}, {":reader", names[2]}});
  return Wrap(InTransaction(session, {script},
                            {Statement{"INSERT INTO postrider.schema_roles (roles) VALUES ($1) "
                                       "ON CONFLICT (only_row) DO UPDATE "
                                       "SET roles = EXCLUDED.roles, applied_at = now()",
                                       {wanted}}}),
              "rights of the roles");
}

absl::Status NoSchema(int needed) {
  return absl::FailedPreconditionError(
      absl::StrCat("the database has no schema that this role can read, and this program needs "
                   "version ",
                   needed, ": run `postrider migrate`"));
}

}  // namespace

absl::Span<const Migration> Migrations() { return internal::EmbeddedMigrations(); }

int SchemaVersion() { return static_cast<int>(Migrations().size()); }

absl::StatusOr<MigrateReport> Migrate(const DatabaseOptions& options) {
  return Migrate(options, Migrations());
}

absl::StatusOr<MigrateReport> Migrate(const DatabaseOptions& options,
                                      absl::Span<const Migration> migrations) {
  ASSIGN_OR_RETURN(std::vector<Role> roles, ParseRoles(options));
  ASSIGN_OR_RETURN(std::unique_ptr<BlockingSession> session, BlockingSession::Open(options.url));
  // Held to the end of the session, so that nobody else is between two of our transactions.
  RETURN_IF_ERROR(session->Script("SET client_min_messages = warning"));
  RETURN_IF_ERROR(Wrap(
      session->Query(Statement{"SELECT pg_advisory_lock($1::bigint)", {SqlParam::Int(kLockKey)}})
          .status(),
      "lock"));
  RETURN_IF_ERROR(Wrap(session->Script(kBootstrap), "schema"));

  MigrateReport report;
  ASSIGN_OR_RETURN(std::vector<Applied> applied, ReadApplied(*session));
  RETURN_IF_ERROR(CompareApplied(migrations, applied));
  report.from = static_cast<int>(applied.size());
  report.to = report.from;
  RETURN_IF_ERROR(CreateRoles(*session, roles, &report));
  for (size_t i = applied.size(); i < migrations.size(); ++i) {
    const Migration& migration = migrations[i];
    if (migration.number != static_cast<int>(i) + 1) {
      return absl::InternalError(absl::StrCat("migrate: ", migration.name, " is out of order"));
    }
    RETURN_IF_ERROR(Wrap(
        InTransaction(
            *session, {std::string(migration.sql)},
            {Statement{"INSERT INTO postrider.schema_migrations (number, name, "
                       "checksum) VALUES ($1::integer, $2, $3)",
                       {SqlParam::Int(migration.number), migration.name, migration.checksum}}}),
        migration.name));
    report.applied.emplace_back(migration.name);
    report.to = migration.number;
  }
  RETURN_IF_ERROR(ApplyRoles(*session, roles));
  return report;
}

absl::Status CheckVersion(const std::string& url) {
  ASSIGN_OR_RETURN(std::unique_ptr<BlockingSession> session, BlockingSession::Open(url));
  absl::StatusOr<QueryResult> answer = session->Query(VersionCheckSql());
  if (!answer.ok()) {
    if (absl::IsUnavailable(answer.status())) return answer.status();
    const std::string state = SqlState(answer.status());
    // No such schema or table, or no right to see it.
    if (state == "3F000" || state == "42P01" || state == "42501") return NoSchema(SchemaVersion());
    return answer.status();
  }
  if (answer->rows() != 1) return absl::InternalError("the version check gave no answer");
  const absl::string_view fault = answer->text(0, 0);
  return fault.empty() ? absl::OkStatus() : absl::FailedPreconditionError(fault);
}

std::string VersionCheckSql() {
  const int ours = SchemaVersion();
  return absl::StrCat(
      "SELECT CASE WHEN at < ", ours, " THEN 'the database is at schema version ' || at || ', ",
      "older than this program''s ", ours, ": run `postrider migrate`' WHEN at > ", ours,
      " THEN 'the database is at schema version ' || at || ', newer than this program''s ", ours,
      ": run a newer postrider (`postrider migrate` of this one cannot help)' ELSE '' END AS fault "
      "FROM (SELECT coalesce(max(number), 0) AS at FROM postrider.schema_migrations) AS v");
}

std::string ApiRoleCheckSql() {
  // Roles that this session is or may become (SET ROLE), in the widest sense.
  return absl::StrCat(
      "WITH mine AS (SELECT * FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER') "
      "OR rolname IN (session_user, current_user)), fault(rank, text) AS ("
      "SELECT 1, 'the API''s role ' || session_user || ' is or may become ' || rolname || "
      "', which row-level security does not hold (superuser, BYPASSRLS or CREATEROLE): "
      "give database.api_url another role' FROM mine "
      "WHERE rolsuper OR rolbypassrls OR rolcreaterole "
      "UNION ALL SELECT 2, 'the API''s role ' || session_user || ' owns or may own ' || "
      "c.oid::regclass || ': give database.api_url a role that owns nothing' "
      "FROM pg_class c JOIN mine ON c.relowner = mine.oid WHERE NOT mine.rolsuper "
      "AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'postrider') "
      "UNION ALL SELECT 3, 'table ' || c.oid::regclass || ' has no forced row-level security' "
      "FROM pg_class c WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind IN ('r','p') "
      "AND NOT (c.relrowsecurity AND c.relforcerowsecurity) "
      "AND has_table_privilege(session_user, c.oid, 'SELECT') "
      "AND c.relname <> 'schema_migrations' "
      "UNION ALL SELECT 4, fault FROM (",
      VersionCheckSql(),
      ") AS version WHERE fault <> '') "
      "SELECT coalesce((SELECT text FROM fault ORDER BY rank LIMIT 1), '') AS fault");
}

absl::Status CheckApiRole(BlockingSession& session) {
  ASSIGN_OR_RETURN(QueryResult answer, session.Query(ApiRoleCheckSql()));
  if (answer.rows() != 1) return absl::InternalError("the role check gave no answer");
  const absl::string_view fault = answer.text(0, 0);
  return fault.empty() ? absl::OkStatus() : absl::FailedPreconditionError(fault);
}

}  // namespace postrider
