#include "delivery/endpoint_tester.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/id.h"
#include "core/base/log.h"
#include "core/crypto/random.h"
#include "core/json/json.h"
#include "delivery/body.h"
#include "delivery/delivery_request.h"
#include "delivery/message.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::delivery {
namespace {

constexpr absl::string_view kTestType = "postrider.test";

std::string NewTextId(absl::string_view prefix, const Clock& clock) {
  const IdBytes bytes = NewIdBytes(clock);
  return absl::StrCat(prefix,
                      EncodeBase32({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

}  // namespace

EndpointTester::EndpointTester(const Clock& clock, std::unique_ptr<HttpSink> sink,
                               const KeyRing& keys, Metrics& metrics)
    : clock_(clock),
      keys_(keys),
      sink_(std::move(sink)),
      tokens_(clock, *sink_, TokenCacheOptions(),
              metrics.AddCounter("postrider_delivery_token_fetches_total",
                                 "Access tokens that providers were asked for."),
              metrics.AddCounter("postrider_delivery_token_failures_total",
                                 "Those that were not given, or not asked for without room."),
              [this](const std::string& source) { OnToken(source); }) {}

EndpointTester::~EndpointTester() { POSTRIDER_CHECK(in_flight_ == 0); }

void EndpointTester::Test(std::shared_ptr<const subscriptions::Endpoint> endpoint, Done done) {
  ++in_flight_;
  absl::StatusOr<std::unique_ptr<PreparedEndpoint>> prepared =
      PrepareEndpoint(std::move(endpoint), keys_);
  if (prepared.ok()) return Go({*std::move(prepared), std::move(done)});
  POSTRIDER_LOG(kWarn, "an endpoint cannot be tested", {"why", prepared.status().message()});
  TestResult result;
  result.outcome = OutcomeKind::kConfiguration;
  End(std::move(done), std::move(result));
}

void EndpointTester::Go(Pending pending) {
  TestResult result;
  const std::shared_ptr<const TokenSource> source = pending.prepared->auth.token;
  const std::string host = pending.prepared->url.authority();
  if (aborting_ || !sink_->CanSend() || sink_->RoomFor(host) == 0) {
    return End(std::move(pending.done), std::move(result));
  }
  if (source == nullptr) return Send(std::move(pending), "");
  const TokenCache::Token token = tokens_.Get(source);
  switch (token.state) {
    case TokenCache::State::kReady:
      return Send(std::move(pending), token.value);
    case TokenCache::State::kFetching:
      waiting_[source->key].push_back(std::move(pending));
      return;
    case TokenCache::State::kFailed:
      result.outcome = OutcomeKind::kNoToken;
      return End(std::move(pending.done), std::move(result));
  }
}

void EndpointTester::OnToken(const std::string& source) {
  auto found = waiting_.extract(source);
  if (found.empty()) return;
  for (Pending& pending : found.mapped()) Go(std::move(pending));
}

void EndpointTester::Send(Pending pending, absl::string_view token) {
  const subscriptions::Endpoint& endpoint = *pending.prepared->endpoint;
  const std::string message_id = NewTextId("msg_", clock_);
  const std::string event_id = NewTextId("evt_", clock_);
  const std::string tenant = subscriptions::ReservedTenantOf(endpoint.customer);
  const std::string data =
      JsonValue::MakeObject({{"test", true}, {"endpoint_id", endpoint.id.ToString()}}).Serialize();
  MessageView message;
  message.message_id = message_id;
  message.event_id = event_id;
  message.type = kTestType;
  message.tenant = tenant;
  message.time = clock_.Wall();
  message.data = data;
  DeliveryRequest input;
  input.messages = absl::MakeConstSpan(&message, 1);
  input.composition = endpoint.settings.mode == subscriptions::EndpointMode::kStreaming
                          ? Composition::kAlone
                          : Composition::kList;
  input.now = message.time;
  input.token = token;
  TestResult result;
  absl::StatusOr<HttpRequest> request = MakeDeliveryRequest(input, *pending.prepared, compressor_);
  if (!request.ok()) {
    POSTRIDER_LOG(kWarn, "an endpoint cannot be tested", {"why", request.status().message()});
    result.outcome = OutcomeKind::kConfiguration;
    return End(std::move(pending.done), std::move(result));
  }
  result.webhook_id =
      input.composition == Composition::kAlone ? message_id : BatchId(input.messages);
  request->total_timeout = std::min<Duration>(request->total_timeout, kTimeoutMax);
  sink_->Send(*std::move(request), [this, result = std::move(result),
                                    done = std::move(pending.done)](HttpResult answer) mutable {
    OutcomeContext context;
    context.now = clock_.Wall();
    result.outcome = Classify(answer, context).kind;
    // Of an address that we refuse nothing else is told (RULES 4).
    if (result.outcome != OutcomeKind::kAddressRefused) {
      result.status = std::max(answer.status, 0);
      result.took = answer.timings.total;
      result.response = answer.body_excerpt.substr(0, kResponseBytesMax);
    }
    End(std::move(done), std::move(result));
  });
}

void EndpointTester::End(Done done, TestResult result) {
  --in_flight_;
  std::move(done)(std::move(result));
}

void EndpointTester::AbortAll() {
  aborting_ = true;
  sink_->AbortAll();
}

}  // namespace postrider::delivery
