// Sending in order, for endpoints that ask for it (EndpointState::order). What is sent next is made
// of two lines that ascend by offset, what was gathered in memory and the entries of the backlog,
// read as one; messages of keys that stand still are stepped over.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/entry_reader.h"

namespace postrider::delivery {
namespace {

// Gathered messages that one turn steps over on its way to those that may go.
constexpr size_t kLookAheadMax = 2'000;
constexpr size_t kStepOverCost = 100;  // of each entry of the backlog: some 2 us
// Messages of batches whose keys one turn reads.
constexpr size_t kLearnMax = 1'000;
// In `ready` the cuts between batches mean nothing: what is sent is picked anew.
constexpr size_t kPieceMessages = 64;

constexpr uint64_t kAllOrders = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kPicked = kAllOrders;  // as a message's offset

bool Parked(const Message& message) { return !message.pending && message.content == nullptr; }

}  // namespace

// Picks one batch. Entries may be added between what it picks of the gathered messages.
class ReadyPicker {
 public:
  ReadyPicker(EndpointState& state, size_t messages_max, size_t bytes_max)
      : state_(state), messages_max_(messages_max), bytes_max_(bytes_max) {}

  size_t messages_max() const { return messages_max_; }
  size_t bytes_max() const { return bytes_max_; }
  // Nothing more may be picked: there is no place in the batch, or the next one is too far away.
  bool ended() const { return ended_; }
  bool Fits(const Message& message) const {
    return batch_.messages.empty() || (batch_.messages.size() < messages_max_ &&
                                       batch_.bytes + message.body_bytes <= bytes_max_);
  }
  // It fits, or else nothing more is picked.
  bool Add(Message&& message) {
    if (!Fits(message)) {
      ended_ = true;
      return false;
    }
    batch_.Add(std::move(message));
    ended_ = batch_.messages.size() >= messages_max_ || batch_.bytes >= bytes_max_;
    return true;
  }
  void End() { ended_ = true; }

  // Of the gathered messages, those below the offset `before` whose keys do not stand still.
  void PickBefore(uint64_t before) {
    for (; !ended_ && piece_ < state_.ready.size(); ++piece_, place_ = 0) {
      Batch& piece = state_.ready[piece_];
      for (; place_ < piece.messages.size(); ++place_) {
        Message& message = piece.messages[place_];
        if (message.order >= before) return;
        if (++looked_ > kLookAheadMax) return End();
        if (state_.order->IsBlocked(message.order_key)) continue;
        const size_t bytes = message.body_bytes;
        if (!Add(std::move(message))) return;
        message.order = kPicked;
        piece.bytes -= std::min(piece.bytes, bytes);
        picked_from_ = std::min(picked_from_, piece_);
        picked_to_ = std::max(picked_to_, piece_ + 1);
        if (ended_) return;
      }
    }
  }

  // What was picked leaves the line.
  Batch Finish() {
    for (size_t at = picked_to_; at-- > picked_from_ && at < state_.ready.size();) {
      std::vector<Message>& messages = state_.ready[at].messages;
      std::erase_if(messages, [](const Message& message) { return message.order == kPicked; });
      if (messages.empty()) state_.ready.erase(at);
    }
    return std::move(batch_);
  }

 private:
  EndpointState& state_;
  const size_t messages_max_;
  const size_t bytes_max_;
  Batch batch_;
  size_t piece_ = 0;
  size_t place_ = 0;
  size_t looked_ = 0;
  size_t picked_from_ = std::numeric_limits<size_t>::max();
  size_t picked_to_ = 0;
  bool ended_ = false;
};

void EndpointFunction::SetOrderKey(EndpointState& state, Message& message) {
  if (state.order != nullptr && message.content != nullptr) {
    message.order_key = state.order->KeyOf(*message.content);
  }
}

// Order begins, ends, or gets other keys. It counts for what is sent from now on; what was sent
// before stands still for all until it has ended or its keys are known.
void EndpointFunction::SetOrder(EndpointState& state,
                                const subscriptions::OrderSettings& settings) {
  const bool asked = settings.kind != subscriptions::OrderKind::kNone;
  if (!asked && state.order == nullptr) return;
  if (asked && state.order != nullptr && state.order->settings() == settings) return;
  std::vector<std::pair<MonotonicTime, Batch>> waiting;
  while (!state.waiting.empty()) {
    const MonotonicTime due = state.waiting.begin()->first;
    waiting.emplace_back(due, TakeWaiting(state, state.waiting.begin()));
  }
  state.order = asked ? std::make_unique<EndpointOrder>(settings) : nullptr;
  const auto set_keys = [&state](Batch& batch) {
    batch.order_keys.clear();
    for (Message& message : batch.messages) {
      message.order_key = EndpointOrder::kUnknownKey;
      SetOrderKey(state, message);
    }
  };
  for (auto& [id, flight] : state.flights) {
    set_keys(flight.batch);
    if (!asked) continue;
    state.order->SetKeys(flight.batch.messages);
    EndpointOrder::SetKeys(flight.batch);
    state.order->Block(flight.batch);
  }
  for (auto& [due, batch] : waiting) {
    set_keys(batch);
    Wait(state, due, std::move(batch));
  }
  set_keys(state.open);
  set_keys(state.arriving);
  state.drain_from = 0;
  // Of one that has no entries the backlog is known.
  state.drained_dry = asked && state.flag == Backlog::Flag::kNone;
  if (!asked) return;
  std::vector<Message> gathered;
  for (BatchLine* line : {&state.ready, &state.drained}) {
    for (Batch& batch : std::exchange(*line, {})) {
      set_keys(batch);
      if (batch.tries > 0 || batch.recorded) {
        PutBackInOrder(state, std::move(batch));
      } else {
        for (Message& message : batch.messages) gathered.push_back(std::move(message));
      }
    }
  }
  InsertReady(state, std::move(gathered));
}

// Entries may come before a new message: it goes behind them.
bool EndpointFunction::IsBehindBacklog(const EndpointState& state) const {
  return backlog_ != nullptr && state.flag != Backlog::Flag::kNone && !state.drained_dry &&
         IsRestored(state) && backlog_->size(state.key) > 0;
}

// As Spill(), of a message that has just arrived.
bool EndpointFunction::SpillArrived(EndpointState& state, const Message& message) {
  const uint64_t from = state.drain_from;
  const bool passes =
      state.order != nullptr && state.drained_dry && state.order->IsBlocked(message.order_key);
  if (!Spill(state, message.order, message.digest, message.content->encoded, ParkReason::kShare)) {
    return false;
  }
  NoteParked(state, message);
  if (passes) {
    // It stands still, and reading had come to the end: as if that had passed it too.
    state.order->Pass(message.order_key, message.order);
    state.drain_from = std::max(from, message.order + 1);
    state.drained_dry = true;
  }
  return true;
}

bool EndpointFunction::ReadsBacklog(const EndpointState& state) const {
  // What a predecessor has parked may stand behind records that come again and were not parked.
  return IsBehindBacklog(state) && !flushing_ && !state.awaits_room &&
         state.drain_from < next_read_;
}

// The first batch that is due and may be sent: nothing else has a key of its, or only batches that
// wait and begin behind it.
std::multimap<MonotonicTime, Batch>::const_iterator EndpointFunction::NextRetry(
    const EndpointState& state) const {
  const EndpointOrder& order = *state.order;
  const MonotonicTime now = ctx_->clock().Now();
  // A probe does not wait for the batch's own time.
  const bool any_time = state.absent || IsFailing(state);
  for (auto it = state.NextWaiting(); it != state.waiting.end() && (any_time || it->first <= now);
       ++it) {
    const Batch& batch = it->second;
    if (it->first > now && inherited_.Find(*batch.key) != nullptr) continue;
    if (state.awaits_room && RoomNeeded(batch) > 0) continue;
    if (!order.IsBlockedBeside(batch)) return it;
    if (order.EndingBlocks(batch)) continue;
    const bool behind =
        std::any_of(state.flights.begin(), state.flights.end(),
                    [&batch](const auto& flight) {
                      return EndpointOrder::Share(batch, flight.second.batch);
                    }) ||
        std::any_of(state.waiting.begin(), state.waiting.end(), [&](const auto& other) {
          return &other.second != &batch && other.second.first_order < batch.first_order &&
                 EndpointOrder::Share(batch, other.second);
        });
    if (!behind) return it;
  }
  return state.waiting.end();
}

// What Sendable() asks when the endpoint itself may send.
bool EndpointFunction::SendableInOrder(const EndpointState& state) const {
  const EndpointOrder& order = *state.order;
  if (state.flag != Backlog::Flag::kNone && !IsRestored(state)) return false;
  if (NextRetry(state) != state.waiting.end()) return true;
  if (order.unknown() > 0) {
    return std::any_of(state.waiting.begin(), state.waiting.end(),
                       [](const auto& waiting) { return waiting.second.order_keys.empty(); });
  }
  if (order.settings().kind == subscriptions::OrderKind::kEndpoint && order.AnyBlocked()) {
    return false;
  }
  if (!MayTakeFresh(state)) return false;
  if (ReadsBacklog(state)) return true;
  return OpenMayGo(state) || (!state.ready.empty() && !order.stalled());
}

// Keys that are free again: their entries, which were passed, come first.
void EndpointFunction::GoBack(EndpointState& state) {
  if (state.order == nullptr) return;
  const absl::optional<uint64_t> freed = state.order->TakeFreed();
  if (freed) {
    state.drain_from = std::min(state.drain_from, *freed);
    state.drained_dry = false;
  }
  if (IsBehindBacklog(state) && state.drain_from >= next_read_) {
    unread_.emplace(state.drain_from, state.key);
  }
}

absl::optional<Batch> EndpointFunction::TakeInOrder(EndpointState& state) {
  const auto retry = NextRetry(state);
  if (retry != state.waiting.end() && HasRoom(state, RoomNeeded(retry->second))) {
    return TakeWaiting(state, state.waiting.erase(retry, retry));
  }
  if (state.order->unknown() > 0) {
    LearnKeys(state);
    return absl::nullopt;
  }
  if (!MayTakeFresh(state)) return absl::nullopt;
  Batch batch = Compose(state);
  if (batch.messages.empty()) return absl::nullopt;
  return batch;
}

// Batches that a predecessor has left, or that were sent before order was asked for: until their
// keys are known all others wait.
void EndpointFunction::LearnKeys(EndpointState& state) {
  std::vector<std::multimap<MonotonicTime, Batch>::iterator> places;
  size_t messages = 0;
  for (auto it = state.waiting.begin(); it != state.waiting.end() && messages < kLearnMax; ++it) {
    if (!it->second.order_keys.empty()) continue;
    places.push_back(it);
    messages += it->second.size();
  }
  for (const auto& place : places) {
    const MonotonicTime due = place->first;
    Batch batch = TakeWaiting(state, place);
    if (!ReadMembers(state, batch) || !Load(state, batch)) continue;
    DropParkedContents(batch);
    Wait(state, due, std::move(batch));
  }
}

Batch EndpointFunction::Compose(EndpointState& state) {
  if (!state.open.messages.empty() && (OpenMayGo(state) || IsBehindBacklog(state))) {
    CloseOpen(state);
  }
  LeaveToBacklog(state);
  ReadyPicker picker(state, state.streaming ? 1 : static_cast<size_t>(state.events_max),
                     static_cast<size_t>(state.bytes_max));
  if (ReadsBacklog(state)) ReadInOrder(state, picker);
  if (!picker.ended()) picker.PickBefore(IsBehindBacklog(state) ? state.drain_from : kAllOrders);
  Batch batch = picker.Finish();
  state.order->set_stalled(batch.messages.empty());
  return batch;
}

// Goes on reading the backlog, as far as the batch has place.
void EndpointFunction::ReadInOrder(EndpointState& state, ReadyPicker& picker) {
  if (!HasRoomToDrain(state, picker.messages_max(), picker.bytes_max())) return;
  const absl::optional<absl::flat_hash_set<IdBytes>> left_out = LeftOut(state);
  if (!left_out) return;
  EntryReader reader(state, *left_out, program_.backlog_room(), std::move(state.granted),
                     ctx_->clock().Now());
  const auto read = [&](uint64_t order, const IdBytes& digest, absl::string_view encoded,
                        const ListState::Place& place) {
    picker.PickBefore(order);
    if (picker.ended()) return false;
    state.drain_from = order;
    if (order >= next_read_) return false;
    absl::optional<Message> message = reader.Read(order, digest, encoded, place);
    if (!message) return reader.goes_on();
    message->order_key = state.order->KeyOf(*message->content);
    if (state.order->IsBlocked(message->order_key)) {
      state.order->Pass(message->order_key, order);
      reader.StepOver(order);
      return reader.goes_on();
    }
    if (!picker.Fits(*message) || !reader.HasRoom(*message)) {
      picker.End();
      return false;
    }
    reader.Take(*message);
    static_cast<void>(picker.Add(*std::move(message)));
    return !picker.ended();
  };
  const bool at_end = backlog_->Scan(state.key, state.drain_from, read);
  if (!reader.fault().ok()) ctx_->Fail(reader.fault());
  for (const Backlog::Damaged& entry : reader.damaged()) RejectEntry(state, entry);
  if (at_end) state.drained_dry = true;
  state.order->AddCost(reader.stepped_over() * kStepOverCost);
  program_.metrics().drained.Add(static_cast<double>(reader.taken()));
}

// Gathered messages that are parked and not in memory are read with the other entries.
void EndpointFunction::LeaveToBacklog(EndpointState& state) {
  if (state.flag == Backlog::Flag::kNone) return;
  Batch left;
  for (Batch& piece : state.ready) {
    if (std::none_of(piece.messages.begin(), piece.messages.end(), Parked)) continue;
    std::vector<Message> kept;
    for (Message& message : piece.messages) {
      if (Parked(message)) {
        piece.bytes -= std::min<size_t>(piece.bytes, message.body_bytes);
        left.Add(std::move(message));
      } else {
        kept.push_back(std::move(message));
      }
    }
    piece.messages = std::move(kept);
  }
  if (left.messages.empty()) return;
  state.ready.EraseIf([](const Batch& piece) { return piece.messages.empty(); });
  Undrain(state, left);
}

// They stand where their offsets say.
void EndpointFunction::InsertReady(EndpointState& state, std::vector<Message> messages) {
  if (messages.empty()) return;
  for (Batch& piece : std::exchange(state.ready, {})) {
    for (Message& message : piece.messages) messages.push_back(std::move(message));
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return a.order < b.order; });
  const size_t piece_max = state.streaming ? 1 : kPieceMessages;
  for (Message& message : messages) {
    if (state.ready.empty() || state.ready.back().messages.size() >= piece_max) {
      state.ready.emplace_back();
    }
    state.ready.back().Add(std::move(message));
  }
  state.order->set_stalled(false);
}

void EndpointFunction::PutBackInOrder(EndpointState& state, Batch batch) {
  if (batch.tries > 0 || batch.recorded) {
    return Wait(state, ctx_->clock().Now(), std::move(batch));
  }
  Batch parked;
  std::vector<Message> gathered;
  for (Message& message : batch.messages) {
    if (message.pending) {
      gathered.push_back(std::move(message));
    } else {
      parked.Add(std::move(message));
    }
  }
  Undrain(state, parked);
  InsertReady(state, std::move(gathered));
}

// Records have been read up to the entries of these.
void EndpointFunction::WakeUnread() {
  while (!unread_.empty() && unread_.begin()->first < next_read_) {
    const std::string key = unread_.begin()->second;
    unread_.erase(unread_.begin());
    EndpointState* state = endpoints_.Get(key);
    if (state != nullptr) Schedule(*state);
  }
}

}  // namespace postrider::delivery
