// What is told of an endpoint to those who look at it from outside.

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/crypto/random.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_reporting.h"
#include "dlq/reports/attempt_report.h"

namespace postrider::delivery {

// Noted when the request is made. Most batches are of one tenant or few.
AttemptFacts EndpointFunction::FactsOf(const HttpRequest& request, const Batch& batch) const {
  AttemptFacts facts;
  if (program_.reporting() == nullptr) return facts;
  for (const auto& [name, value] : request.headers) {
    if (name == "webhook-id") facts.webhook_id = value;
  }
  facts.started_at = ctx_->clock().Wall();
  facts.customer = batch.messages.front().content->record.customer;
  for (const Message& message : batch.messages) {
    const std::string& tenant = message.content->record.tenant;
    if (std::find(facts.tenants.begin(), facts.tenants.end(), tenant) == facts.tenants.end()) {
      facts.tenants.push_back(tenant);
    }
    // One too many says that there are too many.
    if (facts.tenants.size() > dlq::AttemptReport::kTenantsMax) break;
  }
  std::sort(facts.tenants.begin(), facts.tenants.end());
  return facts;
}

// Requests whose key group has moved meanwhile are not told.
void EndpointFunction::TellAttempt(const EndpointState& state, const Batch& batch,
                                   AttemptFacts facts, const HttpResult& result,
                                   const Outcome& outcome) {
  EndpointReporting* reporting = program_.reporting();
  if (reporting == nullptr) return;
  const bool success = outcome.kind == OutcomeKind::kDelivered;
  if (!reporting->WantsAttempt(success ? EndpointReporting::Success::kYes
                                       : EndpointReporting::Success::kNo)) {
    return;
  }
  dlq::AttemptReport report;
  report.id = NewId<dlq::AttemptId>(ctx_->clock());
  report.customer = facts.customer;
  report.endpoint = state.id;
  report.message_id = std::move(facts.webhook_id);
  report.messages = static_cast<uint32_t>(batch.size());
  report.attempt = static_cast<uint32_t>(batch.tries);
  report.started_at = facts.started_at;
  report.duration_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(result.timings.total).count());
  report.outcome = std::string(OutcomeName(outcome.kind));
  report.status = static_cast<uint32_t>(std::max(result.status, 0));
  report.response = result.body_excerpt.substr(0, dlq::AttemptReport::kResponseBytesMax);
  report.tenants = std::move(facts.tenants);
  reporting->TellAttempt(*ctx_, report);
}

}  // namespace postrider::delivery
