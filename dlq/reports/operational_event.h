#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::dlq {

// Something that a customer is told about one of its endpoints. It is delivered to the customer's
// other endpoints that subscribe to its type, as any event is: subscriptions/registry/own_events.h.
struct OperationalEvent {
  absl::string_view type;  // one of subscriptions::OperationalEventTypes()
  subscriptions::CustomerId customer;
  subscriptions::EndpointId endpoint;
  WallTime time;
  // What tells it from others of its type and endpoint: whoever tells it again for want of an
  // answer gives the same, and receivers see the same id.
  std::string occasion;
  std::string data;  // exactly one JSON value
};

// "evt_" and 26 characters, of type, endpoint and occasion.
std::string OperationalEventId(const OperationalEvent& event);
// Into the topic of operational events, to the partition of its customer.
AppendRecord MakeOperationalAppend(absl::string_view prefix, const OperationalEvent& event);

}  // namespace postrider::dlq
