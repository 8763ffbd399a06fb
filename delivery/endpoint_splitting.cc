// Batches that go on in parts: those of which some messages were acknowledged, and those that were
// refused as a whole.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "delivery/bisection.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "delivery/endpoint_order.h"
#include "delivery/partial_ack.h"

namespace postrider::delivery {
namespace {

using subscriptions::OrderKind;

// What is known of its size: of one that was read back by its record only that of the record.
size_t BodyBytes(const Message& message) {
  return message.body_bytes > 0 ? message.body_bytes : message.bytes;
}
size_t BodyBytes(const Batch& batch) {
  size_t bytes = 0;
  for (const Message& message : batch.messages) bytes += BodyBytes(message);
  return bytes;
}

// Without all keys it is as if they were the same.
OrderKind OrderOf(const EndpointState& state, const Batch& batch) {
  if (state.order == nullptr) return OrderKind::kNone;
  const bool unknown = std::any_of(
      batch.messages.begin(), batch.messages.end(),
      [](const Message& message) { return message.order_key == EndpointOrder::kUnknownKey; });
  return unknown ? OrderKind::kEndpoint : state.order->settings().kind;
}

std::vector<Batch> Halves(Batch& batch) {
  std::vector<Batch> halves;
  const size_t left = (batch.messages.size() + 1) / 2;
  for (size_t i = 0; i < batch.messages.size(); ++i) {
    if (i == 0 || i == left) halves.push_back(PieceOf(batch));
    halves.back().Add(std::move(batch.messages[i]));
  }
  return halves;
}

// As large as may be sent now, at least two of them.
std::vector<Batch> CutToSize(Batch& batch, const EndpointState& state) {
  const size_t bytes_max = std::min(static_cast<size_t>(state.bytes_max), BodyBytes(batch) - 1);
  std::vector<Batch> pieces;
  size_t bytes = 0;
  for (Message& message : batch.messages) {
    const size_t more = BodyBytes(message);
    if (pieces.empty() || bytes + more > bytes_max) {
      pieces.push_back(PieceOf(batch));
      bytes = 0;
    }
    bytes += more;
    pieces.back().Add(std::move(message));
  }
  return pieces;
}

}  // namespace

// Gives the pieces of `batch` their keys and, if it was recorded, records of their own before its
// own goes: a crash between the two leaves both, and a message belongs to the first that is read.
void EndpointFunction::Replace(EndpointState& state, const Batch& batch,
                               std::vector<Batch>& pieces) {
  bool kept = false;
  for (Batch& piece : pieces) {
    piece.key = BatchKey(piece.messages);
    if (!batch.recorded) continue;
    if (piece.key == batch.key) {
      piece.recorded = kept = true;
      continue;
    }
    static_cast<void>(ParkBatch(state, piece, ParkReason::kFailed, ctx_->clock().Now()));
    DropParkedContents(piece);
  }
  if (batch.recorded && !kept) backlog_->RemoveBatch(state.key, *batch.key);
}

// The receiver took the batch, but for those at `failed`, if any: they are retried as a new batch.
void EndpointFunction::SettlePartly(EndpointState& state, Batch batch, const Outcome& outcome,
                                    const std::vector<size_t>& failed) {
  const std::vector<size_t> unacknowledged =
      Unacknowledged(failed, batch.messages.size(), OrderOf(state, batch),
                     [&batch](size_t place) { return batch.messages[place].order_key; });
  if (unacknowledged.empty()) return Settle(state, std::move(batch), outcome);
  program_.metrics().CountOutcome(outcome.kind).Increment();
  Apply(state, outcome, std::exchange(batch.probe, false) ? Probe::kYes : Probe::kNo);
  batch.last = outcome;
  const std::shared_ptr<Bisection> bisection = std::exchange(batch.bisection, nullptr);
  batch.first_half = false;
  if (unacknowledged.size() < batch.messages.size()) {
    std::vector<Batch> rest;
    rest.push_back(PieceOf(batch));
    Batch done;
    auto next = unacknowledged.begin();
    for (size_t i = 0; i < batch.messages.size(); ++i) {
      const bool failed_here = next != unacknowledged.end() && *next == i;
      if (failed_here) ++next;
      (failed_here ? rest.front() : done).Add(std::move(batch.messages[i]));
    }
    Replace(state, batch, rest);
    Delivered(state, done);
    batch = std::move(rest.front());
  }
  std::vector<Batch> rest;
  rest.push_back(std::move(batch));
  RetryPieces(state, std::move(rest), outcome);
  EndPiece(state, bisection);
}

// The receiver refused a batch of several messages, or a piece of one.
void EndpointFunction::Bisect(EndpointState& state, Batch batch, const Outcome& outcome) {
  const bool too_large = outcome.status == 413;
  if (too_large) LearnTooLarge(state, BodyBytes(batch));
  const bool root = batch.bisection == nullptr;
  if (root) {
    batch.bisection = std::make_shared<Bisection>(batch.messages.size());
    program_.metrics().bisections.Increment();
  }
  const std::shared_ptr<Bisection> bisection = batch.bisection;
  const bool first_half = batch.first_half && !too_large;
  const bool refuses_all = first_half && bisection->OnFirstHalfRefused();

  std::vector<Batch> pieces = too_large ? CutToSize(batch, state) : Halves(batch);
  for (Batch& piece : pieces) piece.first_half = root && !too_large;
  Replace(state, batch, pieces);
  std::vector<Batch> unsent = TakePieces(state, bisection);
  // What was too large here is too large there.
  if (too_large) unsent = CutAll(state, std::move(unsent));
  // The other first half is heard before this one is looked at closer, unless order forbids it.
  const bool other_first = first_half && state.order == nullptr;
  if (other_first) std::swap(pieces, unsent);
  for (Batch& piece : unsent) pieces.push_back(std::move(piece));

  if (refuses_all || !bisection->MayGoOn()) {
    Outcome failure = outcome;
    failure.charge = Charge::kCharged;
    if (refuses_all) {
      failure.breaker = BreakerEffect::kFailure;
      Apply(state, failure, Probe::kNo);
    }
    return RetryPieces(state, std::move(pieces), failure);
  }
  // A new bisection stands behind those that go on; the pieces of one that does, before all others.
  if (!root) std::reverse(pieces.begin(), pieces.end());
  for (Batch& piece : pieces) {
    Wait(state, kPieceDue, std::move(piece), root ? Place::kLast : Place::kFirst);
  }
}

std::vector<Batch> EndpointFunction::CutAll(EndpointState& state, std::vector<Batch> batches) {
  std::vector<Batch> all;
  for (Batch& batch : batches) {
    if (batch.messages.size() <= 1 || BodyBytes(batch) <= static_cast<size_t>(state.bytes_max)) {
      all.push_back(std::move(batch));
      continue;
    }
    std::vector<Batch> pieces = CutToSize(batch, state);
    Replace(state, batch, pieces);
    for (Batch& piece : pieces) all.push_back(std::move(piece));
  }
  return all;
}

// Takes out those that have not been sent. They stand together, and before those of others.
std::vector<Batch> EndpointFunction::TakePieces(EndpointState& state,
                                                const std::shared_ptr<Bisection>& bisection) {
  std::vector<Batch> pieces;
  while (!state.waiting.empty() && state.waiting.begin()->second.bisection == bisection) {
    Batch piece = TakeWaiting(state, state.waiting.begin());
    if (ReadMembers(state, piece)) pieces.push_back(std::move(piece));
  }
  return pieces;
}

// A piece has come to an end of its own: those that are left go on, or the requests are used up.
void EndpointFunction::EndPiece(EndpointState& state, const std::shared_ptr<Bisection>& bisection) {
  if (bisection == nullptr || bisection->MayGoOn()) return;
  Outcome outcome;
  outcome.kind = OutcomeKind::kRejected;
  outcome.charge = Charge::kCharged;
  outcome.give_up = dlq::DeadReason::kRejectedByReceiver;
  RetryPieces(state, TakePieces(state, bisection), outcome);
}

// They are batches like others from now on.
void EndpointFunction::RetryPieces(EndpointState& state, std::vector<Batch> pieces,
                                   const Outcome& outcome) {
  for (Batch& piece : pieces) {
    piece.bisection.reset();
    piece.first_half = false;
    if (outcome.charge == Charge::kCharged) piece.attempts += 1;
  }
  Retry(state, std::move(pieces), outcome);
}

}  // namespace postrider::delivery
