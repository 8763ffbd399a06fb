#pragma once

#include <string>

#include "absl/status/status.h"
#include "migrations/database_options.h"

namespace postrider {

// `postrider keys create`: makes an operator's key, and prints it, this once. kInvalidArgument:
// `scope` is another. Blocks.
absl::Status RunKeysCreate(DatabaseOptions database, const std::string& scope,
                           const std::string& name);

}  // namespace postrider
