#include "api/internal/event_appends.h"

#include <algorithm>
#include <utility>

namespace postrider::api {

void EventAppends::Start(absl::AnyInvocable<void() &&> done) {
  done_ = std::move(done);
  ++under_way_;  // until all were tried
  for (size_t i = 0; i < entries_.size(); ++i) Try(i, Batches::kShared);
  --under_way_;
  Next();
}

void EventAppends::Try(size_t i, Batches batches) {
  ++under_way_;
  const absl::Status taken = append_(
      make_(i), batches, [self = shared_from_this(), i, batches](absl::StatusOr<int64_t> offset) {
        self->Answered(i, batches, offset);
        self->Next();
      });
  if (!taken.ok()) Answered(i, batches, taken);
}

void EventAppends::Answered(size_t i, Batches batches, const absl::StatusOr<int64_t>& offset) {
  --under_way_;
  Entry& entry = entries_[i];
  if (offset.ok()) {
    entry.fate = Fate::kStored;
    entry.offset = *offset;
  } else if (!absl::IsFailedPrecondition(offset.status()) &&
             !absl::IsInvalidArgument(offset.status())) {
    if (failure_.ok()) failure_ = offset.status();
  } else if (batches == Batches::kShared) {
    alone_.push_back(i);
  } else {
    entry.fate = Fate::kRefused;
  }
}

void EventAppends::Next() {
  if (under_way_ == 0 && !alone_.empty() && !stopped_ && failure_.ok()) {
    // In their order: answers do not come in the order of the calls between partitions.
    std::sort(alone_.begin(), alone_.end());
    ++under_way_;
    for (const size_t i : std::exchange(alone_, {})) Try(i, Batches::kOfOne);
    --under_way_;
  }
  if (under_way_ == 0 && done_ != nullptr) std::move(std::exchange(done_, nullptr))();
}

}  // namespace postrider::api
