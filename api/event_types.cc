#include <string>
#include <utility>

#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/json/reader.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/own_events.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::AsOperator;
using subscriptions::EventType;
using subscriptions::FieldFaults;
using subscriptions::PageOf;
using subscriptions::PutEventTypeResult;

constexpr size_t kDescriptionBytesMax = 1'000;

JsonValue ToJson(const EventType& type) {
  return JsonValue::MakeObject({{"name", type.name},
                                {"description", type.description},
                                {"generation", type.generation},
                                {"created_at", FormatRfc3339(type.created_at)},
                                {"updated_at", FormatRfc3339(type.updated_at)}});
}

Response Show(int status, const EventType& type) {
  Response response = JsonResponse(status, ToJson(type));
  SetETag(type.generation, &response);
  return response;
}

void Put(CallPtr call) {
  const ParsedBody body = ParseBody(call->request, BodyNeed::kOptional);
  if (body.refusal) return call->Answer(*body.refusal);
  // Nothing is registered under such a name, but this is how one learns which names are good.
  FieldFaults faults = subscriptions::ValidateEventType(call->request.params[0], "");
  if (subscriptions::IsOperationalEventType(call->request.params[0])) {
    faults.push_back({"", "is a type of Postrider's own events, which need not be registered"});
  }
  std::string description;
  FieldReader fields(&body.object, "", faults);
  if (fields.String("description", &description) && description.size() > kDescriptionBytesMax) {
    fields.Fault("description", "must be at most 1000 bytes long");
  }
  fields.Finish();
  if (!faults.empty()) return call->Fail(faults);
  call->InTransaction(AsOperator(), [call, description] {
    subscriptions::PutEventType(call->tx(), call->request.params[0], description,
                                call->Then<PutEventTypeResult>([call](PutEventTypeResult put) {
                                  call->Commit(Show(put.created ? 201 : 200, put.event_type));
                                }));
  });
}

void List(CallPtr call) {
  const ListQuery query(*call, "event-types", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  call->InTransaction(AsOperator(), [call, query] {
    subscriptions::ListEventTypes(call->tx(), query.page(),
                                  call->Then<PageOf<EventType>>([call, query](auto page) {
                                    JsonValue rows = JsonValue::MakeArray();
                                    for (const EventType& row : page.rows) rows.Append(ToJson(row));
                                    call->Commit(query.Answer(std::move(rows), page.next));
                                  }));
  });
}

void Get(CallPtr call) {
  call->InTransaction(AsOperator(), [call] {
    subscriptions::GetEventType(
        call->tx(), call->request.params[0],
        call->Then<EventType>([call](EventType type) { call->Commit(Show(200, type)); }));
  });
}

void Delete(CallPtr call) {
  call->InTransaction(AsOperator(), [call] {
    subscriptions::DeleteEventType(call->tx(), call->request.params[0],
                                   call->ThenPlain([call] { call->Commit(NoContent()); }));
  });
}

}  // namespace

void AddEventTypeRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPut,
               .path = "/v1/event-types/{type}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Put),
               .operation_id = "putEventType",
               .summary = "Register an event type, or change its description (201 when it is new)",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "EventTypeInput",
               .response_schema = "EventType"});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/event-types",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, List),
               .operation_id = "listEventTypes",
               .summary = "List event types",
               .response_schema = "EventTypeList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/event-types/{type}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Get),
               .operation_id = "getEventType",
               .summary = "Get an event type",
               .response_schema = "EventType"});
  router->Add({.method = HttpMethod::kDelete,
               .path = "/v1/event-types/{type}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Delete),
               .operation_id = "deleteEventType",
               .summary = "Take an event type off the register: it can no longer be published",
               .success_status = 204});
}

}  // namespace postrider::api
