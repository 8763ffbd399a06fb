// What workers have reported of endpoints: their status and their attempts.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "api/internal/call.h"
#include "api/internal/endpoint_access.h"
#include "api/internal/endpoint_status_json.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "api/internal/shown_duration.h"
#include "core/base/clock.h"
#include "core/json/time_text.h"
#include "dlq/reports/report_store.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using dlq::AttemptId;
using dlq::AttemptReport;
using dlq::EndpointStatus;
using subscriptions::Endpoint;
using subscriptions::RowLock;

void GetStatus(CallPtr call) {
  WithEndpoint(call, RowLock::kNone, [call](Endpoint endpoint) {
    dlq::GetEndpointStatus(call->tx(), endpoint.customer, endpoint.id,
                           call->Then<std::vector<EndpointStatus>>(
                               [call, endpoint](std::vector<EndpointStatus> parts) {
                                 call->Commit(JsonResponse(200, StatusToJson(endpoint, parts)));
                               }));
  });
}

// Of an attempt without an answer the second is told: with a schedule of retries, one beginning and
// the next tell how long it took.
WallTime ShownStart(const AttemptReport& attempt) {
  if (attempt.status != 0) return attempt.started_at;
  return std::chrono::floor<std::chrono::seconds>(attempt.started_at);
}

JsonValue ToJson(const AttemptReport& attempt) {
  return JsonValue::MakeObject(
      {{"id", attempt.id.ToString()},
       {"message_id", attempt.message_id},
       {"messages", attempt.messages},
       {"attempt", attempt.attempt},
       {"started_at", FormatRfc3339(ShownStart(attempt))},
       {"duration_ms", ShownDurationMs(attempt.outcome, attempt.status, attempt.duration_ms)},
       {"outcome", attempt.outcome},
       {"status", attempt.status == 0 ? JsonValue() : JsonValue(attempt.status)},
       {"response", attempt.response.empty() ? JsonValue() : JsonValue(attempt.response)}});
}

void List(CallPtr call) {
  const ListQuery query(*call, absl::StrCat("attempts ", call->request.params[0]), {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  WithEndpoint(call, RowLock::kNone, [call, query](Endpoint endpoint) {
    dlq::AttemptPage page;
    page.limit = query.page().limit;
    page.after = AttemptId::Parse(query.page().after);
    dlq::ListAttempts(call->tx(), endpoint.customer, endpoint.id, page,
                      call->Then<dlq::Attempts>([call, query](dlq::Attempts attempts) {
                        JsonValue rows = JsonValue::MakeArray();
                        for (const AttemptReport& row : attempts.rows) rows.Append(ToJson(row));
                        call->Commit(query.Answer(std::move(rows),
                                                  attempts.next ? attempts.next->ToString() : ""));
                      }));
  });
}

}  // namespace

void AddEndpointReportRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/endpoints/{endpoint}/status",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, GetStatus),
               .operation_id = "getEndpointStatus",
               .summary = "Get what was observed of an endpoint, at most some seconds ago",
               .response_schema = "EndpointStatus"});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/endpoints/{endpoint}/attempts",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, List),
               .operation_id = "listEndpointAttempts",
               .summary = "List attempts, the newest first: all that failed and some of the others",
               .response_schema = "AttemptList",
               .query = ListParameters()});
}

}  // namespace postrider::api
