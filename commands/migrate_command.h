#pragma once

#include "absl/status/status.h"
#include "migrations/database_options.h"

namespace postrider {

// `postrider migrate`: brings the database to this version's schema, and prints what it did.
// Blocks.
absl::Status RunMigrateCommand(DatabaseOptions database);

}  // namespace postrider
