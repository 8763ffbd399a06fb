#include "subscriptions/registry/internal/rows.h"

#include <string>
#include <utility>
#include <vector>

namespace postrider::subscriptions::internal {

const absl::string_view kEndpointColumns =
    "id, customer_id, url, description, mode, events_max, bytes_max, wait_max_ms, header_names, "
    "header_values, attempts, horizon_ms, first_delay_ms, factor, cap_ms, window_max, timeout_ms, "
    "enabled, secrets_sealed, generation, changed_xid, postrider.millis(created_at) AS created_at, "
    "postrider.millis(updated_at) AS updated_at";

const absl::string_view kSubscriptionColumns =
    "id, customer_id, endpoint_id, event_types, scope_kind, tenants, departments, generation, "
    "changed_xid, postrider.millis(created_at) AS created_at, "
    "postrider.millis(updated_at) AS updated_at";

Endpoint ReadEndpoint(RowReader& row) {
  Endpoint endpoint;
  EndpointSettings& s = endpoint.settings;
  endpoint.id = EndpointId(row.Uuid("id"));
  endpoint.customer = CustomerId(row.Uuid("customer_id"));
  s.url = row.Text("url");
  s.description = row.Text("description");
  // The table allows no other word.
  s.mode = ParseEndpointMode(row.Text("mode")).value_or(EndpointMode::kBatch);
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
  s.enabled = row.Bool("enabled");
  endpoint.secrets_sealed = row.Bytes("secrets_sealed");
  endpoint.generation = row.Unsigned("generation");
  endpoint.changed_xid = row.Unsigned("changed_xid");
  endpoint.created_at = row.Time("created_at");
  endpoint.updated_at = row.Time("updated_at");
  return endpoint;
}

Subscription ReadSubscription(RowReader& row) {
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
  subscription.generation = row.Unsigned("generation");
  subscription.changed_xid = row.Unsigned("changed_xid");
  subscription.created_at = row.Time("created_at");
  subscription.updated_at = row.Time("updated_at");
  return subscription;
}

}  // namespace postrider::subscriptions::internal
