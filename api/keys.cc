#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "api/api_key.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/own_events.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::ApiKey;
using subscriptions::AsOperator;
using subscriptions::Customer;
using subscriptions::CustomerId;
using subscriptions::FieldFaults;
using subscriptions::KeyScope;
using subscriptions::PageOf;
using subscriptions::RowLock;

JsonValue Strings(const std::vector<std::string>& strings) {
  JsonValue array = JsonValue::MakeArray();
  for (const std::string& text : strings) array.Append(text);
  return array;
}

JsonValue ToJson(const ApiKey& key) {
  JsonValue object = JsonValue::MakeObject(
      {{"id", key.key_id}, {"scope", subscriptions::KeyScopeName(key.scope)}, {"name", key.name}});
  if (key.customer) object.Set("customer_id", key.customer->ToString());
  if (key.scope == KeyScope::kPublisher) {
    object.Set("event_types", Strings(key.event_types));
    object.Set("tenants", Strings(key.tenants));
  }
  object.Set("created_at", FormatRfc3339(key.created_at));
  return object;
}

void ReadTenants(FieldReader& fields, std::vector<std::string>* tenants, FieldFaults* faults) {
  fields.Required("tenants");
  if (!fields.StringList("tenants", tenants)) return;
  if (*tenants == std::vector<std::string>{"*"}) return;
  for (auto& fault : subscriptions::ValidateTenants(*tenants, "/tenants")) {
    faults->push_back(fault);
  }
  for (auto& fault : subscriptions::RefuseReservedTenants(*tenants, "/tenants")) {
    faults->push_back(fault);
  }
  for (size_t i = 0; i < tenants->size(); ++i) {
    if ((*tenants)[i] == "*") {
      faults->push_back({absl::StrCat("/tenants/", i), "'*' stands alone"});
    }
  }
}

FieldFaults ReadKey(const JsonValue& body, ApiKey* key) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  std::string scope;
  if (fields.RequiredString("scope", &scope)) {
    const auto parsed = subscriptions::ParseKeyScope(scope);
    if (parsed) {
      key->scope = *parsed;
    } else {
      fields.Fault("scope", "must be operator, customer or publisher");
    }
  }
  if (fields.String("name", &key->name)) {
    for (auto& fault : subscriptions::ValidateName(key->name, "/name")) faults.push_back(fault);
  }
  if (!faults.empty()) return faults;  // the scope says which other fields there are
  if (key->scope == KeyScope::kCustomer) {
    std::string customer;
    if (fields.RequiredString("customer_id", &customer)) {
      key->customer = CustomerId::Parse(customer);
      if (!key->customer) fields.Fault("customer_id", "is no customer");
    }
  } else if (key->scope == KeyScope::kPublisher) {
    fields.Required("event_types");
    if (fields.StringList("event_types", &key->event_types)) {
      for (auto& fault :
           subscriptions::ValidateEventTypePatterns(key->event_types, "/event_types")) {
        faults.push_back(fault);
      }
    }
    ReadTenants(fields, &key->tenants, &faults);
  }
  fields.Finish();
  return faults;
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  ApiKey key;
  if (const FieldFaults faults = ReadKey(body.object, &key); !faults.empty()) {
    return call->Fail(faults);
  }
  NewKey made = MakeKey();
  key.key_id = std::move(made.key_id);
  key.secret_sha256 = std::move(made.secret_sha256);
  auto insert = [call, key, text = std::move(made.text)] {
    subscriptions::InsertKey(call->tx(), key, call->Then<ApiKey>([call, text](ApiKey stored) {
      JsonValue document = ToJson(stored);
      document.Set("key", text);
      call->Commit(JsonResponse(201, document));
    }));
  };
  call->InTransaction(AsOperator(), [call, key, insert] {
    if (!key.customer) return insert();
    subscriptions::GetCustomer(call->tx(), *key.customer, RowLock::kNone,
                               [call, insert](absl::StatusOr<Customer> customer) {
                                 if (absl::IsNotFound(customer.status())) {
                                   return call->Fail({{"/customer_id", "is no customer"}});
                                 }
                                 if (!customer.ok()) return call->Fail(customer.status());
                                 insert();
                               });
  });
}

void List(CallPtr call) {
  const ListQuery query(*call, "keys", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  call->InTransaction(AsOperator(), [call, query] {
    subscriptions::ListKeys(call->tx(), query.page(),
                            call->Then<PageOf<ApiKey>>([call, query](auto page) {
                              JsonValue rows = JsonValue::MakeArray();
                              for (const ApiKey& row : page.rows) rows.Append(ToJson(row));
                              call->Commit(query.Answer(std::move(rows), page.next));
                            }));
  });
}

void Get(CallPtr call) {
  call->InTransaction(AsOperator(), [call] {
    subscriptions::FindKey(
        call->tx(), call->request.params[0],
        call->Then<ApiKey>([call](ApiKey key) { call->Commit(JsonResponse(200, ToJson(key))); }));
  });
}

void Patch(CallPtr call) {
  ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  call->InTransaction(AsOperator(), [call, patch = std::move(body.object)] {
    subscriptions::FindKey(
        call->tx(), call->request.params[0], call->Then<ApiKey>([call, patch](ApiKey key) {
          FieldFaults faults;
          FieldReader fields(&patch, "", faults);
          std::string name = patch.Find("name") == nullptr ? key.name : "";
          if (fields.String("name", &name)) {
            for (auto& fault : subscriptions::ValidateName(name, "/name")) faults.push_back(fault);
          }
          fields.Finish();
          if (!faults.empty()) return call->Fail(faults);
          if (name == key.name) return call->Commit(JsonResponse(200, ToJson(key)));
          subscriptions::RenameKey(call->tx(), key.key_id, name,
                                   call->Then<ApiKey>([call](ApiKey renamed) {
                                     call->Commit(JsonResponse(200, ToJson(renamed)));
                                   }));
        }));
  });
}

void Delete(CallPtr call) {
  call->InTransaction(AsOperator(), [call] {
    subscriptions::RevokeKey(call->tx(), call->request.params[0],
                             call->ThenPlain([call] { call->Commit(NoContent()); }));
  });
}

}  // namespace

void AddKeyRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/keys",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Create),
               .operation_id = "createKey",
               .summary = "Make an API key; its text is shown this once",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "KeyInput",
               .response_schema = "KeyCreated",
               .success_status = 201});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/keys",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, List),
               .operation_id = "listKeys",
               .summary = "List API keys, the newest first",
               .response_schema = "KeyList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/keys/{key}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Get),
               .operation_id = "getKey",
               .summary = "Get an API key, without its text",
               .response_schema = "Key"});
  router->Add({.method = HttpMethod::kPatch,
               .path = "/v1/keys/{key}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Patch),
               .operation_id = "patchKey",
               .summary = "Rename an API key (merge patch)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "KeyPatch",
               .response_schema = "Key"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/keys/{key}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteKey",
               .summary = "Revoke an API key; it ends within two seconds",
               .success_status = 204});
}

}  // namespace postrider::api
