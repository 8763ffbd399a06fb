#pragma once

#include <cstddef>

#include "core/base/clock.h"
#include "core/base/id.h"

namespace postrider {

// Fills `size` bytes with randomness fit for secrets. The process stops if the system has none.
// Threads: any.
void FillRandom(void* out, size_t size);

// 48 bits of wall time in milliseconds, big-endian, then 80 random bits: new ids sort by age.
// Threads: any.
IdBytes NewIdBytes(const Clock& clock);

// NewId<EndpointId>(clock)
template <typename IdType>
IdType NewId(const Clock& clock) {
  return IdType(NewIdBytes(clock));
}

}  // namespace postrider
