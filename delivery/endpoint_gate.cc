// When an endpoint may be sent to: one gate, max(retry-after, breaker, pause, rate), one timer.

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// A predecessor's clock may have been wrong: no hold that it wrote lasts longer.
constexpr std::chrono::hours kHoldMax{24};
// What one failed probe gives up for age.
constexpr size_t kExpiredMax = 100;

// Nobody can have seen the request.
bool FailedBeforeSent(const HttpResult& result) {
  switch (result.failure) {
    case HttpFailure::kDns:
    case HttpFailure::kConnect:
    case HttpFailure::kTls:
      return true;
    case HttpFailure::kTimeout:
      return !result.request_sent;
    default:
      return false;
  }
}
// It says nothing of the host: we refused, or ended it, had no socket, or our proxy did not let it
// out.
bool SaysNothing(const HttpResult& result) {
  return result.failure == HttpFailure::kAddressRefused ||
         result.failure == HttpFailure::kBadRequest || result.failure == HttpFailure::kProxy ||
         result.failure == HttpFailure::kOwnLimit || result.failure == HttpFailure::kAborted;
}

// Who ended the last pause wanted no message like this, which waited then.
bool IsSkipped(const subscriptions::PauseSettings& pause,
               const subscriptions::DispatchRecordView& record) {
  const bool waited = pause.resumed_at == WallTime() || record.dispatch_time < pause.resumed_at;
  switch (pause.resume) {
    case subscriptions::ResumeKind::kAll:
      return false;
    case subscriptions::ResumeKind::kFrom:
      return waited && record.event_time < pause.resume_from;
    case subscriptions::ResumeKind::kNewest:
      return waited && pause.resumed_at != WallTime();
  }
  return false;
}

}  // namespace

// No value: not before something happens that calls Schedule(). An endpoint that is gone is not
// sent to: what it has is refused at once.
absl::optional<MonotonicTime> EndpointFunction::GateOpensAt(const EndpointState& state) const {
  if (state.absent) return MonotonicTime{};
  const absl::optional<MonotonicTime> health = state.health.MayStartAt();
  if (!health) return absl::nullopt;
  absl::optional<MonotonicTime> host = MonotonicTime{};
  if (state.prepared != nullptr) {
    host = program_.unreached_hosts().MayStartAt(state.prepared->authority);
    if (!host) return absl::nullopt;
  }
  return std::max({state.hold_until, state.outage_until, *health, *host, state.rate.MayStartAt(),
                   state.throttled.MayStartAt(),
                   state.health.answered() ? MonotonicTime{} : state.unproven_until});
}

// Whether what waits for a retry has its turn. A probe does not wait for the batch's own time,
// which the endpoint's failures have set.
bool EndpointFunction::RetryMayGo(const EndpointState& state) const {
  const auto next = state.NextWaiting();
  if (next == state.waiting.end()) return false;
  const auto& [due, batch] = *next;
  if (state.awaits_room && RoomNeeded(batch) > 0) return false;
  if (due <= ctx_->clock().Now()) return true;
  // One that may be in flight still is not sent beside.
  return (state.absent || IsFailing(state)) && inherited_.Find(*batch.key) == nullptr;
}

bool EndpointFunction::HostIsShut(const EndpointState& state) const {
  if (state.absent || state.prepared == nullptr) return false;
  const auto host = program_.unreached_hosts().MayStartAt(state.prepared->authority);
  return !host || *host > ctx_->clock().Now();
}

// Who waits for a host is told when more is known of it.
void EndpointFunction::AwaitHost(const EndpointState& state) {
  if (HostIsShut(state)) {
    program_.unreached_hosts().Await(state.prepared->authority, {this, state.key});
  }
}

void EndpointFunction::OnHostChanged(const std::string& key, bool reached) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  // What it failed by is over.
  if (reached && state->unreached) state->health.ProbeNow(ctx_->clock().Now());
  Schedule(*state);
}

// A request is made. Its batch has asked the breaker already.
void EndpointFunction::OnStart(EndpointState& state, Flight& flight, size_t body_bytes) {
  const MonotonicTime now = ctx_->clock().Now();
  state.rate.OnStart(now, flight.batch.messages.size(), body_bytes);
  state.throttled.OnStart(now);
  if (!state.health.answered())
    state.unproven_until = now + state.share.Between(program_.options().unproven_interval);
  flight.host = state.prepared->authority;
  flight.host_probe = program_.unreached_hosts().OnStart(flight.host);
  if (flight.batch.probe) program_.metrics().probes.Increment();
}

// It was not tried after all.
void EndpointFunction::OnNoOutcome(EndpointState& state, const Batch& batch) {
  state.health.OnNoOutcome(ctx_->clock().Now(), batch.probe);
  state.unproven_until = MonotonicTime{};
}

// Its result will not be told here.
void EndpointFunction::LeaveHost(const Flight& flight) {
  if (!flight.host_probe) return;
  program_.Wake(program_.unreached_hosts().OnUnknown(flight.host, ctx_->clock().Now(), true),
                Reached::kNo);
}

// What the result says of its host. Whether it failed before it was sent.
bool EndpointFunction::NoteReach(EndpointState& state, const Flight& flight,
                                 const HttpResult& result) {
  const MonotonicTime now = ctx_->clock().Now();
  UnreachedHosts& hosts = program_.unreached_hosts();
  // Without its port.
  const absl::string_view name =
      absl::string_view(flight.host).substr(0, flight.host.find_last_of(':'));
  if (SaysNothing(result)) {
    program_.Wake(hosts.OnUnknown(flight.host, now, flight.host_probe), Reached::kNo);
    return false;
  }
  if (!FailedBeforeSent(result)) {
    program_.own_outage().OnReached(name, now);
    state.unreached = false;
    program_.Wake(hosts.OnReached(flight.host), Reached::kYes);
    return false;
  }
  program_.own_outage().OnUnreached(name, now);
  if (program_.own_outage().active(now)) {
    program_.metrics().own_outage_failures.Increment();
    program_.Wake(hosts.OnOutage(flight.host, now, flight.host_probe, program_.random()),
                  Reached::kNo);
    return true;
  }
  state.unreached = true;
  program_.Wake(hosts.OnUnreached(flight.host, now, flight.host_probe, program_.random()),
                Reached::kNo);
  return true;
}

// In our own outage an endpoint is left alone for longer each time, but never for so long that the
// outage's end is missed: what it has to send would else be tried all the time, as nothing of that
// is charged and no breaker opens. An open breaker rests by itself. Requests that were under way
// together count as one. Nothing of it is a successor's, who may be elsewhere.
void EndpointFunction::RestInOutage(EndpointState& state, const Outcome& outcome) {
  if (outcome.breaker != BreakerEffect::kOutage) {
    if (outcome.status > 0 || outcome.breaker == BreakerEffect::kFailure) state.outage_rests = 0;
    return;
  }
  const MonotonicTime now = ctx_->clock().Now();
  if (state.health.failing() || now < state.outage_until) return;
  const BreakerOptions& options = program_.options().health.breaker;
  state.outage_until =
      now + DrawRest(options, state.outage_rests, options.outage_rest_max, program_.random());
  ++state.outage_rests;
}

// What an outcome means for the endpoint.
void EndpointFunction::Judge(EndpointState& state, const Outcome& outcome, bool probe) {
  const EndpointHealth::Judgement judgement = state.health.OnOutcome(
      outcome, probe, ctx_->clock().Now(), ctx_->clock().Wall(), program_.random());
  program_.backlog_room().SetFailing(state.room, state.health.breaker().failures_in_a_row() > 0);
  if (judgement.closed) state.window.StartSlowly();
  if (!state.window.starting_slowly()) state.health.OnRecovered();
  if (judgement.opened) {
    program_.metrics().breakers_opened.Increment();
    if (probe) {
      GiveUpExpired(state);
    } else {
      ParkAll(state, ParkReason::kStopped);
    }
  }
  if (judgement.disabled) {
    POSTRIDER_LOG(kWarn, "endpoint is disabled", {"endpoint", state.id.ToString()},
                  {"outcome", OutcomeName(outcome.kind)});
    ParkAll(state, ParkReason::kStopped);
  }
  CountHealth(state, state.health.state());
  NoteAttempt(state, outcome);
}

// A failed probe is the try of all that wait: those that have waited for longer than their horizon
// are given up, the first due ones first.
void EndpointFunction::GiveUpExpired(EndpointState& state) {
  const MonotonicTime now = ctx_->clock().Now();
  const WallTime wall = ctx_->clock().Wall();
  size_t left = kExpiredMax;
  for (auto it = state.waiting.begin(); it != state.waiting.end() && left > 0;) {
    const auto next = std::next(it);
    const Batch& batch = it->second;
    if (batch.tries > 0 && batch.bisection == nullptr && batch.members_left_out == 0 &&
        inherited_.Find(*batch.key) == nullptr &&
        now > GiveUpAt(state.retry, batch.first_try) +
                  state.health.PausedSince(batch.first_try, now, wall)) {
      GiveUpBatch(state, TakeWaiting(state, it), dlq::DeadReason::kHorizon);
      --left;
    }
    it = next;
  }
}

void EndpointFunction::CountHealth(EndpointState& state, HealthState now) {
  if (state.health_counted == now) return;
  DeliveryMetrics& metrics = program_.metrics();
  if (state.health_counted != HealthState::kHealthy) metrics.OfHealth(state.health_counted).Add(-1);
  if (now != HealthState::kHealthy) metrics.OfHealth(now).Add(1);
  state.health_counted = now;
}

// ---- What is desired, and what outlives this memory ----

void EndpointFunction::ReadHealth(EndpointState& state) {
  if (health_ == nullptr) return;
  absl::StatusOr<absl::optional<HealthRecord>> stored = health_->Get(state.key);
  if (!stored.ok()) return ctx_->Fail(stored.status());
  if (!*stored) return;
  const MonotonicTime now = ctx_->clock().Now();
  const WallTime wall = ctx_->clock().Wall();
  state.health_stored = true;
  state.health.Restore(**stored, now, wall);
  state.hold_until = now + std::min<Duration>(Age((*stored)->held_until, wall), kHoldMax);
  CountHealth(state, state.health.state());
}

// When it has changed. Without room it is written later; what is lost in between costs a probe, or
// the time in which something is observed again.
void EndpointFunction::WriteHealth(EndpointState& state) {
  TellStatus(state);
  Tell(state);
  TellParts(state);
  if (health_ == nullptr) return;
  state.health.OnHeld(state.hold_until, ctx_->clock().Now(), ctx_->clock().Wall());
  if (!state.health.TakeChanged()) return;
  if (health_->Put(state.key, state.health.record())) {
    state.health_stored = true;
  } else {
    health_unwritten_.insert(state.key);
  }
}

void EndpointFunction::WriteHealthAgain() {
  if (health_unwritten_.empty()) return;
  const std::vector<std::string> keys(health_unwritten_.begin(), health_unwritten_.end());
  for (const std::string& key : keys) {
    EndpointState* state = endpoints_.Get(key);
    if (state != nullptr && !health_->Put(key, state->health.record())) return;
    if (state != nullptr) state->health_stored = true;
    health_unwritten_.erase(key);
  }
}

// The endpoint leaves memory. One that was deleted has no health any more.
void EndpointFunction::ForgetHealth(EndpointState& state) {
  CountHealth(state, HealthState::kHealthy);
  if (!state.absent) return;
  if (told_ != nullptr && state.teller.told() != OperationalRecord()) {
    static_cast<void>(told_->Clear(state.key));
  }
  if (learned_ != nullptr && state.learned_stored != LearnedRecord()) {
    static_cast<void>(learned_->Clear(state.key));
  }
  if (!state.health_stored) return;
  // Without room it stays: a few bytes of an endpoint that never comes again.
  static_cast<void>(health_->Clear(state.key));
}

void EndpointFunction::ReadDesired(EndpointState& state,
                                   const std::shared_ptr<const subscriptions::Endpoint>& endpoint) {
  state.rate.SetLearned(state.share.Of(state.learned.messages_per_second));
  if (endpoint == state.desired) return;
  state.desired = endpoint;
  const subscriptions::LimitSettings& limits = endpoint->settings.limits;
  state.rate.SetRequests(state.share.Of(limits.requests_per_second));
  state.rate.SetMessages(state.share.Of(limits.messages_per_second));
  state.rate.SetBytes(state.share.Of(limits.bytes_per_second));
  const EndpointHealth::Change change = state.health.OnDesired(*endpoint, ctx_->clock().Wall());
  if (change.cleared) {
    state.hold_until = state.outage_until = state.unproven_until = MonotonicTime{};
    state.throttled_in_a_row = 0;
    state.throttled = ThrottledRate();
    state.unreached = false;
    state.window = Window(state.share.Of(endpoint->settings.window_max));
    program_.backlog_room().SetFailing(state.room, false);
    RetryNow(state);
  }
  if (change.stopped) ParkAll(state, ParkReason::kStopped);
  CountHealth(state, state.health.state());
  WriteHealth(state);
}

// Gives up what is not wanted after the last pause.
EndpointFunction::Admission EndpointFunction::SkipOnResume(
    EndpointState& state, Batch& batch, const subscriptions::Endpoint& endpoint) {
  const subscriptions::PauseSettings& pause = endpoint.settings.pause;
  if (pause.resume == subscriptions::ResumeKind::kAll) return Admission::kSend;
  const auto skipped = [&pause](const Message& message) {
    return IsSkipped(pause, message.content->record);
  };
  const auto count =
      static_cast<size_t>(std::count_if(batch.messages.begin(), batch.messages.end(), skipped));
  if (count == 0) return Admission::kSend;
  const std::shared_ptr<Ending::Group> group =
      count == batch.messages.size() ? GroupOf(batch) : nullptr;
  std::vector<Message> kept;
  for (Message& message : std::exchange(batch.messages, {})) {
    if (skipped(message)) {
      batch.bytes -= std::min<size_t>(batch.bytes, message.body_bytes);
      GiveUp(state, message, dlq::DeadReason::kSkippedOnResume, batch, group);
    } else {
      kept.push_back(std::move(message));
    }
  }
  batch.messages = std::move(kept);
  return batch.messages.empty() ? Admission::kDrop : Admission::kSend;
}

// What waits for its retry waits no longer, but for what may be in flight still.
void EndpointFunction::RetryNow(EndpointState& state) {
  const MonotonicTime now = ctx_->clock().Now();
  std::multimap<MonotonicTime, Batch> waiting;
  for (auto& [due, batch] : state.waiting) {
    const bool in_flight = batch.key && inherited_.Find(*batch.key) != nullptr;
    waiting.emplace(in_flight ? due : std::min(due, now), std::move(batch));
  }
  state.waiting = std::move(waiting);
}

}  // namespace postrider::delivery
