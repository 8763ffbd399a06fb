#pragma once

#include "api/internal/parts.h"
#include "api/router.h"

namespace postrider::api {

// One function per resource, each in a file of its name: puts its routes into the table. `parts`
// outlives the router.
void AddCustomerRoutes(const ApiParts& parts, Router* router);
void AddGrantRoutes(const ApiParts& parts, Router* router);
void AddKeyRoutes(const ApiParts& parts, Router* router);
void AddEventTypeRoutes(const ApiParts& parts, Router* router);
void AddEndpointRoutes(const ApiParts& parts, Router* router);
void AddEndpointVerbRoutes(const ApiParts& parts, Router* router);
void AddEndpointTestRoutes(const ApiParts& parts, Router* router);
void AddEndpointReportRoutes(const ApiParts& parts, Router* router);
void AddSubscriptionRoutes(const ApiParts& parts, Router* router);
void AddDeadLetterRoutes(const ApiParts& parts, Router* router);
void AddErasureRoutes(const ApiParts& parts, Router* router);
void AddEventRoutes(const ApiParts& parts, Router* router);

}  // namespace postrider::api
