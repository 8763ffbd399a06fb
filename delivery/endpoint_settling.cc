// What becomes of a batch when its result is in, and of a message at its end.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"
#include "delivery/partial_ack.h"
#include "dlq/letters/dead_letter_log.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::delivery {

using subscriptions::DispatchRecord;

void EndpointFunction::OnEnded(const std::string& key, uint64_t flight_id, HttpResult result) {
  EndpointState* state = endpoints_.Get(key);
  POSTRIDER_CHECK(state != nullptr);
  SettleFlight(*state, flight_id, result);
}

void EndpointFunction::SettleFlight(EndpointState& state, uint64_t flight_id,
                                    const HttpResult& result) {
  const auto flight = state.flights.find(flight_id);
  POSTRIDER_CHECK(flight != state.flights.end());
  Batch batch = std::move(flight->second.batch);
  const std::vector<IdBytes> message_ids = std::move(flight->second.message_ids);
  // It serves for reading back what is given up.
  BacklogRoom::Hold room = std::move(flight->second.room);
  AttemptFacts facts = std::move(flight->second.facts);
  const bool unreached = NoteReach(state, flight->second, result);
  NoteRefusedToken(state, flight->second.token, result);
  NoteCameBack(state, batch, flight->second.erasures.get());
  state.flights.erase(flight);
  if (batch.bisection != nullptr) state.piece_in_flight = false;
  if (state.order != nullptr) state.order->Unblock(batch);
  state.last_used = ctx_->clock().Now();
  DeliveryMetrics& metrics = program_.metrics();
  metrics.requests_in_flight.Add(-1);
  metrics.attempt_seconds.Observe(Seconds(result.timings.total));
  if (result.resends > 0) metrics.resends.Add(result.resends);
  if (result.failure == HttpFailure::kAborted && !result.request_sent) {
    // As if it had not been tried.
    batch.tries -= 1;
    OnNoOutcome(state, batch);
    PutBack(state, std::move(batch));
    return Schedule(state);
  }

  OutcomeContext context;
  context.batch_size = batch.messages.size();
  context.now = ctx_->clock().Wall();
  context.horizon = state.retry.horizon;
  context.own_outage = unreached && program_.own_outage().active(state.last_used);
  Answer answer = ReadAnswer(result, context, message_ids);
  // A probe that fails is the endpoint's failure, not the message's.
  if (batch.probe && answer.outcome.breaker == BreakerEffect::kFailure) {
    answer.outcome.charge = Charge::kFree;
  }
  TellAttempt(state, batch, std::move(facts), result, answer.outcome);
  if (answer.foreign > 0) metrics.foreign_acks.Add(static_cast<double>(answer.foreign));
  if (batch.bisection != nullptr) batch.bisection->OnRequest();
  Learn(state, result);
  std::swap(state.granted, room);
  SettlePartly(state, std::move(batch), answer.outcome, answer.failed);
  std::swap(state.granted, room);
  WriteHealth(state);
  Schedule(state);
}

// What an outcome means for the endpoint.
void EndpointFunction::Apply(EndpointState& state, const Outcome& outcome, Probe probe) {
  state.window.Apply(outcome.window);
  const MonotonicTime now = ctx_->clock().Now();
  if (outcome.breaker == BreakerEffect::kSuccess) {
    state.throttled_in_a_row = 0;
    state.throttled.OnTaken(now);
  }
  // Of those that were under way together the first one begins a hold.
  if (outcome.kind == OutcomeKind::kThrottled && now >= state.hold_until) {
    state.throttled.OnRefused(now);
  }
  RestInOutage(state, outcome);
  Judge(state, outcome, probe == Probe::kYes);
}

void EndpointFunction::Delivered(EndpointState& state, Batch& batch) {
  DeliveryMetrics& metrics = program_.metrics();
  const WallTime wall = ctx_->clock().Wall();
  metrics.delivered.Add(static_cast<double>(batch.messages.size()));
  for (const Message& message : batch.messages) {
    metrics.end_to_end_seconds.Observe(Seconds(Age(wall, message.event_time)));
  }
  EndAll(state, batch);
}

void EndpointFunction::Settle(EndpointState& state, Batch batch, const Outcome& outcome) {
  program_.metrics().CountOutcome(outcome.kind).Increment();
  Apply(state, outcome, std::exchange(batch.probe, false) ? Probe::kYes : Probe::kNo);
  batch.last = outcome;
  const std::shared_ptr<Bisection> bisection = batch.bisection;
  switch (outcome.verdict) {
    case Verdict::kDone:
      Delivered(state, batch);
      return EndPiece(state, bisection);
    case Verdict::kDeadLetter:
      if (outcome.charge == Charge::kCharged) batch.attempts += 1;
      GiveUpBatch(state, std::move(batch), outcome.give_up);
      return EndPiece(state, bisection);
    case Verdict::kBisect:
      return Bisect(state, std::move(batch), outcome);
    case Verdict::kKeep:
    case Verdict::kRetry:
      break;
  }
  std::vector<Batch> batches;
  batches.push_back(std::move(batch));
  // Pieces that have not been sent fare as this one does.
  if (bisection != nullptr) {
    for (Batch& piece : TakePieces(state, bisection)) batches.push_back(std::move(piece));
  }
  RetryPieces(state, std::move(batches), outcome);
}

// What failed, charged or not, waits for its next try, or has had its last. Several are pieces of
// one batch, with one history.
void EndpointFunction::Retry(EndpointState& state, std::vector<Batch> batches,
                             const Outcome& outcome) {
  if (batches.empty()) return;
  const MonotonicTime now = ctx_->clock().Now();
  const auto give_up = [&](dlq::DeadReason reason) {
    for (Batch& batch : batches) GiveUpBatch(state, std::move(batch), reason);
  };
  const auto later = [&](MonotonicTime next) {
    for (Batch& batch : batches) Later(state, std::move(batch), next);
  };
  if (outcome.verdict == Verdict::kKeep) return later(now);
  absl::optional<Duration> delay =
      NextDelay(state.retry, batches.front().attempts, program_.random());
  if (!delay) {
    return give_up(outcome.kind == OutcomeKind::kConfiguration ? dlq::DeadReason::kMisconfigured
                                                               : outcome.give_up);
  }
  if (outcome.kind == OutcomeKind::kThrottled) {
    // A receiver that names no time is left alone for the normal backoff, as if its refusals had
    // been charged; those of requests that were under way together count as one.
    if (!outcome.hold) {
      if (now >= state.hold_until) ++state.throttled_in_a_row;
      const auto before = static_cast<uint32_t>(std::max(state.throttled_in_a_row - 1, 0));
      delay = std::max(*delay, Backoff(state.retry, before, program_.random()));
    }
    state.hold_until = std::max(state.hold_until, now + outcome.hold.value_or(*delay));
  } else if (outcome.hold) {
    state.hold_until = std::max(state.hold_until, now + *outcome.hold);
  }
  // Not for a hold alone: after it every message gets one try. Nor by our own outage, which charges
  // nobody: after its end too.
  const MonotonicTime first_try = batches.front().first_try;
  const Duration paused = state.health.PausedSince(first_try, now, ctx_->clock().Wall());
  if (outcome.breaker != BreakerEffect::kOutage &&
      now + *delay > GiveUpAt(state.retry, first_try) + paused) {
    return give_up(dlq::DeadReason::kHorizon);
  }
  later(std::max(now + *delay, state.hold_until));
}

void EndpointFunction::Later(EndpointState& state, Batch batch, MonotonicTime next) {
  static_cast<void>(ParkBatch(state, batch, ParkReason::kFailed, next));
  DropParkedContents(batch);
  Wait(state, next, std::move(batch));
  LetGo(state);
}

void EndpointFunction::Wait(EndpointState& state, MonotonicTime due, Batch batch, Place place) {
  Wait(state,
       place == Place::kFirst ? state.waiting.lower_bound(due) : state.waiting.upper_bound(due),
       due, std::move(batch));
}

void EndpointFunction::Wait(EndpointState& state,
                            std::multimap<MonotonicTime, Batch>::iterator before, MonotonicTime due,
                            Batch batch) {
  if (state.order != nullptr) {
    state.order->SetKeys(batch.messages);
    EndpointOrder::SetKeys(batch);
    state.order->Block(batch);
  }
  LeaveOutMembers(state, batch);
  state.waiting_messages += batch.size();
  state.members_left_out += batch.members_left_out;
  program_.AddWaiting(WaitingBytes(batch));
  state.waiting.emplace_hint(before, due, std::move(batch));
}

Batch EndpointFunction::TakeWaiting(EndpointState& state,
                                    std::multimap<MonotonicTime, Batch>::iterator place) {
  Batch batch = std::move(place->second);
  state.waiting_messages -= batch.size();
  state.members_left_out -= batch.members_left_out;
  program_.TakeWaiting(WaitingBytes(batch));
  state.waiting.erase(place);
  if (state.order != nullptr) state.order->Unblock(batch);
  return batch;
}

std::shared_ptr<EndpointFunction::Ending::Group> EndpointFunction::GroupOf(const Batch& batch) {
  if (!batch.recorded) return nullptr;
  return std::make_shared<Ending::Group>(Ending::Group{*batch.key, batch.messages.size()});
}

void EndpointFunction::GiveUpBatch(EndpointState& state, Batch batch, dlq::DeadReason reason) {
  if (!Load(state, batch)) return;
  const std::shared_ptr<Ending::Group> group = GroupOf(batch);
  for (Message& message : batch.messages) GiveUp(state, message, reason, batch, group);
}

void EndpointFunction::GiveUp(EndpointState& state, Message& message, dlq::DeadReason reason,
                              const Batch& batch, std::shared_ptr<Ending::Group> group) {
  const subscriptions::DispatchRecordView& record = message.content->record;
  if (IsToBeForgotten(record)) {
    return Refuse(state, message, dlq::RefusalReason::kErased, std::move(group));
  }
  dlq::DeadLetterRecord letter;
  letter.letter = dlq::MakeLetterId(record.dispatch_time, message.digest);
  letter.customer = record.customer;
  letter.endpoint = record.identity.endpoint;
  letter.reason = reason;
  letter.attempts = static_cast<uint32_t>(batch.tries);
  letter.last_status = batch.last.status;
  if (batch.tries > 0) letter.last_outcome = std::string(OutcomeName(batch.last.kind));
  letter.message_id = message.content->message_id;
  letter.event_id = std::string(record.event_id);
  letter.type = std::string(record.type);
  letter.tenant = std::string(record.tenant);
  if (record.department) letter.department = std::string(*record.department);
  letter.event_time = record.event_time;
  letter.given_up_at = ctx_->clock().Wall();
  letter.data = std::string(message.content->data());
  program_.metrics().CountDeadLetter(reason).Increment();
  // What a person wanted is no news, and our own events make no other.
  if (program_.options().operational && state.share.part() == 0 &&
      reason != dlq::DeadReason::kSkippedOnResume &&
      !subscriptions::IsReservedTenant(record.tenant)) {
    state.teller.OnDeadLetters(static_cast<uint64_t>(state.share.parts()), ctx_->clock().Now(),
                               ctx_->clock().Wall());
  }
  Output output;
  output.record = dlq::MakeDeadLetterAppend(program_.options().topic_prefix, letter);
  output.ending = EndingOf(state, message, std::move(group));
  if (state.order != nullptr && message.order_key != EndpointOrder::kUnknownKey) {
    // It may come again as long as the letter is not there.
    output.ending.order_key = message.order_key;
    state.order->BlockEnding(message.order_key);
  }
  if (reason == dlq::DeadReason::kBacklogFull || reason == dlq::DeadReason::kBacklogAge) {
    output.ending.bound = true;
    ++state.bound_endings;
  }
  output.room = std::move(message.content->room);
  output.room.LeaveOwner();
  Emit(std::move(output));
}

void EndpointFunction::Refuse(EndpointState& state, const Message& message,
                              dlq::RefusalReason reason, std::shared_ptr<Ending::Group> group) {
  const subscriptions::DispatchRecordView& record = message.content->record;
  dlq::RefusalReport report;
  report.reason = reason;
  report.customer = record.customer;
  report.endpoint = record.identity.endpoint;
  report.message_id = message.content->message_id;
  report.event_id = std::string(record.event_id);
  report.source_topic = std::string(record.identity.source_topic);
  report.source_partition = record.identity.source_partition;
  report.source_offset = record.identity.source_offset;
  report.time = ctx_->clock().Wall();
  program_.metrics().CountRefusal(reason).Increment();
  Ending ending = EndingOf(state, message, std::move(group));
  if (reason == dlq::RefusalReason::kCollapsed) {
    ending.bound = true;
    ++state.bound_endings;
  }
  Emit({dlq::MakeReportAppend(program_.options().topic_prefix, report), std::move(ending), {}});
}

// The message leaves its endpoint's memory; what tells of its end is on its way.
EndpointFunction::Ending EndpointFunction::EndingOf(EndpointState& state, const Message& message,
                                                    std::shared_ptr<Ending::Group> group) {
  if (message.pending) state.pending_bytes -= message.bytes;
  Ending ending;
  ending.endpoint = {state.id, state.share.part()};
  ending.order = message.order;
  ending.digest = message.digest;
  ending.pending = message.pending;
  ending.listed = message.listed;
  ending.group = std::move(group);
  return ending;
}

// The message has ended, and that is durable (or needs not be): an entry stays claimed until
// here, so that it is not read back meanwhile.
void EndpointFunction::End(const Ending& ending) {
  if (ending.pending) ctx_->Complete(static_cast<int64_t>(ending.order));
  if (!ending.listed && ending.group == nullptr && ending.order_key == 0) return;
  if (ending.listed && !ending.pending) NoteEndedAhead(ending.order, ending.digest);
  const std::string key = subscriptions::EncodeDispatchKey(ending.endpoint);
  EndpointState* state = endpoints_.Get(key);
  if (ending.bound && state != nullptr && state->bound_endings > 0) --state->bound_endings;
  if (ending.listed && state != nullptr) {
    RemoveEntry(*state, ending.digest);
  } else if (ending.listed) {
    backlog_->Remove(key, ending.digest);
  }
  if (ending.group != nullptr && --ending.group->left == 0) {
    backlog_->RemoveBatch(key, ending.group->batch);
  }
  if (state == nullptr) return;
  const bool group_ended = ending.group != nullptr && ending.group->left == 0;
  if (group_ended || (ending.group == nullptr && ending.listed)) ClearFlagWhenEmpty(*state);
  if (ending.order_key == 0 || state->order == nullptr) return;
  state->order->UnblockEnding(ending.order_key);
  Schedule(*state);
}

void EndpointFunction::NoteEndedAhead(uint64_t order, const IdBytes& digest) {
  if (order < next_read_ || ended_ahead_.size() >= kEndedAheadMax) return;
  ended_ahead_.emplace(order, digest);
}

// Whether the record that is read now has ended already, as an entry.
bool EndpointFunction::EndedAhead(uint64_t order, const IdBytes& digest) {
  next_read_ = order + 1;
  if (ended_ahead_.empty()) return false;
  const auto found = ended_ahead_.find(order);
  if (found == ended_ahead_.end()) return false;
  const bool same = found->second == digest;
  ended_ahead_.erase(found);
  return same;
}

// All have ended, with nothing to tell of it.
void EndpointFunction::EndAll(EndpointState& state, Batch& batch) {
  bool listed = false;
  for (const Message& message : batch.messages) {
    if (message.pending) {
      state.pending_bytes -= message.bytes;
      ctx_->Complete(static_cast<int64_t>(message.order));
    }
    if (!message.listed) continue;
    listed = true;
    if (!message.pending) NoteEndedAhead(message.order, message.digest);
    RemoveEntry(state, message.digest, message.place);
  }
  if (batch.recorded) backlog_->RemoveBatch(state.key, *batch.key);
  if (listed || batch.recorded) ClearFlagWhenEmpty(state);
}

// Appends a record whose acknowledgement ends a message.
void EndpointFunction::Emit(Output output) {
  outputs_.push_back(std::move(output));
  if (outputs_.size() == 1) DrainOutputs();
}

void EndpointFunction::DrainOutputs() {
  while (!outputs_.empty()) {
    Output& output = outputs_.front();
    LogProducer::AppendDone done = [this,
                                    ending = output.ending](absl::StatusOr<int64_t> appended) {
      if (appended.ok()) {
        End(ending);
      } else {
        ctx_->Fail(std::move(appended).status());
      }
    };
    if (!ctx_->Emit(std::move(output.record), std::move(done))) return;
    outputs_.pop_front();
  }
}

}  // namespace postrider::delivery
