#include <string>
#include <utility>

#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/crypto/random.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::AsOperator;
using subscriptions::Customer;
using subscriptions::CustomerId;
using subscriptions::FieldFaults;
using subscriptions::PageOf;
using subscriptions::RowLock;

JsonValue ToJson(const Customer& customer) {
  return JsonValue::MakeObject({{"id", customer.id.ToString()},
                                {"name", customer.name},
                                {"generation", customer.generation},
                                {"created_at", FormatRfc3339(customer.created_at)},
                                {"updated_at", FormatRfc3339(customer.updated_at)}});
}

Response Show(int status, const Customer& customer) {
  Response response = JsonResponse(status, ToJson(customer));
  SetETag(customer.generation, &response);
  return response;
}

FieldFaults ReadName(const JsonValue& body, std::string* name) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  if (fields.RequiredString("name", name)) {
    for (auto& fault : subscriptions::ValidateName(*name, "/name")) faults.push_back(fault);
  }
  fields.Finish();
  return faults;
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  std::string name;
  if (const FieldFaults faults = ReadName(body.object, &name); !faults.empty()) {
    return call->Fail(faults);
  }
  call->InTransaction(AsOperator(), [call, name] {
    subscriptions::InsertCustomer(
        call->tx(), NewId<CustomerId>(call->api.clock), name,
        call->Then<Customer>([call](Customer customer) { call->Commit(Show(201, customer)); }));
  });
}

void List(CallPtr call) {
  const ListQuery query(*call, "customers", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  call->InTransaction(AsOperator(), [call, query] {
    subscriptions::ListCustomers(call->tx(), query.page(),
                                 call->Then<PageOf<Customer>>([call, query](auto page) {
                                   JsonValue rows = JsonValue::MakeArray();
                                   for (const Customer& row : page.rows) rows.Append(ToJson(row));
                                   call->Commit(query.Answer(std::move(rows), page.next));
                                 }));
  });
}

void Get(CallPtr call) {
  const auto id = CustomerId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  call->InTransaction(AsOperator(), [call, id] {
    subscriptions::GetCustomer(
        call->tx(), *id, RowLock::kNone,
        call->Then<Customer>([call](Customer customer) { call->Commit(Show(200, customer)); }));
  });
}

void Patch(CallPtr call) {
  const auto id = CustomerId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  call->InTransaction(AsOperator(), [call, id, patch = std::move(body.object)] {
    subscriptions::GetCustomer(
        call->tx(), *id, RowLock::kForUpdate,
        call->Then<Customer>([call, id, patch](Customer customer) {
          JsonValue merged = JsonValue::MakeObject({{"name", customer.name}});
          FieldFaults faults;
          FindUnknownMembers(patch, merged, {}, "", &faults);
          MergePatch(merged, patch);
          std::string name;
          for (auto& fault : ReadName(merged, &name)) faults.push_back(fault);
          KeepFirstFaults(&faults);
          if (!faults.empty()) return call->Fail(faults);
          if (!IfMatches(call->request, customer.generation)) {
            return call->Answer(PreconditionFailed());
          }
          if (name == customer.name) return call->Commit(Show(200, customer));
          subscriptions::RenameCustomer(
              call->tx(), *id, name,
              call->Then<Customer>([call](Customer renamed) { call->Commit(Show(200, renamed)); }));
        }));
  });
}

void Delete(CallPtr call) {
  const auto id = CustomerId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  call->InTransaction(AsOperator(), [call, id] {
    subscriptions::GetCustomer(
        call->tx(), *id, RowLock::kForUpdate, call->Then<Customer>([call, id](Customer customer) {
          if (!IfMatches(call->request, customer.generation)) {
            return call->Answer(PreconditionFailed());
          }
          subscriptions::DeleteCustomer(call->tx(), *id,
                                        NewId<subscriptions::ErasureId>(call->api.clock),
                                        call->ThenPlain([call] { call->Commit(NoContent()); }));
        }));
  });
}

}  // namespace

void AddCustomerRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/customers",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Create),
               .operation_id = "createCustomer",
               .summary = "Make a customer",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "CustomerInput",
               .response_schema = "Customer",
               .success_status = 201});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/customers",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, List),
               .operation_id = "listCustomers",
               .summary = "List customers, the newest first",
               .response_schema = "CustomerList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/customers/{customer}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Get),
               .operation_id = "getCustomer",
               .summary = "Get a customer",
               .response_schema = "Customer"});
  router->Add({.method = HttpMethod::kPatch,
               .path = "/v1/customers/{customer}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Patch),
               .operation_id = "patchCustomer",
               .summary = "Change a customer (merge patch)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "CustomerInput",
               .response_schema = "Customer"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/customers/{customer}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteCustomer",
               .summary = "Delete a customer with its grants, keys, endpoints and subscriptions; "
                          "what is stored of it is erased",
               .success_status = 204});
}

}  // namespace postrider::api
