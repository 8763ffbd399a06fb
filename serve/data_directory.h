#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/state/process_directory.h"
#include "serve/program_options.h"

namespace postrider {

// Makes data_dir when it is missing. kInvalidArgument: it cannot be used; what cannot be written
// would be missed only when Postgres is away.
absl::Status MakeDataDirectory(const ProgramOptions& options);

// Two processes would overwrite each other's snapshot and state: kFailedPrecondition when another
// has it.
absl::StatusOr<std::unique_ptr<ProcessDirectory>> OwnDataDirectory(const ProgramOptions& options);

// `status` with the option that it is about.
absl::Status WithOption(absl::string_view option, const absl::Status& status);

}  // namespace postrider
