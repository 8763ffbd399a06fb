#include "subscriptions/registry/repository.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "subscriptions/registry/internal/queries.h"
#include "subscriptions/registry/internal/rows.h"

namespace postrider::subscriptions {
namespace {

using internal::AfterId;
using internal::AtLeastOne;
using internal::LimitParam;
using internal::LockClause;
using internal::Many;
using internal::One;
using internal::ReadAll;
using internal::ReadCount;
using internal::RefusePage;

constexpr absl::string_view kCustomerColumns =
    "id, name, generation, postrider.millis(created_at) AS created_at, "
    "postrider.millis(updated_at) AS updated_at";
constexpr absl::string_view kGrantColumns =
    "customer_id, tenant, postrider.millis(created_at) AS created_at";
// The grant that comes with a customer is nobody's to see or to withdraw (own_events.h).
constexpr absl::string_view kNotReserved = "AND tenant NOT LIKE 'customer:%'";
constexpr absl::string_view kEventTypeColumns =
    "name, description, generation, postrider.millis(created_at) AS created_at, "
    "postrider.millis(updated_at) AS updated_at";
constexpr absl::string_view kKeyColumns =
    "key_id, secret_sha256, scope, customer_id, event_types, tenants, name, "
    "postrider.millis(created_at) AS created_at, postrider.millis(revoked_at) AS revoked_at";

Customer ReadCustomer(RowReader& row) {
  Customer customer;
  customer.id = CustomerId(row.Uuid("id"));
  customer.name = row.Text("name");
  customer.generation = row.Unsigned("generation");
  customer.created_at = row.Time("created_at");
  customer.updated_at = row.Time("updated_at");
  return customer;
}

Grant ReadGrant(RowReader& row) {
  Grant grant;
  grant.customer = CustomerId(row.Uuid("customer_id"));
  grant.tenant = row.Text("tenant");
  grant.created_at = row.Time("created_at");
  return grant;
}

EventType ReadEventType(RowReader& row) {
  EventType type;
  type.name = row.Text("name");
  type.description = row.Text("description");
  type.generation = row.Unsigned("generation");
  type.created_at = row.Time("created_at");
  type.updated_at = row.Time("updated_at");
  return type;
}

PutEventTypeResult ReadPutEventType(RowReader& row) {
  PutEventTypeResult result;
  result.event_type = ReadEventType(row);
  result.created = row.Bool("created");
  return result;
}

ApiKey ReadKey(RowReader& row) {
  ApiKey key;
  key.key_id = row.Text("key_id");
  key.secret_sha256 = row.Bytes("secret_sha256");
  // The table allows no other word; the least of the three would be the answer to one.
  key.scope = ParseKeyScope(row.Text("scope")).value_or(KeyScope::kPublisher);
  if (const auto customer = row.OptionalUuid("customer_id")) key.customer = CustomerId(*customer);
  key.event_types = row.TextArray("event_types");
  key.tenants = row.TextArray("tenants");
  key.name = row.Text("name");
  key.created_at = row.Time("created_at");
  key.revoked_at = row.OptionalTime("revoked_at");
  return key;
}

std::string ReadTenant(RowReader& row) { return row.Text("tenant"); }

TransactionOptions With(absl::string_view setting, std::string value) {
  TransactionOptions options;
  options.settings.emplace_back(std::string(setting), std::move(value));
  return options;
}

Statement InsertKeyStatement(const ApiKey& key) {
  return Statement{
      absl::StrCat(
          "INSERT INTO postrider.api_keys (key_id, secret_sha256, scope, customer_id, event_types, "
          "tenants, name) SELECT $1, $2::bytea, $3, $4::uuid, $5::text[], $6::text[], $7 "
          "WHERE $4::uuid IS NULL OR EXISTS (SELECT 1 FROM postrider.customers "
          "WHERE id = $4::uuid AND deleted_at IS NULL) RETURNING ",
          kKeyColumns),
      {key.key_id, SqlParam::Bytes(key.secret_sha256), KeyScopeName(key.scope),
       key.customer ? SqlParam::Uuid(key.customer->bytes()) : SqlParam::Null(),
       SqlParam::TextArray(key.event_types), SqlParam::TextArray(key.tenants), key.name}};
}

absl::Status NoCustomer() {
  return absl::FailedPreconditionError("registry: there is no such customer");
}

void AddSettings(const SubscriptionSettings& s, std::vector<SqlParam>* params) {
  params->insert(
      params->end(),
      {SqlParam::Uuid(s.endpoint.bytes()), SqlParam::TextArray(s.event_types),
       ScopeKindName(s.scope), SqlParam::TextArray(s.tenants), SqlParam::TextArray(s.departments)});
}

absl::Status NoEndpoint() {
  return absl::FailedPreconditionError("registry: the customer has no such endpoint");
}

// The endpoint stays until the transaction's end, so that no subscription outlives it.
constexpr absl::string_view kLiveEndpoint =
    "WITH live AS (SELECT id FROM postrider.endpoints WHERE id = $3::uuid AND customer_id = "
    "$1::uuid AND deleted_at IS NULL FOR SHARE) ";

std::string PlaceOfCustomer(const Customer& customer) { return customer.id.ToUuid(); }
std::string PlaceOfGrant(const Grant& grant) { return grant.tenant; }
std::string PlaceOfKey(const ApiKey& key) {
  return absl::StrCat(MillisSinceEpoch(key.created_at), ":", key.key_id);
}
std::string PlaceOfEventType(const EventType& type) { return type.name; }
std::string PlaceOfSubscription(const Subscription& subscription) {
  return subscription.id.ToUuid();
}

}  // namespace

TransactionOptions AsCustomer(CustomerId customer) {
  return With("postrider.customer_id", customer.ToUuid());
}
TransactionOptions AsOperator() { return With("postrider.operator", "on"); }
TransactionOptions AsKeyLookup(absl::string_view key_id) {
  return With("postrider.key_id", std::string(key_id));
}

// --- customers --------------------------------------------------------------------------------

void InsertCustomer(Transaction& tx, CustomerId id, std::string name, DoneWith<Customer> done) {
  One<Customer>(tx,
                Statement{absl::StrCat("INSERT INTO postrider.customers (id, name) "
                                       "VALUES ($1::uuid, $2) RETURNING ",
                                       kCustomerColumns),
                          {SqlParam::Uuid(id.bytes()), name}},
                ReadCustomer, std::move(done));
}

void ListCustomers(Transaction& tx, Page page, DoneWith<PageOf<Customer>> done) {
  absl::optional<SqlParam> after = AfterId(page);
  if (!after) return RefusePage(tx, std::move(done));
  Many<Customer>(
      tx,
      Statement{absl::StrCat("SELECT ", kCustomerColumns,
                             " FROM postrider.customers WHERE deleted_at IS NULL "
                             "AND ($1::uuid IS NULL OR id < $1::uuid) ORDER BY id DESC LIMIT "
                             "$2::integer"),
                {*std::move(after), LimitParam(page)}},
      page, ReadCustomer, PlaceOfCustomer, std::move(done));
}

void GetCustomer(Transaction& tx, CustomerId id, RowLock lock, DoneWith<Customer> done) {
  One<Customer>(tx,
                Statement{absl::StrCat("SELECT ", kCustomerColumns,
                                       " FROM postrider.customers WHERE id = $1::uuid "
                                       "AND deleted_at IS NULL",
                                       LockClause(lock)),
                          {SqlParam::Uuid(id.bytes())}},
                ReadCustomer, std::move(done));
}

void RenameCustomer(Transaction& tx, CustomerId id, std::string name, DoneWith<Customer> done) {
  One<Customer>(tx,
                Statement{absl::StrCat("UPDATE postrider.customers SET name = $2 WHERE id = "
                                       "$1::uuid AND deleted_at IS NULL RETURNING ",
                                       kCustomerColumns),
                          {SqlParam::Uuid(id.bytes()), name}},
                ReadCustomer, std::move(done));
}

void DeleteCustomer(Transaction& tx, CustomerId id, ErasureId erasure, DonePlain done) {
  AtLeastOne(
      tx,
      Statement{
          "WITH gone AS (UPDATE postrider.customers SET deleted_at = now() WHERE id = $1::uuid "
          "AND deleted_at IS NULL RETURNING id), "
          "g AS (UPDATE postrider.grants SET deleted_at = now() WHERE customer_id IN "
          "(SELECT id FROM gone) AND deleted_at IS NULL), "
          "e AS (UPDATE postrider.endpoints SET deleted_at = now() WHERE customer_id IN "
          "(SELECT id FROM gone) AND deleted_at IS NULL), "
          "s AS (UPDATE postrider.subscriptions SET deleted_at = now() WHERE customer_id IN "
          "(SELECT id FROM gone) AND deleted_at IS NULL), "
          "k AS (UPDATE postrider.api_keys SET revoked_at = now() WHERE customer_id IN "
          "(SELECT id FROM gone) AND revoked_at IS NULL), "
          "x AS (INSERT INTO postrider.erasures (id, customer_id, of_deleted) SELECT $2::uuid, id, "
          "true FROM gone) "
          "SELECT count(*) AS count FROM gone",
          {SqlParam::Uuid(id.bytes()), SqlParam::Uuid(erasure.bytes())}},
      std::move(done));
}

// --- grants -----------------------------------------------------------------------------------

void AddGrants(Transaction& tx, CustomerId customer, std::vector<std::string> tenants,
               DoneWith<int64_t> done) {
  // The tenants in one order, so that two calls cannot wait for each other.
  One<int64_t>(tx,
               Statement{"WITH live AS (SELECT id FROM postrider.customers WHERE id = $1::uuid "
                         "AND deleted_at IS NULL FOR SHARE), "
                         "fresh AS (INSERT INTO postrider.grants AS g (customer_id, tenant) "
                         "SELECT live.id, t.tenant FROM live, "
                         "(SELECT DISTINCT unnest($2::text[]) AS tenant ORDER BY 1) AS t "
                         "ON CONFLICT (customer_id, tenant) DO UPDATE SET deleted_at = NULL "
                         "WHERE g.deleted_at IS NOT NULL RETURNING 1) "
                         "SELECT (SELECT count(*) FROM fresh) AS count FROM live",
                         {SqlParam::Uuid(customer.bytes()), SqlParam::TextArray(tenants)}},
               ReadCount, std::move(done));
}

void ListGrants(Transaction& tx, CustomerId customer, Page page, DoneWith<PageOf<Grant>> done) {
  // By tenant: a grant has no id that tells its age.
  Many<Grant>(tx,
              Statement{absl::StrCat("SELECT ", kGrantColumns,
                                     " FROM postrider.grants WHERE customer_id = $1::uuid "
                                     "AND deleted_at IS NULL AND ($2 = '' OR tenant > $2) ",
                                     kNotReserved, " ORDER BY tenant LIMIT $3::integer"),
                        {SqlParam::Uuid(customer.bytes()), page.after, LimitParam(page)}},
              page, ReadGrant, PlaceOfGrant, std::move(done));
}

void GetGrant(Transaction& tx, CustomerId customer, std::string tenant, DoneWith<Grant> done) {
  One<Grant>(tx,
             Statement{absl::StrCat("SELECT ", kGrantColumns,
                                    " FROM postrider.grants WHERE customer_id = $1::uuid "
                                    "AND tenant = $2 AND deleted_at IS NULL ",
                                    kNotReserved),
                       {SqlParam::Uuid(customer.bytes()), tenant}},
             ReadGrant, std::move(done));
}

void DeleteGrant(Transaction& tx, CustomerId customer, std::string tenant, DonePlain done) {
  AtLeastOne(
      tx,
      Statement{absl::StrCat("WITH gone AS (UPDATE postrider.grants SET deleted_at = now() WHERE "
                             "customer_id = $1::uuid AND tenant = $2 AND deleted_at IS NULL ",
                             kNotReserved, " RETURNING 1) SELECT count(*) AS count FROM gone"),
                {SqlParam::Uuid(customer.bytes()), tenant}},
      std::move(done));
}

void FindUngranted(Transaction& tx, CustomerId customer, std::vector<std::string> tenants,
                   DoneWith<std::vector<std::string>> done) {
  tx.Query(
      Statement{"WITH held AS (SELECT tenant FROM postrider.grants WHERE customer_id = $1::uuid "
                "AND tenant = ANY($2::text[]) AND deleted_at IS NULL FOR SHARE) "
                "SELECT t.tenant FROM unnest($2::text[]) WITH ORDINALITY AS t(tenant, n) "
                "WHERE t.tenant NOT IN (SELECT tenant FROM held) ORDER BY t.n",
                {SqlParam::Uuid(customer.bytes()), SqlParam::TextArray(tenants)}},
      [done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
        std::move(done)(ReadAll<std::string>(std::move(result), ReadTenant));
      });
}

// --- keys -------------------------------------------------------------------------------------

void InsertKey(Transaction& tx, ApiKey key, DoneWith<ApiKey> done) {
  One<ApiKey>(tx, InsertKeyStatement(key), ReadKey, std::move(done), NoCustomer());
}

absl::StatusOr<ApiKey> InsertKeyBlocking(BlockingSession& session, const ApiKey& key) {
  RETURN_IF_ERROR(session.Script("BEGIN; SELECT set_config('postrider.operator', 'on', true)"));
  absl::StatusOr<std::vector<ApiKey>> rows =
      ReadAll<ApiKey>(session.Query(InsertKeyStatement(key)), ReadKey);
  if (!rows.ok() || rows->empty()) {
    session.Script("ROLLBACK").IgnoreError();
    return rows.ok() ? NoCustomer() : rows.status();
  }
  RETURN_IF_ERROR(session.Script("COMMIT"));
  return std::move(rows->front());
}

void ListKeys(Transaction& tx, Page page, DoneWith<PageOf<ApiKey>> done) {
  SqlParam millis = SqlParam::Null();
  std::string key_id;
  if (!page.after.empty()) {
    const size_t colon = page.after.find(':');
    int64_t value = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(page.after.substr(0, colon), &value)) {
      return RefusePage(tx, std::move(done));
    }
    millis = SqlParam::Int(value);
    key_id = page.after.substr(colon + 1);
  }
  Many<ApiKey>(tx,
               Statement{absl::StrCat("SELECT ", kKeyColumns,
                                      " FROM postrider.api_keys WHERE revoked_at IS NULL AND "
                                      "($1::bigint IS NULL OR (postrider.millis(created_at), "
                                      "key_id) < ($1::bigint, $2)) ORDER BY "
                                      "postrider.millis(api_keys.created_at) DESC, key_id DESC "
                                      "LIMIT $3::integer"),
                         {std::move(millis), key_id, LimitParam(page)}},
               page, ReadKey, PlaceOfKey, std::move(done));
}

void FindKey(Transaction& tx, std::string key_id, DoneWith<ApiKey> done) {
  One<ApiKey>(tx,
              Statement{absl::StrCat("SELECT ", kKeyColumns,
                                     " FROM postrider.api_keys WHERE key_id = $1 AND revoked_at "
                                     "IS NULL AND (customer_id IS NULL OR EXISTS (SELECT 1 FROM "
                                     "postrider.customers c WHERE c.id = customer_id AND "
                                     "c.deleted_at IS NULL))"),
                        {key_id}},
              ReadKey, std::move(done));
}

void RenameKey(Transaction& tx, std::string key_id, std::string name, DoneWith<ApiKey> done) {
  One<ApiKey>(tx,
              Statement{absl::StrCat("UPDATE postrider.api_keys SET name = $2 WHERE key_id = $1 "
                                     "AND revoked_at IS NULL RETURNING ",
                                     kKeyColumns),
                        {key_id, name}},
              ReadKey, std::move(done));
}

void RevokeKey(Transaction& tx, std::string key_id, DonePlain done) {
  AtLeastOne(tx,
             Statement{"WITH gone AS (UPDATE postrider.api_keys SET revoked_at = now() WHERE "
                       "key_id = $1 AND revoked_at IS NULL RETURNING 1) "
                       "SELECT count(*) AS count FROM gone",
                       {key_id}},
             std::move(done));
}

// --- event types ------------------------------------------------------------------------------

void PutEventType(Transaction& tx, std::string name, std::string description,
                  DoneWith<PutEventTypeResult> done) {
  One<PutEventTypeResult>(
      tx,
      // `old` is what the statement's own snapshot shows: the row before this change. It does not
      // show one that another put makes at the same time, but then the generation is not 1.
      Statement{absl::StrCat("WITH old AS (SELECT deleted_at IS NULL AS live FROM "
                             "postrider.event_types WHERE name = $1) "
                             "INSERT INTO postrider.event_types (name, description) VALUES ($1, "
                             "$2) ON CONFLICT (name) DO UPDATE SET description = "
                             "EXCLUDED.description, deleted_at = NULL RETURNING ",
                             kEventTypeColumns,
                             ", generation = 1 OR coalesce((SELECT NOT live FROM old), false)"
                             " AS created"),
                {name, description}},
      ReadPutEventType, std::move(done));
}

void ListEventTypes(Transaction& tx, Page page, DoneWith<PageOf<EventType>> done) {
  // By name: a type has no id that tells its age.
  Many<EventType>(tx,
                  Statement{absl::StrCat("SELECT ", kEventTypeColumns,
                                         " FROM postrider.event_types WHERE deleted_at IS NULL "
                                         "AND ($1 = '' OR name > $1) ORDER BY name LIMIT "
                                         "$2::integer"),
                            {page.after, LimitParam(page)}},
                  page, ReadEventType, PlaceOfEventType, std::move(done));
}

void GetEventType(Transaction& tx, std::string name, DoneWith<EventType> done) {
  One<EventType>(tx,
                 Statement{absl::StrCat("SELECT ", kEventTypeColumns,
                                        " FROM postrider.event_types WHERE name = $1 AND "
                                        "deleted_at IS NULL"),
                           {name}},
                 ReadEventType, std::move(done));
}

void DeleteEventType(Transaction& tx, std::string name, DonePlain done) {
  AtLeastOne(tx,
             Statement{"WITH gone AS (UPDATE postrider.event_types SET deleted_at = now() WHERE "
                       "name = $1 AND deleted_at IS NULL RETURNING 1) "
                       "SELECT count(*) AS count FROM gone",
                       {name}},
             std::move(done));
}

// --- subscriptions ----------------------------------------------------------------------------

void InsertSubscription(Transaction& tx, CustomerId customer, SubscriptionId id,
                        SubscriptionSettings settings, DoneWith<Subscription> done) {
  std::vector<SqlParam> params = {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())};
  AddSettings(settings, &params);
  One<Subscription>(
      tx,
      Statement{absl::StrCat(kLiveEndpoint,
                             "INSERT INTO postrider.subscriptions (customer_id, id, endpoint_id, "
                             "event_types, scope_kind, tenants, departments) SELECT $1::uuid, "
                             "$2::uuid, live.id, $4::text[], $5, $6::text[], $7::text[] FROM live "
                             "RETURNING ",
                             internal::kSubscriptionColumns),
                std::move(params)},
      internal::ReadSubscription, std::move(done), NoEndpoint());
}

void ListSubscriptions(Transaction& tx, CustomerId customer, absl::optional<EndpointId> endpoint,
                       Page page, DoneWith<PageOf<Subscription>> done) {
  absl::optional<SqlParam> after = AfterId(page);
  if (!after) return RefusePage(tx, std::move(done));
  Many<Subscription>(
      tx,
      Statement{absl::StrCat("SELECT ", internal::kSubscriptionColumns,
                             " FROM postrider.subscriptions WHERE customer_id = $1::uuid AND "
                             "deleted_at IS NULL AND ($2::uuid IS NULL OR id < $2::uuid) AND "
                             "($4::uuid IS NULL OR endpoint_id = $4::uuid) ORDER BY id DESC "
                             "LIMIT $3::integer"),
                {SqlParam::Uuid(customer.bytes()), *std::move(after), LimitParam(page),
                 endpoint ? SqlParam::Uuid(endpoint->bytes()) : SqlParam::Null()}},
      page, internal::ReadSubscription, PlaceOfSubscription, std::move(done));
}

void GetSubscription(Transaction& tx, CustomerId customer, SubscriptionId id, RowLock lock,
                     DoneWith<Subscription> done) {
  One<Subscription>(
      tx,
      Statement{absl::StrCat("SELECT ", internal::kSubscriptionColumns,
                             " FROM postrider.subscriptions WHERE customer_id = $1::uuid AND id = "
                             "$2::uuid AND deleted_at IS NULL",
                             LockClause(lock)),
                {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())}},
      internal::ReadSubscription, std::move(done));
}

void UpdateSubscription(Transaction& tx, CustomerId customer, SubscriptionId id,
                        SubscriptionSettings settings, DoneWith<Subscription> done) {
  std::vector<SqlParam> params = {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())};
  AddSettings(settings, &params);
  One<Subscription>(
      tx,
      Statement{absl::StrCat(kLiveEndpoint,
                             "UPDATE postrider.subscriptions AS s SET endpoint_id = $3::uuid, "
                             "event_types = $4::text[], scope_kind = $5, tenants = $6::text[], "
                             "departments = $7::text[] WHERE customer_id = $1::uuid AND id = "
                             "$2::uuid AND deleted_at IS NULL AND EXISTS (SELECT 1 FROM live) "
                             "RETURNING ",
                             internal::kSubscriptionColumns),
                std::move(params)},
      internal::ReadSubscription, std::move(done));
}

void DeleteSubscription(Transaction& tx, CustomerId customer, SubscriptionId id, DonePlain done) {
  AtLeastOne(tx,
             Statement{"WITH gone AS (UPDATE postrider.subscriptions SET deleted_at = now() WHERE "
                       "customer_id = $1::uuid AND id = $2::uuid AND deleted_at IS NULL RETURNING "
                       "1) SELECT count(*) AS count FROM gone",
                       {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())}},
             std::move(done));
}

}  // namespace postrider::subscriptions
