#include "core/http/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "core/base/check.h"

namespace postrider {

IpAddress IpAddress::V4(uint32_t host_order) {
  IpAddress address;
  for (size_t i = 0; i < 4; ++i) {
    address.bytes_[i] = static_cast<uint8_t>(host_order >> (8 * (3 - i)));
  }
  return address;
}

IpAddress IpAddress::V6(const std::array<uint8_t, 16>& bytes) {
  IpAddress address;
  address.family_ = Family::kV6;
  address.bytes_ = bytes;
  return address;
}

absl::optional<IpAddress> IpAddress::Parse(absl::string_view text) {
  // inet_pton is strict: no short, octal or hexadecimal IPv4, no zone.
  char buffer[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof(buffer) || text.find('\0') != absl::string_view::npos) {
    return absl::nullopt;
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  in_addr v4 = {};
  if (inet_pton(AF_INET, buffer, &v4) == 1) return V4(ntohl(v4.s_addr));
  std::array<uint8_t, 16> v6;
  if (inet_pton(AF_INET6, buffer, v6.data()) == 1) return V6(v6);
  return absl::nullopt;
}

absl::optional<IpAddress> IpAddress::FromSockaddr(const void* sockaddr_bytes, size_t size) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  sa_family_t family = AF_UNSPEC;
  if (size < offsetof(sockaddr, sa_family) + sizeof(family)) return absl::nullopt;
  std::memcpy(&family, static_cast<const char*>(sockaddr_bytes) + offsetof(sockaddr, sa_family),
              sizeof(family));
  if (family == AF_INET && size >= sizeof(v4)) {
    std::memcpy(&v4, sockaddr_bytes, sizeof(v4));
    return V4(ntohl(v4.sin_addr.s_addr));
  }
  if (family == AF_INET6 && size >= sizeof(v6)) {
    std::memcpy(&v6, sockaddr_bytes, sizeof(v6));
    std::array<uint8_t, 16> bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
    return V6(bytes);
  }
  return absl::nullopt;
}

uint32_t IpAddress::v4() const {
  POSTRIDER_DCHECK(family_ == Family::kV4);
  return static_cast<uint32_t>(bytes_[0]) << 24 | static_cast<uint32_t>(bytes_[1]) << 16 |
         static_cast<uint32_t>(bytes_[2]) << 8 | bytes_[3];
}

std::string IpAddress::ToString() const {
  char buffer[INET6_ADDRSTRLEN];
  const int family = family_ == Family::kV4 ? AF_INET : AF_INET6;
  POSTRIDER_CHECK(inet_ntop(family, bytes_.data(), buffer, sizeof(buffer)) != nullptr);
  return buffer;
}

absl::optional<IpNetwork> IpNetwork::Parse(absl::string_view text) {
  const size_t slash = text.find('/');
  const absl::optional<IpAddress> base = IpAddress::Parse(text.substr(0, slash));
  if (!base) return absl::nullopt;
  const int bits_max = base->family() == IpAddress::Family::kV4 ? 32 : 128;
  IpNetwork network{*base, bits_max};
  if (slash != absl::string_view::npos) {
    const absl::string_view digits = text.substr(slash + 1);
    if (digits.empty() || digits.size() > 3 ||
        digits.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(digits, &network.prefix_bits) || network.prefix_bits > bits_max) {
      return absl::nullopt;
    }
  }
  return network;
}

bool IpNetwork::Contains(const IpAddress& address) const {
  if (address.family() != base.family()) return false;
  const size_t whole = static_cast<size_t>(prefix_bits) / 8;
  const int rest = prefix_bits % 8;
  if (std::memcmp(address.bytes().data(), base.bytes().data(), whole) != 0) return false;
  return rest == 0 || ((address.bytes()[whole] ^ base.bytes()[whole]) >> (8 - rest)) == 0;
}

}  // namespace postrider
