#include "subscriptions/registry/internal/text_rules.h"

#include <cstddef>
#include <cstdint>

namespace postrider::subscriptions::internal {

bool IsPlainText(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<uint8_t>(text[at]);
    size_t more = 0;
    uint32_t point = 0;
    uint32_t least = 0;
    if (lead < 0x80) {
      point = lead;
    } else if ((lead & 0xe0) == 0xc0) {
      more = 1;
      point = lead & 0x1f;
      least = 0x80;
    } else if ((lead & 0xf0) == 0xe0) {
      more = 2;
      point = lead & 0x0f;
      least = 0x800;
    } else if ((lead & 0xf8) == 0xf0) {
      more = 3;
      point = lead & 0x07;
      least = 0x10000;
    } else {
      return false;
    }
    if (at + more >= text.size()) return false;
    for (size_t i = 1; i <= more; ++i) {
      const auto byte = static_cast<uint8_t>(text[at + i]);
      if ((byte & 0xc0) != 0x80) return false;
      point = (point << 6) | (byte & 0x3f);
    }
    if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
    at += more + 1;
  }
  return true;
}

}  // namespace postrider::subscriptions::internal
