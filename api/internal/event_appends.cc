#include "api/internal/event_appends.h"

#include <utility>

namespace postrider::api {

void EventAppends::Start(absl::AnyInvocable<void() &&> done) {
  done_ = std::move(done);
  ++under_way_;  // until all were tried
  for (size_t i = 0; i < entries_.size(); ++i) Try(i);
  --under_way_;
  Next();
}

void EventAppends::Try(size_t i) {
  ++under_way_;
  ++entries_[i].tries;
  const absl::Status taken =
      append_(make_(i), [self = shared_from_this(), i](absl::StatusOr<int64_t> offset) {
        self->Answered(i, offset);
        self->Next();
      });
  if (!taken.ok()) Answered(i, taken);
}

void EventAppends::Answered(size_t i, const absl::StatusOr<int64_t>& offset) {
  --under_way_;
  Entry& entry = entries_[i];
  if (offset.ok()) {
    entry.fate = Fate::kStored;
    entry.offset = *offset;
  } else if (absl::IsInvalidArgument(offset.status())) {
    entry.fate = Fate::kRefused;
  } else if (!absl::IsFailedPrecondition(offset.status())) {
    if (failure_.ok()) failure_ = offset.status();
  } else if (entry.tries <= kAloneTries) {
    alone_.push_back(i);
  } else {
    entry.fate = Fate::kRefused;
  }
}

void EventAppends::Next() {
  while (under_way_ == 0 && !alone_.empty() && !stopped_ && failure_.ok()) {
    const size_t i = alone_.front();
    alone_.pop_front();
    Try(i);
  }
  if (under_way_ == 0 && done_ != nullptr) std::move(std::exchange(done_, nullptr))();
}

}  // namespace postrider::api
