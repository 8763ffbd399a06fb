#pragma once

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/stream/job.h"

namespace postrider {

// Why a role is not at work, if it is not; null: it has not started.
template <typename Role>
absl::Status StatusOf(const Role* role, const Clock& clock) {
  if (role == nullptr) return absl::UnavailableError("it has not started");
  return AtWork(role->status(), clock.Now());
}

}  // namespace postrider
