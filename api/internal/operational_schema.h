#pragma once

#include "core/json/json.h"

namespace postrider::api {

// The `webhooks` of the OpenAPI document: what customers are told of their endpoints, one by its
// type each, as the body `envelope` shows it to a streaming endpoint.
JsonValue OperationalWebhooks();

}  // namespace postrider::api
