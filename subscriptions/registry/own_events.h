#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/stream/log.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/ids.h"

// What Postrider tells a customer about the customer's own endpoints (operational events) goes the
// way of all events: it stands on a topic of ours, the one of them that matchers read beside the
// source topics, under a tenant that is the customer's alone.
namespace postrider::subscriptions {

// Tenants that begin so are ours: granted by nobody, and published under by nobody.
inline constexpr absl::string_view kReservedTenantPrefix = "customer:";
inline bool IsReservedTenant(absl::string_view tenant) {
  return tenant.substr(0, kReservedTenantPrefix.size()) == kReservedTenantPrefix;
}
// "customer:cus_...". Every customer is granted its own with its row (migrations/0004) and no
// other.
std::string ReservedTenantOf(CustomerId customer);
// A fault for each that is reserved; they point to `pointer`/0, `pointer`/1 and so on.
FieldFaults RefuseReservedTenants(absl::Span<const std::string> tenants, absl::string_view pointer);

// The closed set of types: endpoint.degraded, endpoint.disabled, endpoint.recovered,
// dead_letters.threshold, backlog.threshold, secret.expiring. A subscription names them, or
// "endpoint.*"; "*" stands for every type of the operator's events, not for these.
absl::Span<const absl::string_view> OperationalEventTypes();
bool IsOperationalEventType(absl::string_view type);

std::string OperationalTopicName(absl::string_view prefix);
inline constexpr int32_t kOperationalPartitions = 4;
// Kept 7 days; a customer's events stand in one partition.
TopicSpec OperationalTopic(absl::string_view prefix, int16_t replication);
// The headers of its records, whose value is the event's data.
inline constexpr absl::string_view kOperationalType = "type";
inline constexpr absl::string_view kOperationalTenant = "tenant";
inline constexpr absl::string_view kOperationalId = "id";
inline constexpr absl::string_view kOperationalTime = "time";
// The endpoint (ep_...) that the event is about, and that therefore does not get it.
inline constexpr absl::string_view kOperationalEndpoint = "endpoint";

}  // namespace postrider::subscriptions
