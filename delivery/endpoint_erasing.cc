// What waits and is to be forgotten: each backlog is looked through once per wish, in turns. What
// is in flight meets it again when it comes back, what is in memory to be sent meets Admit() too.

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"

namespace postrider::delivery {
namespace {

// What one turn looks at, reads and gives up, so that others have theirs.
constexpr size_t kEndpointsMax = 100;
constexpr size_t kEntriesMax = 2'000;
constexpr size_t kBytesMax = 1 << 20;
constexpr size_t kErasedMax = 500;

}  // namespace

// What is left of a turn.
struct EndpointFunction::EraseTurn {
  size_t entries = kEntriesMax;
  size_t bytes = kBytesMax;
  size_t erased = kErasedMax;

  bool ended() const { return entries == 0 || bytes == 0 || erased == 0; }
  void Take(size_t entry_bytes) {
    --entries;
    bytes -= std::min(bytes, entry_bytes);
  }
};

// With a new snapshot, and when all that predecessors had parked is known.
void EndpointFunction::LookAtErasures() {
  if (backlog_ == nullptr || !backlog_->restored() || program_.snapshot() == nullptr) return;
  const std::shared_ptr<const subscriptions::Erasures> before =
      std::exchange(erasures_, program_.snapshot()->erasures());
  if (before == erasures_) return;
  forget_until_ = WallTime::min();
  for (const subscriptions::Erasure& wish : erasures_->all()) {
    forget_until_ = std::max(forget_until_, wish.requested_at);
  }
  if (!subscriptions::AnyWishIsNew(before.get(), *erasures_)) return;
  for (const std::string& key : backlog_->Keys()) LookThrough(key, 0);
}

void EndpointFunction::LookThrough(const std::string& key, uint64_t from) {
  if (erase_line_.empty()) {
    ctx_->SetTimer(kFunctionKey, kEraseTimer, program_.NextEraseTurn(ctx_->clock().Now()));
  }
  erase_line_.Join(key, from);
}

// A message becomes an entry, or one again, perhaps behind the place that was looked at last.
void EndpointFunction::NoteParked(const EndpointState& state, const Message& message) {
  if (message.dispatch_time > forget_until_) return;
  if (IsToBeForgotten(message.content->record)) LookThrough(state.key, message.order);
}

// The answer to a request that was made before the last wishes were known: its messages may wait
// again.
void EndpointFunction::NoteCameBack(const EndpointState& state, const Batch& batch,
                                    const subscriptions::Erasures* known) {
  if (erasures_ == nullptr || known == erasures_.get() || erasures_->empty()) return;
  if (!batch.messages.empty() && backlog_->size(state.key) > 0) {
    LookThrough(state.key, batch.messages.front().order);
  }
}

// Nothing can be in flight at a predecessor any more.
void EndpointFunction::LookThroughLapsed() {
  if (!inherited_.empty()) return;
  for (const std::string& key : std::exchange(erase_when_lapsed_, {})) LookThrough(key, 0);
}

bool EndpointFunction::IsToBeForgotten(const subscriptions::DispatchRecordView& record) const {
  return program_.snapshot() != nullptr &&
         program_.snapshot()->erasures()->Cover(record.customer, record.tenant, record.event_id,
                                                record.dispatch_time);
}

void EndpointFunction::EraseSome() {
  EraseTurn turn;
  // While their reports find no room there is none for more.
  for (size_t i = 0; i < kEndpointsMax && !turn.ended() && outputs_.empty(); ++i) {
    if (erase_line_.empty()) return;
    if (backlog_->size(erase_line_.key()) == 0) {
      erase_line_.End();
      continue;
    }
    EndpointState& state = StateOf(erase_line_.key());
    if (!IsRestored(state)) break;
    if (EraseFrom(state, turn)) erase_line_.End();
  }
  if (!erase_line_.empty()) {
    ctx_->SetTimer(kFunctionKey, kEraseTimer, program_.NextEraseTurn(ctx_->clock().Now()));
  }
}

// One step in the first backlog in line; whether its end was reached.
bool EndpointFunction::EraseFrom(EndpointState& state, EraseTurn& turn) {
  const absl::optional<absl::flat_hash_set<IdBytes>> left_out = LeftOut(state);
  if (!left_out) return true;
  std::vector<Message> found;
  ErasedOfBatches of_batches;
  const uint64_t until = erase_line_.until();
  uint64_t next = erase_line_.from();
  bool passed = false;
  const bool at_end = backlog_->Scan(
      state.key, next, [&](uint64_t order, const IdBytes& digest, absl::string_view encoded) {
        passed = order >= until;
        if (passed) return false;
        next = order;
        if (turn.ended()) return false;
        turn.Take(encoded.size());
        const absl::StatusOr<subscriptions::DispatchRecordView> head =
            subscriptions::ViewDispatchRecord(encoded);
        // One that cannot be read is met where it is drained.
        if (!head.ok() ||
            !erasures_->Cover(head->customer, head->tenant, head->event_id, head->dispatch_time)) {
          return true;
        }
        absl::StatusOr<std::unique_ptr<MessageContent>> content = MakeMessageContent(encoded);
        if (!content.ok()) return true;
        --turn.erased;
        if (state.claimed.contains(digest) || left_out->contains(digest)) {
          of_batches.emplace(digest, *std::move(content));
          return true;
        }
        found.push_back(MakeMessage(*std::move(content), order, digest, state.format));
        found.back().listed = true;
        return true;
      });
  erase_line_.Advance(next);
  for (const Message& message : found) state.claimed.insert(message.digest);
  for (const Message& message : found) {
    Refuse(state, message, dlq::RefusalReason::kErased, nullptr);
  }
  if (!of_batches.empty()) EraseOfBatches(state, of_batches);
  return at_end || passed;
}

// What batches hold, or name, that wait for their first or next try. What is in flight is left to
// its answer, and what may be in flight at a predecessor to that or its deadline.
void EndpointFunction::EraseOfBatches(EndpointState& state, ErasedOfBatches& erased) {
  for (auto it = state.waiting.begin(); it != state.waiting.end();) {
    const auto next = std::next(it);
    if (!HoldsAny(state, it->second, erased)) {
      it = next;
      continue;
    }
    if (inherited_.Find(*it->second.key) != nullptr) {
      erase_when_lapsed_.insert(state.key);
      it = next;
      continue;
    }
    const MonotonicTime due = it->first;
    Batch batch = TakeWaiting(state, it);
    if (ReadMembers(state, batch)) {
      EraseOf(state, batch, erased, due);
      if (!batch.messages.empty()) Wait(state, next, due, std::move(batch));
    }
    it = next;
  }
  for (BatchLine* line : {&state.ready, &state.drained}) {
    for (Batch& batch : *line) EraseOf(state, batch, erased, ctx_->clock().Now());
    line->EraseIf([](const Batch& batch) { return batch.messages.empty(); });
  }
  if (!state.open.messages.empty()) {
    EraseOf(state, state.open, erased, ctx_->clock().Now());
    if (state.open.messages.empty()) {
      ctx_->CancelTimer(state.key, kBatchTimer);
      state.open_due = state.open_late = state.open_long = false;
    }
  }
  // What is left is in flight, or held for what a predecessor has in flight.
  if (!erased.empty() && !inherited_.empty()) erase_when_lapsed_.insert(state.key);
  Schedule(state);
}

bool EndpointFunction::HoldsAny(EndpointState& state, const Batch& batch,
                                const ErasedOfBatches& erased) {
  const auto is_erased = [&erased](const auto& one) { return erased.contains(one.digest); };
  if (batch.members_left_out == 0) {
    return std::any_of(batch.messages.begin(), batch.messages.end(), is_erased);
  }
  const auto members = backlog_->Members(state.key, *batch.key);
  return members && std::any_of(members->begin(), members->end(), is_erased);
}

// Takes them out. What is left of a batch that was tried is a new one with its history, as after an
// answer that takes a part of it: its record is written before that of the whole goes.
void EndpointFunction::EraseOf(EndpointState& state, Batch& batch, ErasedOfBatches& erased,
                               MonotonicTime due) {
  Batch rest = PieceOf(batch);
  rest.first_half = batch.first_half;
  std::vector<Message> gone;
  for (Message& message : batch.messages) {
    const auto found = erased.find(message.digest);
    if (found == erased.end()) {
      rest.Add(std::move(message));
      continue;
    }
    message.content = std::move(found->second);
    gone.push_back(std::move(message));
    erased.erase(found);
  }
  if (gone.empty()) {
    batch.messages = std::move(rest.messages);
    return;
  }
  std::shared_ptr<Ending::Group> group;
  if (batch.recorded && rest.messages.empty()) {
    group = std::make_shared<Ending::Group>(Ending::Group{*batch.key, gone.size()});
  }
  if (batch.key && !rest.messages.empty()) rest.key = BatchKey(rest.messages);
  if (batch.recorded && !rest.messages.empty()) {
    static_cast<void>(ParkBatch(state, rest, ParkReason::kFailed, due));
    DropParkedContents(rest);
    backlog_->RemoveBatch(state.key, *batch.key);
  }
  batch = std::move(rest);
  for (const Message& message : gone) Refuse(state, message, dlq::RefusalReason::kErased, group);
}

}  // namespace postrider::delivery
