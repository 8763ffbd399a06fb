#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/crypto/random.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/repository.h"
#include "subscriptions/registry/subscription.h"

namespace postrider::api {
namespace {

using subscriptions::AsCustomer;
using subscriptions::CustomerId;
using subscriptions::Endpoint;
using subscriptions::EndpointId;
using subscriptions::FieldFaults;
using subscriptions::PageOf;
using subscriptions::RowLock;
using subscriptions::ScopeKind;
using subscriptions::Subscription;
using subscriptions::SubscriptionId;
using subscriptions::SubscriptionSettings;

constexpr absl::string_view kNoEndpoint = "is none of your endpoints";

JsonValue Strings(const std::vector<std::string>& strings) {
  JsonValue array = JsonValue::MakeArray();
  for (const std::string& text : strings) array.Append(text);
  return array;
}

JsonValue SettingsToJson(const SubscriptionSettings& settings) {
  JsonValue scope = JsonValue::MakeObject({{"kind", subscriptions::ScopeKindName(settings.scope)}});
  if (settings.scope == ScopeKind::kTenants) {
    scope.Set("tenants", Strings(settings.tenants));
  } else if (settings.scope == ScopeKind::kDepartments) {
    scope.Set("tenant", settings.tenants.front());
    scope.Set("departments", Strings(settings.departments));
  }
  return JsonValue::MakeObject({{"endpoint_id", settings.endpoint.ToString()},
                                {"event_types", Strings(settings.event_types)},
                                {"scope", std::move(scope)}});
}

JsonValue ToJson(const Subscription& subscription) {
  JsonValue object = JsonValue::MakeObject({{"id", subscription.id.ToString()}});
  const JsonValue settings = SettingsToJson(subscription.settings);
  for (const JsonMember& member : *settings.object()) object.Set(member.name, member.value);
  object.Set("generation", subscription.generation);
  object.Set("created_at", FormatRfc3339(subscription.created_at));
  object.Set("updated_at", FormatRfc3339(subscription.updated_at));
  return object;
}

Response Show(int status, const Subscription& subscription) {
  Response response = JsonResponse(status, ToJson(subscription));
  SetETag(subscription.generation, &response);
  return response;
}

void ReadScope(FieldReader& fields, SubscriptionSettings* settings, FieldFaults* faults) {
  const JsonValue* object = fields.Take("scope");
  if (object == nullptr) return fields.Fault("scope", "is required");
  const size_t faults_before = faults->size();
  FieldReader scope(object, "/scope", *faults);
  if (faults->size() != faults_before) return;
  std::string kind;
  if (!scope.RequiredString("kind", &kind)) return;
  const auto parsed = subscriptions::ParseScopeKind(kind);
  if (!parsed) return scope.Fault("kind", "must be granted, tenants or departments");
  settings->scope = *parsed;
  if (settings->scope == ScopeKind::kTenants) {
    scope.Required("tenants");
    scope.StringList("tenants", &settings->tenants);
  } else if (settings->scope == ScopeKind::kDepartments) {
    std::string tenant;
    scope.RequiredString("tenant", &tenant);
    settings->tenants = {tenant};
    scope.Required("departments");
    scope.StringList("departments", &settings->departments);
  }
  scope.Finish();
}

FieldFaults ReadSettings(const JsonValue& body, SubscriptionSettings* settings) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  std::string endpoint;
  if (fields.RequiredString("endpoint_id", &endpoint)) {
    const auto id = EndpointId::Parse(endpoint);
    if (id) {
      settings->endpoint = *id;
    } else {
      fields.Fault("endpoint_id", kNoEndpoint);
    }
  }
  fields.Required("event_types");
  fields.StringList("event_types", &settings->event_types);
  ReadScope(fields, settings, &faults);
  fields.Finish();
  // Where a list could not be read, its first fault says so and the others are about nothing.
  for (auto& fault : subscriptions::Validate(*settings)) {
    bool read = true;
    for (const auto& found : faults) {
      if (found.pointer == fault.pointer ||
          absl::string_view(found.pointer).substr(0, fault.pointer.size() + 1) ==
              absl::StrCat(fault.pointer, "/") ||
          (found.pointer == "/scope" || found.pointer == "/scope/kind")) {
        read = false;
      }
    }
    if (read) faults.push_back(fault);
  }
  KeepFirstFaults(&faults);
  return faults;
}

// In the transaction: the endpoint is the customer's and every tenant that is named is granted;
// then `next()`. Else 422 with all that is wrong.
template <typename Next>
void CheckReferences(CallPtr call, const SubscriptionSettings& settings, Next next) {
  const CustomerId customer = call->request.principal.customer;
  subscriptions::GetEndpoint(
      call->tx(), customer, settings.endpoint, RowLock::kNone,
      [call, customer, settings,
       next = std::move(next)](absl::StatusOr<Endpoint> endpoint) mutable {
        if (!endpoint.ok() && !absl::IsNotFound(endpoint.status())) {
          return call->Fail(endpoint.status());
        }
        FieldFaults faults;
        if (!endpoint.ok()) faults.push_back({"/endpoint_id", std::string(kNoEndpoint)});
        subscriptions::FindUngranted(
            call->tx(), customer, settings.tenants,
            call->Then<std::vector<std::string>>([call, settings, faults, next = std::move(next)](
                                                     std::vector<std::string> ungranted) mutable {
              const absl::flat_hash_set<std::string> missing(ungranted.begin(), ungranted.end());
              for (size_t i = 0; i < settings.tenants.size(); ++i) {
                if (!missing.contains(settings.tenants[i])) continue;
                faults.push_back({settings.scope == ScopeKind::kDepartments
                                      ? "/scope/tenant"
                                      : absl::StrCat("/scope/tenants/", i),
                                  "is not granted to you"});
              }
              if (!faults.empty()) return call->Fail(faults);
              next();
            }));
      });
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  SubscriptionSettings settings;
  if (const FieldFaults faults = ReadSettings(body.object, &settings); !faults.empty()) {
    return call->Fail(faults);
  }
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, settings] {
    CheckReferences(call, settings, [call, customer, settings] {
      subscriptions::InsertSubscription(call->tx(), customer,
                                        NewId<SubscriptionId>(call->api.clock), settings,
                                        call->Then<Subscription>([call](Subscription stored) {
                                          call->Commit(Show(201, stored));
                                        }));
    });
  });
}

void List(CallPtr call) {
  ListQuery query(*call, "subscriptions", {"endpoint_id"});
  absl::optional<EndpointId> endpoint;
  if (const std::string* filter = query.Filter("endpoint_id")) {
    endpoint = EndpointId::Parse(*filter);
    if (!endpoint) query.Fault("endpoint_id", "is no endpoint's id");
  }
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, endpoint, query] {
    subscriptions::ListSubscriptions(call->tx(), customer, endpoint, query.page(),
                                     call->Then<PageOf<Subscription>>([call, query](auto page) {
                                       JsonValue rows = JsonValue::MakeArray();
                                       for (const Subscription& row : page.rows)
                                         rows.Append(ToJson(row));
                                       call->Commit(query.Answer(std::move(rows), page.next));
                                     }));
  });
}

template <typename Next>
void WithSubscription(CallPtr call, RowLock lock, Next next) {
  const auto id = SubscriptionId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, id, lock,
                                             next = std::move(next)]() mutable {
    subscriptions::GetSubscription(
        call->tx(), customer, *id, lock,
        call->Then<Subscription>([call, lock,
                                  next = std::move(next)](Subscription subscription) mutable {
          if (lock == RowLock::kForUpdate && !IfMatches(call->request, subscription.generation)) {
            return call->Answer(PreconditionFailed());
          }
          next(std::move(subscription));
        }));
  });
}

void Get(CallPtr call) {
  WithSubscription(call, RowLock::kNone,
                   [call](Subscription subscription) { call->Commit(Show(200, subscription)); });
}

void Patch(CallPtr call) {
  ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  WithSubscription(
      call, RowLock::kForUpdate, [call, patch = std::move(body.object)](Subscription stored) {
        JsonValue merged = SettingsToJson(stored.settings);
        FieldFaults faults;
        FindUnknownMembers(patch, merged, {"/scope"}, "", &faults);
        // Kinds of scopes have different fields, so a new one takes the old one's place whole.
        if (patch.Find("scope") != nullptr) merged.Remove("scope");
        MergePatch(merged, patch);
        SubscriptionSettings settings;
        for (auto& fault : ReadSettings(merged, &settings)) faults.push_back(fault);
        KeepFirstFaults(&faults);
        if (!faults.empty()) return call->Fail(faults);
        if (settings == stored.settings) return call->Commit(Show(200, stored));
        CheckReferences(call, settings, [call, stored, settings] {
          subscriptions::UpdateSubscription(call->tx(), stored.customer, stored.id, settings,
                                            call->Then<Subscription>([call](Subscription changed) {
                                              call->Commit(Show(200, changed));
                                            }));
        });
      });
}

void Delete(CallPtr call) {
  WithSubscription(call, RowLock::kForUpdate, [call](Subscription subscription) {
    subscriptions::DeleteSubscription(call->tx(), subscription.customer, subscription.id,
                                      call->ThenPlain([call] { call->Commit(NoContent()); }));
  });
}

}  // namespace

void AddSubscriptionRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/subscriptions",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Create),
               .operation_id = "createSubscription",
               .summary = "Subscribe an endpoint to event types of tenants that you are granted",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "SubscriptionInput",
               .response_schema = "Subscription",
               .success_status = 201});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/subscriptions",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, List),
               .operation_id = "listSubscriptions",
               .summary = "List subscriptions, the newest first",
               .response_schema = "SubscriptionList",
               .query = ListParameters({QueryParameter{"endpoint_id", "Of this endpoint only."}})});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/subscriptions/{subscription}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Get),
               .operation_id = "getSubscription",
               .summary = "Get a subscription",
               .response_schema = "Subscription"});
  router->Add({.method = HttpMethod::kPatch,
               .path = "/v1/subscriptions/{subscription}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Patch),
               .operation_id = "patchSubscription",
               .summary = "Change a subscription (merge patch; a scope is replaced whole)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "SubscriptionPatch",
               .response_schema = "Subscription"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/subscriptions/{subscription}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteSubscription",
               .summary = "Delete a subscription",
               .success_status = 204});
}

}  // namespace postrider::api
