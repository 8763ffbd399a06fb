#include "subscriptions/registry/snapshot.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/base/check.h"
#include "subscriptions/registry/internal/snapshot_contents.h"

namespace postrider::subscriptions {
namespace internal {

// Its first block is a new one: the room left in the shared ones belongs to nobody.
StringTable::StringTable(const StringTable& other)
    : blocks_(other.blocks_),
      block_bytes_(other.block_bytes_),
      texts_(other.texts_),
      ids_(other.ids_) {}

StringId StringTable::Intern(absl::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  if (capacity_ - used_ < text.size()) {
    capacity_ = std::max(next_block_, text.size());
    next_block_ = std::min(2 * next_block_, kBlockBytesLast);
    blocks_.push_back(std::shared_ptr<char[]>(new char[capacity_]));
    block_bytes_ += capacity_;
    used_ = 0;
  }
  char* place = text.empty() ? nullptr : blocks_.back().get() + used_;
  if (!text.empty()) std::memcpy(place, text.data(), text.size());
  used_ += text.size();
  const absl::string_view kept(place, text.size());
  const auto id = static_cast<StringId>(texts_.size());
  texts_.push_back(kept);
  ids_.emplace(kept, id);
  return id;
}

absl::optional<StringId> StringTable::Find(absl::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return absl::nullopt;
  return found->second;
}

size_t StringTable::memory_bytes() const {
  return block_bytes_ + texts_.capacity() * sizeof(absl::string_view) +
         ids_.capacity() * (sizeof(std::pair<absl::string_view, StringId>) + 1);
}

}  // namespace internal

namespace {
using internal::StringTable;
}  // namespace

Snapshot::~Snapshot() = default;

uint64_t Snapshot::contents_version() const { return contents_->version; }

absl::Span<const CustomerEntry> Snapshot::customers() const { return contents_->customers; }
absl::Span<const std::shared_ptr<const Endpoint>> Snapshot::endpoints() const {
  return contents_->endpoints;
}
absl::Span<const SubscriptionEntry> Snapshot::subscriptions() const {
  return contents_->subscriptions;
}
absl::Span<const std::string> Snapshot::event_types() const { return contents_->event_types; }

absl::optional<uint32_t> Snapshot::CustomerIndex(CustomerId id) const {
  const auto found = contents_->customer_index.find(id);
  if (found == contents_->customer_index.end()) return absl::nullopt;
  return found->second;
}

const CustomerEntry* Snapshot::FindCustomer(CustomerId id) const {
  const absl::optional<uint32_t> index = CustomerIndex(id);
  return index ? &contents_->customers[*index] : nullptr;
}

const std::shared_ptr<const Erasures>& Snapshot::erasures() const { return contents_->erasures; }
bool Snapshot::DeadLettersBacklogOf(EndpointId id) const {
  return contents_->dead_lettered.contains(id);
}
std::vector<EndpointId> Snapshot::dead_lettered() const {
  std::vector<EndpointId> ids(contents_->dead_lettered.begin(), contents_->dead_lettered.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::optional<uint32_t> Snapshot::EndpointIndex(EndpointId id) const {
  const auto found = contents_->endpoint_index.find(id);
  if (found == contents_->endpoint_index.end()) return absl::nullopt;
  return found->second;
}

std::shared_ptr<const Endpoint> Snapshot::FindEndpoint(EndpointId id) const {
  const absl::optional<uint32_t> index = EndpointIndex(id);
  return index ? contents_->endpoints[*index] : nullptr;
}

absl::Span<const StringId> Snapshot::EventTypesOf(const SubscriptionEntry& subscription) const {
  return absl::MakeConstSpan(contents_->references)
      .subspan(subscription.strings_begin, subscription.event_type_count);
}
absl::Span<const StringId> Snapshot::TenantsOf(const SubscriptionEntry& subscription) const {
  return absl::MakeConstSpan(contents_->references)
      .subspan(subscription.strings_begin + subscription.event_type_count,
               subscription.tenant_count);
}
absl::Span<const StringId> Snapshot::DepartmentsOf(const SubscriptionEntry& subscription) const {
  return absl::MakeConstSpan(contents_->references)
      .subspan(
          subscription.strings_begin + subscription.event_type_count + subscription.tenant_count,
          subscription.department_count);
}

absl::optional<StringId> Snapshot::FindString(absl::string_view text) const {
  return contents_->strings.Find(text);
}
absl::string_view Snapshot::StringOf(StringId id) const { return contents_->strings.Get(id); }
size_t Snapshot::strings() const { return contents_->strings.size(); }

absl::optional<uint64_t> Snapshot::GrantXid(uint32_t customer_index, StringId tenant) const {
  const absl::Span<const StringId> tenants = TenantsGranted(customer_index);
  const auto found = std::lower_bound(tenants.begin(), tenants.end(), tenant);
  if (found == tenants.end() || *found != tenant) return absl::nullopt;
  return contents_->grant_xids[contents_->grants_begin[customer_index] +
                               static_cast<size_t>(found - tenants.begin())];
}

absl::optional<uint64_t> Snapshot::GrantXid(CustomerId customer, absl::string_view tenant) const {
  const absl::optional<uint32_t> index = CustomerIndex(customer);
  if (!index) return absl::nullopt;
  const absl::optional<StringId> id = FindString(tenant);
  if (!id) return absl::nullopt;
  return GrantXid(*index, *id);
}

absl::Span<const uint32_t> Snapshot::CustomersGranted(StringId tenant) const {
  const std::vector<uint32_t>& begin = contents_->holders_begin;
  if (tenant + 1 >= begin.size()) return {};
  return absl::MakeConstSpan(contents_->holders)
      .subspan(begin[tenant], begin[tenant + 1] - begin[tenant]);
}

absl::Span<const StringId> Snapshot::TenantsGranted(uint32_t customer_index) const {
  const std::vector<uint32_t>& begin = contents_->grants_begin;
  return absl::MakeConstSpan(contents_->grant_tenants)
      .subspan(begin[customer_index], begin[customer_index + 1] - begin[customer_index]);
}

size_t Snapshot::grants() const { return contents_->grant_tenants.size(); }

size_t Snapshot::memory_bytes() const {
  const Contents& c = *contents_;
  size_t bytes = sizeof(Contents) + c.strings.memory_bytes();
  bytes += c.customers.capacity() * sizeof(CustomerEntry);
  bytes += (c.customer_index.capacity() + c.endpoint_index.capacity()) * 21;
  for (const auto& endpoint : c.endpoints) {
    bytes += sizeof(Endpoint) + 48 + endpoint->settings.url.capacity() +
             endpoint->settings.description.capacity() + endpoint->secrets_sealed.capacity();
    bytes += endpoint->settings.tls.ca_pem.capacity() +
             endpoint->settings.tls.certificate_pem.capacity() + endpoint->auth_sealed.capacity() +
             endpoint->tls_key_sealed.capacity();
    for (const auto& [name, value] : endpoint->settings.headers) {
      bytes += 64 + name.capacity() + value.capacity();
    }
  }
  bytes += c.subscriptions.capacity() * sizeof(SubscriptionEntry);
  bytes += (c.references.capacity() + c.grant_tenants.capacity() + c.holders.capacity() +
            c.grants_begin.capacity() + c.holders_begin.capacity()) *
           4;
  bytes += c.grant_xids.capacity() * 8;
  return bytes;
}

// --- building ---------------------------------------------------------------------------------

namespace {

struct DeltaSubscription {
  bool removed = true;
  CustomerId customer;
  EndpointId endpoint;
  // Into Delta::references.
  uint32_t begin = 0;
  uint16_t event_types = 0;
  uint16_t tenants = 0;
  uint16_t departments = 0;
  ScopeKind scope = ScopeKind::kGranted;
};

struct GrantKey {
  CustomerId customer;
  StringId tenant = 0;

  friend bool operator==(const GrantKey&, const GrantKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GrantKey& key) {
    return H::combine(std::move(h), key.customer, key.tenant);
  }
};

struct GrantRow {
  uint32_t customer = 0;
  StringId tenant = 0;
  uint64_t xid = 0;
};

template <typename Map>
std::vector<typename Map::value_type*> SortedByKey(Map& map) {
  std::vector<typename Map::value_type*> rows;
  rows.reserve(map.size());
  for (auto& row : map) rows.push_back(&row);
  std::sort(rows.begin(), rows.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  return rows;
}

// Walks `base` (sorted by KeyOf) and `delta` (sorted by key) together: where both have a key,
// delta's rules.
template <typename Base, typename Delta, typename KeyOf, typename FromBase, typename FromDelta>
void Merge(const Base& base, const Delta& delta, KeyOf key_of, FromBase from_base,
           FromDelta from_delta) {
  auto old = base.begin();
  auto fresh = delta.begin();
  while (old != base.end() || fresh != delta.end()) {
    if (fresh == delta.end() || (old != base.end() && key_of(*old) < (*fresh)->first)) {
      from_base(*old++);
    } else {
      if (old != base.end() && key_of(*old) == (*fresh)->first) ++old;
      from_delta(**fresh++);
    }
  }
}

}  // namespace

struct SnapshotBuilder::Delta {
  // The new snapshot's table: the previous one's strings, and what is put, interned at once.
  // Strings that nothing names any more go when a snapshot is built from nothing.
  StringTable strings;
  std::vector<StringId> references;
  absl::flat_hash_map<CustomerId, absl::optional<CustomerEntry>> customers;
  absl::flat_hash_map<GrantKey, absl::optional<uint64_t>> grants;
  absl::flat_hash_map<EndpointId, std::shared_ptr<const Endpoint>> endpoints;  // null: removed
  absl::flat_hash_map<SubscriptionId, DeltaSubscription> subscriptions;
  absl::flat_hash_map<std::string, bool> event_types;  // false: removed
  absl::flat_hash_map<ErasureId, absl::optional<Erasure>> erasures;
  absl::flat_hash_set<EndpointId> dead_lettered;
  bool from_nothing = false;

  uint16_t AddAll(const std::vector<std::string>& texts) {
    POSTRIDER_CHECK(texts.size() <= std::numeric_limits<uint16_t>::max());
    for (const std::string& text : texts) references.push_back(strings.Intern(text));
    return static_cast<uint16_t>(texts.size());
  }
};

SnapshotBuilder::SnapshotBuilder(std::shared_ptr<const Snapshot> previous, Start start)
    : previous_(std::move(previous)), delta_(std::make_unique<Delta>()) {
  delta_->from_nothing = previous_ == nullptr || start == Start::kNothing;
  if (!delta_->from_nothing) delta_->strings = StringTable(previous_->contents_->strings);
}
SnapshotBuilder::~SnapshotBuilder() = default;

void SnapshotBuilder::PutCustomer(CustomerId id, uint64_t generation, uint64_t changed_xid) {
  delta_->customers[id] = CustomerEntry{id, generation, changed_xid, 0};
}
void SnapshotBuilder::RemoveCustomer(CustomerId id) { delta_->customers[id] = absl::nullopt; }

void SnapshotBuilder::PutGrant(CustomerId customer, absl::string_view tenant,
                               uint64_t changed_xid) {
  delta_->grants[{customer, delta_->strings.Intern(tenant)}] = changed_xid;
}
void SnapshotBuilder::RemoveGrant(CustomerId customer, absl::string_view tenant) {
  delta_->grants[{customer, delta_->strings.Intern(tenant)}] = absl::nullopt;
}

void SnapshotBuilder::PutEndpoint(Endpoint endpoint) {
  const EndpointId id = endpoint.id;
  delta_->endpoints[id] = std::make_shared<const Endpoint>(std::move(endpoint));
}
void SnapshotBuilder::RemoveEndpoint(EndpointId id) { delta_->endpoints[id] = nullptr; }

void SnapshotBuilder::PutDeadLettered(EndpointId id) { delta_->dead_lettered.insert(id); }

void SnapshotBuilder::PutErasure(Erasure erasure) {
  const ErasureId id = erasure.id;
  if (!delta_->from_nothing && !delta_->erasures.contains(id)) {
    // What has been erased by now changes the row, and often, but not the wish.
    const absl::Span<const Erasure> known = previous_->erasures()->all();
    const auto found = std::lower_bound(
        known.begin(), known.end(), id,
        [](const Erasure& one, const ErasureId& wanted) { return one.id < wanted; });
    if (found != known.end() && *found == erasure) return;
  }
  delta_->erasures[id] = std::move(erasure);
}
void SnapshotBuilder::RemoveErasure(ErasureId id) { delta_->erasures[id] = absl::nullopt; }

void SnapshotBuilder::PutSubscription(SubscriptionId id, CustomerId customer,
                                      SubscriptionSettings settings) {
  DeltaSubscription row;
  row.removed = false;
  row.customer = customer;
  row.endpoint = settings.endpoint;
  row.scope = settings.scope;
  row.begin = static_cast<uint32_t>(delta_->references.size());
  row.event_types = delta_->AddAll(settings.event_types);
  row.tenants = delta_->AddAll(settings.tenants);
  row.departments = delta_->AddAll(settings.departments);
  delta_->subscriptions[id] = row;
}
void SnapshotBuilder::RemoveSubscription(SubscriptionId id) {
  delta_->subscriptions[id] = DeltaSubscription();
}

void SnapshotBuilder::PutEventType(absl::string_view name) {
  delta_->event_types[std::string(name)] = true;
}
void SnapshotBuilder::RemoveEventType(absl::string_view name) {
  delta_->event_types[std::string(name)] = false;
}

bool SnapshotBuilder::unchanged() const {
  return !delta_->from_nothing && delta_->customers.empty() && delta_->grants.empty() &&
         delta_->endpoints.empty() && delta_->subscriptions.empty() &&
         delta_->event_types.empty() && delta_->erasures.empty() && delta_->dead_lettered.empty();
}

std::shared_ptr<const Snapshot> SnapshotBuilder::Build(PgSnapshot pg_snapshot,
                                                       WallTime confirmed_at, std::string origin) {
  std::shared_ptr<Snapshot> snapshot(new Snapshot());
  snapshot->pg_snapshot_ = std::move(pg_snapshot);
  snapshot->confirmed_at_ = confirmed_at;
  snapshot->origin_ = std::move(origin);
  snapshot->version_ = previous_ ? previous_->version() + 1 : 1;
  if (unchanged()) {
    snapshot->contents_ = previous_->contents_;
    return snapshot;
  }

  static const Snapshot::Contents kNothing;
  const Snapshot::Contents& base = delta_->from_nothing ? kNothing : *previous_->contents_;
  Delta& delta = *delta_;
  auto contents = std::make_shared<Snapshot::Contents>();
  Snapshot::Contents& c = *contents;
  c.version = previous_ ? previous_->contents_version() + 1 : 1;

  // Customers.
  const auto fresh_customers = SortedByKey(delta.customers);
  c.customers.reserve(base.customers.size() + fresh_customers.size());
  Merge(
      base.customers, fresh_customers, [](const CustomerEntry& entry) { return entry.id; },
      [&](const CustomerEntry& entry) { c.customers.push_back(entry); },
      [&](auto& row) {
        if (row.second) c.customers.push_back(*row.second);
      });
  for (CustomerEntry& customer : c.customers) customer.grants_xid_max = 0;
  if (delta.customers.empty()) {
    c.customer_index = base.customer_index;
  } else {
    c.customer_index.reserve(c.customers.size());
    for (uint32_t i = 0; i < c.customers.size(); ++i) c.customer_index[c.customers[i].id] = i;
  }
  const auto index_of_customer = [&](CustomerId id) -> absl::optional<uint32_t> {
    const auto found = c.customer_index.find(id);
    if (found == c.customer_index.end()) return absl::nullopt;
    return found->second;
  };

  // Endpoints.
  const bool same_endpoints = delta.customers.empty() && delta.endpoints.empty();
  if (same_endpoints) {
    c.endpoints = base.endpoints;
    c.endpoint_index = base.endpoint_index;
  } else {
    const auto fresh_endpoints = SortedByKey(delta.endpoints);
    c.endpoints.reserve(base.endpoints.size() + fresh_endpoints.size());
    const auto add_endpoint = [&](const std::shared_ptr<const Endpoint>& endpoint) {
      if (endpoint && index_of_customer(endpoint->customer)) c.endpoints.push_back(endpoint);
    };
    Merge(
        base.endpoints, fresh_endpoints,
        [](const std::shared_ptr<const Endpoint>& endpoint) { return endpoint->id; }, add_endpoint,
        [&](auto& row) { add_endpoint(row.second); });
    c.endpoint_index.reserve(c.endpoints.size());
    for (uint32_t i = 0; i < c.endpoints.size(); ++i) c.endpoint_index[c.endpoints[i]->id] = i;
  }

  // Subscriptions.
  const auto fresh_subscriptions = SortedByKey(delta.subscriptions);
  c.subscriptions.reserve(base.subscriptions.size() + fresh_subscriptions.size());
  c.references.reserve(base.references.size() + delta.references.size());
  const auto add_subscription = [&](SubscriptionEntry entry, const StringId* strings) {
    const size_t count =
        size_t{entry.event_type_count} + entry.tenant_count + entry.department_count;
    entry.strings_begin = static_cast<uint32_t>(c.references.size());
    c.references.insert(c.references.end(), strings, strings + count);
    c.subscriptions.push_back(entry);
  };
  // False: its endpoint is not there, or is another customer's.
  const auto place = [&](SubscriptionEntry& entry, EndpointId endpoint_id, CustomerId customer) {
    const auto endpoint = c.endpoint_index.find(endpoint_id);
    if (endpoint == c.endpoint_index.end() || c.endpoints[endpoint->second]->customer != customer) {
      return false;
    }
    entry.endpoint_index = endpoint->second;
    entry.customer_index = c.customer_index.find(customer)->second;
    return true;
  };
  Merge(
      base.subscriptions, fresh_subscriptions,
      [](const SubscriptionEntry& entry) { return entry.id; },
      [&](SubscriptionEntry entry) {
        const StringId* strings = base.references.data() + entry.strings_begin;
        if (!same_endpoints) {
          const Endpoint& endpoint = *base.endpoints[entry.endpoint_index];
          if (!place(entry, endpoint.id, endpoint.customer)) return;
        }
        add_subscription(entry, strings);
      },
      [&](auto& row) {
        const DeltaSubscription& fresh = row.second;
        if (fresh.removed) return;
        SubscriptionEntry entry;
        entry.id = row.first;
        entry.event_type_count = fresh.event_types;
        entry.tenant_count = fresh.tenants;
        entry.department_count = fresh.departments;
        entry.scope = fresh.scope;
        if (!place(entry, fresh.endpoint, fresh.customer)) return;
        add_subscription(entry, delta.references.data() + fresh.begin);
      });

  // Grants.
  std::vector<GrantRow> grants;
  grants.reserve(base.grant_tenants.size() + delta.grants.size());
  for (uint32_t i = 0; i < base.customers.size(); ++i) {
    const absl::optional<uint32_t> customer = index_of_customer(base.customers[i].id);
    if (!customer) continue;
    for (uint32_t g = base.grants_begin[i]; g < base.grants_begin[i + 1]; ++g) {
      const StringId tenant = base.grant_tenants[g];
      if (!delta.grants.empty() && delta.grants.contains(GrantKey{base.customers[i].id, tenant})) {
        continue;
      }
      grants.push_back({*customer, tenant, base.grant_xids[g]});
    }
  }
  // Those of before are in order still: customers are sorted as they were, and tenants' numbers
  // have not changed.
  const auto old_grants = static_cast<std::ptrdiff_t>(grants.size());
  for (const auto& [key, xid] : delta.grants) {
    const absl::optional<uint32_t> customer = index_of_customer(key.customer);
    if (xid && customer) grants.push_back({*customer, key.tenant, *xid});
  }
  const auto by_customer = [](const GrantRow& a, const GrantRow& b) {
    return a.customer != b.customer ? a.customer < b.customer : a.tenant < b.tenant;
  };
  std::sort(grants.begin() + old_grants, grants.end(), by_customer);
  std::inplace_merge(grants.begin(), grants.begin() + old_grants, grants.end(), by_customer);
  c.grants_begin.assign(c.customers.size() + 1, 0);
  c.holders_begin.assign(delta.strings.size() + 1, 0);
  for (const GrantRow& grant : grants) {
    ++c.grants_begin[grant.customer + 1];
    ++c.holders_begin[grant.tenant + 1];
    uint64_t& most = c.customers[grant.customer].grants_xid_max;
    most = std::max(most, grant.xid);
  }
  for (size_t i = 1; i < c.grants_begin.size(); ++i) c.grants_begin[i] += c.grants_begin[i - 1];
  for (size_t i = 1; i < c.holders_begin.size(); ++i) c.holders_begin[i] += c.holders_begin[i - 1];
  c.grant_tenants.reserve(grants.size());
  c.grant_xids.reserve(grants.size());
  c.holders.resize(grants.size());
  std::vector<uint32_t> next(c.holders_begin.begin(), c.holders_begin.end());
  for (const GrantRow& grant : grants) {
    c.grant_tenants.push_back(grant.tenant);
    c.grant_xids.push_back(grant.xid);
    c.holders[next[grant.tenant]++] = grant.customer;
  }

  // Event types.
  for (const std::string& name : base.event_types) {
    if (!delta.event_types.contains(name)) c.event_types.push_back(name);
  }
  for (const auto& [name, present] : delta.event_types) {
    if (present) c.event_types.push_back(name);
  }
  std::sort(c.event_types.begin(), c.event_types.end());

  // What is to be forgotten.
  std::vector<Erasure> erasures;
  for (const Erasure& erasure : base.erasures->all()) {
    if (!delta.erasures.contains(erasure.id)) erasures.push_back(erasure);
  }
  for (const auto& [id, erasure] : delta.erasures) {
    if (erasure) erasures.push_back(*erasure);
  }
  std::sort(erasures.begin(), erasures.end(),
            [](const Erasure& a, const Erasure& b) { return a.id < b.id; });
  const std::shared_ptr<const Erasures> before =
      previous_ == nullptr ? kNothing.erasures : previous_->contents_->erasures;
  c.erasures =
      before->all() == erasures ? before : std::make_shared<const Erasures>(std::move(erasures));
  // None comes back: an endpoint that was deleted stays so.
  c.dead_lettered = base.dead_lettered;
  c.dead_lettered.insert(delta.dead_lettered.begin(), delta.dead_lettered.end());

  c.strings = std::move(delta.strings);
  c.references.shrink_to_fit();
  snapshot->contents_ = std::move(contents);
  return snapshot;
}

}  // namespace postrider::subscriptions
