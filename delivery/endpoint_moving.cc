// When the pool gets another number of key groups: what pends is parked, and what was parked comes
// again in the new topics.

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/base/log.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_timers.h"
#include "delivery/parked_header.h"

namespace postrider::delivery {

void EndpointFunction::OnDraining() {
  if (ctx_ == nullptr) return;
  const bool draining = program_.draining();
  endpoints_.ForEach([&](absl::string_view, EndpointState& state) {
    if (draining) {
      ParkAll(state, ParkReason::kRescale);
    } else {
      Schedule(state);
    }
  });
}

// A message that was an entry of the backlog in the generation before becomes one again, with its
// batch and its attempts. False: it goes the way of a new one, which has no attempts either; the
// first ones do, until has_backlog is set.
bool EndpointFunction::Arrive(EndpointState& state, const LogRecord& record, Message& message) {
  const absl::string_view encoded = record.Header(kParkedHeader);
  if (backlog_ == nullptr || encoded.data() == nullptr) {
    EndArrival(state);
    return false;
  }
  absl::StatusOr<ParkedHeader> header = DecodeParkedHeader(encoded);
  if (absl::IsUnimplemented(header.status())) {
    ctx_->Fail(header.status());
    return true;
  }
  if (!header.ok()) {
    POSTRIDER_LOG(kError, "a message's attempts cannot be read: they begin anew",
                  {"partition", ctx_->partition().ToString()}, {"offset", record.offset});
    header = ParkedHeader();
  }
  if (!header->batch || state.arriving.key != header->batch->key) EndArrival(state);
  if (!header->batch) {
    if (!Spill(state, message.order, message.digest, message.content->encoded,
               ParkReason::kRescale)) {
      return false;
    }
    NoteParked(state, message);
    Schedule(state);
    return true;
  }
  // Nothing of it is parked before all of it is there: what was parked of a part would be taken for
  // something that was never sent if this task ended meanwhile.
  state.arriving.key = header->batch->key;
  state.arriving_attempts = header->batch->attempts;
  state.pending_bytes += message.bytes;
  state.last_used = ctx_->clock().Now();
  state.arriving.Add(std::move(message));
  arriving_.insert(state.key);
  if (header->batch->index + 1 == header->batch->count) EndArrival(state);
  return true;
}

// No more of it will come: it waits for its next try as it did before.
void EndpointFunction::EndArrival(EndpointState& state) {
  if (state.arriving.messages.empty()) return;
  arriving_.erase(state.key);
  Batch batch = std::exchange(state.arriving, Batch());
  const BatchAttempts& attempts = state.arriving_attempts;
  const MonotonicTime now = ctx_->clock().Now();
  const WallTime wall = ctx_->clock().Wall();
  batch.attempts = static_cast<int>(attempts.attempts);
  batch.tries = std::max(static_cast<int>(attempts.tries), 1);
  batch.first_try = now - Age(wall, attempts.first_try);
  batch.last.kind = static_cast<OutcomeKind>(attempts.last_outcome);
  batch.last.status = attempts.last_status;
  const MonotonicTime due = now + LeftUntilDue(attempts, wall);
  static_cast<void>(ParkBatch(state, batch, ParkReason::kFailed, due));
  DropParkedContents(batch);
  Wait(state, due, std::move(batch));
  Schedule(state);
}

}  // namespace postrider::delivery
