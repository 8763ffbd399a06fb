#pragma once

#include <vector>

#include "core/json/json.h"
#include "dlq/reports/endpoint_status.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::api {

// One answer from what all parts of an endpoint have reported: the worst of their states, the sums
// of their figures, the last of their attempts. No part: the state is "unknown".
JsonValue StatusToJson(const subscriptions::Endpoint& endpoint,
                       const std::vector<dlq::EndpointStatus>& reported);

}  // namespace postrider::api
