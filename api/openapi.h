#pragma once

#include <string>

#include "absl/types/span.h"
#include "api/router.h"

namespace postrider::api {

// The OpenAPI 3.1 document of these routes: every path and method of the table, no other, with the
// schemas that they name (api/internal/schemas.h). CHECKs that the schemas exist. Threads: any.
std::string OpenApiDocument(absl::Span<const Route> routes);

// Adds GET /openapi.json, which needs no key and shows all routes of the table, itself too. Call it
// last.
void AddOpenApiRoute(Router* router);

}  // namespace postrider::api
