#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/crypto/key_ring.h"
#include "serve/program_options.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider {

// How many files the process may have open.
struct OpenFiles {
  int64_t max = 0;
  int64_t other = 0;  // those of the api
};

// Raises the limit as far as it goes, as every receiver kept alive is a file, and warns when it
// binds. kInvalidArgument: the worker's memory is given wrong.
absl::StatusOr<OpenFiles> RaiseFileLimit(const ProgramOptions& options);

// kFailedPrecondition: `keys` open none of the secrets in `snapshot`, though it has some.
absl::Status CheckKeys(const ProgramOptions& options, const KeyRing& keys,
                       const subscriptions::Snapshot& snapshot);

}  // namespace postrider
