// What is done to an endpoint beside its settings: enable, disable, pause, resume.
#include <string>
#include <utility>

#include "absl/types/optional.h"
#include "api/internal/call.h"
#include "api/internal/endpoint_access.h"
#include "api/internal/endpoint_settings.h"
#include "api/internal/fields.h"
#include "api/internal/resources.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/endpoint_names.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::Endpoint;
using subscriptions::FieldFaults;
using subscriptions::PauseSettings;
using subscriptions::ResumeKind;
using subscriptions::RowLock;

void Show(const CallPtr& call, const Endpoint& endpoint) {
  Response response = JsonResponse(200, EndpointToJson(endpoint));
  SetETag(endpoint.generation, &response);
  call->Commit(std::move(response));
}

void SetEnabled(CallPtr call, bool enabled) {
  if (!HasNoFields(call)) return;
  WithEndpoint(call, RowLock::kForUpdate, [call, enabled](Endpoint endpoint) {
    subscriptions::SetEndpointEnabled(
        call->tx(), endpoint.customer, endpoint.id, enabled,
        call->Then<Endpoint>([call](Endpoint changed) { Show(call, changed); }));
  });
}
void Enable(CallPtr call) { SetEnabled(std::move(call), true); }
void Disable(CallPtr call) { SetEnabled(std::move(call), false); }

void SetPause(const CallPtr& call, const Endpoint& endpoint, const PauseSettings& pause) {
  if (pause == endpoint.settings.pause) return Show(call, endpoint);
  subscriptions::SetEndpointPause(
      call->tx(), endpoint.customer, endpoint.id, pause,
      call->Then<Endpoint>([call](Endpoint changed) { Show(call, changed); }));
}

void Pause(CallPtr call) {
  if (!HasNoFields(call)) return;
  WithEndpoint(call, RowLock::kForUpdate, [call](Endpoint endpoint) {
    PauseSettings pause = endpoint.settings.pause;
    pause.by_customer = true;
    SetPause(call, endpoint, pause);
  });
}

// What of the backlog is wanted: {"from": "all" | "newest" | an RFC 3339 time}.
FieldFaults ReadResume(const JsonValue& body, PauseSettings* pause) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  std::string from = "all";
  fields.String("from", &from);
  pause->resume_from = WallTime{};
  if (from == "all") {
    pause->resume = ResumeKind::kAll;
  } else if (from == "newest") {
    pause->resume = ResumeKind::kNewest;
  } else if (const absl::optional<WallTime> time = ParseRfc3339(from)) {
    pause->resume = ResumeKind::kFrom;
    pause->resume_from = *time;
  } else {
    fields.Fault("from", "must be all, newest or a time (RFC 3339)");
  }
  fields.Finish();
  return faults;
}

// One that is not paused stays as it is: nothing of its backlog is skipped.
void Resume(CallPtr call) {
  const ParsedBody body = ParseBody(call->request, BodyNeed::kOptional);
  if (body.refusal) return call->Answer(*body.refusal);
  PauseSettings wanted;
  if (const FieldFaults faults = ReadResume(body.object, &wanted); !faults.empty()) {
    return call->Fail(faults);
  }
  WithEndpoint(call, RowLock::kForUpdate, [call, wanted](Endpoint endpoint) {
    PauseSettings pause = endpoint.settings.pause;
    if (pause.by_customer) {
      pause.by_customer = false;
      pause.resume = wanted.resume;
      pause.resume_from = wanted.resume_from;
      pause.resumed_at = call->api.clock.Wall();
    }
    SetPause(call, endpoint, pause);
  });
}

// An operator's pause is another flag; its end skips nothing.
void SetOperatorPause(CallPtr call, bool paused) {
  if (!HasNoFields(call)) return;
  WithCustomersEndpoint(call, RowLock::kForUpdate, [call, paused](Endpoint endpoint) {
    PauseSettings pause = endpoint.settings.pause;
    pause.by_operator = paused;
    SetPause(call, endpoint, pause);
  });
}
void OperatorPause(CallPtr call) { SetOperatorPause(std::move(call), true); }
void OperatorResume(CallPtr call) { SetOperatorPause(std::move(call), false); }

void AddVerb(Router* router, std::string path, RequiredScope scope, Handler handler,
             std::string operation_id, std::string summary, std::string request_schema = "") {
  router->Add({.method = HttpMethod::kPost,
               .path = std::move(path),
               .scope = scope,
               .handler = std::move(handler),
               .operation_id = std::move(operation_id),
               .summary = std::move(summary),
               .body_bytes_max = kBodyBytesMax,
               .request_schema = std::move(request_schema),
               .response_schema = "Endpoint"});
}

}  // namespace

void AddEndpointVerbRoutes(const ApiParts& parts, Router* router) {
  const std::string own = "/v1/endpoints/{endpoint}/";
  const std::string customers = "/v1/customers/{customer}/endpoints/{endpoint}/";
  AddVerb(router, own + "enable", RequiredScope::kCustomer, Handle(parts, Enable), "enableEndpoint",
          "Send to an endpoint again, also to one that was disabled automatically");
  AddVerb(router, own + "disable", RequiredScope::kCustomer, Handle(parts, Disable),
          "disableEndpoint", "Send nothing to an endpoint; its messages wait in its backlog");
  AddVerb(router, own + "pause", RequiredScope::kCustomer, Handle(parts, Pause), "pauseEndpoint",
          "Hold an endpoint's messages back for a while");
  AddVerb(router, own + "resume", RequiredScope::kCustomer, Handle(parts, Resume), "resumeEndpoint",
          "End a pause; what is skipped becomes dead letters, and one that is not paused stays "
          "as it is",
          "ResumeInput");
  AddVerb(router, customers + "pause", RequiredScope::kOperator, Handle(parts, OperatorPause),
          "operatorPauseEndpoint", "Hold a customer's endpoint back, whatever the customer does");
  AddVerb(router, customers + "resume", RequiredScope::kOperator, Handle(parts, OperatorResume),
          "operatorResumeEndpoint", "End an operator's pause; the customer's own stays");
}

}  // namespace postrider::api
