#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/postgres/blocking.h"
#include "core/postgres/transaction.h"
#include "subscriptions/registry/api_key.h"
#include "subscriptions/registry/customer.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/erasure.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/ids.h"
#include "subscriptions/registry/subscription.h"

// The SQL by which the API reads and writes desired state. Every call runs in a transaction that
// was begun with one of the three settings below, which row-level security reads; besides, every
// statement names the customer. A row of another customer, a deleted one and one that never was are
// all kNotFound. The transaction outlives the call's callback, which runs on its loop.
namespace postrider::subscriptions {

// A request of this customer.
TransactionOptions AsCustomer(CustomerId customer);
// A request of an operator.
TransactionOptions AsOperator();
// Looks up one key, and nothing else.
TransactionOptions AsKeyLookup(absl::string_view key_id);

template <typename T>
using DoneWith = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;
using DonePlain = absl::AnyInvocable<void(absl::Status) &&>;

inline constexpr size_t kPageMax = 1000;

// Which part of a list: at most `limit` (1 .. kPageMax) rows after the one that `after` names.
struct Page {
  std::string after;  // PageOf::next of the part before; "" for the first
  size_t limit = 100;
};
template <typename T>
struct PageOf {
  std::vector<T> rows;  // the newest first; grants by tenant, event types by name
  std::string next;     // "" when there are no more
};

// For read-modify-write: the row stays as it is until the transaction's end.
enum class RowLock { kNone, kForUpdate };

// Customers: AsOperator.
void InsertCustomer(Transaction& tx, CustomerId id, std::string name, DoneWith<Customer> done);
void ListCustomers(Transaction& tx, Page page, DoneWith<PageOf<Customer>> done);
void GetCustomer(Transaction& tx, CustomerId id, RowLock lock, DoneWith<Customer> done);
void RenameCustomer(Transaction& tx, CustomerId id, std::string name, DoneWith<Customer> done);
// With its grants, endpoints, subscriptions and keys; asks for the erasure of the rest.
void DeleteCustomer(Transaction& tx, CustomerId id, ErasureId erasure, DonePlain done);

// Grants: AsOperator; the reading ones AsCustomer too. Those that customers are born with
// (own_events.h) are none of these, but FindUngranted knows them. How many were new.
void AddGrants(Transaction& tx, CustomerId customer, std::vector<std::string> tenants,
               DoneWith<int64_t> done);
void ListGrants(Transaction& tx, CustomerId customer, Page page, DoneWith<PageOf<Grant>> done);
void GetGrant(Transaction& tx, CustomerId customer, std::string tenant, DoneWith<Grant> done);
void DeleteGrant(Transaction& tx, CustomerId customer, std::string tenant, DonePlain done);
// Those of `tenants` that the customer is not granted, in their order. Locks the others' grants
// against withdrawal until the transaction's end.
void FindUngranted(Transaction& tx, CustomerId customer, std::vector<std::string> tenants,
                   DoneWith<std::vector<std::string>> done);

// Keys: AsOperator, but FindKey AsKeyLookup too.
void InsertKey(Transaction& tx, ApiKey key, DoneWith<ApiKey> done);
// For the command line: in a transaction of its own, as the role of the API.
absl::StatusOr<ApiKey> InsertKeyBlocking(BlockingSession& session, const ApiKey& key);
void ListKeys(Transaction& tx, Page page, DoneWith<PageOf<ApiKey>> done);
// kNotFound when it was revoked, or its customer deleted.
void FindKey(Transaction& tx, std::string key_id, DoneWith<ApiKey> done);
void RenameKey(Transaction& tx, std::string key_id, std::string name, DoneWith<ApiKey> done);
void RevokeKey(Transaction& tx, std::string key_id, DonePlain done);

// Event types: writing AsOperator, reading as anyone.
struct PutEventTypeResult {
  EventType event_type;
  bool created = false;
};
void PutEventType(Transaction& tx, std::string name, std::string description,
                  DoneWith<PutEventTypeResult> done);
void ListEventTypes(Transaction& tx, Page page, DoneWith<PageOf<EventType>> done);
void GetEventType(Transaction& tx, std::string name, DoneWith<EventType> done);
void DeleteEventType(Transaction& tx, std::string name, DonePlain done);

// What of an endpoint's settings is sealed; empty: there is none. See endpoint_secrets.h.
struct EndpointSeals {
  std::string auth;
  std::string tls_key;
};
// Endpoints: AsCustomer, or AsOperator. `settings` are valid. Of them neither `enabled` nor `pause`
// is written by the first two: an endpoint begins enabled and not paused.
void InsertEndpoint(Transaction& tx, CustomerId customer, EndpointId id, EndpointSettings settings,
                    EndpointSeals seals, std::string secrets_sealed, DoneWith<Endpoint> done);
void ListEndpoints(Transaction& tx, CustomerId customer, Page page,
                   DoneWith<PageOf<Endpoint>> done);
void GetEndpoint(Transaction& tx, CustomerId customer, EndpointId id, RowLock lock,
                 DoneWith<Endpoint> done);
void UpdateEndpoint(Transaction& tx, CustomerId customer, EndpointId id, EndpointSettings settings,
                    EndpointSeals seals, DoneWith<Endpoint> done);
// Raises the generation even where it changes nothing: that overrules an automatic disable.
void SetEndpointEnabled(Transaction& tx, CustomerId customer, EndpointId id, bool enabled,
                        DoneWith<Endpoint> done);
void SetEndpointPause(Transaction& tx, CustomerId customer, EndpointId id, PauseSettings pause,
                      DoneWith<Endpoint> done);
void SetEndpointSecrets(Transaction& tx, CustomerId customer, EndpointId id,
                        std::string secrets_sealed, DoneWith<Endpoint> done);
// With its subscriptions. What becomes of its backlog is decided then, once.
enum class BacklogOnDelete { kDiscard, kDeadLetter };
void DeleteEndpoint(Transaction& tx, CustomerId customer, EndpointId id, BacklogOnDelete backlog,
                    DonePlain done);

// Erasures: AsOperator. kFailedPrecondition when there never was such a customer.
void InsertErasure(Transaction& tx, Erasure erasure, DoneWith<Erasure> done);
// Those that workers keep to still.
void CountErasures(Transaction& tx, DoneWith<int64_t> done);
void GetErasure(Transaction& tx, ErasureId id, DoneWith<Erasure> done);
void ListErasures(Transaction& tx, Page page, DoneWith<PageOf<Erasure>> done);

// Subscriptions: AsCustomer. `settings` are valid. An endpoint that is not the customer's, or
// deleted, is kFailedPrecondition for a new subscription and kNotFound for a change.
void InsertSubscription(Transaction& tx, CustomerId customer, SubscriptionId id,
                        SubscriptionSettings settings, DoneWith<Subscription> done);
// `endpoint`: of this one only.
void ListSubscriptions(Transaction& tx, CustomerId customer, absl::optional<EndpointId> endpoint,
                       Page page, DoneWith<PageOf<Subscription>> done);
void GetSubscription(Transaction& tx, CustomerId customer, SubscriptionId id, RowLock lock,
                     DoneWith<Subscription> done);
void UpdateSubscription(Transaction& tx, CustomerId customer, SubscriptionId id,
                        SubscriptionSettings settings, DoneWith<Subscription> done);
void DeleteSubscription(Transaction& tx, CustomerId customer, SubscriptionId id, DonePlain done);

}  // namespace postrider::subscriptions
