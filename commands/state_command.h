#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/stream/log.h"

namespace postrider {

// `postrider state upgrade [--finish]`: says which states of the pool's workers can be brought to a
// newer version, and with `finish` lets the workers write it from their next start on: the binary
// before cannot run from then on. `prefix` is that of our own topics in `log`. Blocks.
absl::Status RunStateUpgrade(const std::string& pool, bool finish, Log& log, const Clock& clock,
                             const std::string& prefix);

}  // namespace postrider
