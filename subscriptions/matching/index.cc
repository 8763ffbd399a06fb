#include "subscriptions/matching/index.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace postrider::subscriptions {
namespace {

// What the lower half of a key names beside the pattern in its upper half.
enum class Place : uint64_t { kTenant = 0, kCustomer = 1, kTenantManyPatterns = 2 };

constexpr uint64_t Key(Place place, uint64_t pattern, uint64_t who) {
  return static_cast<uint64_t>(place) << 62 | pattern << 31 | who;
}

// A product of patterns and tenants is written out only while it stays in proportion to their sum.
bool WrittenOut(size_t patterns, size_t tenants) {
  return patterns * tenants <= 4 * (patterns + tenants);
}

bool Intersect(absl::Span<const StringId> sorted, absl::Span<const StringId> any_order) {
  for (const StringId number : any_order) {
    if (std::binary_search(sorted.begin(), sorted.end(), number)) return true;
  }
  return false;
}

}  // namespace

struct MatchIndex::Building {
  std::vector<std::pair<uint64_t, Entry>> keyed;

  void Put(uint64_t key, const Entry& entry) { keyed.emplace_back(key, entry); }
};

std::shared_ptr<const MatchIndex> MatchIndex::Build(std::shared_ptr<const Snapshot> snapshot) {
  POSTRIDER_CHECK(snapshot->strings() < size_t{1} << 31);
  std::shared_ptr<MatchIndex> index(new MatchIndex(std::move(snapshot)));
  const Snapshot& from = *index->snapshot_;
  Building building;
  building.keyed.reserve(from.subscriptions().size() * 2);
  for (uint32_t i = 0; i < from.subscriptions().size(); ++i) {
    const SubscriptionEntry& subscription = from.subscriptions()[i];
    Entry entry;
    entry.endpoint = subscription.endpoint_index;
    entry.subscription = i;
    const absl::Span<const StringId> patterns = from.EventTypesOf(subscription);
    const uint32_t customer = subscription.customer_index;
    if (subscription.scope == ScopeKind::kGranted) {
      for (const StringId pattern : patterns) {
        building.Put(Key(Place::kCustomer, pattern, customer), entry);
        index->granted_customers_[pattern].push_back(customer);
      }
      continue;
    }
    const absl::Span<const StringId> tenants = from.TenantsOf(subscription);
    const bool written_out = WrittenOut(patterns.size(), tenants.size());
    for (const StringId tenant : tenants) {
      if (!from.GrantXid(customer, tenant)) continue;
      if (!written_out) {
        building.Put(Key(Place::kTenantManyPatterns, 0, tenant), entry);
        continue;
      }
      for (const StringId pattern : patterns) {
        building.Put(Key(Place::kTenant, pattern, tenant), entry);
      }
    }
  }
  for (auto& [pattern, customers] : index->granted_customers_) {
    std::sort(customers.begin(), customers.end());
    customers.erase(std::unique(customers.begin(), customers.end()), customers.end());
    customers.shrink_to_fit();
  }
  std::sort(building.keyed.begin(), building.keyed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  index->entries_.reserve(building.keyed.size());
  for (const auto& [key, entry] : building.keyed) {
    const auto at = static_cast<uint32_t>(index->entries_.size());
    index->entries_.push_back(entry);
    index->spans_.try_emplace(key, Span{at, at}).first->second.end = at + 1;
  }
  return index;
}

MatchIndex::TypePatterns MatchIndex::PatternsOf(absl::string_view type, EveryType every) const {
  TypePatterns patterns;
  const auto add = [&](absl::string_view pattern) {
    if (const auto number = snapshot_->FindString(pattern)) patterns.numbers_.push_back(*number);
  };
  // A type that looks like a pattern is none: it fits what covers it, not itself.
  if (!absl::StrContains(type, "*")) add(type);
  for (size_t dot = type.find('.'); dot != absl::string_view::npos; dot = type.find('.', dot + 1)) {
    add(absl::StrCat(type.substr(0, dot + 1), "*"));
  }
  if (every == EveryType::kFits) add("*");
  std::sort(patterns.numbers_.begin(), patterns.numbers_.end());
  patterns.numbers_.erase(std::unique(patterns.numbers_.begin(), patterns.numbers_.end()),
                          patterns.numbers_.end());
  return patterns;
}

absl::Span<const MatchIndex::Entry> MatchIndex::At(uint64_t key) const {
  const auto found = spans_.find(key);
  if (found == spans_.end()) return {};
  return absl::MakeConstSpan(entries_).subspan(found->second.begin,
                                               found->second.end - found->second.begin);
}

// Calls `visit` with the entries of each customer that subscribes to the pattern for all that it is
// granted and is granted the tenant, until it answers false. Goes through the fewer of the two.
template <typename Visitor>
void MatchIndex::VisitGranted(StringId pattern, StringId tenant, Visitor&& visit) const {
  const auto subscribers = granted_customers_.find(pattern);
  if (subscribers == granted_customers_.end()) return;
  const absl::Span<const uint32_t> holders = snapshot_->CustomersGranted(tenant);
  const absl::Span<const uint32_t> wanting = subscribers->second;
  const bool by_holder = holders.size() <= wanting.size();
  const absl::Span<const uint32_t> fewer = by_holder ? holders : wanting;
  const absl::Span<const uint32_t> more = by_holder ? wanting : holders;
  for (const uint32_t customer : fewer) {
    if (!std::binary_search(more.begin(), more.end(), customer)) continue;
    if (!visit(At(Key(Place::kCustomer, pattern, customer)))) return;
  }
}

bool MatchIndex::AnyGranted(StringId pattern, StringId tenant) const {
  bool any = false;
  VisitGranted(pattern, tenant, [&any](absl::Span<const Entry>) {
    any = true;
    return false;
  });
  return any;
}

bool MatchIndex::MayMatch(const TypePatterns& patterns, absl::string_view tenant_name) const {
  if (patterns.empty()) return false;
  const absl::optional<StringId> tenant = snapshot_->FindString(tenant_name);
  if (!tenant) return false;
  if (spans_.contains(Key(Place::kTenantManyPatterns, 0, *tenant))) return true;
  for (const StringId pattern : patterns.numbers_) {
    if (spans_.contains(Key(Place::kTenant, pattern, *tenant))) return true;
    if (AnyGranted(pattern, *tenant)) return true;
  }
  return false;
}

void MatchIndex::Add(const Entry& entry, StringId tenant, absl::optional<StringId> department,
                     std::vector<Match>* matches) const {
  const SubscriptionEntry& subscription = snapshot_->subscriptions()[entry.subscription];
  if (subscription.scope == ScopeKind::kDepartments) {
    if (!department) return;
    const absl::Span<const StringId> wanted = snapshot_->DepartmentsOf(subscription);
    if (std::find(wanted.begin(), wanted.end(), *department) == wanted.end()) return;
  }
  const absl::optional<uint64_t> grant = snapshot_->GrantXid(subscription.customer_index, tenant);
  if (!grant) return;
  const Endpoint& endpoint = *snapshot_->endpoints()[entry.endpoint];
  Match match;
  match.endpoint_index = entry.endpoint;
  match.endpoint = endpoint.id;
  match.customer = endpoint.customer;
  match.endpoint_xid = endpoint.changed_xid;
  match.grants_xid = *grant;
  match.parallelism = endpoint.settings.parallelism;
  matches->push_back(match);
}

void MatchIndex::Find(const TypePatterns& patterns, absl::string_view tenant_name,
                      absl::optional<absl::string_view> department_name,
                      std::vector<Match>* matches) const {
  matches->clear();
  if (patterns.empty()) return;
  const absl::optional<StringId> tenant = snapshot_->FindString(tenant_name);
  if (!tenant) return;
  const absl::optional<StringId> department =
      department_name ? snapshot_->FindString(*department_name) : absl::nullopt;
  for (const StringId pattern : patterns.numbers_) {
    for (const Entry& entry : At(Key(Place::kTenant, pattern, *tenant))) {
      Add(entry, *tenant, department, matches);
    }
    VisitGranted(pattern, *tenant, [&](absl::Span<const Entry> entries) {
      for (const Entry& entry : entries) Add(entry, *tenant, department, matches);
      return true;
    });
  }
  for (const Entry& entry : At(Key(Place::kTenantManyPatterns, 0, *tenant))) {
    const SubscriptionEntry& subscription = snapshot_->subscriptions()[entry.subscription];
    if (Intersect(patterns.numbers_, snapshot_->EventTypesOf(subscription))) {
      Add(entry, *tenant, department, matches);
    }
  }
  // The snapshot's endpoints are sorted by id, so that the order is the same whatever the index
  // looks like.
  const auto before = [](const Match& a, const Match& b) {
    return a.endpoint_index < b.endpoint_index;
  };
  const auto same = [](const Match& a, const Match& b) {
    return a.endpoint_index == b.endpoint_index;
  };
  std::sort(matches->begin(), matches->end(), before);
  matches->erase(std::unique(matches->begin(), matches->end(), same), matches->end());
}

size_t MatchIndex::memory_bytes() const {
  size_t bytes =
      sizeof(*this) + entries_.capacity() * sizeof(Entry) +
      spans_.capacity() * (sizeof(std::pair<uint64_t, Span>) + 1) +
      granted_customers_.capacity() * (sizeof(std::pair<StringId, std::vector<uint32_t>>) + 1);
  for (const auto& [pattern, customers] : granted_customers_) {
    bytes += customers.capacity() * sizeof(uint32_t);
  }
  return bytes;
}

}  // namespace postrider::subscriptions
