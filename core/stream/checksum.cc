#include "core/stream/checksum.h"

#include <zlib.h>

namespace postrider {

uint32_t Checksum(absl::string_view bytes, uint32_t before) {
  return static_cast<uint32_t>(
      crc32(before, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

}  // namespace postrider
