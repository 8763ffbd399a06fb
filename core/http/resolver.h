#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/types/optional.h"
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
  int threads = 32;
  // Of them, those that may look up names that were never asked for, and names whose last answer
  // was none: the rest is there for names that were found, so that those which hang cannot keep a
  // working receiver waiting.
  int threads_for_new = 24;
  int threads_for_failed = 8;
  // A name server is asked twice, for so long each time; resolv.conf may say less, not more.
  std::chrono::seconds ask_timeout{1};
  // IPv4, asked instead of those of the system.
  absl::optional<std::pair<IpAddress, uint16_t>> name_server;
  std::chrono::milliseconds valid_for{60'000};
  std::chrono::milliseconds failure_valid_for{5'000};
  size_t names_max = 20'000;  // in the cache; beyond that the oldest ones go
  // Names that wait to be looked up, of new ones and of failed ones each; more fail at once.
  size_t lookups_max = 1'000;
  size_t addresses_max = 16;  // of one answer
};

// getaddrinfo on threads of its own, behind a cache; one lookup at a time per name, and names as
// they stand, without the system's search list. One for the whole process. At the end it does not
// wait for a lookup that hangs: waiting callers are dropped. `clock` and `metrics` outlive it.
std::unique_ptr<Resolver> CreateSystemResolver(const SystemResolverOptions& options,
                                               const Clock& clock, Metrics& metrics);

}  // namespace postrider
