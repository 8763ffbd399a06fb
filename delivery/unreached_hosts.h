#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "delivery/breaker.h"

namespace postrider::delivery {

class EndpointFunction;

// The hosts (host:port) of one shard whose requests fail before they are sent: no address, no
// connection, no TLS. All endpoints there share what was found out: after 10 such failures in a
// row, of whichever endpoint, one of them probes, and the others wait for what comes of that. What
// a receiver answers is no matter of its host: that never groups endpoints.
//
// Threads: the shard's. Bounds: an entry for each host that was not reached when it was tried last,
// with the endpoints there that wait, each once.
class UnreachedHosts {
 public:
  // An endpoint, by its function and key.
  using Waiter = std::pair<EndpointFunction*, std::string>;

  // `options` outlives it.
  explicit UnreachedHosts(const BreakerOptions& options) : options_(&options) {}

  // When a request may start; no value: only after the probe. A host without entry: at once.
  absl::optional<MonotonicTime> MayStartAt(absl::string_view host) const;
  // Who must wait for longer than to a time is told at the probe's end (Woken).
  void Await(absl::string_view host, Waiter waiter);
  // A request starts, which needs MayStartAt(). Returns whether it is the probe.
  bool OnStart(absl::string_view host);
  // Its end. Each returns those that waited and are to look again.
  using Woken = std::vector<Waiter>;
  Woken OnReached(absl::string_view host);
  Woken OnUnreached(absl::string_view host, MonotonicTime now, bool probe, Random& random);
  // Neither, but our own outage.
  Woken OnOutage(absl::string_view host, MonotonicTime now, bool probe, Random& random);
  // It was aborted, or its end will not be told.
  Woken OnUnknown(absl::string_view host, MonotonicTime now, bool probe);
  void Forget(const EndpointFunction* function);

  size_t size() const { return hosts_.size(); }

 private:
  struct Host {
    Breaker breaker;
    absl::flat_hash_set<Waiter> waiters;
  };
  static Woken Take(Host& host);
  // Of a request that says nothing of the host: only a probe's end matters.
  Woken EndProbe(absl::string_view host, bool probe, absl::FunctionRef<void(Breaker&)> end);

  const BreakerOptions* options_;
  absl::flat_hash_map<std::string, Host> hosts_;
};

}  // namespace postrider::delivery
