#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/stream/state_store.h"

namespace postrider {

// A store that is opened by `open` when the first value is written, and empty until then: most key
// groups have no backlog, and opening a RocksDB takes longer than moving a key group does.
//
// Errors: as the opened store's, and from Apply() those of `open`. After kResourceExhausted (a full
// disk; nothing is lost, and it may be tried again) it is asked once a second at most; after others
// by each Apply().
// Threads: `open` is called on the task's. `clock` outlives the store.
std::unique_ptr<StateStore> MakeLazyStore(
    const Clock& clock, absl::AnyInvocable<absl::StatusOr<std::unique_ptr<StateStore>>()> open);

}  // namespace postrider
