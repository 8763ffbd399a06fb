#include "subscriptions/registry/own_events.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace postrider::subscriptions {
namespace {

constexpr absl::string_view kTypes[] = {"endpoint.degraded",  "endpoint.disabled",
                                        "endpoint.recovered", "dead_letters.threshold",
                                        "backlog.threshold",  "secret.expiring"};

}  // namespace

std::string ReservedTenantOf(CustomerId customer) {
  return absl::StrCat(kReservedTenantPrefix, customer.ToString());
}

FieldFaults RefuseReservedTenants(absl::Span<const std::string> tenants,
                                  absl::string_view pointer) {
  FieldFaults faults;
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (!IsReservedTenant(tenants[i])) continue;
    faults.push_back(
        {absl::StrCat(pointer, "/", i), absl::StrCat("must not begin with '", kReservedTenantPrefix,
                                                     "': such tenants are Postrider's own")});
  }
  return faults;
}

absl::Span<const absl::string_view> OperationalEventTypes() { return kTypes; }

bool IsOperationalEventType(absl::string_view type) {
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

std::string OperationalTopicName(absl::string_view prefix) {
  return absl::StrCat(prefix, "operational-events");
}

TopicSpec OperationalTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec topic;
  topic.name = OperationalTopicName(prefix);
  topic.partitions = kOperationalPartitions;
  topic.replication = replication;
  topic.settings = {{"retention.ms", "604800000"}, {"cleanup.policy", "delete"}};
  return topic;
}

}  // namespace postrider::subscriptions
