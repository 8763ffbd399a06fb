#include "core/http/address_guard.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "core/base/options.h"
#include "core/http/url.h"

namespace postrider {
namespace {

using Bytes16 = std::array<uint8_t, 16>;

struct V4Range {
  uint32_t base;
  int prefix_bits;
};

constexpr uint32_t V4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

// IANA's special-purpose registry, and agents of clouds that live on public addresses.
constexpr V4Range kRefusedV4[] = {
    {V4(0, 0, 0, 0), 8},         // this network
    {V4(10, 0, 0, 0), 8},        // private
    {V4(100, 64, 0, 0), 10},     // CGNAT; 100.100.100.200 is a cloud's metadata
    {V4(127, 0, 0, 0), 8},       // loopback
    {V4(168, 63, 129, 16), 32},  // a cloud's host agent
    {V4(169, 254, 0, 0), 16},    // link-local; metadata of most clouds
    {V4(172, 16, 0, 0), 12},     // private
    {V4(192, 0, 0, 0), 24},      // protocol assignments; 192.0.0.192 is a cloud's metadata
    {V4(192, 0, 2, 0), 24},      // documentation
    {V4(192, 31, 196, 0), 24},   // AS112
    {V4(192, 52, 193, 0), 24},   // AMT
    {V4(192, 88, 99, 0), 24},    // 6to4 relays
    {V4(192, 168, 0, 0), 16},    // private
    {V4(192, 175, 48, 0), 24},   // AS112
    {V4(198, 18, 0, 0), 15},     // benchmarks
    {V4(198, 51, 100, 0), 24},   // documentation
    {V4(203, 0, 113, 0), 24},    // documentation
    {V4(224, 0, 0, 0), 4},       // multicast
    {V4(240, 0, 0, 0), 4},       // reserved, broadcast
};

// Within 2000::/3; everything outside it is refused (loopback, mapped, compatible, unique local,
// link-local, site-local, multicast, ...), but NAT64.
struct V6Range {
  Bytes16 base;
  int prefix_bits;
};
constexpr V6Range kRefusedV6[] = {
    {{0x20, 0x01, 0x00}, 23},                    // Teredo, benchmarks, ORCHID, ...
    {{0x20, 0x01, 0x0d, 0xb8}, 32},              // documentation
    {{0x20, 0x02}, 16},                          // 6to4
    {{0x26, 0x20, 0x00, 0x4f, 0x80, 0x00}, 48},  // AS112
    {{0x3f, 0xff, 0x00}, 20},                    // documentation
};
constexpr V6Range kGlobalV6 = {{0x20}, 3};
constexpr V6Range kNat64 = {{0x00, 0x64, 0xff, 0x9b}, 96};

// The ports that the Fetch standard blocks, and those of our own kind of servers. Sorted.
constexpr uint16_t kRefusedPorts[] = {
    0,    1,    7,    9,    11,   13,   15,   17,   19,   20,   21,   22,   23,   25,   37,
    42,   43,   53,   69,   77,   79,   87,   95,   101,  102,  103,  104,  109,  110,  111,
    113,  115,  117,  119,  123,  135,  137,  139,  143,  161,  179,  389,  427,  465,  512,
    513,  514,  515,  526,  530,  531,  532,  540,  548,  554,  556,  563,  587,  601,  636,
    989,  990,  993,  995,  1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 5432, 6000,
    6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9092, 10080};

bool In(const V6Range& range, const IpAddress& address) {
  return IpNetwork{IpAddress::V6(range.base), range.prefix_bits}.Contains(address);
}

uint32_t V4At(const Bytes16& bytes, size_t offset) {
  return V4(bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]);
}

// The IPv4 address that a mapped one is.
absl::optional<IpAddress> Mapped(const IpAddress& address) {
  static constexpr Bytes16 kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (!IpNetwork{IpAddress::V6(kMapped), 96}.Contains(address)) return absl::nullopt;
  return IpAddress::V4(V4At(address.bytes(), 12));
}

bool IsIsatap(const Bytes16& bytes) {
  return (bytes[8] & 0xfd) == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe;
}

bool BuiltInAllows(const IpAddress& address) {
  if (address.family() == IpAddress::Family::kV4) {
    return std::none_of(std::begin(kRefusedV4), std::end(kRefusedV4), [&](const V4Range& range) {
      return ((address.v4() ^ range.base) >> (32 - range.prefix_bits)) == 0;
    });
  }
  return In(kGlobalV6, address) && !IsIsatap(address.bytes()) &&
         std::none_of(std::begin(kRefusedV6), std::end(kRefusedV6),
                      [&](const V6Range& range) { return In(range, address); });
}

bool Contains(const std::vector<IpNetwork>& networks, const IpAddress& address,
              const absl::optional<IpAddress>& mapped) {
  return std::any_of(networks.begin(), networks.end(), [&](const IpNetwork& network) {
    return network.Contains(address) || (mapped && network.Contains(*mapped));
  });
}

constexpr Bytes16 kLoopbackV6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

// 127.0.0.0/8 and ::1, and what connect() takes for them.
bool IsLoopback(const IpAddress& address) {
  return address == IpAddress::V4(0) || address == IpAddress::V6({}) ||
         address == IpAddress::V6(kLoopbackV6) ||
         (address.family() == IpAddress::Family::kV4 && address.v4() >> 24 == 127);
}

// The addresses of this machine's interfaces.
std::vector<IpAddress> LocalAddresses() {
  std::vector<IpAddress> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const absl::optional<IpAddress> address = IpAddress::FromSockaddr(
        one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (address) addresses.push_back(*address);
  }
  ::freeifaddrs(list);
  return addresses;
}

absl::Status ParseList(absl::string_view name, const std::vector<std::string>& texts,
                       std::vector<IpNetwork>* networks) {
  for (const std::string& text : texts) {
    const absl::optional<IpNetwork> network = IpNetwork::Parse(text);
    if (!network) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": \"", text, "\" is neither an address nor a network such as 10.0.0.0/8"));
    }
    networks->push_back(*network);
  }
  return absl::OkStatus();
}

}  // namespace

void AddressRulesOptions::Register(Options& options) {
  options.AddList("network.allow", &allow,
                  "Networks (CIDR) that deliveries may reach although they are not public, on any "
                  "port; for tests and private installations. Read again at SIGHUP.");
  options.AddList(
      "network.deny", &deny,
      "Networks (CIDR) that deliveries may never reach; stronger than network.allow. Read "
      "again at SIGHUP.");
  options.AddChoice("network.nat64", &nat64, {"allowed", "refused"},
                    "Whether deliveries may reach public IPv4 addresses by NAT64 (64:ff9b::/96); "
                    "refused where no such translator is wanted. Read again at SIGHUP.");
  options.AddList("network.own_hosts", &own_hosts,
                  "Host names under which this service is reached from outside, such as at a load "
                  "balancer: no endpoint may lead there. Read again at SIGHUP.");
}

absl::StatusOr<std::shared_ptr<const AddressRules>> AddressRules::Create(
    const AddressRulesOptions& options) {
  std::shared_ptr<AddressRules> rules(new AddressRules);
  if (absl::Status status = ParseList("network.allow", options.allow, &rules->allow_);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = ParseList("network.deny", options.deny, &rules->deny_); !status.ok()) {
    return status;
  }
  rules->nat64_allowed_ = options.nat64 == "allowed";
  rules->own_ = options.own;
  for (const std::string& text : options.own_hosts) {
    const absl::StatusOr<HttpUrl> url = ParseHttpUrl(absl::StrCat("https://", text, "/"));
    if (!url.ok() || url->port != 443 || url->target != "/") {
      return absl::InvalidArgumentError(absl::StrCat("network.own_hosts: \"", text,
                                                     "\" is no host name such as api.example.com"));
    }
    rules->own_hosts_.push_back(url->host);
  }
  rules->local_ = LocalAddresses();
  return std::shared_ptr<const AddressRules>(std::move(rules));
}

std::shared_ptr<const AddressRules> AddressRules::Default() {
  return std::shared_ptr<const AddressRules>(new AddressRules);
}

bool AddressRules::IsOwnHost(absl::string_view host) const {
  return std::find(own_hosts_.begin(), own_hosts_.end(), host) != own_hosts_.end();
}

bool AddressRules::IsRefusedPort(uint16_t port) {
  return std::binary_search(std::begin(kRefusedPorts), std::end(kRefusedPorts), port);
}

bool AddressRules::IsHere(const IpAddress& address) const {
  return IsLoopback(address) || std::find(local_.begin(), local_.end(), address) != local_.end();
}

AddressRules::Verdict AddressRules::Check(const IpAddress& address, uint16_t port) const {
  const absl::optional<IpAddress> mapped = Mapped(address);
  const bool nat64 = address.family() == IpAddress::Family::kV6 && In(kNat64, address);
  // Where a connection really goes.
  const IpAddress plain =
      nat64 ? IpAddress::V4(V4At(address.bytes(), 12)) : mapped.value_or(address);
  for (const auto& [own_address, own_port] : own_) {
    if (own_port == port && (own_address == plain || (IsHere(own_address) && IsHere(plain)))) {
      return Verdict::kAddressRefused;
    }
  }
  if (Contains(deny_, address, plain)) return Verdict::kAddressRefused;
  if (Contains(allow_, address, mapped)) return Verdict::kAllowed;
  if (nat64 && nat64_allowed_) return Check(plain, port);
  if (!BuiltInAllows(address)) return Verdict::kAddressRefused;
  return IsRefusedPort(port) ? Verdict::kPortRefused : Verdict::kAllowed;
}

std::vector<HostAndPort> HostsIn(absl::string_view hosts, uint16_t port_default) {
  std::vector<HostAndPort> found;
  for (absl::string_view entry : absl::StrSplit(hosts, ',')) {
    if (const size_t slashes = entry.find("://"); slashes != absl::string_view::npos) {
      entry.remove_prefix(slashes + 3);
    }
    entry = absl::StripAsciiWhitespace(entry);
    absl::string_view host = entry;
    absl::string_view digits;
    if (!entry.empty() && entry.front() == '[') {
      const size_t end = entry.find(']');
      if (end == absl::string_view::npos) continue;
      host = entry.substr(1, end - 1);
      if (end + 1 < entry.size()) digits = entry.substr(end + 2);
    } else if (const size_t colon = entry.find(':');
               colon != absl::string_view::npos &&
               entry.find(':', colon + 1) == absl::string_view::npos) {
      host = entry.substr(0, colon);
      digits = entry.substr(colon + 1);
    }
    uint32_t port = port_default;
    if (!digits.empty() && !absl::SimpleAtoi(digits, &port)) continue;
    // A path is the place of a socket in the file system.
    if (host.empty() || host.find_first_of("/ ") != absl::string_view::npos || port > 65'535) {
      continue;
    }
    found.push_back({std::string(host), static_cast<uint16_t>(port)});
  }
  return found;
}

std::vector<std::pair<IpAddress, uint16_t>> AddressesAmong(const std::vector<HostAndPort>& places) {
  std::vector<std::pair<IpAddress, uint16_t>> addresses;
  for (const HostAndPort& place : places) {
    const absl::optional<IpAddress> address = IpAddress::Parse(place.host);
    if (address && place.port > 0) addresses.emplace_back(*address, place.port);
  }
  return addresses;
}

}  // namespace postrider
