#pragma once

#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/embedded_log/internal/database.h"
#include "core/stream/log.h"

namespace postrider::embedded_log_internal {

// The positions of groups in the database.
absl::Status CheckPosition(const CommittedPosition& position);
// For Writer::Change::prepare.
absl::AnyInvocable<absl::Status(WriteSet&)> WritePositions(const std::string& group,
                                                           std::vector<CommitEntry> entries);
bool DecodePosition(absl::string_view bytes, CommittedPosition* position);

}  // namespace postrider::embedded_log_internal
