#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/stream/state_store.h"

namespace postrider {

// A store that is opened by `open` when the first value is written, and empty until then: most key
// groups have no backlog, and opening a RocksDB takes longer than moving a key group does.
//
// Errors: as the opened store's; kDataLoss from Apply() when it cannot be opened, which is tried
// again by each later one.
// Threads: `open` is called on the task's.
std::unique_ptr<StateStore> MakeLazyStore(
    absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open);

}  // namespace postrider
