#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "core/http/address_guard.h"
#include "core/http/ip_address.h"

namespace postrider {

class EventLoop;

// Knows the addresses of our own servers, which options give by name too: all names are looked up
// at the start and again and again. An address that a name once had stays, so that a name whose
// answers take turns changes nothing; one that cannot be looked up keeps those that it had.
//
// Threads: the loop's; lookups block, on a thread of its own that nobody waits for at the end.
// Bounds:  kHostsMax hosts, the first ones; kAddressesMax addresses of each, the newest.
class OwnAddresses {
 public:
  static constexpr size_t kHostsMax = 256;
  static constexpr size_t kAddressesMax = 64;

  // By AddressRulesOptions::own.
  using Places = std::vector<std::pair<IpAddress, uint16_t>>;
  // The addresses of a name; empty when there are none. May block, and outlive this.
  using Lookup = std::function<std::vector<IpAddress>(const std::string& host)>;
  // Hosts that are only known later, such as what brokers say of themselves: asked before each time
  // that names are looked up, on the same thread, and kept. Whoever destroys this waits for it.
  using MoreHosts = std::function<std::vector<HostAndPort>()>;

  // Whether each name was found once. As long as some were not, kEagerRounds at most, they are
  // looked up again after a second, if that is sooner.
  enum class Known : uint8_t { kSome, kAll };
  static constexpr int kEagerRounds = 10;
  using Found = absl::AnyInvocable<void(Places, Known)>;

  // `found` runs on the loop whenever more is known: after each name of the first round, so that
  // one that hangs keeps no other back, and then whenever what names stand for has changed. `loop`
  // outlives this.
  OwnAddresses(EventLoop& loop, std::vector<HostAndPort> hosts, MoreHosts more, Lookup lookup,
               std::chrono::milliseconds interval, Found found);
  ~OwnAddresses();
  OwnAddresses(const OwnAddresses&) = delete;
  OwnAddresses& operator=(const OwnAddresses&) = delete;

  // getaddrinfo as librdkafka and libpq use it: with the search list of the system.
  static Lookup SystemLookup();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace postrider
