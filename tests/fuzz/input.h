#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/id.h"

namespace postrider::fuzz {

// Takes values off the bytes of one input, so that any bytes at all make a record to be encoded.
// Past the end everything is zero or empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  bool Flag() { return (Byte() & 1) != 0; }
  // Of 0 to 8 bytes: small numbers are as likely as large ones.
  uint64_t Number() {
    uint64_t value = 0;
    for (int width = Byte() % 9; width > 0; --width) value = value << 8 | Byte();
    return value;
  }
  int64_t Signed() { return static_cast<int64_t>(Number()); }
  // Between 0 and `most`.
  uint64_t UpTo(uint64_t most) { return most == UINT64_MAX ? Number() : Number() % (most + 1); }
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(UpTo(static_cast<uint64_t>(most - least)));
  }
  // At most 255 bytes.
  absl::string_view Text() {
    const uint8_t wanted = Byte();
    const size_t size = std::min<size_t>(wanted, rest_.size());
    const absl::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  IdBytes Id() {
    IdBytes bytes{};
    for (uint8_t& byte : bytes) byte = Byte();
    return bytes;
  }
  template <typename IdType>
  IdType IdOf() {
    return IdType(Id());
  }

  bool empty() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

inline absl::string_view View(const uint8_t* data, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

}  // namespace postrider::fuzz

// What each target defines. It returns 0; a broken property stops the process (core/base/check.h).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
