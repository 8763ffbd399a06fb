// Between memory and the durable backlog.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/stream/rejected_record.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"
#include "delivery/entry_reader.h"

namespace postrider::delivery {
namespace {

// What is read back at once for a streaming endpoint.
constexpr size_t kDrainMessages = 64;
constexpr size_t kDrainBytes = 256 << 10;
// An answer may come in so long after its deadline.
constexpr std::chrono::seconds kAnswerMargin{1};
// Endpoints and batches of a restored backlog that one turn looks at.
constexpr size_t kRebuildEndpointsMax = 200;
constexpr size_t kRebuildBatchesMax = 200;

uint8_t Bit(ParkReason reason) { return static_cast<uint8_t>(1 << static_cast<int>(reason)); }

bool AnyPending(const Batch& batch) {
  return std::any_of(batch.messages.begin(), batch.messages.end(),
                     [](const Message& message) { return message.pending; });
}
bool AnyListed(const Batch& batch) {
  return std::any_of(batch.messages.begin(), batch.messages.end(),
                     [](const Message& message) { return message.listed; });
}

}  // namespace

void EndpointFunction::Want(EndpointState& state, ParkReason reason) {
  state.park_wanted = static_cast<uint8_t>(state.park_wanted | Bit(reason));
  park_again_.insert(state.key);
}

// False: it stays pending; to be tried again when its endpoint may have entries, or there is room.
bool EndpointFunction::Park(EndpointState& state, Message& message, ParkReason reason) {
  if (!message.pending) return true;
  if (backlog_ == nullptr) return false;
  if (!backlog_->EnsureFlag(state.key, state.flag) ||
      !backlog_->Push(state.key, message.order, message.digest, message.content->encoded)) {
    Want(state, reason);
    return false;
  }
  // The record is completed when the write is durable.
  state.pending_bytes -= message.bytes;
  state.claimed.insert(message.digest);
  message.pending = false;
  message.listed = true;
  program_.metrics().CountParked(reason).Increment();
  NoteParked(state, message);
  return true;
}

bool EndpointFunction::ParkBatch(EndpointState& state, Batch& batch, ParkReason reason,
                                 MonotonicTime due) {
  if (backlog_ == nullptr) return false;
  const bool parked = std::all_of(batch.messages.begin(), batch.messages.end(),
                                  [&](Message& message) { return Park(state, message, reason); });
  const bool recorded = batch.tries == 0 || !AnyListed(batch) || Record(state, batch, due);
  return parked && recorded;
}

// Makes durable what a batch that may have reached its receiver consists of, and its attempts.
bool EndpointFunction::Record(EndpointState& state, Batch& batch, MonotonicTime due) {
  if (!batch.recorded) {
    // What of it pends would come again behind the rest.
    if (state.order != nullptr && AnyPending(batch)) return false;
    std::vector<BatchMember> members;
    members.reserve(batch.messages.size());
    for (const Message& message : batch.messages) {
      members.push_back(BatchMember{message.order, message.digest, message.bytes});
    }
    if (!backlog_->PutBatch(state.key, *batch.key, members)) {
      Want(state, ParkReason::kFailed);
      return false;
    }
    batch.recorded = true;
  }
  const MonotonicTime now = ctx_->clock().Now();
  const WallTime wall = ctx_->clock().Wall();
  const auto millis = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
  };
  BatchAttempts attempts;
  attempts.attempts = static_cast<uint32_t>(batch.attempts);
  attempts.tries = static_cast<uint32_t>(batch.tries);
  attempts.first_try = wall - millis(now - batch.first_try);
  attempts.due = wall + millis(std::max(due - now, Duration::zero()));
  attempts.last_outcome = static_cast<uint32_t>(batch.last.kind);
  attempts.last_status = batch.last.status;
  attempts.set_at = wall;
  backlog_->PutAttempts(state.key, *batch.key, attempts);
  return true;
}

MonotonicTime EndpointFunction::FlightDeadline(const Flight& flight) const {
  return flight.on_wire.value_or(ctx_->clock().Now()) + flight.timeout + kAnswerMargin;
}

// What was never tried goes to the backlog as it is: it is gathered anew when it is read back.
bool EndpointFunction::ParkReady(EndpointState& state, ParkReason reason) {
  bool parked = true;
  BatchLine kept;
  for (Batch& batch : std::exchange(state.ready, {})) {
    if (!parked || batch.recorded) {
      kept.push_back(std::move(batch));
      continue;
    }
    Batch rest;
    for (Message& message : batch.messages) {
      if (parked && message.pending) {
        parked = Spill(state, message.order, message.digest, message.content->encoded, reason);
        if (parked) {
          state.pending_bytes -= message.bytes;
          NoteParked(state, message);
          continue;
        }
      }
      rest.Add(std::move(message));
    }
    if (!rest.messages.empty()) kept.push_back(std::move(rest));
  }
  state.ready = std::move(kept);
  if (!parked) Want(state, reason);
  return parked;
}

bool EndpointFunction::ParkOpen(EndpointState& state, ParkReason reason) {
  bool parked = true;
  for (Message& message : state.open.messages) {
    parked = Park(state, message, reason);
    if (!parked) break;
    message.content.reset();
  }
  return parked;
}

bool EndpointFunction::ParkWaiting(EndpointState& state, ParkReason reason) {
  bool parked = true;
  for (auto& [due, batch] : state.waiting) {
    if (batch.recorded && !AnyPending(batch)) continue;
    parked = ParkBatch(state, batch, reason, due);
    DropParkedContents(batch);
    if (!parked) break;
  }
  return parked;
}

// Everything of the endpoint that pends, where it stands: what is in flight is not sent again
// before its result is in, an open batch keeps its members.
void EndpointFunction::ParkAll(EndpointState& state, ParkReason reason) {
  if (backlog_ == nullptr) return;
  if (reason == ParkReason::kStopped) LetGo(state);
  if (state.pending_bytes == 0) return;
  bool parked = true;
  for (auto& [id, flight] : state.flights) {
    if (!parked || !AnyPending(flight.batch)) continue;
    // From now on its request counts as the backlog's. Without room for that it pends until its
    // answer is in, which is soon.
    size_t bytes = 0;
    for (const Message& message : flight.batch.messages) {
      if (message.pending) bytes += RoomOf(message);
    }
    if (program_.draining()) {
      flight.room.Merge(program_.backlog_room().TakeAnyway(state.room, bytes));
    } else if (!program_.backlog_room().Take(state.room, bytes, flight.room)) {
      continue;
    }
    parked = ParkBatch(state, flight.batch, reason, FlightDeadline(flight));
    flight.KeepTenants();
    DropParkedContents(flight.batch);
  }
  parked =
      parked && ParkWaiting(state, reason) && ParkReady(state, reason) && ParkOpen(state, reason);
  if (!parked) Want(state, reason);
  Schedule(state);
}

// What was refused before.
void EndpointFunction::ParkAgain(EndpointState& state) {
  const uint8_t wanted = std::exchange(state.park_wanted, uint8_t{0});
  for (const ParkReason reason : {ParkReason::kRescale, ParkReason::kAge, ParkReason::kHoles,
                                  ParkReason::kPressure, ParkReason::kStopped}) {
    if ((wanted & Bit(reason)) != 0) return ParkAll(state, reason);
  }
  if ((wanted & Bit(ParkReason::kFailed)) != 0) {
    static_cast<void>(ParkWaiting(state, ParkReason::kFailed));
  }
  if ((wanted & Bit(ParkReason::kLongWait)) != 0 && state.open_long) {
    static_cast<void>(ParkOpen(state, ParkReason::kLongWait));
  }
}

void EndpointFunction::OnFlagged(const std::string& key) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  state->flag = Backlog::Flag::kSet;
  park_again_.erase(key);
  ParkAgain(*state);
}

// The entry stays claimed until its removal is made, so that it is not drained meanwhile.
void EndpointFunction::RemoveEntry(EndpointState& state, const IdBytes& digest,
                                   const absl::optional<ListState::Place>& place) {
  const auto claim = state.claimed.find(digest);
  const bool claimed = claim != state.claimed.end();
  // Without a claim it may have been removed already.
  const bool removed =
      claimed ? backlog_->Remove(state.key, digest, place) : backlog_->Remove(state.key, digest);
  if (removed && claimed) state.claimed.erase(claim);
  if (!removed && !claimed) state.claimed.insert(digest);
}

void EndpointFunction::OnRemoved(const std::string& key, const IdBytes& digest) {
  EndpointState* state = endpoints_.Get(key);
  if (state == nullptr) return;
  state->claimed.erase(digest);
  ClearFlagWhenEmpty(*state);
}

// Whether a new message goes to the backlog at once: its endpoint holds its share already, may not
// be sent to, or fails and has others that come first.
bool EndpointFunction::Spills(const EndpointState& state, const Message& message) const {
  if (backlog_ == nullptr) return false;
  if (program_.draining() || Stopped(state)) return true;
  if (state.order != nullptr) {
    if (IsBehindBacklog(state)) return true;
    if (!state.waiting.empty() && state.order->IsBlocked(message.order_key)) return true;
  }
  const size_t share =
      std::max(program_.options().endpoint_share_bytes, static_cast<size_t>(state.bytes_max));
  if (state.pending_bytes + message.bytes > share) return true;
  return IsFailing(state) && (!state.waiting.empty() || HasListed(state));
}

bool EndpointFunction::Spill(EndpointState& state, uint64_t order, const IdBytes& digest,
                             absl::string_view encoded, ParkReason reason) {
  if (!backlog_->EnsureFlag(state.key, state.flag) ||
      !backlog_->Push(state.key, order, digest, encoded)) {
    return false;
  }
  state.last_used = ctx_->clock().Now();
  state.drain_from = std::min(state.drain_from, order);
  state.drained_dry = false;
  program_.metrics().CountParked(reason).Increment();
  return true;
}

// None when nothing pends.
const Message* EndpointFunction::OldestPending(const EndpointState& state) const {
  const Message* oldest = nullptr;
  const auto look = [&oldest](const Batch& batch) {
    const auto pending = std::find_if(batch.messages.begin(), batch.messages.end(),
                                      [](const Message& message) { return message.pending; });
    if (pending == batch.messages.end()) return false;
    if (oldest == nullptr ||
        std::tie(pending->arrived, pending->order) < std::tie(oldest->arrived, oldest->order)) {
      oldest = &*pending;
    }
    return true;
  };
  look(state.open);
  // The first batch that has any is the oldest of its line.
  static_cast<void>(std::any_of(state.ready.begin(), state.ready.end(), look));
  for (const auto& [id, flight] : state.flights) look(flight.batch);
  for (const auto& [due, batch] : state.waiting) look(batch);
  return oldest;
}

// Whether the second's look at an endpoint can be left out. One that has nothing and is well is
// looked at now and then only: with 10,000 of them the looks are most of what an idle worker does.
bool EndpointFunction::Rests(EndpointState& state, MonotonicTime now) {
  constexpr std::chrono::seconds kRest{8};
  constexpr std::chrono::minutes kUnused{1};
  if (now < state.rests_until && state.last_used == state.rests_since_use) return true;
  if (now - state.last_used < kUnused || !state.idle() || state.flag != Backlog::Flag::kNone ||
      state.health.state() != HealthState::kHealthy) {
    return false;
  }
  // The look that follows is the last one for a while.
  state.rests_until = now + kRest;
  state.rests_since_use = state.last_used;
  return false;
}

void EndpointFunction::ParkOld() {
  const MonotonicTime now = ctx_->clock().Now();
  levels_ = program_.common().backlog_levels.levels();
  BacklogLevels::Sizes sizes;
  uint64_t bytes_to_go = 0;
  endpoints_.ForEach([&](absl::string_view, EndpointState& state) {
    if (Rests(state, now)) return;
    LookAtBounds(state);
    TellStatus(state);
    Tell(state);
    TellParts(state);
    // Those of deleted endpoints go as they are.
    const uint64_t bytes = backlog_->bytes(state.key);
    if (bytes > 0 && !state.absent) sizes[state.customer].push_back(bytes);
    if (state.absent) bytes_to_go += bytes;
    if (state.pending_bytes == 0) return;
    if (program_.draining()) return ParkAll(state, ParkReason::kRescale);
    const Message* const oldest = OldestPending(state);
    if (oldest != nullptr && now - oldest->arrived >= program_.options().park_after) {
      ParkAll(state, ParkReason::kAge);
    }
  });
  TellSizes(std::move(sizes), bytes_to_go);
  ParkHeldOlderThan(program_.draining() ? Duration::zero() : program_.options().park_after,
                    program_.draining() ? ParkReason::kRescale : ParkReason::kAge);
  if (sweeping_) ctx_->SetTimer(kFunctionKey, kAgeTimer, now + kAgeInterval);
}

// What does not move makes room for what does: endpoints that fail, and messages that have pended
// for a while. Lag that has other reasons stays in the log.
void EndpointFunction::OnPressure(TaskContext&) {
  const MonotonicTime now = ctx_->clock().Now();
  endpoints_.ForEach([&](absl::string_view, EndpointState& state) {
    if (state.pending_bytes == 0) return;
    const Message* const oldest = OldestPending(state);
    if (state.health.breaker().failures_in_a_row() > 0 ||
        (oldest != nullptr &&
         now - oldest->arrived >= program_.options().park_after_under_pressure)) {
      ParkAll(state, ParkReason::kPressure);
    }
  });
  ParkHeldOlderThan(program_.options().park_after_under_pressure, ParkReason::kPressure);
}

void EndpointFunction::OnHoles(TaskContext&, int64_t below) {
  const auto holds = [below](const Message& message) {
    return static_cast<int64_t>(message.order) < below;
  };
  endpoints_.ForEach([&](absl::string_view, EndpointState& state) {
    if (state.pending_bytes == 0) return;
    const Message* const oldest = OldestPending(state);
    if (oldest != nullptr && holds(*oldest)) ParkAll(state, ParkReason::kHoles);
  });
  ParkHeldWhere(holds, ParkReason::kHoles);
}

bool EndpointFunction::IsRestored(const EndpointState& state) const {
  return backlog_->restored() && !rebuilding_.contains(state.key);
}

bool EndpointFunction::HasListed(const EndpointState& state) const {
  return backlog_ != nullptr && state.flag != Backlog::Flag::kNone && !state.drained_dry &&
         IsRestored(state) &&
         backlog_->size(state.key) > state.claimed.size() + state.members_left_out;
}

// Room for a batch of usual entries, as far as one endpoint may have it.
bool EndpointFunction::HasRoomToDrain(EndpointState& state, size_t messages_max, size_t bytes_max) {
  const size_t usual = backlog_->bytes(state.key) / backlog_->size(state.key) + 1;
  const size_t likely = std::min(messages_max, bytes_max / usual + 1) + 1;
  const size_t one = usual + kMessageOverheadBytes;
  const size_t share = program_.backlog_room().share();
  const size_t left = share - std::min(share, state.room.bytes - state.granted.bytes());
  return HasRoom(state, std::max(one, std::min(likely * one / 4 * 5, left)));
}

// The members of batches that wait without them. No value: the state has failed.
absl::optional<absl::flat_hash_set<IdBytes>> EndpointFunction::LeftOut(const EndpointState& state) {
  absl::flat_hash_set<IdBytes> left_out;
  if (state.members_left_out == 0) return left_out;
  for (const auto& [due, batch] : state.waiting) {
    if (batch.members_left_out == 0) continue;
    const auto members = backlog_->Members(state.key, *batch.key);
    if (!members) return absl::nullopt;
    for (const BatchMember& member : *members) left_out.insert(member.digest);
  }
  return left_out;
}

// Reads entries that are not in memory into `drained`: a batch, or some messages of a streaming
// endpoint. A batch that is not full and has not waited its time joins the open one instead.
void EndpointFunction::DrainBacklog(EndpointState& state) {
  const uint64_t from = state.drain_from;
  std::vector<Message> found;
  size_t bytes = 0;
  bool full = false;
  const size_t messages_max =
      state.streaming ? kDrainMessages : static_cast<size_t>(state.events_max);
  const size_t bytes_max = state.streaming ? kDrainBytes : static_cast<size_t>(state.bytes_max);

  if (!HasRoomToDrain(state, messages_max, bytes_max)) return;
  const absl::optional<absl::flat_hash_set<IdBytes>> left_out = LeftOut(state);
  if (!left_out) return;
  EntryReader reader(state, *left_out, program_.backlog_room(), std::move(state.granted),
                     ctx_->clock().Now());
  const auto read = [&](uint64_t order, const IdBytes& digest, absl::string_view encoded,
                        const ListState::Place& place) {
    absl::optional<Message> message = reader.Read(order, digest, encoded, place);
    if (!message) return reader.goes_on();
    full = !reader.HasRoom(*message) || (!found.empty() && bytes + message->body_bytes > bytes_max);
    if (full) return false;
    reader.Take(*message);
    bytes += message->body_bytes;
    found.push_back(*std::move(message));
    full = found.size() >= messages_max || bytes >= bytes_max;
    return !full;
  };
  const bool at_end = backlog_->Scan(state.key, from, read);
  if (!reader.fault().ok()) return ctx_->Fail(reader.fault());
  for (const Backlog::Damaged& entry : reader.damaged()) RejectEntry(state, entry);
  if (found.empty()) {
    // Once from the very beginning: what is there is claimed, or it is not there.
    if (at_end) {
      state.drained_dry = from == 0;
      state.drain_from = 0;
    }
    return;
  }
  program_.metrics().drained.Add(static_cast<double>(found.size()));
  const bool may_wait = !state.streaming && !full && !flushing_ &&
                        Age(ctx_->clock().Wall(), found.front().dispatch_time) < state.wait_max;
  if (state.streaming || may_wait) {
    for (Message& message : found) Add(state, std::move(message));
    return;
  }
  Batch batch;
  for (Message& message : found) batch.Add(std::move(message));
  state.drained.push_back(std::move(batch));
}

// An entry that was never written by us: kept for inspection, as such records are.
void EndpointFunction::RejectEntry(EndpointState& state, const Backlog::Damaged& entry) {
  program_.metrics().undecodable.Increment();
  POSTRIDER_LOG(kError, "undecodable backlog entry", {"partition", ctx_->partition().ToString()},
                {"offset", entry.order});
  state.claimed.insert(entry.digest);
  Rejection rejection;
  rejection.reason = "undecodable_backlog_entry";
  rejection.source = ctx_->partition();
  rejection.offset = static_cast<int64_t>(entry.order);
  rejection.rejected_at = ctx_->clock().Wall();
  rejection.key = state.key;
  rejection.value = entry.encoded;
  Output output;
  output.record =
      MakeRejectedRecord(RejectedTopicName(program_.options().topic_prefix), std::move(rejection));
  output.ending.endpoint = {state.id, state.share.part()};
  output.ending.order = entry.order;
  output.ending.digest = entry.digest;
  output.ending.listed = true;
  Emit(std::move(output));
}

// They are read back again when they may be sent.
void EndpointFunction::Undrain(EndpointState& state, const Batch& batch) {
  for (const Message& message : batch.messages) {
    state.claimed.erase(message.digest);
    state.drain_from = std::min(state.drain_from, message.order);
  }
  state.drained_dry = false;
}

// Nothing can be sent for a while: what was read back leaves memory.
void EndpointFunction::LetGo(EndpointState& state) {
  if (state.room.bytes == 0) return;
  for (Batch& batch : std::exchange(state.drained, {})) {
    DropParkedContents(batch);
    if (!batch.recorded && !AnyPending(batch)) {
      Undrain(state, batch);
    } else {
      state.drained.push_back(std::move(batch));
    }
  }
  for (Batch& batch : state.ready) DropParkedContents(batch);
  DropParkedContents(state.open);
}

// Beyond what all batches that wait may take, a batch waits without its members.
void EndpointFunction::LeaveOutMembers(EndpointState& state, Batch& batch) {
  if (!batch.recorded || AnyPending(batch) || program_.WaitingFits(WaitingBytes(batch))) return;
  batch.room_left_out = RoomToLoad(batch);
  batch.members_left_out = batch.size();
  for (const Message& message : batch.messages) state.claimed.erase(message.digest);
  std::vector<Message>().swap(batch.messages);
}

void EndpointFunction::AddMembers(EndpointState& state, const std::vector<BatchMember>& members,
                                  Batch& batch) {
  for (const BatchMember& member : members) {
    // One that is live was read again and goes its own way.
    if (!state.claimed.insert(member.digest).second) continue;
    Message message;
    message.order = member.order;
    message.digest = member.digest;
    message.bytes = member.bytes;
    message.arrived = ctx_->clock().Now();
    message.listed = true;
    batch.Add(std::move(message));
  }
}

// False: nothing is left of the batch, or the state has failed.
bool EndpointFunction::ReadMembers(EndpointState& state, Batch& batch) {
  if (batch.members_left_out == 0) return true;
  const absl::optional<std::vector<BatchMember>> members = backlog_->Members(state.key, *batch.key);
  if (!members) {
    Wait(state, ctx_->clock().Now() + std::chrono::seconds(1), std::move(batch));
    return false;
  }
  batch.members_left_out = batch.room_left_out = 0;
  AddMembers(state, *members, batch);
  if (!batch.messages.empty()) return true;
  backlog_->RemoveBatch(state.key, *batch.key);
  ClearFlagWhenEmpty(state);
  return false;
}

// Of what was asked for, else in excess.
BacklogRoom::Hold EndpointFunction::TakeRoom(EndpointState& state, size_t bytes) {
  BacklogRoom::Hold room = state.granted.Split(bytes);
  if (room.bytes() < bytes) {
    room.Merge(program_.backlog_room().TakeAnyway(state.room, bytes - room.bytes()));
  }
  return room;
}

// Reads back what was parked. False: nothing is left of the batch, or the state has failed.
bool EndpointFunction::Load(EndpointState& state, Batch& batch) {
  std::vector<IdBytes> absent;
  for (const Message& message : batch.messages) {
    if (message.content == nullptr) absent.push_back(message.digest);
  }
  if (absent.empty()) return !batch.messages.empty();
  std::vector<Backlog::Damaged> damaged;
  const absl::optional<size_t> missing = backlog_->Load(state.key, batch.messages, damaged);
  if (!missing) {
    Wait(state, ctx_->clock().Now() + std::chrono::seconds(1), std::move(batch));
    return false;
  }
  program_.metrics().drained.Add(static_cast<double>(absent.size() - *missing));
  for (Message& message : batch.messages) {
    if (state.order != nullptr) SetOrderKey(state, message);
    BacklogRoom::Hold& room = message.content->room;
    if (!message.pending && room.bytes() == 0) room = TakeRoom(state, RoomOf(message));
  }
  for (const Backlog::Damaged& entry : damaged) RejectEntry(state, entry);
  if (*missing > damaged.size()) {
    // They have ended elsewhere, or stand at another place than they did: then they are drained.
    absl::flat_hash_set<IdBytes> there;
    for (const Message& message : batch.messages) there.insert(message.digest);
    for (const Backlog::Damaged& entry : damaged) there.insert(entry.digest);
    for (const IdBytes& digest : absent) {
      if (!there.contains(digest)) state.claimed.erase(digest);
    }
    state.drain_from = 0;
    state.drained_dry = false;
  }
  if (!batch.messages.empty()) return true;
  if (batch.recorded) backlog_->RemoveBatch(state.key, *batch.key);
  ClearFlagWhenEmpty(state);
  return false;
}

void EndpointFunction::ClearFlagWhenEmpty(EndpointState& state) {
  if (backlog_ == nullptr || !backlog_->restored() || state.flag != Backlog::Flag::kSet) return;
  backlog_->ClearFlagWhenEmpty(state.key, [this, key = state.key] {
    EndpointState* now = endpoints_.Get(key);
    if (now == nullptr) return true;
    return std::exchange(now->flag, Backlog::Flag::kNone) == Backlog::Flag::kSet;
  });
}

// Messages that were read while nobody could say whether they are entries: those that are, are as
// good as parked.
size_t EndpointFunction::ResolveListed(EndpointState& state, std::vector<Message>& messages) {
  size_t bytes = 0;
  for (Message& message : messages) {
    if (!message.pending || !message.listed) continue;
    message.listed = backlog_->Has(state.key, message.order, message.digest);
    if (!message.listed) continue;
    bytes += RoomOf(message);
    message.pending = false;
    message.content.reset();
    state.pending_bytes -= message.bytes;
    state.claimed.insert(message.digest);
    ctx_->Complete(static_cast<int64_t>(message.order));
  }
  return bytes;
}

void EndpointFunction::ResolveAll(EndpointState& state) {
  ResolveListed(state, state.open.messages);
  ResolveListed(state, state.arriving.messages);
  for (Batch& batch : state.ready) ResolveListed(state, batch.messages);
  for (auto& [due, batch] : state.waiting) {
    if (ResolveListed(state, batch.messages) > 0) static_cast<void>(Record(state, batch, due));
  }
  for (auto& [id, flight] : state.flights) {
    flight.KeepTenants();
    const size_t bytes = ResolveListed(state, flight.batch.messages);
    if (bytes == 0) continue;
    flight.room.Merge(program_.backlog_room().TakeAnyway(state.room, bytes));
    static_cast<void>(Record(state, flight.batch, FlightDeadline(flight)));
  }
}

// All that predecessors had parked is known: what is in memory of it is settled now, and the
// batches that wait are read turn by turn.
void EndpointFunction::OnRestored(TaskContext&, size_t index) {
  if (backlog_ == nullptr) return;
  backlog_->OnRestored(index);
  if (index != kBacklogChangelog) return;
  LookAtErasures();
  for (auto& [id, held] : held_) {
    EndpointState* state = endpoints_.Get(inherited_.Find(id)->key);
    if (state != nullptr) ResolveListed(*state, held.batch.messages);
  }
  endpoints_.ForEach([this](absl::string_view key, EndpointState& state) {
    if (state.flag == Backlog::Flag::kNone) return;
    ResolveAll(state);
    if (backlog_->size(key) == 0) ClearFlagWhenEmpty(state);
  });
  for (std::string& key : backlog_->Keys()) {
    rebuilding_.insert(key);
    rebuild_.push_back(std::move(key));
  }
  Rebuild();
}

// Until its batches are known nothing of an endpoint is drained.
void EndpointFunction::Rebuild() {
  size_t endpoints_left = kRebuildEndpointsMax;
  size_t batches_left = kRebuildBatchesMax;
  while (!rebuild_.empty() && endpoints_left > 0 && batches_left > 0) {
    EndpointState& state = StateOf(rebuild_.front());
    --endpoints_left;
    const size_t before = state.waiting.size();
    const bool ended = RestoreBatches(state, rebuild_from_, batches_left);
    batches_left -= std::min(batches_left, state.waiting.size() - before);
    if (!ended) break;
    static_cast<void>(backlog_->EnsureFlag(state.key, state.flag));
    state.drain_from = 0;
    state.drained_dry = false;
    rebuilding_.erase(rebuild_.front());
    rebuild_.pop_front();
    // Nothing of which the result is here is sent again.
    SettleEarlyResults(state.key);
    Schedule(state);
  }
  if (!rebuild_.empty()) {
    ctx_->SetTimer(kFunctionKey, kRebuildTimer, ctx_->clock().Now());
  } else {
    SetBacklogKnown();
    SettleAllEarlyResults();
    RemoveOrphans();
  }
}

void EndpointFunction::SetBacklogKnown() {
  if (backlog_ == nullptr || std::exchange(backlog_known_, true)) return;
  --program_.common().backlogs_unknown;
}

// Batches that a predecessor had tried wait for their next try; no message of theirs is drained
// beside. Those from `from` on; false: there are more, from the new `from` on.
bool EndpointFunction::RestoreBatches(EndpointState& state, std::string& from, size_t batches_max) {
  absl::flat_hash_set<IdBytes> known;
  const auto know = [&known](const Batch& batch) {
    if (batch.recorded) known.insert(*batch.key);
  };
  for (const auto& [due, batch] : state.waiting) know(batch);
  for (const auto& [id, flight] : state.flights) know(flight.batch);
  for (const Batch& batch : state.ready) know(batch);
  for (const Batch& batch : state.drained) know(batch);

  const MonotonicTime now = ctx_->clock().Now();
  const WallTime wall = ctx_->clock().Wall();
  for (const Backlog::StoredBatch& stored : backlog_->Batches(state.key, from, batches_max)) {
    if (known.contains(stored.key)) continue;
    Batch batch;
    AddMembers(state, stored.members, batch);
    if (batch.messages.empty()) {
      backlog_->RemoveBatch(state.key, stored.key);
      continue;
    }
    const BatchAttempts attempts =
        stored.attempts.value_or(BatchAttempts{0, 1, wall, wall, 0, 0, {}});
    batch.key = stored.key;
    batch.recorded = true;
    batch.attempts = static_cast<int>(attempts.attempts);
    batch.tries = std::max(static_cast<int>(attempts.tries), 1);
    batch.first_try = now - Age(wall, attempts.first_try);
    batch.last.kind = static_cast<OutcomeKind>(attempts.last_outcome);
    batch.last.status = attempts.last_status;
    MonotonicTime due = now + LeftUntilDue(attempts, wall);
    if (inherited_.Find(stored.key) != nullptr) {
      held_[stored.key].parked_due = due;
      due = std::max(due, inherited_.LastWaitOf(stored.key));
    }
    Wait(state, due, std::move(batch));
  }
  return from.empty();
}

}  // namespace postrider::delivery
