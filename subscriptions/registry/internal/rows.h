#pragma once

#include "absl/strings/string_view.h"
#include "core/postgres/result.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/erasure.h"
#include "subscriptions/registry/subscription.h"

// How rows become values; what the repository and the loader share.
namespace postrider::subscriptions::internal {

// What ReadEndpoint and so on need selected.
extern const absl::string_view kEndpointColumns;
extern const absl::string_view kSubscriptionColumns;
// Whose, to what and of what, without the rest: there may be a million of them to read.
extern const absl::string_view kSubscriptionWishColumns;
extern const absl::string_view kErasureColumns;

// Faults show in row.status().
Endpoint ReadEndpoint(RowReader& row);
Subscription ReadSubscription(RowReader& row);
Subscription ReadSubscriptionWish(RowReader& row);
Erasure ReadErasure(RowReader& row);

}  // namespace postrider::subscriptions::internal
