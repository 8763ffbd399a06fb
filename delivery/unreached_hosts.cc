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
  return EndProbe(host, probe, [&](Breaker& breaker) { breaker.OnOutage(now, true, random); });
}

UnreachedHosts::Woken UnreachedHosts::OnUnknown(absl::string_view host, MonotonicTime now,
                                                bool probe) {
  return EndProbe(host, probe, [&](Breaker& breaker) { breaker.OnNeutral(now, true); });
}

UnreachedHosts::Woken UnreachedHosts::EndProbe(absl::string_view host, bool probe,
                                               absl::FunctionRef<void(Breaker&)> end) {
  const auto found = hosts_.find(host);
  if (!probe || found == hosts_.end()) return {};
  end(found->second.breaker);
  return Take(found->second);
}

void UnreachedHosts::Forget(const EndpointFunction* function) {
  for (auto& [name, host] : hosts_) {
    absl::erase_if(host.waiters,
                   [function](const Waiter& waiter) { return waiter.first == function; });
  }
}

}  // namespace postrider::delivery
