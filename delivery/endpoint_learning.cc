// What a receiver has taught of how it wants to be sent to, in memory and in durable state.

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "delivery/endpoint_function.h"
#include "delivery/learned_record.h"
#include "delivery/steering.h"

namespace postrider::delivery {

// What the receiver says with its answer.
void EndpointFunction::Learn(EndpointState& state, const HttpResult& result) {
  if (result.kept_headers.empty()) return;
  const Steering steering = ReadSteering(result.kept_headers);
  if (state.learned.Learn(steering, ctx_->clock().Now())) ReadSettings(state);
  WriteLearned(state);
}

// A batch of so many bytes was too large.
void EndpointFunction::LearnTooLarge(EndpointState& state, size_t bytes) {
  if (state.learned.LearnTooLarge(bytes, ctx_->clock().Now())) ReadSettings(state);
  WriteLearned(state);
}

// What a predecessor had learned, before the settings are read.
void EndpointFunction::ReadLearned(EndpointState& state) {
  if (learned_ == nullptr) return;
  const absl::StatusOr<absl::optional<LearnedRecord>> stored = learned_->Get(state.key);
  if (!stored.ok()) return ctx_->Fail(stored.status());
  if (!*stored) return;
  state.learned_stored = **stored;
  state.learned = LimitsOf(**stored, ctx_->clock().Now(), ctx_->clock().Wall());
  // With another one it is forgotten.
  state.generation = (*stored)->generation;
}

// When it says something new. Without room it is written by the next answer, or the next sweep.
void EndpointFunction::WriteLearned(EndpointState& state) {
  if (learned_ == nullptr) return;
  const LearnedRecord record =
      RecordOf(state.learned, state.generation, ctx_->clock().Now(), ctx_->clock().Wall());
  if (!WorthWriting(record, state.learned_stored)) return;
  const bool taken =
      state.learned.any() ? learned_->Put(state.key, record) : learned_->Clear(state.key);
  if (taken) state.learned_stored = record;
}

}  // namespace postrider::delivery
