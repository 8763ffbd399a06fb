#include "subscriptions/registry/internal/rows.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "subscriptions/registry/endpoint_names.h"

namespace postrider::subscriptions::internal {

const absl::string_view kEndpointColumns =
    "id, customer_id, url, description, mode, events_max, bytes_max, wait_max_ms, header_names, "
    "header_values, attempts, horizon_ms, first_delay_ms, factor, cap_ms, window_max, timeout_ms, "
    "body_format, body_compression, signature, partial_ack, schedule_ms, requests_per_second, "
    "messages_per_second, bytes_per_second, order_kind, order_key_pointer, order_blocked, "
    "parallelism, backlog_bytes_max, backlog_age_max_ms, backlog_policy, "
    "backlog_collapse_pointer, auth_kind, auth_name, auth_token_url, auth_scope, ca_pem, "
    "certificate_pem, paused_by_customer, paused_by_operator, resume_kind, "
    "postrider.millis(resume_from) AS resume_from, postrider.millis(resumed_at) AS resumed_at, "
    "enabled, secrets_sealed, auth_sealed, tls_key_sealed, generation, changed_xid, "
    "postrider.millis(created_at) AS created_at, postrider.millis(updated_at) AS updated_at";

const absl::string_view kSubscriptionColumns =
    "id, customer_id, endpoint_id, event_types, scope_kind, tenants, departments, generation, "
    "changed_xid, postrider.millis(created_at) AS created_at, "
    "postrider.millis(updated_at) AS updated_at";
const absl::string_view kSubscriptionWishColumns =
    "id, customer_id, endpoint_id, event_types, scope_kind, tenants, departments";

namespace {

// The table allows no other words than those that are known.
template <typename E>
E Word(RowReader& row, absl::string_view column, absl::optional<E> (*parse)(absl::string_view)) {
  return parse(row.Text(column)).value_or(E());
}

}  // namespace

Endpoint ReadEndpoint(RowReader& row) {
  Endpoint endpoint;
  EndpointSettings& s = endpoint.settings;
  endpoint.id = EndpointId(row.Uuid("id"));
  endpoint.customer = CustomerId(row.Uuid("customer_id"));
  s.url = row.Text("url");
  s.description = row.Text("description");
  s.mode = Word(row, "mode", ParseEndpointMode);
  s.batch.events_max = row.Int("events_max");
  s.batch.bytes_max = row.Int("bytes_max");
  s.batch.wait_max = std::chrono::milliseconds(row.Int("wait_max_ms"));
  std::vector<std::string> names = row.TextArray("header_names");
  std::vector<std::string> values = row.TextArray("header_values");
  for (size_t i = 0; i < names.size() && i < values.size(); ++i) {
    s.headers.emplace_back(std::move(names[i]), std::move(values[i]));
  }
  s.retry.attempts = static_cast<int>(row.Int("attempts"));
  s.retry.horizon = std::chrono::milliseconds(row.Int("horizon_ms"));
  s.retry.first_delay = std::chrono::milliseconds(row.Int("first_delay_ms"));
  s.retry.factor = row.Double("factor");
  s.retry.cap = std::chrono::milliseconds(row.Int("cap_ms"));
  s.window_max = static_cast<int>(row.Int("window_max"));
  s.timeout = std::chrono::milliseconds(row.Int("timeout_ms"));
  s.body.format = Word(row, "body_format", ParseBodyFormat);
  s.body.compression = Word(row, "body_compression", ParseBodyCompression);
  s.signature = Word(row, "signature", ParseSignatureScheme);
  s.partial_ack = row.Bool("partial_ack");
  for (const int64_t delay : row.IntArray("schedule_ms")) s.retry.schedule.emplace_back(delay);
  s.limits.requests_per_second = row.OptionalDouble("requests_per_second");
  s.limits.messages_per_second = row.OptionalDouble("messages_per_second");
  s.limits.bytes_per_second = row.OptionalDouble("bytes_per_second");
  s.order.kind = Word(row, "order_kind", ParseOrderKind);
  s.order.key_pointer = row.Text("order_key_pointer");
  s.order.blocked = Word(row, "order_blocked", ParseBlockedHead);
  s.parallelism = static_cast<int>(row.Int("parallelism"));
  s.backlog.bytes_max = row.Int("backlog_bytes_max");
  s.backlog.age_max = std::chrono::milliseconds(row.Int("backlog_age_max_ms"));
  s.backlog.policy = Word(row, "backlog_policy", ParseBacklogPolicy);
  s.backlog.collapse_pointer = row.Text("backlog_collapse_pointer");
  s.auth.kind = Word(row, "auth_kind", ParseAuthKind);
  s.auth.name = row.Text("auth_name");
  s.auth.token_url = row.Text("auth_token_url");
  s.auth.scope = row.Text("auth_scope");
  s.tls.ca_pem = row.Text("ca_pem");
  s.tls.certificate_pem = row.Text("certificate_pem");
  s.pause.by_customer = row.Bool("paused_by_customer");
  s.pause.by_operator = row.Bool("paused_by_operator");
  s.pause.resume = Word(row, "resume_kind", ParseResumeKind);
  s.pause.resume_from = row.Time("resume_from");
  s.pause.resumed_at = row.Time("resumed_at");
  s.enabled = row.Bool("enabled");
  endpoint.auth_sealed = row.Bytes("auth_sealed");
  endpoint.tls_key_sealed = row.Bytes("tls_key_sealed");
  endpoint.secrets_sealed = row.Bytes("secrets_sealed");
  endpoint.generation = row.Unsigned("generation");
  endpoint.changed_xid = row.Unsigned("changed_xid");
  endpoint.created_at = row.Time("created_at");
  endpoint.updated_at = row.Time("updated_at");
  return endpoint;
}

Subscription ReadSubscriptionWish(RowReader& row) {
  Subscription subscription;
  subscription.id = SubscriptionId(row.Uuid("id"));
  subscription.customer = CustomerId(row.Uuid("customer_id"));
  subscription.settings.endpoint = EndpointId(row.Uuid("endpoint_id"));
  subscription.settings.event_types = row.TextArray("event_types");
  // The table allows no other word.
  subscription.settings.scope =
      ParseScopeKind(row.Text("scope_kind")).value_or(ScopeKind::kTenants);
  subscription.settings.tenants = row.TextArray("tenants");
  subscription.settings.departments = row.TextArray("departments");
  return subscription;
}

Subscription ReadSubscription(RowReader& row) {
  Subscription subscription = ReadSubscriptionWish(row);
  subscription.generation = row.Unsigned("generation");
  subscription.changed_xid = row.Unsigned("changed_xid");
  subscription.created_at = row.Time("created_at");
  subscription.updated_at = row.Time("updated_at");
  return subscription;
}

const absl::string_view kErasureColumns =
    "id, customer_id, tenant, event_id, state, letters, attempts, postrider.millis(created_at) AS "
    "requested_at, postrider.millis(erased_at) AS erased_at";

Erasure ReadErasure(RowReader& row) {
  Erasure erasure;
  erasure.id = ErasureId(row.Uuid("id"));
  if (const auto customer = row.OptionalUuid("customer_id")) {
    erasure.customer = CustomerId(*customer);
  }
  erasure.tenant = row.OptionalText("tenant");
  erasure.event_id = row.OptionalBytes("event_id");
  erasure.requested_at = row.Time("requested_at");
  erasure.progress.erased = row.Text("state") == "erased";
  erasure.progress.letters = row.Int("letters");
  erasure.progress.attempts = row.Int("attempts");
  erasure.progress.erased_at = row.OptionalTime("erased_at");
  return erasure;
}

}  // namespace postrider::subscriptions::internal
