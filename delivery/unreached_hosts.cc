#include "delivery/unreached_hosts.h"

#include <algorithm>

namespace postrider::delivery {

absl::optional<MonotonicTime> UnreachedHosts::MayStartAt(absl::string_view host) const {
  if (hosts_.empty()) return MonotonicTime{};
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? MonotonicTime{} : found->second.breaker.MayStartAt();
}

void UnreachedHosts::Await(absl::string_view host, Waiter waiter) {
  const auto found = hosts_.find(host);
  if (found != hosts_.end()) found->second.waiters.insert(std::move(waiter));
}

bool UnreachedHosts::OnStart(absl::string_view host) {
  if (hosts_.empty()) return false;
  const auto found = hosts_.find(host);
  return found != hosts_.end() && found->second.breaker.OnStart();
}

UnreachedHosts::Woken UnreachedHosts::Take(Host& host) {
  Woken woken(host.waiters.begin(), host.waiters.end());
  host.waiters.clear();
  // The order of a hash map is nobody's.
  std::sort(woken.begin(), woken.end(),
            [](const Waiter& a, const Waiter& b) { return a.second < b.second; });
  return woken;
}

UnreachedHosts::Woken UnreachedHosts::OnReached(absl::string_view host) {
  if (hosts_.empty()) return {};
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return {};
  Woken woken = Take(found->second);
  hosts_.erase(found);
  return woken;
}

UnreachedHosts::Woken UnreachedHosts::OnUnreached(absl::string_view host, MonotonicTime now,
                                                  bool probe, Random& random) {
  auto found = hosts_.find(host);
  if (found == hosts_.end()) {
    found = hosts_.emplace(std::string(host), Host{Breaker(*options_), {}}).first;
  }
  if (!found->second.breaker.OnFailure(now, probe, random) || !probe) return {};
  return Take(found->second);
}

UnreachedHosts::Woken UnreachedHosts::OnOutage(absl::string_view host, MonotonicTime now,
                                               bool probe, Random& random) {
  const auto found = hosts_.find(host);
  if (!probe || found == hosts_.end()) return {};
  found->second.breaker.OnOutage(now, probe, random);
  return Take(found->second);
}

UnreachedHosts::Woken UnreachedHosts::OnUnknown(absl::string_view host, MonotonicTime now,
                                                bool probe) {
  const auto found = hosts_.find(host);
  if (!probe || found == hosts_.end()) return {};
  found->second.breaker.OnNeutral(now, probe);
  return Take(found->second);
}

void UnreachedHosts::Forget(const EndpointFunction* function) {
  for (auto& [name, host] : hosts_) {
    absl::erase_if(host.waiters,
                   [function](const Waiter& waiter) { return waiter.first == function; });
  }
}

}  // namespace postrider::delivery
