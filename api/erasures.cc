// What is to be forgotten, as an operator asks for it.
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/crypto/random.h"
#include "core/json/time_text.h"
#include "subscriptions/registry/erasure.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::AsOperator;
using subscriptions::CustomerId;
using subscriptions::Erasure;
using subscriptions::ErasureId;
using subscriptions::FieldFaults;
using subscriptions::PageOf;

// That workers keep to at once; each is kept to for 15 days.
constexpr int64_t kErasuresMax = 10'000;
constexpr size_t kTenantBytesMax = 200;
constexpr size_t kEventIdBytesMax = 1'024;

JsonValue ToJson(const Erasure& erasure) {
  const auto text = [](const absl::optional<std::string>& value) {
    return value ? JsonValue(*value) : JsonValue();
  };
  return JsonValue::MakeObject(
      {{"id", erasure.id.ToString()},
       {"customer_id", erasure.customer ? JsonValue(erasure.customer->ToString()) : JsonValue()},
       {"tenant", text(erasure.tenant)},
       {"event_id", text(erasure.event_id)},
       {"state", erasure.progress.erased ? "erased" : "erasing"},
       {"letters", erasure.progress.letters},
       {"attempts", erasure.progress.attempts},
       {"requested_at", FormatRfc3339(erasure.requested_at)},
       {"erased_at", erasure.progress.erased_at
                         ? JsonValue(FormatRfc3339(*erasure.progress.erased_at))
                         : JsonValue()}});
}

FieldFaults ReadErasure(const JsonValue& body, Erasure* erasure) {
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  const auto read = [&](absl::string_view name, size_t bytes_max,
                        absl::optional<std::string>* value) {
    std::string text;
    if (!fields.String(name, &text)) return;
    if (text.empty() || text.size() > bytes_max || text.find('\0') != std::string::npos) {
      return fields.Fault(name, absl::StrCat("is 1 to ", bytes_max, " bytes of text"));
    }
    *value = std::move(text);
  };
  read("tenant", kTenantBytesMax, &erasure->tenant);
  read("event_id", kEventIdBytesMax, &erasure->event_id);
  std::string customer;
  if (fields.String("customer_id", &customer)) {
    erasure->customer = CustomerId::Parse(customer);
    if (!erasure->customer) fields.Fault("customer_id", "is no customer's id");
  }
  fields.Finish();
  if (faults.empty() && !erasure->customer && !erasure->tenant && !erasure->event_id) {
    faults.push_back({"", "names at least one of customer_id, tenant, event_id"});
  }
  return faults;
}

void Create(CallPtr call) {
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  Erasure erasure;
  if (const FieldFaults faults = ReadErasure(body.object, &erasure); !faults.empty()) {
    return call->Fail(faults);
  }
  erasure.id = NewId<ErasureId>(call->api.clock);
  call->InTransaction(AsOperator(), [call, erasure] {
    subscriptions::CountErasures(call->tx(), call->Then<int64_t>([call, erasure](int64_t count) {
      if (count >= kErasuresMax) {
        return call->Fail(absl::FailedPreconditionError(
            absl::StrCat("api: there are ", count, " erasures of the last 15 days")));
      }
      subscriptions::InsertErasure(call->tx(), erasure, call->Then<Erasure>([call](Erasure made) {
        call->Commit(JsonResponse(202, ToJson(made)));
      }));
    }));
  });
}

void List(CallPtr call) {
  const ListQuery query(*call, "erasures", {});
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  call->InTransaction(AsOperator(), [call, query] {
    subscriptions::ListErasures(call->tx(), query.page(),
                                call->Then<PageOf<Erasure>>([call, query](auto page) {
                                  JsonValue rows = JsonValue::MakeArray();
                                  for (const Erasure& row : page.rows) rows.Append(ToJson(row));
                                  call->Commit(query.Answer(std::move(rows), page.next));
                                }));
  });
}

void Get(CallPtr call) {
  const auto id = ErasureId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  call->InTransaction(AsOperator(), [call, id] {
    subscriptions::GetErasure(call->tx(), *id, call->Then<Erasure>([call](Erasure erasure) {
      call->Commit(JsonResponse(200, ToJson(erasure)));
    }));
  });
}

}  // namespace

void AddErasureRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/erasures",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Create),
               .operation_id = "createErasure",
               .summary =
                   "Forget all messages of a customer, a tenant or an event (of all that are "
                   "given) that were taken until now: what waits, letters and attempts",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "ErasureInput",
               .response_schema = "Erasure",
               .success_status = 202});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/erasures",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, List),
               .operation_id = "listErasures",
               .summary = "List erasures, the newest first; those of deleted customers too",
               .response_schema = "ErasureList",
               .query = ListParameters()});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/erasures/{erasure}",
               .scope = RequiredScope::kOperator,
               .handler = Handle(parts, Get),
               .operation_id = "getErasure",
               .summary = "Get an erasure: whether Postgres has nothing of it any more",
               .response_schema = "Erasure"});
}

}  // namespace postrider::api
