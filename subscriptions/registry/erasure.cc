#include "subscriptions/registry/erasure.h"

#include <algorithm>
#include <utility>

namespace postrider::subscriptions {
namespace {

template <typename Map, typename Key>
bool AnyOf(const Map& map, const Key& key, const std::vector<Erasure>& all, CustomerId customer,
           absl::string_view tenant, WallTime dispatched_at) {
  const auto found = map.find(key);
  if (found == map.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](uint32_t i) {
    const Erasure& erasure = all[i];
    return dispatched_at <= erasure.requested_at &&
           (!erasure.customer || *erasure.customer == customer) &&
           (!erasure.tenant || *erasure.tenant == tenant);
  });
}

}  // namespace

Erasures::Erasures(std::vector<Erasure> all) : all_(std::move(all)) {
  for (uint32_t i = 0; i < all_.size(); ++i) {
    const Erasure& erasure = all_[i];
    if (erasure.event_id) {
      by_event_[*erasure.event_id].push_back(i);
    } else if (erasure.tenant) {
      by_tenant_[*erasure.tenant].push_back(i);
    } else if (erasure.customer) {
      by_customer_[*erasure.customer].push_back(i);
    }
  }
}

bool Erasures::Cover(CustomerId customer, absl::string_view tenant, absl::string_view event_id,
                     WallTime dispatched_at) const {
  if (all_.empty()) return false;
  return AnyOf(by_event_, event_id, all_, customer, tenant, dispatched_at) ||
         AnyOf(by_tenant_, tenant, all_, customer, tenant, dispatched_at) ||
         AnyOf(by_customer_, customer, all_, customer, tenant, dispatched_at);
}

bool AnyWishIsNew(const Erasures* before, const Erasures& now) {
  if (before == nullptr) return !now.empty();
  return !std::includes(before->all().begin(), before->all().end(), now.all().begin(),
                        now.all().end(),
                        [](const Erasure& a, const Erasure& b) { return a.id < b.id; });
}

}  // namespace postrider::subscriptions
