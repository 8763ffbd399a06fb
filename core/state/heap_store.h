#pragma once

#include <cstddef>
#include <memory>

#include "core/stream/state_store.h"

namespace postrider {

struct HeapStoreOptions {
  // Keys, values and 64 bytes for each entry.
  size_t bytes_max = 64 << 20;
};

// A StateStore in memory. It never spills: past its bound it refuses.
std::unique_ptr<StateStore> MakeHeapStore(const HeapStoreOptions& options);

}  // namespace postrider
