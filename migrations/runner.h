#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/postgres/blocking.h"
#include "migrations/database_options.h"

namespace postrider {

// One file NNNN_what.sql, compiled into the program.
struct Migration {
  int number = 0;
  absl::string_view name;  // "0001_schema"
  absl::string_view sql;
  absl::string_view checksum;  // SHA-256 of the file, hex
};

// All of them, by number from 1 without a gap.
absl::Span<const Migration> Migrations();
// The last one's number: what this program needs.
int SchemaVersion();

struct MigrateReport {
  int from = 0;
  int to = 0;
  std::vector<std::string> applied;
  std::vector<std::string> roles_created;
};

// Brings the database of `options.url` to this program's schema, one transaction per migration,
// under an advisory lock, so that any number may run at once. Creates the login roles of the other
// URLs when they are missing (with the URLs' passwords; a role that exists is left as it is) and
// gives them exactly the rights that they need. FailedPrecondition: an applied migration is not
// the file that we have, or the database is newer than this program. Blocks.
absl::StatusOr<MigrateReport> Migrate(const DatabaseOptions& options);
// The same with other migrations; for tests.
absl::StatusOr<MigrateReport> Migrate(const DatabaseOptions& options,
                                      absl::Span<const Migration> migrations);

// Whether the database that `url` (any of our roles) leads to is of exactly this program's schema.
// FailedPrecondition says which is older and names `postrider migrate`; kUnavailable: no answer.
// Blocks at most some seconds.
absl::Status CheckVersion(const std::string& url);

// For ConnectionOptions::check_sql: the same two questions asked of each new connection.
// The schema's version is this program's.
std::string VersionCheckSql();
// The version, and that the session's role owns nothing in the database, is no superuser, has
// neither BYPASSRLS nor CREATEROLE, and is no member of a role of which this is not true.
std::string ApiRoleCheckSql();
// FailedPrecondition when the role of `session` could get around row-level security.
absl::Status CheckApiRole(BlockingSession& session);

}  // namespace postrider
