#include "serve/start_checks.h"

#include "absl/strings/str_cat.h"
#include "core/base/file_limit.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "delivery/memory_budget.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider {
namespace {

constexpr int64_t kTesterFiles = 72;  // connections of MakeEndpointTester()

}  // namespace

absl::StatusOr<OpenFiles> RaiseFileLimit(const ProgramOptions& options) {
  OpenFiles files;
  files.max = RaiseOpenFileLimit();
  if (options.Has("api")) files.other = options.api.connections_max + kTesterFiles;
  if (!options.Has("worker")) return files;
  ASSIGN_OR_RETURN(const delivery::MemoryBudget memory, options.worker.Memory());
  ASSIGN_OR_RETURN(const int64_t connections,
                   options.worker.IdleConnections(memory, files.max, files.other));
  if (connections < memory.connections_max) {
    POSTRIDER_LOG(kWarn, "few open files allowed, so fewer connections are kept",
                  {"limit", files.max}, {"kept_per_shard", connections},
                  {"memory_has_room_for", memory.connections_max});
  }
  return files;
}

// With a key file that opens no secret at all, every message would end as a dead letter.
absl::Status CheckKeys(const ProgramOptions& options, const KeyRing& keys,
                       const subscriptions::Snapshot& snapshot) {
  absl::Status failure;
  for (const auto& endpoint : snapshot.endpoints()) {
    failure = subscriptions::OpenEndpointSecrets(keys, endpoint->customer, endpoint->id,
                                                 endpoint->secrets_sealed)
                  .status();
    if (failure.ok()) return failure;
  }
  if (failure.ok()) return failure;
  return absl::FailedPreconditionError(
      absl::StrCat("option secrets.key_file: ", options.key_file,
                   " opens none of the secrets in the database: ", failure.message()));
}

}  // namespace postrider
