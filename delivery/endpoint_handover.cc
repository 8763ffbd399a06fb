// Between owners of the key group: what is in flight when it moves.

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/log.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// Results that wait for the backlog's restore; the batches of those beyond are tried again.
constexpr size_t kEarlyResultsMax = 10'000;

// The batch that waits under this id.
std::multimap<MonotonicTime, Batch>::iterator ParkedBatch(EndpointState& state, const IdBytes& id) {
  return std::find_if(state.waiting.begin(), state.waiting.end(),
                      [&id](const auto& waiting) { return waiting.second.key == id; });
}

bool AnyPending(const Batch& batch) {
  return std::any_of(batch.messages.begin(), batch.messages.end(),
                     [](const Message& message) { return message.pending; });
}

std::vector<int64_t> PendingOffsets(const Batch& batch) {
  std::vector<int64_t> offsets;
  for (const Message& message : batch.messages) {
    if (message.pending) offsets.push_back(static_cast<int64_t>(message.order));
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

}  // namespace

void EndpointFunction::OnDrain(TaskContext&, Drain kind) {
  if (kind == Drain::kHandover) return RecordFlights();
  flushing_ = true;
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    if (!state.open.messages.empty()) state.open_due = true;
    Schedule(state);
  });
}

// A successor knows batches in flight whose messages are parked by their record only.
void EndpointFunction::RecordFlights() {
  if (backlog_ == nullptr) return;
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    for (auto& [id, flight] : state.flights) {
      const bool listed = std::any_of(flight.batch.messages.begin(), flight.batch.messages.end(),
                                      [](const Message& message) { return message.listed; });
      if (!listed) continue;
      // Where order counts the successor sends it anew, see Close().
      const MonotonicTime due =
          state.order == nullptr ? FlightDeadline(flight) : ctx_->clock().Now();
      static_cast<void>(Record(state, flight.batch, due));
    }
  });
}

size_t EndpointFunction::in_flight() const {
  // What can be sent at once is sent before the process stops; all of that stands in line.
  const size_t flights = program_.operations().in_flight(*this);
  return flushing_ ? flights + in_line_ : flights;
}

// Where order counts what is in flight ends with its owner.
absl::optional<Operation> EndpointFunction::Describe(const std::string& key,
                                                     uint64_t flight_id) const {
  const EndpointState& state = *endpoints_.Get(key);
  if (state.order != nullptr) return absl::nullopt;
  const Flight& flight = state.flights.at(flight_id);
  Operation operation;
  operation.key = key;
  operation.id = *flight.batch.key;
  operation.offsets = PendingOffsets(flight.batch);
  operation.deadline =
      ctx_->clock().Wall() + std::chrono::ceil<std::chrono::milliseconds>(std::max(
                                 FlightDeadline(flight) - ctx_->clock().Now(), Duration::zero()));
  return operation;
}

std::vector<Operation> EndpointFunction::Operations() const {
  std::vector<Operation> operations = program_.operations().Operations(*this);
  for (Operation& operation : inherited_.All()) operations.push_back(std::move(operation));
  return operations;
}

void EndpointFunction::OnGivenBack(TaskContext&) { program_.operations().GiveBack(*this); }

void EndpointFunction::OnResume(TaskContext&) {
  flushing_ = false;
  program_.operations().Resume(*this);
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) { Schedule(state); });
}

MovedFlight EndpointFunction::Moved(const EndpointState& state, Flight& flight) const {
  const Batch& batch = flight.batch;
  MovedFlight moved;
  moved.result.key = state.key;
  moved.result.id = *batch.key;
  moved.result.offsets = PendingOffsets(batch);
  moved.flight.attempts = static_cast<uint32_t>(batch.attempts);
  moved.flight.tries = static_cast<uint32_t>(batch.tries);
  moved.flight.first_try =
      ctx_->clock().Wall() -
      std::chrono::duration_cast<std::chrono::milliseconds>(ctx_->clock().Now() - batch.first_try);
  for (const Message& message : batch.messages) {
    if (!message.listed) continue;
    moved.flight.parked = true;
    moved.flight.parked_members.push_back(message.digest);
  }
  if (moved.flight.parked_members.size() > FlightResult::kMembersNamedMax) {
    moved.flight.parked_members.clear();
  }
  moved.endpoint = state.id;
  moved.facts = std::move(flight.facts);
  moved.batch_size = batch.messages.size();
  moved.message_ids = flight.message_ids;
  if (!moved.message_ids.empty()) {
    for (const Message& message : batch.messages) moved.digests.push_back(message.digest);
  }
  moved.horizon = state.retry.horizon;
  return moved;
}

AsyncOperations<HttpResult>::Telling EndpointFunction::Leave(const std::string& key,
                                                             uint64_t flight_id) {
  EndpointState& state = *endpoints_.Get(key);
  if (state.order != nullptr) return nullptr;
  const auto flight = state.flights.find(flight_id);
  LeaveHost(flight->second);
  MovedFlight moved = Moved(state, flight->second);
  state.flights.erase(flight);
  return [program = &program_, moved = std::move(moved)](const HttpResult& result) mutable {
    return program->Tell(std::move(moved), result);
  };
}

void EndpointFunction::Close(TaskContext&, CloseReason reason) {
  self_.reset();
  program_.Forget(this);
  if (reason == CloseReason::kMoved) {
    program_.operations().Move(*this, ctx_->partition());
  } else {
    program_.operations().Abort(*this);
  }
  endpoints_.ForEach([this](absl::string_view, EndpointState& state) {
    for (const auto& [id, flight] : state.flights) {
      // When it moves: of those where order counts, whose messages are the first that the successor
      // sends.
      LeaveHost(flight);
      program_.sink().Abort(flight.request);
      program_.metrics().requests_in_flight.Add(-1);
    }
    CountHealth(state, HealthState::kHealthy);
    if (state.awaits_snapshot) program_.metrics().waiting_for_snapshot.Add(-1);
    for (const auto& [due, batch] : state.waiting) program_.TakeWaiting(WaitingBytes(batch));
    state.waiting.clear();
    state.flights.clear();
  });
  in_line_ = 0;
  ctx_ = nullptr;
}

// ---- The successor's side ----

void EndpointFunction::OnInherited(TaskContext& ctx, std::vector<Operation> operations) {
  std::erase_if(operations, [](const Operation& operation) {
    return !subscriptions::DecodeDispatchKey(operation.key);  // of no endpoint
  });
  inherited_.Add(std::move(operations), ctx.clock());
  SetInheritedTimer();
}

void EndpointFunction::SetInheritedTimer() {
  const absl::optional<MonotonicTime> next = inherited_.NextLapse();
  if (next) ctx_->SetTimer(kFunctionKey, kInheritedTimer, *next);
}

// A message that a predecessor has in flight waits for what comes of that.
bool EndpointFunction::Hold(EndpointState& state, Message& message) {
  const Operation* operation = inherited_.Carrying(static_cast<int64_t>(message.order));
  // Named for another endpoint: not what was written.
  if (operation == nullptr || operation->key != state.key) return false;
  state.pending_bytes += message.bytes;
  state.last_used = ctx_->clock().Now();
  held_[operation->id].batch.Add(std::move(message));
  return true;
}

// Held messages that let the watermark wait, or fill the shard, become entries of the backlog, and
// what is in flight a batch there, as its owner would have left it. They are held on.
void EndpointFunction::ParkHeld(const IdBytes& id, Held& held, ParkReason reason) {
  EndpointState* state = endpoints_.Get(inherited_.Find(id)->key);
  Batch& batch = held.batch;
  if (state == nullptr || backlog_ == nullptr || !IsRestored(*state) || !AnyPending(batch)) return;
  // A part of it was parked by its owner: that is the batch.
  if (ParkedBatch(*state, id) != state->waiting.end()) return;
  batch.key = id;
  batch.tries = 1;
  batch.first_try = ctx_->clock().Now();
  batch.recorded = false;
  static_cast<void>(ParkBatch(*state, batch, reason, inherited_.DeadlineOf(id)));
  DropParkedContents(batch);
}

// Those whose first message that pends is such.
void EndpointFunction::ParkHeldWhere(absl::FunctionRef<bool(const Message&)> holds,
                                     ParkReason reason) {
  for (auto& [id, held] : held_) {
    const std::vector<Message>& messages = held.batch.messages;
    const auto pending = std::find_if(messages.begin(), messages.end(),
                                      [](const Message& message) { return message.pending; });
    if (pending != messages.end() && holds(*pending)) ParkHeld(id, held, reason);
  }
}

void EndpointFunction::ParkHeldOlderThan(Duration age, ParkReason reason) {
  const MonotonicTime now = ctx_->clock().Now();
  ParkHeldWhere([&](const Message& message) { return now - message.arrived >= age; }, reason);
}

Batch EndpointFunction::TakeHeld(const IdBytes& id) {
  inherited_.Remove(id);
  auto found = held_.extract(id);
  if (found.empty()) return {};
  return std::move(found.mapped().batch);
}

// No result has come: as after a crash, it may have reached its receiver, and is tried again as it
// was.
void EndpointFunction::EndInherited() {
  const MonotonicTime now = ctx_->clock().Now();
  for (const Operation& operation : inherited_.TakeLapsed(now)) {
    auto found = held_.extract(operation.id);
    if (found.empty()) continue;
    EndpointState& state = StateOf(operation.key);
    Held& held = found.mapped();
    const auto parked = ParkedBatch(state, operation.id);
    if (held.parked_due && parked != state.waiting.end() && *held.parked_due < parked->first) {
      const MonotonicTime due = std::max(*held.parked_due, now);
      Wait(state, due, TakeWaiting(state, parked));
    }
    Batch& batch = held.batch;
    if (!batch.messages.empty()) {
      if (!batch.recorded) batch.key = BatchKey(batch.messages);
      batch.tries = 1;
      batch.first_try = now;
      Wait(state, now, std::move(batch));
    }
    Schedule(state);
  }
  LookThroughLapsed();
  SetInheritedTimer();
}

void EndpointFunction::OnResult(TaskContext& ctx, const OperationResult& result) {
  const absl::StatusOr<FlightResult> flight = DecodeFlightResult(result.outcome);
  if (absl::IsUnimplemented(flight.status())) return ctx.Fail(flight.status());
  if (!flight.ok() || !subscriptions::DecodeDispatchKey(result.key)) {
    // Its messages are tried again.
    program_.metrics().undecodable.Increment();
    POSTRIDER_LOG(kError, "undecodable result", {"partition", ctx.partition().ToString()},
                  {"why", flight.status().message()});
    return;
  }
  SettleResult(result, *flight);
}

void EndpointFunction::SettleEarlyResults(const std::string& key) {
  const auto found = early_results_.extract(key);
  if (found.empty()) return;
  early_results_count_ -= found.mapped().size();
  for (const auto& [result, flight] : found.mapped()) SettleResult(result, flight);
}

void EndpointFunction::SettleAllEarlyResults() {
  while (!early_results_.empty()) SettleEarlyResults(std::string(early_results_.begin()->first));
}

// As if it were a result of ours, for what the predecessor had in flight: messages that were held,
// and the batch as it stands in the backlog.
void EndpointFunction::SettleResult(const OperationResult& result, const FlightResult& flight) {
  EndpointState& state = StateOf(result.key);
  Batch batch = TakeHeld(result.id);
  const auto parked = ParkedBatch(state, result.id);
  if (parked != state.waiting.end()) {
    Batch stored = TakeWaiting(state, parked);
    static_cast<void>(ReadMembers(state, stored));
    for (Message& message : batch.messages) stored.Add(std::move(message));
    std::sort(stored.messages.begin(), stored.messages.end(),
              [](const Message& a, const Message& b) { return a.order < b.order; });
    batch = std::move(stored);
  } else if (backlog_ != nullptr && flight.parked && !IsRestored(state) &&
             state.flag != Backlog::Flag::kNone && early_results_count_ < kEarlyResultsMax) {
    early_results_[result.key].emplace_back(result, flight);
    ++early_results_count_;
  }
  if (flight.outcome.verdict == Verdict::kDone && !flight.untried) {
    TakeNamed(state, result, flight, batch);
  }
  if (batch.messages.empty()) return Schedule(state);
  batch.key = result.id;
  batch.attempts = static_cast<int>(flight.attempts);
  batch.tries = std::max(static_cast<int>(flight.tries), 1);
  batch.first_try = ctx_->clock().Now() - Age(ctx_->clock().Wall(), flight.first_try);
  if (flight.untried) {
    batch.tries -= 1;
    PutBack(state, std::move(batch));
  } else {
    std::vector<size_t> failed;
    const absl::flat_hash_set<IdBytes> named(flight.failed.begin(), flight.failed.end());
    for (size_t i = 0; !named.empty() && i < batch.messages.size(); ++i) {
      if (named.contains(batch.messages[i].digest)) failed.push_back(i);
    }
    SettlePartly(state, std::move(batch), flight.outcome, failed);
    WriteHealth(state);
  }
  LookThroughLapsed();
  Schedule(state);
}

// Puts into `batch` what the result names and has got elsewhere meanwhile (unless it is in flight
// again): messages that could not be held, entries whose batch nobody knows.
void EndpointFunction::TakeNamed(EndpointState& state, const OperationResult& result,
                                 const FlightResult& flight, Batch& batch) {
  const absl::flat_hash_set<int64_t> offsets(result.offsets.begin(), result.offsets.end());
  absl::flat_hash_set<IdBytes> members(flight.parked_members.begin(), flight.parked_members.end());
  for (const Message& message : batch.messages) members.erase(message.digest);
  const auto take = [&](Batch& from) {
    const auto named = [&](const Message& message) {
      return (message.pending && offsets.contains(static_cast<int64_t>(message.order))) ||
             members.contains(message.digest);
    };
    const auto first = std::stable_partition(from.messages.begin(), from.messages.end(),
                                             [&](const Message& m) { return !named(m); });
    for (auto it = first; it != from.messages.end(); ++it) {
      members.erase(it->digest);
      from.bytes -= std::min<size_t>(from.bytes, it->body_bytes);
      batch.Add(std::move(*it));
    }
    from.messages.erase(first, from.messages.end());
  };
  take(state.open);
  if (state.open.messages.empty()) state.open_due = state.open_late = state.open_long = false;
  for (BatchLine* line : {&state.ready, &state.drained}) {
    for (Batch& queued : *line) take(queued);
    line->EraseIf([](const Batch& queued) { return queued.messages.empty(); });
  }
  for (auto it = state.waiting.begin(); it != state.waiting.end();) {
    const size_t before = it->second.messages.size();
    take(it->second);
    const size_t taken = before - it->second.messages.size();
    state.waiting_messages -= taken;
    program_.TakeWaiting(kWaitingMemberBytes * taken);
    if (taken == 0 || !it->second.messages.empty()) {
      ++it;
      continue;
    }
    if (it->second.recorded) backlog_->RemoveBatch(state.key, *it->second.key);
    program_.TakeWaiting(WaitingBytes(it->second));
    if (state.order != nullptr) state.order->Unblock(it->second);
    it = state.waiting.erase(it);
  }
  if (backlog_ == nullptr || state.flag == Backlog::Flag::kNone) return;
  // Those that are claimed now are in flight again, and have their own result.
  for (const IdBytes& member : members) {
    if (!state.claimed.contains(member)) RemoveEntry(state, member);
  }
}

}  // namespace postrider::delivery
