#include "core/crypto/random.h"

#include <openssl/rand.h>

#include <cstdint>

#include "core/base/check.h"

namespace postrider {

void FillRandom(void* out, size_t size) {
  auto* bytes = static_cast<unsigned char*>(out);
  while (size > 0) {
    const int part = size > 4'096 ? 4'096 : static_cast<int>(size);
    POSTRIDER_CHECK(RAND_bytes(bytes, part) == 1);
    bytes += part;
    size -= static_cast<size_t>(part);
  }
}

IdBytes NewIdBytes(const Clock& clock) {
  IdBytes bytes;
  const auto millis = static_cast<uint64_t>(MillisSinceEpoch(clock.Wall()));
  for (size_t i = 0; i < 6; ++i) bytes[i] = static_cast<uint8_t>(millis >> (8 * (5 - i)));
  FillRandom(bytes.data() + 6, bytes.size() - 6);
  return bytes;
}

}  // namespace postrider
