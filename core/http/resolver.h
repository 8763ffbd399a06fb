#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "core/base/clock.h"
#include "core/http/ip_address.h"

namespace postrider {

class Metrics;

struct ResolveResult {
  std::vector<IpAddress> addresses;  // in the system's order of preference; empty: it failed
  MonotonicTime valid_until;         // the answer may be used until then
};

// Names to addresses. It does not judge them: see AddressRules.
class Resolver {
 public:
  using Done = absl::AnyInvocable<void(ResolveResult) &&>;
  virtual ~Resolver() = default;

  // `host` is a canonical name, no literal. `done` is called exactly once, from any thread and
  // perhaps inside this call; it must be quick. Threads: any.
  virtual void Resolve(const std::string& host, Done done) = 0;
};

struct SystemResolverOptions {
  int threads = 4;
  std::chrono::milliseconds valid_for{60'000};
  std::chrono::milliseconds failure_valid_for{5'000};
  size_t names_max = 20'000;   // in the cache; beyond that the oldest ones go
  size_t lookups_max = 1'000;  // names being looked up or waiting for it; more fail at once
  size_t addresses_max = 16;   // of one answer
};

// getaddrinfo on threads of its own, behind a cache; one lookup at a time per name. One for the
// whole process. At the end it does not wait for a lookup that hangs: waiting callers are dropped.
// `clock` and `metrics` outlive it.
std::unique_ptr<Resolver> CreateSystemResolver(const SystemResolverOptions& options,
                                               const Clock& clock, Metrics& metrics);

}  // namespace postrider
