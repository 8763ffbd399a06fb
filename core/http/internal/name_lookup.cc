#include "core/http/internal/name_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/types/optional.h"

namespace postrider::internal {
namespace {

constexpr int kTries = 2;

// Of the calling thread. Read anew each time, so that a changed resolv.conf is seen.
void SetUpThisThread(const SystemResolverOptions& options) {
  if (res_init() != 0) return;  // then getaddrinfo does it by itself
  _res.retrans = std::min(_res.retrans, static_cast<int>(options.ask_timeout.count()));
  _res.retry = std::min(_res.retry, kTries);
  _res.options &= ~static_cast<unsigned long>(RES_DNSRCH | RES_DEFNAMES);
  if (!options.name_server) return;
  sockaddr_in& server = _res.nsaddr_list[0];
  server = {};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(options.name_server->first.v4());
  server.sin_port = htons(options.name_server->second);
  _res.nscount = 1;
}

}  // namespace

std::vector<IpAddress> LookUpName(const std::string& host, const SystemResolverOptions& options) {
  SetUpThisThread(options);
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  std::vector<IpAddress> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr && addresses.size() < options.addresses_max;
       entry = entry->ai_next) {
    const absl::optional<IpAddress> address =
        IpAddress::FromSockaddr(entry->ai_addr, entry->ai_addrlen);
    if (address && std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) {
      addresses.push_back(*address);
    }
  }
  return addresses;
}

}  // namespace postrider::internal
