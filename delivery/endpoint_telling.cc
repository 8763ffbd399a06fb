// What a customer is told of an endpoint by operational events.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"
#include "dlq/reports/operational_event.h"
#include "subscriptions/registry/endpoint_secrets.h"

namespace postrider::delivery {

OperationalFacts EndpointFunction::LookAt(const EndpointState& state) const {
  const HealthRecord& record = state.health.record();
  const subscriptions::EndpointSettings& settings = state.desired->settings;
  OperationalFacts facts;
  facts.stopped = state.health.paused() || !state.health.enabled();
  facts.disabled = record.disabled;
  facts.disabled_generation = record.disabled_generation;
  facts.disabled_at = record.disabled_at;
  facts.failing = state.health.failing();
  facts.warned = record.warned;
  if (record.failing_since != WallTime()) {
    facts.failing_since = record.failing_since;
    facts.disables_at = record.failing_since + std::chrono::ceil<std::chrono::milliseconds>(
                                                   program_.options().health.auto_disable_after);
  }
  facts.well = state.health.well(ctx_->clock().Now());
  if (state.last_attempt_at != WallTime()) {
    facts.last_outcome = OutcomeName(state.last_outcome);
    facts.last_status = state.last_status;
  }
  if (backlog_ == nullptr || !IsRestored(state)) return facts;
  const auto parts = static_cast<uint64_t>(state.share.parts());
  facts.backlog_messages = backlog_->size(state.key) * parts;
  facts.backlog_bytes = backlog_->bytes(state.key) * parts;
  facts.backlog_bytes_max = static_cast<uint64_t>(settings.backlog.bytes_max);
  if (state.told_level < facts.backlog_bytes_max / parts) {
    facts.backlog_bytes_max = state.told_level * parts;
  }
  facts.backlog_age_max = settings.backlog.age_max;
  if (facts.backlog_messages > 0) facts.backlog_oldest = state.backlog_oldest;
  return facts;
}

// Looks whether there is anything to tell, and tells it. Of an endpoint in parts the first one
// does, for all: messages are spread evenly, so that its figures times their number are the
// endpoint's, and a disable stops every part. Nothing waits for it: without room it is told by the
// next look.
void EndpointFunction::Tell(EndpointState& state) {
  const absl::optional<OperationalOptions>& options = program_.options().operational;
  if (!options || state.share.part() > 0 || state.absent || state.desired == nullptr) return;
  if (state.teller.quiet() && state.health.state() == HealthState::kHealthy &&
      state.flag == Backlog::Flag::kNone) {
    return;
  }
  const OperationalTeller::Event* event = state.teller.Next(
      *options, state.id, LookAt(state), ctx_->clock().Now(), ctx_->clock().Wall());
  WriteTold(state);
  if (event == nullptr) return;
  const bool taken =
      EmitOperational(*state.desired, *event, [this, key = state.key](bool acknowledged) {
        EndpointState* told = endpoints_.Get(key);
        if (told == nullptr) return;
        told->teller.OnAnswer(acknowledged);
        if (acknowledged) Tell(*told);
      });
  if (taken) state.teller.OnSent();
}

bool EndpointFunction::EmitOperational(const subscriptions::Endpoint& endpoint,
                                       const OperationalTeller::Event& event,
                                       absl::AnyInvocable<void(bool) &&> answer) {
  dlq::OperationalEvent told;
  told.type = event.type;
  told.customer = endpoint.customer;
  told.endpoint = endpoint.id;
  told.time = ctx_->clock().Wall();
  told.occasion = event.occasion;
  told.data = event.data;
  return ctx_->Emit(dlq::MakeOperationalAppend(program_.options().topic_prefix, told),
                    [this, answer = std::move(answer)](absl::StatusOr<int64_t> appended) mutable {
                      OperationalMetrics& metrics = program_.metrics().operational;
                      (appended.ok() ? metrics.told : metrics.failures).Increment();
                      std::move(answer)(appended.ok());
                    });
}

void EndpointFunction::ReadTold(EndpointState& state) {
  if (told_ == nullptr || !program_.options().operational) return;
  absl::StatusOr<absl::optional<OperationalRecord>> stored = told_->Get(state.key);
  if (!stored.ok()) return ctx_->Fail(stored.status());
  if (*stored) state.teller.Restore(**stored);
}

// When it has changed; without room later. What is lost in between is told again.
void EndpointFunction::WriteTold(EndpointState& state) {
  if (!state.teller.TakeChanged() || told_ == nullptr) return;
  if (!StoreTold(state.key, state.teller.told())) state.teller.NotWritten();
}

bool EndpointFunction::StoreTold(const std::string& key, const OperationalRecord& told) {
  return told == OperationalRecord() ? told_->Clear(key) : told_->Put(key, told);
}

// Of all endpoints of the key group, those without messages too: which of their secrets end soon.
void EndpointFunction::LookAtSecrets() {
  ctx_->SetTimer(kFunctionKey, kSecretsTimer, ctx_->clock().Now() + kSecretsInterval);
  const subscriptions::Snapshot* snapshot = program_.snapshot();
  if (snapshot == nullptr) return;
  const WallTime wall = ctx_->clock().Wall();
  for (const uint32_t place : program_.EndpointsOf(ctx_->partition().partition)) {
    const std::shared_ptr<const subscriptions::Endpoint>& endpoint = snapshot->endpoints()[place];
    const auto secrets = subscriptions::OpenEndpointSecrets(program_.keys(), endpoint->customer,
                                                            endpoint->id, endpoint->secrets_sealed);
    if (!secrets.ok()) continue;  // told where it is sent to
    absl::optional<WallTime> ends;
    for (const subscriptions::EndpointSecret& secret : *secrets) {
      if (!secret.expires_at || !secret.active(wall)) continue;
      if (!ends || *secret.expires_at < *ends) ends = secret.expires_at;
    }
    if (ends && *ends - wall <= program_.options().operational->secret_lead) {
      TellSecret(endpoint, *ends);
    }
  }
}

void EndpointFunction::TellSecret(const std::shared_ptr<const subscriptions::Endpoint>& endpoint,
                                  WallTime ends) {
  const std::string key(endpoint->id.view());
  const EndpointState* state = endpoints_.Get(key);
  OperationalRecord told;
  if (state != nullptr) {
    told = state->teller.told();
  } else if (told_ != nullptr) {
    const absl::StatusOr<absl::optional<OperationalRecord>> stored = told_->Get(key);
    if (!stored.ok()) return ctx_->Fail(stored.status());
    if (*stored) told = **stored;
  }
  if (told.secret_ends == ends || telling_secrets_.contains(key)) return;
  const bool taken = EmitOperational(
      *endpoint, OperationalTeller::SecretEvent(endpoint->id, ends),
      [this, key, ends](bool acknowledged) {
        telling_secrets_.erase(key);
        if (!acknowledged) return;
        if (EndpointState* now = endpoints_.Get(key); now != nullptr) {
          now->teller.OnSecretTold(ends);
          return WriteTold(*now);
        }
        if (told_ == nullptr) return;
        const absl::StatusOr<absl::optional<OperationalRecord>> stored = told_->Get(key);
        if (!stored.ok()) return;
        OperationalRecord after = stored->value_or(OperationalRecord());
        after.secret_ends = ends;
        static_cast<void>(StoreTold(key, after));  // without room it is told again
      });
  if (taken) telling_secrets_.insert(key);
}

}  // namespace postrider::delivery
