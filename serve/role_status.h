#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/stream/job.h"

namespace postrider {

// Why a role is not at work, if it is not; null: it has not started.
template <typename Role>
absl::Status StatusOf(const Role* role) {
  if (role == nullptr) return absl::UnavailableError("it has not started");
  const JobStatus status = role->status();
  if (!status.log_reachable) return absl::UnavailableError("the log does not answer");
  if (status.shards_assigned < status.shards) {
    return absl::UnavailableError(absl::StrCat(status.shards_assigned, " of ", status.shards,
                                               " shards have their share of the partitions"));
  }
  if (status.tasks_restoring > 0) {
    return absl::UnavailableError(
        absl::StrCat(status.tasks_restoring, " tasks are being restored"));
  }
  if (status.tasks_failed > 0) {
    return absl::UnavailableError(
        absl::StrCat(status.tasks_failed, " tasks have failed and are being restarted"));
  }
  return absl::OkStatus();
}

}  // namespace postrider
