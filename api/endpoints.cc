#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/crypto/random.h"
#include "core/http/address_guard.h"
#include "core/http/url.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::AsCustomer;
using subscriptions::Endpoint;
using subscriptions::EndpointId;
using subscriptions::EndpointSecret;
using subscriptions::EndpointSettings;
using subscriptions::FieldFaults;
using subscriptions::PageOf;
using subscriptions::RowLock;

constexpr int64_t kOverlapMostSeconds = 604'800;
constexpr int64_t kOverlapSeconds = 86'400;

// What a customer sets, all fields present: also what a merge patch is applied to.
JsonValue SettingsToJson(const EndpointSettings& settings) {
  JsonValue headers = JsonValue::MakeObject();
  for (const auto& [name, value] : settings.headers) headers.Set(name, value);
  return JsonValue::MakeObject(
      {{"url", settings.url},
       {"description", settings.description},
       {"mode", subscriptions::EndpointModeName(settings.mode)},
       {"batch", JsonValue::MakeObject({{"events_max", settings.batch.events_max},
                                        {"bytes_max", settings.batch.bytes_max},
                                        {"wait_max_ms", settings.batch.wait_max.count()}})},
       {"headers", std::move(headers)},
       {"retry", JsonValue::MakeObject({{"attempts", settings.retry.attempts},
                                        {"horizon_ms", settings.retry.horizon.count()},
                                        {"first_delay_ms", settings.retry.first_delay.count()},
                                        {"factor", settings.retry.factor},
                                        {"cap_ms", settings.retry.cap.count()}})},
       {"window_max", settings.window_max},
       {"timeout_ms", settings.timeout.count()}});
}

JsonValue ToJson(const Endpoint& endpoint) {
  JsonValue object = JsonValue::MakeObject({{"id", endpoint.id.ToString()}});
  const JsonValue settings = SettingsToJson(endpoint.settings);
  for (const JsonMember& member : *settings.object()) object.Set(member.name, member.value);
  object.Set("generation", endpoint.generation);
  object.Set("created_at", FormatRfc3339(endpoint.created_at));
  object.Set("updated_at", FormatRfc3339(endpoint.updated_at));
  return object;
}

Response Show(int status, const JsonValue& document, uint64_t generation) {
  Response response = JsonResponse(status, document);
  SetETag(generation, &response);
  return response;
}

Response Show(int status, const Endpoint& endpoint) {
  return Show(status, ToJson(endpoint), endpoint.generation);
}

void ReadHeaders(FieldReader& fields, EndpointSettings* settings) {
  const JsonValue* headers = fields.Take("headers");
  settings->headers.clear();
  if (headers == nullptr) return;
  if (!headers->is_object()) return fields.Fault("headers", "must be an object of strings");
  for (const JsonMember& member : *headers->object()) {
    if (!member.value.is_string()) {
      fields.Fault("headers", "must be an object of strings");
    } else {
      settings->headers.emplace_back(member.name, *member.value.string());
    }
  }
}

// Reads all settings; what is absent has its default. The URL is brought into canonical form.
FieldFaults ReadSettings(const JsonValue& body, const AddressRules& rules,
                         EndpointSettings* settings) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  fields.RequiredString("url", &settings->url);
  fields.String("description", &settings->description);
  std::string mode;
  if (fields.String("mode", &mode)) {
    const auto parsed = subscriptions::ParseEndpointMode(mode);
    if (parsed) {
      settings->mode = *parsed;
    } else {
      fields.Fault("mode", "must be batch or streaming");
    }
  }
  FieldReader batch(fields.Take("batch"), "/batch", faults);
  batch.Int("events_max", &settings->batch.events_max);
  batch.Int("bytes_max", &settings->batch.bytes_max);
  batch.Millis("wait_max_ms", &settings->batch.wait_max);
  batch.Finish();
  ReadHeaders(fields, settings);
  FieldReader retry(fields.Take("retry"), "/retry", faults);
  retry.Int("attempts", &settings->retry.attempts);
  retry.Millis("horizon_ms", &settings->retry.horizon);
  retry.Millis("first_delay_ms", &settings->retry.first_delay);
  retry.Number("factor", &settings->retry.factor);
  retry.Millis("cap_ms", &settings->retry.cap);
  retry.Finish();
  fields.Int("window_max", &settings->window_max);
  fields.Millis("timeout_ms", &settings->timeout);
  fields.Finish();
  for (auto& fault : subscriptions::Validate(*settings)) faults.push_back(fault);
  if (const auto url = ParseHttpUrl(settings->url); url.ok()) {
    settings->url = url->ToString();
    // One text for every reason: a customer learns nothing about our network.
    if (url->address && rules.Check(*url->address, url->port) != AddressRules::Verdict::kAllowed) {
      fields.Fault("url", "leads to an address that is not allowed");
    }
  }
  KeepFirstFaults(&faults);
  return faults;
}

std::string NewSecret() {
  std::array<char, 32> bytes;
  FillRandom(bytes.data(), bytes.size());
  return absl::StrCat("whsec_", absl::Base64Escape(absl::string_view(bytes.data(), bytes.size())));
}

// A fault with the seal is ours, whatever it is.
absl::Status SealFault(const absl::Status& status) {
  return absl::InternalError(absl::StrCat("api: endpoint secrets: ", status.message()));
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  EndpointSettings settings;
  if (const FieldFaults faults = ReadSettings(body.object, *call->api.rules, &settings);
      !faults.empty()) {
    return call->Fail(faults);
  }
  const auto customer = call->request.principal.customer;
  const EndpointId id = NewId<EndpointId>(call->api.clock);
  const std::string secret = NewSecret();
  absl::StatusOr<std::string> sealed = subscriptions::SealEndpointSecrets(
      call->api.keys, customer, id,
      {EndpointSecret{secret, call->api.clock.Wall(), absl::nullopt}});
  if (!sealed.ok()) return call->Fail(SealFault(sealed.status()));
  call->InTransaction(
      AsCustomer(customer), [call, customer, id, settings, secret, sealed = *std::move(sealed)] {
        subscriptions::InsertEndpoint(call->tx(), customer, id, settings, {}, sealed,
                                      call->Then<Endpoint>([call, secret](Endpoint endpoint) {
                                        JsonValue document = ToJson(endpoint);
                                        document.Set("secret", secret);
                                        call->Commit(Show(201, document, endpoint.generation));
                                      }));
      });
}

void List(CallPtr call) {
  const ListQuery query(*call, "endpoints", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  const auto customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, query] {
    subscriptions::ListEndpoints(call->tx(), customer, query.page(),
                                 call->Then<PageOf<Endpoint>>([call, query](auto page) {
                                   JsonValue rows = JsonValue::MakeArray();
                                   for (const Endpoint& row : page.rows) rows.Append(ToJson(row));
                                   call->Commit(query.Answer(std::move(rows), page.next));
                                 }));
  });
}

// Begins a transaction, finds the path's endpoint and runs `next(endpoint)`; with a lock also looks
// at If-Match.
template <typename Next>
void WithEndpoint(CallPtr call, RowLock lock, Next next) {
  const auto id = EndpointId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  const auto customer = call->request.principal.customer;
  call->InTransaction(
      AsCustomer(customer), [call, customer, id, lock, next = std::move(next)]() mutable {
        subscriptions::GetEndpoint(
            call->tx(), customer, *id, lock,
            call->Then<Endpoint>([call, lock, next = std::move(next)](Endpoint endpoint) mutable {
              if (lock == RowLock::kForUpdate && !IfMatches(call->request, endpoint.generation)) {
                return call->Answer(PreconditionFailed());
              }
              next(std::move(endpoint));
            }));
      });
}

void Get(CallPtr call) {
  WithEndpoint(call, RowLock::kNone, [call](Endpoint endpoint) {
    JsonValue document = ToJson(endpoint);
    document.Set("last_outcome", nullptr);
    call->Commit(Show(200, document, endpoint.generation));
  });
}

void Patch(CallPtr call) {
  ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  WithEndpoint(
      call, RowLock::kForUpdate, [call, patch = std::move(body.object)](Endpoint endpoint) {
        JsonValue merged = SettingsToJson(endpoint.settings);
        FieldFaults faults;
        FindUnknownMembers(patch, merged, {"/headers"}, "", &faults);
        MergePatch(merged, patch);
        EndpointSettings settings;
        settings.enabled = endpoint.settings.enabled;
        for (auto& fault : ReadSettings(merged, *call->api.rules, &settings))
          faults.push_back(fault);
        KeepFirstFaults(&faults);
        if (!faults.empty()) return call->Fail(faults);
        if (settings == endpoint.settings) return call->Commit(Show(200, endpoint));
        subscriptions::UpdateEndpoint(
            call->tx(), endpoint.customer, endpoint.id, settings, {},
            call->Then<Endpoint>([call](Endpoint changed) { call->Commit(Show(200, changed)); }));
      });
}

void Delete(CallPtr call) {
  WithEndpoint(call, RowLock::kForUpdate, [call](Endpoint endpoint) {
    subscriptions::DeleteEndpoint(call->tx(), endpoint.customer, endpoint.id,
                                  call->ThenPlain([call] { call->Commit(NoContent()); }));
  });
}

void RotateSecret(CallPtr call) {
  const ParsedBody body = ParseBody(call->request, BodyNeed::kOptional);
  if (body.refusal) return call->Answer(*body.refusal);
  FieldFaults faults;
  FieldReader fields(&body.object, "", faults);
  int64_t overlap = kOverlapSeconds;
  fields.Int("overlap_s", &overlap);
  fields.Range("overlap_s", overlap, 0, kOverlapMostSeconds);
  fields.Finish();
  if (!faults.empty()) return call->Fail(faults);
  WithEndpoint(call, RowLock::kForUpdate, [call, overlap](Endpoint endpoint) {
    const KeyRing& keys = call->api.keys;
    absl::StatusOr<std::vector<EndpointSecret>> secrets = subscriptions::OpenEndpointSecrets(
        keys, endpoint.customer, endpoint.id, endpoint.secrets_sealed);
    if (!secrets.ok()) return call->Fail(SealFault(secrets.status()));
    const std::string fresh = NewSecret();
    const std::vector<EndpointSecret> rotated = subscriptions::RotateSecrets(
        *std::move(secrets), fresh, call->api.clock.Wall(), std::chrono::seconds(overlap));
    absl::StatusOr<std::string> sealed =
        subscriptions::SealEndpointSecrets(keys, endpoint.customer, endpoint.id, rotated);
    if (!sealed.ok()) return call->Fail(SealFault(sealed.status()));
    subscriptions::SetEndpointSecrets(
        call->tx(), endpoint.customer, endpoint.id, *std::move(sealed),
        call->Then<Endpoint>([call, fresh](Endpoint changed) {
          call->Commit(Show(200, JsonValue::MakeObject({{"secret", fresh}}), changed.generation));
        }));
  });
}

}  // namespace

void AddEndpointRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/endpoints",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Create),
               .operation_id = "createEndpoint",
               .summary = "Make an endpoint; its signing secret is shown this once",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "EndpointInput",
               .response_schema = "EndpointCreated",
               .success_status = 201});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/endpoints",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, List),
               .operation_id = "listEndpoints",
               .summary = "List endpoints, the newest first",
               .response_schema = "EndpointList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/endpoints/{endpoint}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Get),
               .operation_id = "getEndpoint",
               .summary = "Get an endpoint",
               .response_schema = "Endpoint"});
  router->Add({.method = HttpMethod::kPatch,
               .path = "/v1/endpoints/{endpoint}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Patch),
               .operation_id = "patchEndpoint",
               .summary = "Change an endpoint (merge patch: null brings a field's default back)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "EndpointPatch",
               .response_schema = "Endpoint"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/endpoints/{endpoint}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteEndpoint",
               .summary = "Delete an endpoint with its subscriptions",
               .success_status = 204});
  router->Add(
      {.method = HttpMethod::kPost,
       .path = "/v1/endpoints/{endpoint}/rotate-secret",
       .scope = RequiredScope::kCustomer,
       .handler = Handle(parts, RotateSecret),
       .operation_id = "rotateEndpointSecret",
       .summary = "Sign with a new secret, and with the old ones too until overlap_s is over",
       .body_bytes_max = kBodyBytesMax,
       .request_schema = "RotateSecretInput",
       .response_schema = "Secret"});
}

}  // namespace postrider::api
