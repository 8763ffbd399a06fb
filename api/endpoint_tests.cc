// A message that a customer has sent to an endpoint of its own to see whether it works.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "api/endpoint_tester.h"
#include "api/internal/call.h"
#include "api/internal/endpoint_access.h"
#include "api/internal/resources.h"
#include "api/internal/shown_duration.h"
#include "subscriptions/registry/endpoint.h"
#include "subscriptions/registry/repository.h"

namespace postrider::api {
namespace {

using subscriptions::Endpoint;
using subscriptions::RowLock;

JsonValue TextOrNull(std::string text) {
  return text.empty() ? JsonValue() : JsonValue(std::move(text));
}

JsonValue ToJson(const EndpointTester::Result& result) {
  const int64_t took = std::chrono::duration_cast<std::chrono::milliseconds>(result.took).count();
  return JsonValue::MakeObject(
      {{"message_id", TextOrNull(result.webhook_id)},
       {"outcome", result.outcome},
       {"status", result.status == 0 ? JsonValue() : JsonValue(result.status)},
       {"duration_ms", ShownDurationMs(result.outcome, result.status, took)},
       {"response", TextOrNull(result.response)}});
}

// How long the answer is kept back. The customer has a clock too: without an answer of the endpoint
// it comes at a whole second after the beginning, for the reason that ShownDurationMs() gives.
Duration KeptBack(const EndpointTester::Result& result, Duration elapsed) {
  constexpr std::chrono::seconds kSecond{1};
  return result.status != 0 ? Duration::zero() : kSecond - elapsed % kSecond;
}

// No connection to the database is held meanwhile.
void Send(const CallPtr& call, std::shared_ptr<const Endpoint> endpoint) {
  const subscriptions::CustomerId customer = endpoint->customer;
  const MonotonicTime begun = call->api.clock.Now();
  call->api.tester->Test(
      std::move(endpoint), [call, customer, begun](const EndpointTester::Result& sent) {
        // Only an answer of the endpoint is worth keeping: a test that did not
        // come so far is made again by who repeats it.
        const auto answer = [call, customer, told = ToJson(sent), answered = sent.status != 0] {
          call->api.test_limits.End(customer);
          Response response = JsonResponse(200, told);
          if (answered) return call->Answer(std::move(response));
          call->AnswerOnce(std::move(response));
        };
        const Duration wait = KeptBack(sent, call->api.clock.Now() - begun);
        if (wait == Duration::zero() || call->api.stopping) return answer();
        call->api.loop.CallAfter(wait, answer);
      });
}

void Test(CallPtr call) {
  if (!HasNoFields(call)) return;
  WithEndpoint(call, RowLock::kNone, [call](Endpoint found) {
    if (found.settings.pause.by_operator) {
      return call->Answer(Problem(409, "An operator has paused this endpoint."));
    }
    auto endpoint = std::make_shared<const Endpoint>(std::move(found));
    call->CommitThen([call, endpoint] {
      if (call->api.tester == nullptr || !call->api.tests_allowed || call->api.stopping) {
        return call->Answer(
            ProblemRetry(503, "Endpoints cannot be tested here now.", std::chrono::seconds(1)));
      }
      if (const auto wait = call->api.test_limits.Begin(endpoint->customer, endpoint->id,
                                                        call->api.clock.Now())) {
        return call->Answer(ProblemRetry(
            429, "One endpoint is tested once in 10 s, and a customer's 30 times a minute.",
            *wait));
      }
      Send(call, endpoint);
    });
  });
}

}  // namespace

void AddEndpointTestRoutes(const ApiParts& parts, Router* router) {
  router->Add({.method = HttpMethod::kPost,
               .path = "/v1/endpoints/{endpoint}/test",
               .scope = RequiredScope::kCustomer,
               .handler = Handle(parts, Test),
               .operation_id = "testEndpoint",
               .summary = "Send one message of the type postrider.test to an endpoint, enabled or "
                          "not, and tell what came of it; it is no attempt of a delivery",
               .body_bytes_max = kBodyBytesMax,
               .response_schema = "EndpointTest"});
}

}  // namespace postrider::api
