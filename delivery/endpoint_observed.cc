// What is told of an endpoint to those who look at it from outside.

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_health.h"
#include "delivery/endpoint_reporting.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"

namespace postrider::delivery {
namespace {

// An endpoint that is well and has no backlog is told of no more often.
constexpr std::chrono::seconds kTellWellEvery{60};

dlq::EndpointHealthState Reported(HealthState state) {
  switch (state) {
    case HealthState::kHealthy:
      return dlq::EndpointHealthState::kHealthy;
    case HealthState::kDegraded:
      return dlq::EndpointHealthState::kDegraded;
    case HealthState::kProbing:
      return dlq::EndpointHealthState::kProbing;
    case HealthState::kPaused:
      return dlq::EndpointHealthState::kPaused;
    case HealthState::kDisabled:
      return dlq::EndpointHealthState::kDisabled;
  }
  return dlq::EndpointHealthState::kHealthy;
}

// A word of a closed set; empty: the state says it all.
absl::string_view ReasonOf(const EndpointState& state) {
  switch (state.health.state()) {
    case HealthState::kHealthy:
    case HealthState::kProbing:
      return "";
    case HealthState::kDegraded:
      return state.health.failing() ? "breaker_open" : "failing";
    case HealthState::kPaused:
      return state.desired->settings.pause.by_operator ? "by_operator" : "by_customer";
    case HealthState::kDisabled:
      break;
  }
  switch (state.health.record().disabled) {
    case DisableReason::kNone:
      return "by_customer";
    case DisableReason::kGone:
      return "gone";
    case DisableReason::kFailing:
      return "failing";
  }
  return "";
}

}  // namespace

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
    const absl::string_view tenant = message.content->record.tenant;
    if (std::find(facts.tenants.begin(), facts.tenants.end(), tenant) == facts.tenants.end()) {
      facts.tenants.emplace_back(tenant);
    }
    // One too many says that there are too many.
    if (facts.tenants.size() > dlq::AttemptReport::kTenantsMax) break;
  }
  std::sort(facts.tenants.begin(), facts.tenants.end());
  return facts;
}

// Of requests whose key group has moved meanwhile DeliveryProgram::Tell() tells.
void EndpointFunction::TellAttempt(const EndpointState& state, const Batch& batch,
                                   AttemptFacts facts, const HttpResult& result,
                                   const Outcome& outcome) {
  EndpointReporting* reporting = program_.reporting();
  if (reporting == nullptr || !reporting->WantsAttempt(outcome)) return;
  reporting->TellAttempt(*ctx_, MakeAttemptReport(state.id, std::move(facts), batch.size(),
                                                  batch.tries, result, outcome, ctx_->clock()));
}

void EndpointFunction::NoteAttempt(EndpointState& state, const Outcome& outcome) {
  state.last_attempt_at = ctx_->clock().Wall();
  if (outcome.breaker == BreakerEffect::kSuccess) state.last_success_at = state.last_attempt_at;
  state.last_outcome = outcome.kind;
  state.last_status = outcome.status;
}

// Tells how the endpoint does: at once when its state has changed, else when its figures have and
// the last time was a while ago.
void EndpointFunction::TellStatus(EndpointState& state) {
  EndpointReporting* reporting = program_.reporting();
  if (reporting == nullptr || state.absent || state.desired == nullptr) return;
  const HealthState health = state.health.state();
  const bool tried = state.last_attempt_at != WallTime();
  // Nothing is known yet.
  if (!state.told.at && health == HealthState::kHealthy && !tried) return;
  const absl::string_view reason = ReasonOf(state);
  const HealthRecord& record = state.health.record();
  const MonotonicTime now = ctx_->clock().Now();
  const MonotonicTime at =
      reporting->TellAt(state.told, Reported(health), reason, record.disabled_generation);
  if (at > now) return;
  const uint64_t backlog = backlog_ == nullptr ? 0 : backlog_->bytes(state.key);
  if (at != MonotonicTime{}) {
    const bool same = backlog == state.told_backlog && state.last_attempt_at == state.told_attempt;
    const bool well = health == HealthState::kHealthy && backlog == 0 && state.told_backlog == 0;
    if (same || (well && now < *state.told.at + kTellWellEvery)) return;
  }
  const WallTime wall = ctx_->clock().Wall();
  dlq::EndpointStatus status;
  status.customer = state.customer;
  status.endpoint = state.id;
  status.part = state.share.part();
  status.observed_at = wall;
  status.state = Reported(health);
  status.reason = std::string(reason);
  if (state.hold_until > now) {
    status.held_until = wall + std::chrono::ceil<std::chrono::milliseconds>(state.hold_until - now);
  }
  if (record.failing_since != WallTime()) status.failing_since = record.failing_since;
  status.auto_disabled_generation = record.disabled_generation;
  status.backlog_messages = backlog_ == nullptr ? 0 : backlog_->size(state.key);
  status.backlog_bytes = backlog;
  status.window = static_cast<uint32_t>(state.window.size());
  status.learned_events_max = static_cast<uint64_t>(state.learned.events_max.value_or(0));
  status.learned_bytes_max = static_cast<uint64_t>(state.learned.bytes_max.value_or(0));
  status.learned_messages_per_1000_seconds =
      static_cast<uint64_t>(state.rate.learned().value_or(0) * 1000);
  if (tried) {
    status.last_outcome = std::string(OutcomeName(state.last_outcome));
    status.last_status = static_cast<uint32_t>(std::max(state.last_status, 0));
    status.last_attempt_at = state.last_attempt_at;
  }
  if (state.last_success_at != WallTime()) status.last_success_at = state.last_success_at;
  if (!reporting->TellStatus(*ctx_, status, &state.told)) return;
  state.told_backlog = backlog;
  state.told_attempt = state.last_attempt_at;
}

}  // namespace postrider::delivery
