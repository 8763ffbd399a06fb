#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/erasure.h"
#include "subscriptions/registry/ids.h"
#include "subscriptions/registry/pg_snapshot.h"
#include "subscriptions/registry/subscription.h"

namespace postrider::subscriptions {

// A string of one snapshot (an event type's pattern, a tenant, a department) by number. Numbers are
// dense from 0 and mean nothing in another snapshot.
using StringId = uint32_t;

// A subscription in 48 bytes; see Snapshot for what its numbers mean. Its endpoint and its customer
// are in the snapshot.
struct SubscriptionEntry {
  SubscriptionId id;
  uint32_t endpoint_index = 0;
  uint32_t customer_index = 0;
  uint32_t strings_begin = 0;  // in this order: event types, tenants, departments
  uint16_t event_type_count = 0;
  uint16_t tenant_count = 0;
  uint16_t department_count = 0;
  ScopeKind scope = ScopeKind::kGranted;
};

struct CustomerEntry {
  CustomerId id;
  uint64_t generation = 0;
  uint64_t changed_xid = 0;
  // The greatest changed_xid of its grants; 0 when it has none. To tell whether another snapshot
  // knows a given grant use that grant's own number: Snapshot::GrantXid.
  uint64_t grants_xid_max = 0;
};

class SnapshotBuilder;

// All desired state at one moment: what the matcher matches with and the worker sends by.
// Immutable; shared between threads by shared_ptr<const Snapshot>. Deleted rows are absent, and so
// is what hangs on them (a deleted endpoint's subscriptions, a deleted customer's endpoints).
//
// Size: 48 bytes per subscription and 4 for each string that it names, beside each distinct string,
// endpoint and customer once, and 16 bytes per grant.
class Snapshot {
 public:
  struct Contents;
  ~Snapshot();

  // Has every write of transaction `xid` that touched desired state. Only such a snapshot may say
  // that an endpoint is deleted or a grant withdrawn to who saw that row with this changed_xid.
  bool Sees(uint64_t xid) const { return pg_snapshot_.Sees(xid); }
  const PgSnapshot& pg_snapshot() const { return pg_snapshot_; }
  // Counts up with every published snapshot of this process, and with every one whose contents
  // differ. Equal contents_version: nothing that hangs on the contents need be built anew.
  uint64_t version() const { return version_; }
  uint64_t contents_version() const;
  // When Postgres last said that this is the state of things.
  WallTime confirmed_at() const { return confirmed_at_; }
  // The cluster, database and timeline that it was read from.
  const std::string& origin() const { return origin_; }

  absl::Span<const CustomerEntry> customers() const;
  absl::Span<const std::shared_ptr<const Endpoint>> endpoints() const;  // sorted by id
  absl::Span<const SubscriptionEntry> subscriptions() const;            // sorted by id
  absl::Span<const std::string> event_types() const;                    // registered; sorted

  // What is to be forgotten. The same object as long as there is nothing else.
  const std::shared_ptr<const Erasures>& erasures() const;
  // A deleted endpoint whose backlog is to become dead letters.
  bool DeadLettersBacklogOf(EndpointId id) const;
  std::vector<EndpointId> dead_lettered() const;  // sorted

  const CustomerEntry* FindCustomer(CustomerId id) const;
  absl::optional<uint32_t> CustomerIndex(CustomerId id) const;
  // Null: there is none. Keep the shared_ptr or the snapshot to keep it.
  std::shared_ptr<const Endpoint> FindEndpoint(EndpointId id) const;
  absl::optional<uint32_t> EndpointIndex(EndpointId id) const;

  absl::Span<const StringId> EventTypesOf(const SubscriptionEntry& subscription) const;
  absl::Span<const StringId> TenantsOf(const SubscriptionEntry& subscription) const;
  absl::Span<const StringId> DepartmentsOf(const SubscriptionEntry& subscription) const;

  // The number of a string; none if no row of this snapshot names it.
  absl::optional<StringId> FindString(absl::string_view text) const;
  absl::string_view StringOf(StringId id) const;
  size_t strings() const;

  // The changed_xid of the grant of `tenant` to a customer; no value: it is not granted.
  absl::optional<uint64_t> GrantXid(uint32_t customer_index, StringId tenant) const;
  absl::optional<uint64_t> GrantXid(CustomerId customer, absl::string_view tenant) const;
  bool Granted(CustomerId customer, absl::string_view tenant) const {
    return GrantXid(customer, tenant).has_value();
  }
  // The customers (by index, ascending) that are granted `tenant`, and the tenants (ascending)
  // that a customer is granted.
  absl::Span<const uint32_t> CustomersGranted(StringId tenant) const;
  absl::Span<const StringId> TenantsGranted(uint32_t customer_index) const;
  size_t grants() const;

  // About how much memory it holds, in bytes; for a metric.
  size_t memory_bytes() const;

 private:
  friend class SnapshotBuilder;
  Snapshot() = default;

  std::shared_ptr<const Contents> contents_;
  PgSnapshot pg_snapshot_;
  uint64_t version_ = 0;
  WallTime confirmed_at_;
  std::string origin_;
};

// Makes a snapshot from rows: of all of them, or of another snapshot and those that changed. The
// order of the calls does not matter, except that the last one for a row counts. Building goes
// over the whole of it, in some ten milliseconds for 50,000 subscriptions.
// Threads: owned by one.
class SnapshotBuilder {
 public:
  enum class Start { kContentsOfPrevious, kNothing };

  // Version numbers go on from `previous`; null: they begin. The rows go on from it or from
  // nothing.
  explicit SnapshotBuilder(std::shared_ptr<const Snapshot> previous = nullptr,
                           Start start = Start::kContentsOfPrevious);
  ~SnapshotBuilder();

  void PutCustomer(CustomerId id, uint64_t generation, uint64_t changed_xid);
  void RemoveCustomer(CustomerId id);
  void PutGrant(CustomerId customer, absl::string_view tenant, uint64_t changed_xid);
  void RemoveGrant(CustomerId customer, absl::string_view tenant);
  void PutEndpoint(Endpoint endpoint);
  void RemoveEndpoint(EndpointId id);
  // Of one that is removed.
  void PutDeadLettered(EndpointId id);
  void PutErasure(Erasure erasure);
  void RemoveErasure(ErasureId id);
  void PutSubscription(SubscriptionId id, CustomerId customer, SubscriptionSettings settings);
  void RemoveSubscription(SubscriptionId id);
  void PutEventType(absl::string_view name);
  void RemoveEventType(absl::string_view name);

  // Nothing was put or removed.
  bool unchanged() const;
  // Once. Without a change the contents are those of the previous one.
  std::shared_ptr<const Snapshot> Build(PgSnapshot pg_snapshot, WallTime confirmed_at,
                                        std::string origin);

 private:
  struct Delta;
  std::shared_ptr<const Snapshot> previous_;
  std::unique_ptr<Delta> delta_;
};

}  // namespace postrider::subscriptions
