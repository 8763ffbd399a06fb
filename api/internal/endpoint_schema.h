#pragma once

#include "core/json/json.h"

namespace postrider::api {

// Adds the schemas of endpoints (EndpointInput, EndpointPatch, Endpoint, EndpointCreated,
// EndpointDetails) to those of the document. All are made of one list of properties.
void AddEndpointSchemas(JsonValue* schemas);

}  // namespace postrider::api
