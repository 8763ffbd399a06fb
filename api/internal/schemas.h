#pragma once

#include "absl/strings/string_view.h"

namespace postrider::api {

// The JSON Schemas of the REST API by name: one JSON object.
absl::string_view SchemasJson();

}  // namespace postrider::api
