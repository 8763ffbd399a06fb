#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider {

// An IPv4 or IPv6 address in binary form. Text is parsed strictly: four decimal numbers without
// leading zeros, or the IPv6 forms of RFC 4291 without a zone.
class IpAddress {
 public:
  enum class Family : uint8_t { kV4, kV6 };

  IpAddress() = default;  // 0.0.0.0
  static IpAddress V4(uint32_t host_order);
  static IpAddress V6(const std::array<uint8_t, 16>& bytes);
  static absl::optional<IpAddress> Parse(absl::string_view text);
  // Of a `sockaddr` of AF_INET or AF_INET6; no value for another family or too few bytes.
  static absl::optional<IpAddress> FromSockaddr(const void* sockaddr_bytes, size_t size);

  Family family() const { return family_; }
  // The first 4 or all 16 bytes count.
  const std::array<uint8_t, 16>& bytes() const { return bytes_; }
  uint32_t v4() const;  // host order; only of a v4
  // The canonical form of RFC 5952, without brackets.
  std::string ToString() const;

  friend bool operator==(const IpAddress&, const IpAddress&) = default;

 private:
  Family family_ = Family::kV4;
  std::array<uint8_t, 16> bytes_{};
};

// "10.0.0.0/8", "fd00::/8", or an address alone.
struct IpNetwork {
  IpAddress base;
  int prefix_bits = 0;

  static absl::optional<IpNetwork> Parse(absl::string_view text);
  bool Contains(const IpAddress& address) const;
};

}  // namespace postrider
