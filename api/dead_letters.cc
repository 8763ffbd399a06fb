#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/internal/call.h"
#include "api/internal/fields.h"
#include "api/internal/listing.h"
#include "api/internal/resources.h"
#include "core/json/time_text.h"
#include "core/postgres/result.h"
#include "dlq/letters/letter_store.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using dlq::LeasedLetter;
using dlq::Letter;
using subscriptions::AsCustomer;
using subscriptions::CustomerId;
using subscriptions::EndpointId;
using subscriptions::FieldFaults;
using subscriptions::LetterId;

constexpr int64_t kPollLimit = 10;
constexpr int64_t kLeaseSeconds = 60;
constexpr int64_t kWaitMostSeconds = 20;
// How often a waiting poll looks again.
constexpr std::chrono::seconds kLookAgain{1};

JsonValue ToJson(const Letter& letter) {
  return JsonValue::MakeObject(
      {{"id", letter.id.ToString()},
       {"endpoint_id", letter.endpoint.ToString()},
       {"message_id", letter.message_id},
       {"event_id", letter.event_id},
       {"type", letter.type},
       {"tenant", letter.tenant},
       {"department", letter.department ? JsonValue(*letter.department) : JsonValue()},
       {"timestamp", FormatRfc3339(letter.event_time)},
       {"reason", letter.reason},
       {"attempts", letter.attempts},
       {"last_status", letter.last_status == 0 ? JsonValue() : JsonValue(letter.last_status)},
       {"state", dlq::LetterStateName(letter.state)},
       {"created_at", FormatRfc3339(letter.created_at)},
       {"data", JsonValue::Raw(letter.data)}});
}

void List(CallPtr call) {
  ListQuery query(*call, "dead-letters", {"endpoint_id", "state"});
  dlq::LetterFilter filter;
  if (const std::string* text = query.Filter("endpoint_id")) {
    filter.endpoint = EndpointId::Parse(*text);
    if (!filter.endpoint) query.Fault("endpoint_id", "is no endpoint's id");
  }
  if (const std::string* text = query.Filter("state")) {
    filter.state = dlq::ParseLetterState(*text);
    if (!filter.state) query.Fault("state", "must be open, leased, replaying or closed");
  }
  if (!query.faults().empty()) return call->Answer(ProblemFromParameters(query.faults()));
  if (!query.page().after.empty()) filter.before = LetterId::Parse(query.page().after);
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, filter, query] {
    const size_t limit = query.page().limit;
    dlq::ListLetters(call->tx(), customer, filter, limit,
                     call->Then<std::vector<Letter>>([call, query, limit](auto letters) {
                       JsonValue rows = JsonValue::MakeArray();
                       for (const Letter& letter : letters) rows.Append(ToJson(letter));
                       const std::string next =
                           dlq::MoreMayFollow(letters, limit) ? letters.back().id.ToString() : "";
                       call->Commit(query.Answer(std::move(rows), next));
                     }));
  });
}

void Get(CallPtr call) {
  const auto id = LetterId::Parse(call->request.params[0]);
  if (!id) return call->Answer(ProblemNotFound());
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, id] {
    dlq::GetLetter(call->tx(), customer, *id, call->Then<Letter>([call](Letter letter) {
      call->Commit(JsonResponse(200, ToJson(letter)));
    }));
  });
}

struct PollRequest {
  absl::optional<EndpointId> endpoint;
  int64_t limit = kPollLimit;
  int64_t lease_s = kLeaseSeconds;
  int64_t wait_s = 0;
  MonotonicTime until;
};

Response ShowLeased(const std::vector<LeasedLetter>& leased) {
  JsonValue rows = JsonValue::MakeArray();
  for (const LeasedLetter& one : leased) {
    JsonValue row = ToJson(one.letter);
    row.Set("receipt", one.receipt);
    rows.Append(std::move(row));
  }
  return JsonResponse(200, JsonValue::MakeObject({{"data", std::move(rows)}}));
}

void LookAgainLater(CallPtr call, PollRequest poll);

// Leases what is there. Holds no connection while it waits.
void TryPoll(CallPtr call, PollRequest poll) {
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer), [call, customer, poll] {
    dlq::PollLetters(
        call->tx(), customer, poll.endpoint, static_cast<size_t>(poll.limit),
        std::chrono::seconds(poll.lease_s),
        call->Then<std::vector<LeasedLetter>>([call, poll](std::vector<LeasedLetter> leased) {
          const bool last = call->api.stopping || call->api.loop.clock().Now() >= poll.until ||
                            call->api.polls_waiting >= call->api.polls_waiting_max;
          if (!leased.empty() || last) return call->Commit(ShowLeased(leased));
          call->tx().Commit([call, poll](absl::Status committed) {
            if (!committed.ok()) return call->Fail(committed);
            LookAgainLater(call, poll);
          });
        }));
  });
}

void LookAgainLater(CallPtr call, PollRequest poll) {
  ++call->api.polls_waiting;
  call->api.loop.CallAfter(kLookAgain, [call, poll] {
    --call->api.polls_waiting;
    if (call->api.stopping) return call->Answer(ShowLeased({}));
    TryPoll(call, poll);
  });
}

void Poll(CallPtr call) {
  const ParsedBody body = ParseBody(call->request, BodyNeed::kOptional);
  if (body.refusal) return call->Answer(*body.refusal);
  FieldFaults faults;
  FieldReader fields(&body.object, "", faults);
  PollRequest poll;
  std::string endpoint;
  if (fields.String("endpoint_id", &endpoint)) {
    poll.endpoint = EndpointId::Parse(endpoint);
    if (!poll.endpoint) fields.Fault("endpoint_id", "is no endpoint's id");
  }
  fields.Int("limit", &poll.limit);
  fields.Range("limit", poll.limit, 1, static_cast<int64_t>(dlq::kPollMax));
  fields.Int("lease_s", &poll.lease_s);
  fields.Range("lease_s", poll.lease_s, dlq::kLeaseLeast.count(), dlq::kLeaseMost.count());
  fields.Int("wait_s", &poll.wait_s);
  fields.Range("wait_s", poll.wait_s, 0, kWaitMostSeconds);
  fields.Finish();
  KeepFirstFaults(&faults);
  if (!faults.empty()) return call->Fail(faults);
  poll.until = call->api.loop.clock().Now() + std::chrono::seconds(poll.wait_s);
  TryPoll(call, poll);
}

// A receipt that is not, or no longer, that of the lease.
void FailLease(const CallPtr& call, const absl::Status& status) {
  if (absl::IsAborted(status) && SqlState(status).empty()) {
    return call->Answer(Problem(
        409, "The receipt is not that of the letter's present lease, or the lease has run out."));
  }
  call->Fail(status);
}

// Reads {"receipt", and perhaps one number of seconds}; then `next(id, receipt, seconds)` in a
// transaction.
struct Seconds {
  absl::string_view name;  // empty: there is none
  int64_t value = 0;       // the default; below `least`: it must be given
  int64_t least = 0;
  int64_t most = 0;
};
template <typename Next>
void WithReceipt(CallPtr call, Seconds seconds, Next next) {
  const auto id = LetterId::Parse(call->request.params[0]);
  const ParsedBody body = ParseBody(call->request);
  if (body.refusal) return call->Answer(*body.refusal);
  FieldFaults faults;
  FieldReader fields(&body.object, "", faults);
  std::string receipt;
  fields.RequiredString("receipt", &receipt);
  if (!seconds.name.empty()) {
    if (seconds.value < seconds.least) fields.Required(seconds.name);
    if (fields.Int(seconds.name, &seconds.value) || seconds.value >= seconds.least) {
      fields.Range(seconds.name, seconds.value, seconds.least, seconds.most);
    }
  }
  fields.Finish();
  KeepFirstFaults(&faults);
  if (!faults.empty()) return call->Fail(faults);
  if (!id) return call->Answer(ProblemNotFound());
  const CustomerId customer = call->request.principal.customer;
  call->InTransaction(AsCustomer(customer),
                      [call, customer, id, receipt, seconds, next = std::move(next)]() mutable {
                        next(customer, *id, receipt, std::chrono::seconds(seconds.value));
                      });
}

dlq::LetterDone AnswerNoContent(const CallPtr& call) {
  return [call](absl::Status done) {
    if (!done.ok()) return FailLease(call, done);
    call->Commit(NoContent());
  };
}

void Ack(CallPtr call) {
  WithReceipt(
      call, {},
      [call](CustomerId customer, LetterId id, const std::string& receipt, std::chrono::seconds) {
        dlq::AckLetter(call->tx(), customer, id, receipt, AnswerNoContent(call));
      });
}

void Nack(CallPtr call) {
  WithReceipt(call, {"delay_s", 0, 0, dlq::kNackDelayMost.count()},
              [call](CustomerId customer, LetterId id, const std::string& receipt,
                     std::chrono::seconds delay) {
                dlq::NackLetter(call->tx(), customer, id, receipt, delay, AnswerNoContent(call));
              });
}

void Extend(CallPtr call) {
  WithReceipt(call, {"lease_s", -1, dlq::kLeaseLeast.count(), dlq::kLeaseMost.count()},
              [call](CustomerId customer, LetterId id, const std::string& receipt,
                     std::chrono::seconds lease) {
                dlq::ExtendLease(
                    call->tx(), customer, id, receipt, lease,
                    [call](absl::StatusOr<WallTime> until) {
                      if (!until.ok()) return FailLease(call, until.status());
                      call->Commit(JsonResponse(
                          200, JsonValue::MakeObject({{"leased_until", FormatRfc3339(*until)}})));
                    });
              });
}

}  // namespace

void AddDeadLetterRoutes(const ApiParts& parts, Router* router) {
  router->Add(
      {.method = HttpMethod::kGet,
       .path = "/v1/dead-letters",
       .scope = RequiredScope::kCustomer,
       .handler = Handle(parts, List),
       .operation_id = "listDeadLetters",
       .summary = "List dead letters, the newest first; a page also ends at 4 MB of data",
       .response_schema = "DeadLetterList",
       .query = ListParameters({QueryParameter{"endpoint_id", "Of this endpoint only."},
                                QueryParameter{"state", "open, leased, replaying or closed."}})});
  router->Add({.method = HttpMethod::kGet,
               .path = "/v1/dead-letters/{letter}",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Get),
               .operation_id = "getDeadLetter",
               .summary = "Get a dead letter",
               .response_schema = "DeadLetter"});
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/dead-letters/poll",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Poll),
               .operation_id = "pollDeadLetters",
               .summary = "Lease the oldest open letters, up to 4 MB of data, waiting up to wait_s",
               .body_bytes_max = kBodyBytesMax,
               // What was leased comes again by itself, and letters are kept nowhere else.
               .takes_idempotency_key = false,
               .request_schema = "PollInput",
               .response_schema = "LeasedLetters"});
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/dead-letters/{letter}/ack",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Ack),
               .operation_id = "ackDeadLetter",
               .summary = "Close a leased letter",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "ReceiptInput",
               .success_status = 204});
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/dead-letters/{letter}/nack",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Nack),
               .operation_id = "nackDeadLetter",
               .summary = "Give a leased letter back, to be polled again after delay_s",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "NackInput",
               .success_status = 204});
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/dead-letters/{letter}/extend",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Extend),
               .operation_id = "extendDeadLetter",
               .summary = "Make a lease last for lease_s from now",
               .body_bytes_max = kBodyBytesMax,
               .request_schema = "ExtendInput",
               .response_schema = "LeaseExtended"});
}

}  // namespace postrider::api
