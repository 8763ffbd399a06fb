#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace postrider::delivery {

// What a text takes in JSON without its quotes, at most: itself where it is plain ASCII, else no
// more than six bytes for one.
inline size_t JsonTextBytesMax(absl::string_view text) {
  size_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
    bytes += plain ? 1 : 6;
  }
  return bytes;
}

}  // namespace postrider::delivery
