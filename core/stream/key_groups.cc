#include "core/stream/key_groups.h"

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/bytes.h"
#include "core/base/check.h"
#include "xxhash.h"

namespace postrider {

int32_t KeyGroupOf(absl::string_view key, uint32_t part, int32_t key_groups) {
  POSTRIDER_CHECK(key_groups > 0);
  uint64_t hash = 0;
  if (part == 0) {
    hash = XXH64(key.data(), key.size(), 0);
  } else {
    ByteWriter spread;
    spread.Raw(key);
    spread.U32(part);
    hash = XXH64(spread.bytes().data(), spread.bytes().size(), 0);
  }
  return static_cast<int32_t>(hash % static_cast<uint64_t>(key_groups));
}

}  // namespace postrider
