// The line of endpoints, and what it takes to send a batch.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "delivery/body.h"
#include "delivery/delivery_program.h"
#include "delivery/delivery_request.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// A request that has waited this long for its slot is signed again; webhook-timestamp tells
// seconds.
constexpr std::chrono::seconds kSignedLongAgo{1};

// Retries and backlog get at least one send in five while fresh messages wait.
constexpr int kFreshInARowMax = 4;
// Nothing new is tried while so many batches, or messages in them, wait for a retry: the rest waits
// in the backlog, which costs no memory.
constexpr size_t kWaitingBatchesMax = 10'000;
constexpr size_t kWaitingMessagesMax = 100'000;
// The same while the shard has no more memory for what waits.
constexpr size_t kWaitingBatchesMaxFull = 100;

// Without room nothing is read back.
bool Loadable(const EndpointState& state, const Batch& batch) {
  return !state.awaits_room || RoomNeeded(batch) == 0;
}

bool AnyParked(const Batch& batch) {
  return std::any_of(batch.messages.begin(), batch.messages.end(),
                     [](const Message& message) { return !message.pending; });
}

std::vector<MessageView> ViewsOf(const Batch& batch) {
  std::vector<MessageView> views;
  views.reserve(batch.messages.size());
  for (const Message& message : batch.messages) views.push_back(message.content->View());
  return views;
}

Composition CompositionOf(const EndpointState& state, const Batch& batch) {
  return state.streaming && batch.messages.size() == 1 ? Composition::kAlone : Composition::kList;
}

Outcome MisconfiguredOutcome() {
  Outcome outcome;
  outcome.kind = OutcomeKind::kConfiguration;
  outcome.verdict = Verdict::kRetry;
  outcome.charge = Charge::kCharged;
  outcome.breaker = BreakerEffect::kFailure;
  return outcome;
}

}  // namespace

bool EndpointFunction::OpenMayGo(const EndpointState& state) const {
  if (state.open.messages.empty() || !state.open_due) return false;
  // With wait_max 0 a batch gathers while a request is in flight.
  return state.wait_max > Duration::zero() || state.flights.empty() || flushing_;
}

bool EndpointFunction::MayTakeFresh(const EndpointState& state) const {
  // A probe is made of what was tried before, if there is any.
  if (IsFailing(state) && !state.waiting.empty()) return false;
  if (backlog_ == nullptr) return true;
  const bool full = !program_.WaitingFits(kWaitingBatchBytes);
  return state.waiting.size() < (full ? kWaitingBatchesMaxFull : kWaitingBatchesMax) &&
         state.waiting_messages < kWaitingMessagesMax;
}

bool EndpointFunction::FreshMayGo(const EndpointState& state) const {
  if (!state.ready.empty()) {
    return !state.ready.front().recorded || Loadable(state, state.ready.front());
  }
  return OpenMayGo(state) && Loadable(state, state.open);
}

// A stop sends what is in memory, and leaves the backlog where it is.
bool EndpointFunction::BacklogMayGo(const EndpointState& state) const {
  if (!state.drained.empty()) return Loadable(state, state.drained.front());
  return !flushing_ && !state.awaits_room && HasListed(state);
}

// Whether there is memory for reading back so much; else the endpoint waits for it in line.
bool EndpointFunction::HasRoom(EndpointState& state, size_t bytes) {
  const size_t has = state.granted.bytes();
  if (bytes <= has) return true;
  if (state.awaits_room) return false;
  if (!program_.AnyAwaitsRoom(state.room) &&
      program_.backlog_room().Take(state.room, bytes - has, state.granted)) {
    return true;
  }
  state.granted.Release();
  state.awaits_room = true;
  program_.AwaitRoom(this, state.key, &state.room, bytes);
  return false;
}

void EndpointFunction::OnBacklogRoom(const std::string& key, BacklogRoom::Hold room) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  state->awaits_room = false;
  state->granted.Merge(std::move(room));
  Schedule(*state);
  if (!state->in_line) state->granted.Release();
}

bool EndpointFunction::Sendable(const EndpointState& state) const {
  if (program_.draining()) return false;  // OnDraining() comes
  if (state.awaits_snapshot || state.flights.size() >= state.window.size()) return false;
  const absl::optional<MonotonicTime> opens_at = GateOpensAt(state);
  if (!opens_at || *opens_at > ctx_->clock().Now()) return false;
  if (state.order != nullptr) return SendableInOrder(state);
  if (RetryMayGo(state)) return true;
  if (!MayTakeFresh(state)) return false;
  return FreshMayGo(state) || BacklogMayGo(state);
}

// Puts the endpoint in line when it can send, else sets the timer for when it may.
void EndpointFunction::Schedule(EndpointState& state) {
  if (state.in_line) return;
  GoBack(state);
  if (Sendable(state)) {
    if (!ctx_->MayAct()) return;  // OnResume() comes
    state.in_line = true;
    ++in_line_;
    program_.Enqueue(this, state);
    return;
  }
  // A slot that becomes free, a snapshot, a full batch or the end of a probe come here by
  // themselves.
  const absl::optional<MonotonicTime> opens_at = GateOpensAt(state);
  AwaitHost(state);
  if (!opens_at) return;
  const MonotonicTime now = ctx_->clock().Now();
  const bool fresh =
      MayTakeFresh(state) && (!state.ready.empty() || state.open_due || BacklogMayGo(state));
  if ((fresh || (!state.waiting.empty() && IsFailing(state))) && *opens_at > now) {
    ctx_->SetTimer(state.key, kSendTimer, *opens_at);
  } else {
    // With order one that is due may stand behind others.
    const auto next = state.order == nullptr || *opens_at > now ? state.NextWaiting()
                                                                : state.waiting.upper_bound(now);
    if (next == state.waiting.end()) return;
    const MonotonicTime retry = std::max(*opens_at, next->first);
    if (retry > now) ctx_->SetTimer(state.key, kSendTimer, retry);
  }
}

absl::optional<Batch> EndpointFunction::TakeNext(EndpointState& state) {
  if (state.order != nullptr) return TakeInOrder(state);
  const auto due = state.NextWaiting();
  const bool retry_due = RetryMayGo(state);
  const bool may_take = MayTakeFresh(state);
  const bool fresh = may_take && FreshMayGo(state);
  const bool backlog = may_take && BacklogMayGo(state);
  // A piece goes before everything else.
  const bool piece = retry_due && due->second.bisection != nullptr;
  if (piece && HasRoom(state, RoomNeeded(due->second))) return TakeWaiting(state, due);
  if ((retry_due || backlog) && (!fresh || state.fresh_in_a_row >= kFreshInARowMax)) {
    state.fresh_in_a_row = 0;
    if (retry_due && HasRoom(state, RoomNeeded(due->second))) return TakeWaiting(state, due);
    if (backlog && state.drained.empty()) DrainBacklog(state);
    if (backlog && !state.drained.empty() && HasRoom(state, RoomNeeded(state.drained.front()))) {
      Batch batch = std::move(state.drained.front());
      state.drained.pop_front();
      return batch;
    }
    // What was read back has joined the open batch, or nothing was there.
  }
  if (retry_due || backlog) ++state.fresh_in_a_row;
  if (!may_take) return absl::nullopt;
  if (state.ready.empty() && OpenMayGo(state)) CloseOpen(state);
  // One that was parked as a whole and finds no room lets those behind it pass.
  while (!state.ready.empty() && !HasRoom(state, RoomNeeded(state.ready.front()))) {
    if (state.ready.front().recorded) return absl::nullopt;
    Undrain(state, state.ready.front());
    state.ready.pop_front();
  }
  if (state.ready.empty()) return absl::nullopt;
  Batch batch = std::move(state.ready.front());
  state.ready.pop_front();
  return batch;
}

size_t EndpointFunction::SendNext(const std::string& key) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return 0;
  if (ctx_->MayAct() && Sendable(*state) && AwaitsWayOut(*state)) {
    state->granted.Release();
    return 0;
  }
  size_t bytes = 0;
  state->in_line = false;
  --in_line_;
  GoBack(*state);
  if (ctx_->MayAct() && Sendable(*state)) {
    absl::optional<Batch> batch = TakeNext(*state);
    if (batch) bytes = Send(*state, *std::move(batch));
    if (state->order != nullptr) bytes += state->order->TakeCost();
  }
  state->granted.Release();
  Schedule(*state);
  return bytes;
}

// Where it came from, to be sent as soon as it may.
void EndpointFunction::PutBack(EndpointState& state, Batch batch) {
  if (batch.messages.empty()) return;
  DropParkedContents(batch);
  if (batch.bisection != nullptr) return Wait(state, kPieceDue, std::move(batch), Place::kFirst);
  if (state.order != nullptr) return PutBackInOrder(state, std::move(batch));
  if (batch.tries > 0) return Wait(state, ctx_->clock().Now(), std::move(batch));
  const bool pending = std::any_of(batch.messages.begin(), batch.messages.end(),
                                   [](const Message& message) { return message.pending; });
  if (!pending && !batch.recorded) return Undrain(state, batch);
  (pending ? state.ready : state.drained).push_front(std::move(batch));
}

// Takes out of the batch what may not be sent any more. kWait: the snapshot is too old to tell.
EndpointFunction::Admission EndpointFunction::Admit(EndpointState& state, Batch& batch) {
  if (!program_.SnapshotUsable()) return Admission::kWait;
  const subscriptions::Snapshot& snapshot = *program_.snapshot();
  const std::shared_ptr<const subscriptions::Endpoint> endpoint = snapshot.FindEndpoint(state.id);
  std::vector<absl::optional<dlq::RefusalReason>> refused(batch.messages.size());
  size_t count = 0;
  for (size_t i = 0; i < batch.messages.size(); ++i) {
    const subscriptions::DispatchRecordView& record = batch.messages[i].content->record;
    if (IsToBeForgotten(record)) {
      refused[i] = dlq::RefusalReason::kErased;
      ++count;
    } else if (endpoint == nullptr) {
      if (!snapshot.Sees(record.endpoint_xid)) return Admission::kWait;
      refused[i] = dlq::RefusalReason::kEndpointDeleted;
      ++count;
    } else if (!snapshot.Granted(endpoint->customer, record.tenant)) {
      if (!snapshot.Sees(record.grants_xid)) return Admission::kWait;
      refused[i] = dlq::RefusalReason::kGrantWithdrawn;
      ++count;
    }
  }
  if (count == 0) return SkipOnResume(state, batch, *endpoint);
  const std::shared_ptr<Ending::Group> group =
      count == batch.messages.size() ? GroupOf(batch) : nullptr;
  const bool dead_letters = snapshot.DeadLettersBacklogOf(state.id);
  std::vector<Message> kept;
  for (size_t i = 0; i < batch.messages.size(); ++i) {
    if (refused[i] == dlq::RefusalReason::kEndpointDeleted && dead_letters) {
      GiveUp(state, batch.messages[i], dlq::DeadReason::kEndpointDeleted, batch, group);
    } else if (refused[i]) {
      batch.bytes -= batch.messages[i].body_bytes;
      Refuse(state, batch.messages[i], *refused[i], group);
    } else {
      kept.push_back(std::move(batch.messages[i]));
    }
  }
  batch.messages = std::move(kept);
  return batch.messages.empty() ? Admission::kDrop : SkipOnResume(state, batch, *endpoint);
}

PreparedEndpoint* EndpointFunction::Prepared(EndpointState& state, absl::Status* why) {
  if (state.prepared == nullptr) {
    absl::StatusOr<std::unique_ptr<PreparedEndpoint>> prepared =
        PrepareEndpoint(program_.snapshot()->FindEndpoint(state.id), program_.keys());
    if (!prepared.ok()) {
      *why = prepared.status();
      return nullptr;
    }
    state.prepared = *std::move(prepared);
  }
  return state.prepared.get();
}

absl::StatusOr<HttpRequest> EndpointFunction::MakeRequest(const EndpointState& state,
                                                          const Batch& batch,
                                                          PreparedEndpoint& prepared,
                                                          Flight* flight) {
  const std::vector<MessageView> views = ViewsOf(batch);
  DeliveryRequest request;
  request.messages = views;
  request.composition = CompositionOf(state, batch);
  request.attempt = batch.tries;
  request.now = ctx_->clock().Wall();
  TokenCache::Token token;
  if (prepared.auth.token != nullptr) {
    token = program_.tokens().Get(prepared.auth.token);
    if (token.state != TokenCache::State::kReady) {
      return absl::UnavailableError("delivery: the endpoint's provider gives no token");
    }
    request.token = token.value;
    flight->token = token.number;
    flight->token_ends_at = token.ends_at;
  }
  return MakeDeliveryRequest(request, prepared, program_.compressor());
}

// Whether a request that has waited for its slot would be made as it is now. Else it is made anew:
// by what the endpoint is now, and without what may not be sent any more (Admit()).
bool EndpointFunction::IsUpToDate(const EndpointState& state, const Flight& flight) const {
  if (!program_.SnapshotUsable()) return false;
  if (flight.token != 0 && ctx_->clock().Now() >= flight.token_ends_at) return false;
  const subscriptions::Snapshot& snapshot = *program_.snapshot();
  // Whether one of its messages is to be forgotten is told where it is made.
  if (snapshot.erasures() != flight.erasures) return false;
  if (snapshot.contents_version() == flight.made_from) return true;
  const std::shared_ptr<const subscriptions::Endpoint> endpoint = snapshot.FindEndpoint(state.id);
  if (endpoint == nullptr) return false;
  const subscriptions::Endpoint& before = *flight.made_for;
  if (endpoint->generation != before.generation || endpoint->changed_xid != before.changed_xid) {
    return false;
  }
  const auto granted = [&](absl::string_view tenant) {
    return snapshot.Granted(endpoint->customer, tenant);
  };
  const std::vector<Message>& messages = flight.batch.messages;
  return std::all_of(flight.tenants.begin(), flight.tenants.end(), granted) &&
         std::all_of(messages.begin(), messages.end(), [&](const Message& message) {
           return message.content == nullptr || granted(message.content->record.tenant);
         });
}

// Whether the gate has shut behind a request that waits for its slot: the endpoint is to be left
// alone, or only a probe may go there.
bool EndpointFunction::IsShutOut(const EndpointState& state, const Flight& flight) const {
  if (Stopped(state)) return true;
  if (state.absent || flight.batch.probe) return false;
  const MonotonicTime now = ctx_->clock().Now();
  return now < state.hold_until || now < state.outage_until || IsFailing(state) ||
         (!flight.host_probe && HostIsShut(state));
}

// Asked when a request has its slot: it may have waited for that, and the right to send may have
// ended meanwhile.
bool EndpointFunction::MayStart(const std::string& key, uint64_t flight_id, HttpRequest& request) {
  if (!ctx_->MayAct()) return false;
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return false;
  const auto found = state->flights.find(flight_id);
  if (found == state->flights.end()) return false;
  Flight& flight = found->second;
  if (IsShutOut(*state, flight) || !IsUpToDate(*state, flight)) return false;
  const MonotonicTime now = ctx_->clock().Now();
  if (now - flight.started >= kSignedLongAgo) {
    // What cannot be signed any more is made anew, and told why it cannot be.
    absl::Status why;
    PreparedEndpoint* const prepared = Prepared(*state, &why);
    if (prepared == nullptr || !SignAnew(request, *prepared, ctx_->clock().Wall())) return false;
  }
  flight.tenants = {};
  flight.on_wire = now;
  return true;
}

size_t EndpointFunction::Send(EndpointState& state, Batch batch) {
  if (!ReadMembers(state, batch)) return 0;
  if (!batch.key) {
    std::stable_sort(batch.messages.begin(), batch.messages.end(),
                     [](const Message& a, const Message& b) { return a.order < b.order; });
  }
  if (!Load(state, batch)) return 0;
  const size_t bytes = batch.bytes;
  switch (Admit(state, batch)) {
    case Admission::kDrop:
      return bytes;
    case Admission::kWait:
      state.awaits_snapshot = true;
      awaiting_.push_back(state.key);
      program_.metrics().waiting_for_snapshot.Add(1);
      PutBack(state, std::move(batch));
      return bytes;
    case Admission::kSend:
      break;
  }
  absl::Status why;
  PreparedEndpoint* prepared = Prepared(state, &why);
  if (HostIsShut(state)) {
    PutBack(state, std::move(batch));
    return bytes;
  }
  batch.tries += 1;
  batch.probe = state.health.OnStart();
  const MonotonicTime now = ctx_->clock().Now();
  if (batch.tries == 1) batch.first_try = now;
  if (!batch.key) batch.key = BatchKey(batch.messages);
  Flight flight;
  absl::StatusOr<HttpRequest> request = prepared == nullptr
                                            ? absl::StatusOr<HttpRequest>(why)
                                            : MakeRequest(state, batch, *prepared, &flight);
  if (!request.ok()) {
    const bool no_token = prepared != nullptr && absl::IsUnavailable(request.status());
    if (!no_token) {
      POSTRIDER_LOG(kWarn, "endpoint cannot be sent to", {"endpoint", state.id.ToString()},
                    {"why", request.status().message()});
    }
    Outcome outcome = no_token ? NoTokenOutcome(*prepared) : MisconfiguredOutcome();
    if (batch.probe) outcome.charge = Charge::kFree;
    // It uses up a try, and is told as such.
    AttemptFacts facts = FactsOf(HttpRequest(), batch);
    facts.webhook_id = WebhookId(CompositionOf(state, batch), ViewsOf(batch));
    TellAttempt(state, batch, std::move(facts), HttpResult(), outcome);
    Settle(state, std::move(batch), outcome);
    WriteHealth(state);
    return bytes;
  }
  const uint64_t id = program_.operations().Begin(*this, state.key);
  const size_t size = batch.messages.size();
  flight.facts = FactsOf(*request, batch);
  if (prepared->endpoint->settings.partial_ack) {
    flight.message_ids.reserve(size);
    for (const Message& message : batch.messages) {
      flight.message_ids.push_back(message.content->record.message_id);
    }
  }
  if (batch.bisection != nullptr) state.piece_in_flight = true;
  flight.batch = std::move(batch);
  if (AnyParked(flight.batch)) flight.KeepTenants();
  // The request is made: what can be read back is not kept beside it.
  for (Message& message : flight.batch.messages) {
    if (message.pending) continue;
    flight.room.Merge(std::move(message.content->room));
    message.content.reset();
  }
  flight.started = now;
  flight.timeout = request->total_timeout;
  OnStart(state, flight, bytes);
  flight.made_for = prepared->endpoint;
  flight.made_from = program_.snapshot()->contents_version();
  flight.erasures = program_.snapshot()->erasures();
  Flight& placed = state.flights.emplace(id, std::move(flight)).first->second;
  if (state.order != nullptr) {
    EndpointOrder::SetKeys(placed.batch);
    state.order->Block(placed.batch);
  }
  program_.metrics().requests_in_flight.Add(1);
  program_.metrics().batch_messages.Observe(static_cast<double>(size));
  const std::weak_ptr<EndpointFunction*> self = self_;
  request->may_start = [self, key = state.key, id](HttpRequest& made) {
    const std::shared_ptr<EndpointFunction*> function = self.lock();
    return function != nullptr && (*function)->MayStart(key, id, made);
  };
  // The program outlives each request; this function need not.
  program_.TakeSlot(state.customer);
  placed.request = program_.sink().Send(
      *std::move(request), [program = &program_, id, customer = state.customer](HttpResult result) {
        program->GiveSlot(customer);
        program->operations().End(id, std::move(result));
      });
  return bytes;
}

}  // namespace postrider::delivery
