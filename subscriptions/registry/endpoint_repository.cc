#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/internal/queries.h"
#include "subscriptions/registry/internal/rows.h"
#include "subscriptions/registry/repository.h"

namespace postrider::subscriptions {
namespace {

using internal::AfterId;
using internal::AtLeastOne;
using internal::LimitParam;
using internal::LockClause;
using internal::Many;
using internal::One;
using internal::RefusePage;

struct SettingColumn {
  absl::string_view name;
  absl::string_view type;
};

// What a customer sets, in the order of SettingParams(). Whether it is enabled or paused is set by
// statements of its own.
constexpr SettingColumn kSettingColumns[] = {
    {"url", "text"},
    {"description", "text"},
    {"mode", "text"},
    {"events_max", "integer"},
    {"bytes_max", "integer"},
    {"wait_max_ms", "integer"},
    {"header_names", "text[]"},
    {"header_values", "text[]"},
    {"attempts", "integer"},
    {"horizon_ms", "bigint"},
    {"first_delay_ms", "bigint"},
    {"factor", "double precision"},
    {"cap_ms", "bigint"},
    {"schedule_ms", "bigint[]"},
    {"window_max", "integer"},
    {"timeout_ms", "integer"},
    {"body_format", "text"},
    {"body_compression", "text"},
    {"signature", "text"},
    {"partial_ack", "boolean"},
    {"requests_per_second", "double precision"},
    {"messages_per_second", "double precision"},
    {"bytes_per_second", "double precision"},
    {"order_kind", "text"},
    {"order_key_pointer", "text"},
    {"order_blocked", "text"},
    {"parallelism", "integer"},
    {"backlog_bytes_max", "bigint"},
    {"backlog_age_max_ms", "bigint"},
    {"backlog_policy", "text"},
    {"backlog_collapse_pointer", "text"},
    {"auth_kind", "text"},
    {"auth_name", "text"},
    {"auth_token_url", "text"},
    {"auth_scope", "text"},
    {"auth_sealed", "bytea"},
    {"ca_pem", "text"},
    {"certificate_pem", "text"},
    {"tls_key_sealed", "bytea"},
};

SqlParam RateParam(const absl::optional<double>& rate) {
  return rate ? SqlParam::Double(*rate) : SqlParam::Null();
}

std::vector<SqlParam> SettingParams(const EndpointSettings& s, const EndpointSeals& seals) {
  std::vector<std::string> names;
  std::vector<std::string> values;
  for (const auto& [name, value] : s.headers) {
    names.push_back(name);
    values.push_back(value);
  }
  const std::string schedule = absl::StrCat(
      "{",
      absl::StrJoin(
          s.retry.schedule, ",",
          [](std::string* out, std::chrono::milliseconds d) { absl::StrAppend(out, d.count()); }),
      "}");
  return {s.url,
          s.description,
          EndpointModeName(s.mode),
          SqlParam::Int(s.batch.events_max),
          SqlParam::Int(s.batch.bytes_max),
          SqlParam::Int(s.batch.wait_max.count()),
          SqlParam::TextArray(names),
          SqlParam::TextArray(values),
          SqlParam::Int(s.retry.attempts),
          SqlParam::Int(s.retry.horizon.count()),
          SqlParam::Int(s.retry.first_delay.count()),
          SqlParam::Double(s.retry.factor),
          SqlParam::Int(s.retry.cap.count()),
          schedule,
          SqlParam::Int(s.window_max),
          SqlParam::Int(s.timeout.count()),
          BodyFormatName(s.body.format),
          BodyCompressionName(s.body.compression),
          SignatureSchemeName(s.signature),
          SqlParam::Bool(s.partial_ack),
          RateParam(s.limits.requests_per_second),
          RateParam(s.limits.messages_per_second),
          RateParam(s.limits.bytes_per_second),
          OrderKindName(s.order.kind),
          s.order.key_pointer,
          BlockedHeadName(s.order.blocked),
          SqlParam::Int(s.parallelism),
          SqlParam::Int(s.backlog.bytes_max),
          SqlParam::Int(s.backlog.age_max.count()),
          BacklogPolicyName(s.backlog.policy),
          s.backlog.collapse_pointer,
          AuthKindName(s.auth.kind),
          s.auth.name,
          s.auth.token_url,
          s.auth.scope,
          SqlParam::Bytes(seals.auth),
          s.tls.ca_pem,
          s.tls.certificate_pem,
          SqlParam::Bytes(seals.tls_key)};
}

// The settings' parameters after `first` others, each as `form(column, "$n::type")`, with commas.
template <typename Form>
std::string ForEachSetting(size_t first, Form form) {
  std::string sql;
  for (const SettingColumn& column : kSettingColumns) {
    absl::StrAppend(&sql, sql.empty() ? "" : ", ",
                    form(column.name, absl::StrCat("$", ++first, "::", column.type)));
  }
  return sql;
}

absl::Status NoCustomer() {
  return absl::FailedPreconditionError("registry: there is no such customer");
}

std::string PlaceOfEndpoint(const Endpoint& endpoint) { return endpoint.id.ToUuid(); }

constexpr absl::string_view kLiveRow =
    " WHERE customer_id = $1::uuid AND id = $2::uuid AND deleted_at IS NULL";

// Sets what `assignments` says (its parameters begin at $3) and gives the row.
void Update(Transaction& tx, CustomerId customer, EndpointId id, absl::string_view assignments,
            std::vector<SqlParam> values, DoneWith<Endpoint> done) {
  std::vector<SqlParam> params = {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())};
  for (SqlParam& value : values) params.push_back(std::move(value));
  One<Endpoint>(tx,
                Statement{absl::StrCat("UPDATE postrider.endpoints SET ", assignments, kLiveRow,
                                       " RETURNING ", internal::kEndpointColumns),
                          std::move(params)},
                internal::ReadEndpoint, std::move(done));
}

}  // namespace

void InsertEndpoint(Transaction& tx, CustomerId customer, EndpointId id, EndpointSettings settings,
                    EndpointSeals seals, std::string secrets_sealed, DoneWith<Endpoint> done) {
  std::vector<SqlParam> params = {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes()),
                                  SqlParam::Bytes(secrets_sealed)};
  for (SqlParam& param : SettingParams(settings, seals)) params.push_back(std::move(param));
  const std::string names =
      ForEachSetting(3, [](absl::string_view name, const std::string&) { return name; });
  const std::string values =
      ForEachSetting(3, [](absl::string_view, const std::string& value) { return value; });
  // The customer's row is looked at under the request's own policy: a deleted one has no endpoints.
  One<Endpoint>(
      tx,
      Statement{absl::StrCat("INSERT INTO postrider.endpoints (customer_id, id, secrets_sealed, ",
                             names, ") SELECT $1::uuid, $2::uuid, $3::bytea, ", values,
                             " FROM postrider.customers c WHERE c.id = $1::uuid AND c.deleted_at "
                             "IS NULL RETURNING ",
                             internal::kEndpointColumns),
                std::move(params)},
      internal::ReadEndpoint, std::move(done), NoCustomer());
}

void ListEndpoints(Transaction& tx, CustomerId customer, Page page,
                   DoneWith<PageOf<Endpoint>> done) {
  absl::optional<SqlParam> after = AfterId(page);
  if (!after) return RefusePage(tx, std::move(done));
  Many<Endpoint>(tx,
                 Statement{absl::StrCat("SELECT ", internal::kEndpointColumns,
                                        " FROM postrider.endpoints WHERE customer_id = $1::uuid "
                                        "AND deleted_at IS NULL AND ($2::uuid IS NULL OR id < "
                                        "$2::uuid) ORDER BY id DESC LIMIT $3::integer"),
                           {SqlParam::Uuid(customer.bytes()), *std::move(after), LimitParam(page)}},
                 page, internal::ReadEndpoint, PlaceOfEndpoint, std::move(done));
}

void GetEndpoint(Transaction& tx, CustomerId customer, EndpointId id, RowLock lock,
                 DoneWith<Endpoint> done) {
  One<Endpoint>(tx,
                Statement{absl::StrCat("SELECT ", internal::kEndpointColumns,
                                       " FROM postrider.endpoints WHERE customer_id = $1::uuid "
                                       "AND id = $2::uuid AND deleted_at IS NULL",
                                       LockClause(lock)),
                          {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes())}},
                internal::ReadEndpoint, std::move(done));
}

void UpdateEndpoint(Transaction& tx, CustomerId customer, EndpointId id, EndpointSettings settings,
                    EndpointSeals seals, DoneWith<Endpoint> done) {
  Update(
      tx, customer, id,
      ForEachSetting(2, [](absl::string_view name,
                           const std::string& value) { return absl::StrCat(name, " = ", value); }),
      SettingParams(settings, seals), std::move(done));
}

void SetEndpointSecrets(Transaction& tx, CustomerId customer, EndpointId id,
                        std::string secrets_sealed, DoneWith<Endpoint> done) {
  Update(tx, customer, id, "secrets_sealed = $3::bytea", {SqlParam::Bytes(secrets_sealed)},
         std::move(done));
}

void SetEndpointEnabled(Transaction& tx, CustomerId customer, EndpointId id, bool enabled,
                        DoneWith<Endpoint> done) {
  Update(tx, customer, id, "enabled = $3::boolean", {SqlParam::Bool(enabled)}, std::move(done));
}

void SetEndpointPause(Transaction& tx, CustomerId customer, EndpointId id, PauseSettings pause,
                      DoneWith<Endpoint> done) {
  Update(tx, customer, id,
         "paused_by_customer = $3::boolean, paused_by_operator = $4::boolean, resume_kind = "
         "$5::text, resume_from = $6::timestamptz, resumed_at = $7::timestamptz",
         {SqlParam::Bool(pause.by_customer), SqlParam::Bool(pause.by_operator),
          ResumeKindName(pause.resume), SqlParam::Time(pause.resume_from),
          SqlParam::Time(pause.resumed_at)},
         std::move(done));
}

void DeleteEndpoint(Transaction& tx, CustomerId customer, EndpointId id, BacklogOnDelete backlog,
                    DonePlain done) {
  AtLeastOne(
      tx,
      Statement{"WITH gone AS (UPDATE postrider.endpoints SET deleted_at = now(), "
                "backlog_on_delete = $3 WHERE "
                "customer_id = $1::uuid AND id = $2::uuid AND deleted_at IS NULL RETURNING id), "
                "s AS (UPDATE postrider.subscriptions SET deleted_at = now() WHERE customer_id = "
                "$1::uuid AND endpoint_id IN (SELECT id FROM gone) AND deleted_at IS NULL) "
                "SELECT count(*) AS count FROM gone",
                {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(id.bytes()),
                 backlog == BacklogOnDelete::kDeadLetter ? "dead_letter" : "discard"}},
      std::move(done));
}

}  // namespace postrider::subscriptions
