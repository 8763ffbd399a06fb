#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "absl/strings/string_view.h"

namespace postrider {

using HmacTag = std::array<uint8_t, 32>;

// A prepared key of HMAC-SHA256: the key schedule is done once, each Mac() only hashes.
//
// Threads: owned by one. The key's bytes are wiped when it goes.
class HmacSha256Key {
 public:
  // 1 .. 1,024 bytes.
  explicit HmacSha256Key(absl::string_view key);
  ~HmacSha256Key();
  HmacSha256Key(HmacSha256Key&&) noexcept;
  HmacSha256Key& operator=(HmacSha256Key&&) noexcept;

  // Of the parts one after the other, as if they were one text.
  HmacTag Mac(std::initializer_list<absl::string_view> parts);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
