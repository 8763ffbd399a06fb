#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/http/ip_address.h"
#include "core/http/resolver.h"

namespace postrider::internal {

// The addresses of a name by getaddrinfo, in its order; empty when it failed. It blocks for as long
// as options.ask_timeout says for each of two tries at a name server. The name is taken as it
// stands, whatever search list the system has: "db" never means "db.our-own-domain".
std::vector<IpAddress> LookUpName(const std::string& host, const SystemResolverOptions& options);

}  // namespace postrider::internal
