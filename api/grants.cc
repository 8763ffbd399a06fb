#include <string>
#include <utility>
#include <vector>

#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/own_events.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::AsOperator;
using subscriptions::Customer;
using subscriptions::CustomerId;
using subscriptions::FieldFaults;
using subscriptions::Grant;
using subscriptions::PageOf;
using subscriptions::RowLock;

JsonValue ToJson(const Grant& grant) {
  return JsonValue::MakeObject({{"customer_id", grant.customer.ToString()},
                                {"tenant", grant.tenant},
                                {"created_at", FormatRfc3339(grant.created_at)}});
}

// Begins an operator's transaction in which the path's customer exists, then runs `next(id)`.
template <typename Next>
void WithCustomer(CallPtr call, Next next) {
  const auto id = CustomerId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  call->InTransaction(AsOperator(), [call, id, next = std::move(next)]() mutable {
    subscriptions::GetCustomer(
        call->tx(), *id, RowLock::kNone,
        call->Then<Customer>([id, next = std::move(next)](Customer) mutable { next(*id); }));
  });
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  FieldFaults faults;
  FieldReader fields(&body.object, "", faults);
  std::vector<std::string> tenants;
  fields.Required("tenants");
  if (fields.StringList("tenants", &tenants)) {
    for (auto& fault : subscriptions::ValidateTenants(tenants, "/tenants")) {
      faults.push_back(fault);
    }
    for (auto& fault : subscriptions::RefuseReservedTenants(tenants, "/tenants")) {
      faults.push_back(fault);
    }
  }
  fields.Finish();
  if (!faults.empty()) return call->Fail(faults);
  WithCustomer(call, [call, tenants](CustomerId id) {
    subscriptions::AddGrants(call->tx(), id, tenants, call->Then<int64_t>([call](int64_t granted) {
      call->Commit(JsonResponse(200, JsonValue::MakeObject({{"granted", granted}})));
    }));
  });
}

void List(CallPtr call) {
  const ListQuery query(*call, "grants", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  WithCustomer(call, [call, query](CustomerId id) {
    subscriptions::ListGrants(call->tx(), id, query.page(),
                              call->Then<PageOf<Grant>>([call, query](auto page) {
                                JsonValue rows = JsonValue::MakeArray();
                                for (const Grant& row : page.rows) rows.Append(ToJson(row));
                                call->Commit(query.Answer(std::move(rows), page.next));
                              }));
  });
}

void Get(CallPtr call) {
  WithCustomer(call, [call](CustomerId id) {
    subscriptions::GetGrant(
        call->tx(), id, call->request.params[1],
        call->Then<Grant>([call](Grant grant) { call->Commit(JsonResponse(200, ToJson(grant))); }));
  });
}

void Delete(CallPtr call) {
  WithCustomer(call, [call](CustomerId id) {
    subscriptions::DeleteGrant(call->tx(), id, call->request.params[1],
                               call->ThenPlain([call] { call->Commit(NoContent()); }));
  });
}

}  // namespace

void AddGrantRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/customers/{customer}/grants",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Create),
               .operation_id = "addGrants",
               .summary = "Let a customer receive tenants' events",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "GrantsInput",
               .response_schema = "GrantsAdded"});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/customers/{customer}/grants",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, List),
               .operation_id = "listGrants",
               .summary = "List a customer's grants",
               .response_schema = "GrantList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/customers/{customer}/grants/{tenant}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Get),
               .operation_id = "getGrant",
               .summary = "Get a grant",
               .response_schema = "Grant"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/customers/{customer}/grants/{tenant}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteGrant",
               .summary = "Withdraw a grant; within two seconds nothing of that tenant is sent",
               .success_status = 204});
}

}  // namespace postrider::api
