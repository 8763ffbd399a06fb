#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/http/ip_address.h"

namespace postrider {

class Options;

// An HTTP proxy through which everything goes out: each connection asks it by CONNECT for the
// address that we have resolved and checked, http receivers too. Its own address is not judged.
struct EgressProxy {
  std::string host;                   // a name, or an address in canonical form
  absl::optional<IpAddress> address;  // when the host is a literal
  uint16_t port = 80;
  std::string user;  // Basic; empty: no credentials
  std::string password;
};

struct EgressProxyOptions {
  std::string url;               // network.egress_proxy; empty: none
  std::string credentials_file;  // network.egress_proxy_credentials_file

  void Register(Options& options);
  // Null: no proxy is wanted. InvalidArgument: no http URL of a proxy, or a file that is not one
  // line `user:password`; FailedPrecondition: people other than its owner may read it. Neither ever
  // repeats what is in the file.
  absl::StatusOr<std::shared_ptr<const EgressProxy>> Load() const;
};

}  // namespace postrider
