#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/internal/call.h"
#include "api/internal/endpoint_access.h"
#include "api/internal/endpoint_settings.h"
#include "api/internal/endpoint_status_json.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "core/json/json.h"
#include "dlq/reports/report_store.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/repository.h"
#include "subscriptions/registry/signing_keys.h"

namespace postrider::api {
namespace {

using subscriptions::AsCustomer;
using subscriptions::Endpoint;
using subscriptions::EndpointId;
using subscriptions::EndpointSeals;
using subscriptions::EndpointSecret;
using subscriptions::EndpointSettings;
using subscriptions::FieldFaults;
using subscriptions::PageOf;
using subscriptions::RowLock;

constexpr int64_t kOverlapMostSeconds = 604'800;
constexpr int64_t kOverlapSeconds = 86'400;

Response Show(int status, const JsonValue& document, uint64_t generation) {
  Response response = JsonResponse(status, document);
  SetETag(generation, &response);
  return response;
}

Response Show(int status, const Endpoint& endpoint) {
  return Show(status, EndpointToJson(endpoint), endpoint.generation);
}

// A fault with the seal is ours, whatever it is.
absl::Status SealFault(const absl::Status& status) {
  return absl::InternalError(absl::StrCat("api: endpoint secrets: ", status.message()));
}

// What signs from now on. Both kinds are always made, so that a change of the scheme needs no new
// secret.
EndpointSecret NewSecret(const Clock& clock) {
  return {subscriptions::NewSigningSecret(), clock.Wall(), absl::nullopt,
          subscriptions::NewPrivateKey()};
}

absl::StatusOr<JsonValue> SecretToJson(const EndpointSecret& secret) {
  ASSIGN_OR_RETURN(const std::string public_key, subscriptions::PublicKeyOf(secret.private_key));
  return JsonValue::MakeObject({{"secret", secret.secret}, {"public_key", public_key}});
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  EndpointSettings settings;
  GivenSecrets given;
  FieldFaults faults = ReadSettings(body.object, *call->api.rules, &settings, &given);
  const auto customer = call->request.principal.customer;
  const EndpointId id = NewId<EndpointId>(call->api.clock);
  EndpointSeals seals;
  for (auto& fault : SealSettings(call->api.keys, customer, id, settings, given, nullptr, &seals)) {
    faults.push_back(fault);
  }
  KeepFirstFaults(&faults);
  if (!faults.empty()) return call->Fail(faults);
  const EndpointSecret secret = NewSecret(call->api.clock);
  absl::StatusOr<JsonValue> shown = SecretToJson(secret);
  if (!shown.ok()) return call->Fail(SealFault(shown.status()));
  absl::StatusOr<std::string> sealed =
      subscriptions::SealEndpointSecrets(call->api.keys, customer, id, {secret});
  if (!sealed.ok()) return call->Fail(SealFault(sealed.status()));
  call->InTransaction(
      AsCustomer(customer), [call, customer, id, settings, seals, shown = *std::move(shown),
                             sealed = *std::move(sealed)] {
        subscriptions::InsertEndpoint(call->tx(), customer, id, settings, seals, sealed,
                                      call->Then<Endpoint>([call, shown](Endpoint endpoint) {
                                        JsonValue document = EndpointToJson(endpoint);
                                        MergePatch(document, shown);
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
                                   for (const Endpoint& row : page.rows) {
                                     rows.Append(EndpointToJson(row));
                                   }
                                   call->Commit(query.Answer(std::move(rows), page.next));
                                 }));
  });
}

void Get(CallPtr call) {
  WithEndpoint(call, RowLock::kNone, [call](Endpoint endpoint) {
    const absl::StatusOr<std::vector<EndpointSecret>> secrets = subscriptions::OpenEndpointSecrets(
        call->api.keys, endpoint.customer, endpoint.id, endpoint.secrets_sealed);
    if (!secrets.ok()) return call->Fail(SealFault(secrets.status()));
    JsonValue public_keys = JsonValue::MakeArray();
    for (const EndpointSecret& secret : *secrets) {
      if (secret.private_key.empty() || !secret.active(call->api.clock.Wall())) continue;
      const absl::StatusOr<std::string> key = subscriptions::PublicKeyOf(secret.private_key);
      if (!key.ok()) return call->Fail(SealFault(key.status()));
      public_keys.Append(*key);
    }
    JsonValue document = EndpointToJson(endpoint);
    document.Set("public_keys", std::move(public_keys));
    dlq::GetEndpointStatus(
        call->tx(), endpoint.customer, endpoint.id,
        call->Then<std::vector<dlq::EndpointStatus>>(
            [call, endpoint, document = std::move(document)](auto parts) mutable {
              document.Set("last_outcome", *StatusToJson(endpoint, parts).Find("last_outcome"));
              call->Commit(Show(200, document, endpoint.generation));
            }));
  });
}

// An endpoint that was made before there were key pairs gets one when it is to sign with it.
void ShowWithKeyPair(const CallPtr& call, const Endpoint& endpoint) {
  if (endpoint.settings.signature == subscriptions::SignatureScheme::kHmac) {
    return call->Commit(Show(200, endpoint));
  }
  absl::StatusOr<std::vector<EndpointSecret>> secrets = subscriptions::OpenEndpointSecrets(
      call->api.keys, endpoint.customer, endpoint.id, endpoint.secrets_sealed);
  if (!secrets.ok()) return call->Fail(SealFault(secrets.status()));
  if (!secrets->front().private_key.empty()) return call->Commit(Show(200, endpoint));
  secrets->front().private_key = subscriptions::NewPrivateKey();
  absl::StatusOr<std::string> sealed =
      subscriptions::SealEndpointSecrets(call->api.keys, endpoint.customer, endpoint.id, *secrets);
  if (!sealed.ok()) return call->Fail(SealFault(sealed.status()));
  subscriptions::SetEndpointSecrets(
      call->tx(), endpoint.customer, endpoint.id, *std::move(sealed),
      call->Then<Endpoint>([call](Endpoint changed) { call->Commit(Show(200, changed)); }));
}

void Patch(CallPtr call) {
  ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  WithEndpoint(
      call, RowLock::kForUpdate, [call, patch = std::move(body.object)](Endpoint endpoint) {
        JsonValue merged = SettingsToJson(endpoint.settings);
        FieldFaults faults;
        FindUnknownMembers(patch, merged, OpenPointers(), "", &faults);
        PatchSettings(merged, patch);
        EndpointSettings settings;
        settings.enabled = endpoint.settings.enabled;
        settings.pause = endpoint.settings.pause;
        GivenSecrets given;
        EndpointSeals seals;
        for (auto& fault : ReadSettings(merged, *call->api.rules, &settings, &given)) {
          faults.push_back(fault);
        }
        for (auto& fault : SealSettings(call->api.keys, endpoint.customer, endpoint.id, settings,
                                        given, &endpoint, &seals)) {
          faults.push_back(fault);
        }
        KeepFirstFaults(&faults);
        if (!faults.empty()) return call->Fail(faults);
        if (settings == endpoint.settings && !given.auth && !given.tls_key) {
          return call->Commit(Show(200, endpoint));
        }
        subscriptions::UpdateEndpoint(
            call->tx(), endpoint.customer, endpoint.id, settings, seals,
            call->Then<Endpoint>([call](Endpoint changed) { ShowWithKeyPair(call, changed); }));
      });
}

void Delete(CallPtr call) {
  auto backlog = subscriptions::BacklogOnDelete::kDiscard;
  if (const std::string* wish = call->request.Query("backlog")) {
    if (*wish == "dead_letter") {
      backlog = subscriptions::BacklogOnDelete::kDeadLetter;
    } else if (*wish != "discard") {
      return call->Answer(ProblemFromParameters({{"backlog", "is one of discard, dead_letter"}}));
    }
  }
  WithEndpoint(call, RowLock::kForUpdate, [call, backlog](Endpoint endpoint) {
    subscriptions::DeleteEndpoint(call->tx(), endpoint.customer, endpoint.id, backlog,
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
    const WallTime now = call->api.clock.Wall();
    const auto signing =
        std::count_if(secrets->begin(), secrets->end(),
                      [now](const EndpointSecret& one) { return one.active(now); });
    // None ends before the time that was promised for it.
    if (overlap > 0 && static_cast<size_t>(signing) >= subscriptions::kEndpointSecretsMax) {
      return call->Answer(
          Problem(409, absl::StrCat(signing,
                                    " secrets of this endpoint sign already: wait until "
                                    "one has ended, or end all with overlap_s 0.")));
    }
    const EndpointSecret fresh = NewSecret(call->api.clock);
    absl::StatusOr<JsonValue> shown = SecretToJson(fresh);
    if (!shown.ok()) return call->Fail(SealFault(shown.status()));
    std::vector<EndpointSecret> rotated = subscriptions::RotateSecrets(
        *std::move(secrets), fresh.secret, now, std::chrono::seconds(overlap));
    rotated.front().private_key = fresh.private_key;
    absl::StatusOr<std::string> sealed =
        subscriptions::SealEndpointSecrets(keys, endpoint.customer, endpoint.id, rotated);
    if (!sealed.ok()) return call->Fail(SealFault(sealed.status()));
    subscriptions::SetEndpointSecrets(
        call->tx(), endpoint.customer, endpoint.id, *std::move(sealed),
        call->Then<Endpoint>([call, shown = *std::move(shown)](Endpoint changed) {
          call->Commit(Show(200, shown, changed.generation));
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
               .response_schema = "EndpointDetails"});
  router->Add({.method = HttpMethod::kPatch,
               .path = "/v1/endpoints/{endpoint}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Patch),
               .operation_id = "patchEndpoint",
               .summary = "Change an endpoint (merge patch: null brings a field's default back)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "EndpointPatch",
               .response_schema = "Endpoint"});
  router->Add(
      {.method = HttpMethod::kDelete,
       .path = "/v1/endpoints/{endpoint}",
       .scope = RequiredScope::kCustomer,
       .handler = Handle(parts, Delete),
       .operation_id = "deleteEndpoint",
       .summary = "Delete an endpoint with its subscriptions",
       .success_status = 204,
       .query = {{.name = "backlog",
                  .description = "What becomes of messages that wait: discard (default), or "
                                 "dead_letter to have them as dead letters"}}});
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
