#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace postrider {

// The CRC-32 of zlib, by which every stored form of the core tells damage. `before` is the checksum
// of what comes before `bytes`.
uint32_t Checksum(absl::string_view bytes, uint32_t before = 0);

// What it takes at the end of an encoded text.
inline constexpr size_t kChecksumBytes = 4;

}  // namespace postrider
