#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/http/ip_address.h"

namespace postrider {

class Options;

struct AddressRulesOptions {
  std::vector<std::string> allow;  // network.allow
  std::vector<std::string> deny;   // network.deny
  // network.nat64: `allowed`, where the inner address decides, or `refused`.
  std::string nat64 = "allowed";
  // Our own listeners, brokers and database: refused whatever the lists say. One address of this
  // machine (loopback, unspecified, an interface's) stands for all of them: what listens on one of
  // them may listen on all.
  std::vector<std::pair<IpAddress, uint16_t>> own;
  // network.own_hosts: names under which we are reached, such as at a load balancer.
  std::vector<std::string> own_hosts;

  // network.allow, network.deny, network.nat64, network.own_hosts
  void Register(Options& options);
};

// Says which addresses we may connect to. It judges the binary address that a socket is about to
// be connected to, never text. Refused are all ranges that are not plain public unicast: private,
// loopback, link-local, CGNAT, multicast, reserved, documentation and benchmark nets, and IPv4
// inside IPv6 in whatever form (mapped, of public addresses too, compatible, 6to4, Teredo, ISATAP;
// of NAT64 the inner address decides, unless all are refused), cloud agents on public addresses,
// and ports of other protocols.
//
// Order: `own` refuses, then `deny` refuses, then `allow` allows (and lifts the rule about ports
// for that address), then what is built in. An IPv4 network of a list also holds for the address
// mapped into IPv6.
//
// Threads: any, once made.
class AddressRules {
 public:
  enum class Verdict : uint8_t { kAllowed, kAddressRefused, kPortRefused };

  // InvalidArgument names the list and the entry that is no network, or no host.
  static absl::StatusOr<std::shared_ptr<const AddressRules>> Create(
      const AddressRulesOptions& options);
  // What is built in and nothing else.
  static std::shared_ptr<const AddressRules> Default();

  Verdict Check(const IpAddress& address, uint16_t port) const;
  // Whether a URL's host (HttpUrl::host) is a name of our own, whatever its addresses are.
  bool IsOwnHost(absl::string_view host) const;
  // Ports of other protocols, refused wherever no allow entry lifts the rule.
  static bool IsRefusedPort(uint16_t port);

 private:
  AddressRules() = default;
  // An address of this machine, or what connect() takes for one.
  bool IsHere(const IpAddress& address) const;

  std::vector<IpNetwork> allow_;
  std::vector<IpNetwork> deny_;
  bool nat64_allowed_ = true;
  std::vector<std::pair<IpAddress, uint16_t>> own_;
  std::vector<std::string> own_hosts_;  // as HttpUrl::host has them
  std::vector<IpAddress> local_;        // this machine's, as they were when the rules were made
};

// A server as an option names it.
struct HostAndPort {
  std::string host;  // a name or an address
  uint16_t port = 0;

  friend bool operator==(const HostAndPort&, const HostAndPort&) = default;
};

// What is in a list `host[:port],...` such as options of brokers and databases have, `[...]` around
// IPv6, perhaps `protocol://` before each; `port_default` where there is no port. What is no such
// thing is left out.
std::vector<HostAndPort> HostsIn(absl::string_view hosts, uint16_t port_default);
// Those that are addresses, but for port 0; names are left out.
std::vector<std::pair<IpAddress, uint16_t>> AddressesAmong(const std::vector<HostAndPort>& places);

}  // namespace postrider
