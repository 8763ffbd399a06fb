#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "migrations/runner.h"

// What embed_sql.cmake makes of the .sql files.
namespace postrider::internal {

absl::Span<const Migration> EmbeddedMigrations();
absl::string_view EmbeddedRoles();
absl::string_view EmbeddedRolesChecksum();

}  // namespace postrider::internal
