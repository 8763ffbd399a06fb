#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace postrider {

// The key group (partition) of a key: xxHash64, seed 0, of its bytes, modulo their number. `part`
// spreads one key over several key groups; 0 for keys that are not spread, else it is hashed too,
// as four little-endian bytes behind the key. Stable for ever: it decides where state lies.
int32_t KeyGroupOf(absl::string_view key, uint32_t part, int32_t key_groups);

}  // namespace postrider
