#include "dlq/reports/operational_event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/id.h"
#include "core/crypto/digest.h"
#include "core/stream/key_groups.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::dlq {

std::string OperationalEventId(const OperationalEvent& event) {
  ByteWriter of;
  of.String(event.type);
  of.Raw(event.endpoint.view());
  of.String(event.occasion);
  const Sha256Digest digest = Sha256(of.bytes());
  return absl::StrCat("evt_", EncodeBase32(DigestView(digest).substr(0, sizeof(IdBytes))));
}

AppendRecord MakeOperationalAppend(absl::string_view prefix, const OperationalEvent& event) {
  AppendRecord append;
  append.topic = subscriptions::OperationalTopicName(prefix);
  append.partition = KeyGroupOf(event.customer.view(), 0, subscriptions::kOperationalPartitions);
  append.key = std::string(event.customer.view());
  append.value = event.data;
  const auto header = [&append](absl::string_view name, std::string value) {
    append.headers.emplace_back(std::string(name), std::move(value));
  };
  header(subscriptions::kOperationalType, std::string(event.type));
  header(subscriptions::kOperationalTenant, subscriptions::ReservedTenantOf(event.customer));
  header(subscriptions::kOperationalId, OperationalEventId(event));
  header(subscriptions::kOperationalTime, absl::StrCat(MillisSinceEpoch(event.time)));
  header(subscriptions::kOperationalEndpoint, event.endpoint.ToString());
  return append;
}

}  // namespace postrider::dlq
