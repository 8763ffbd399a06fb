#include "core/stream/completion_tracker.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/check.h"

namespace postrider {
namespace {

// As much of `bytes` as a slot that has `before` can count.
uint32_t Counted(size_t bytes, uint32_t before) {
  return static_cast<uint32_t>(
      std::min<size_t>(bytes, std::numeric_limits<uint32_t>::max() - before));
}

}  // namespace

CompletionTracker::CompletionTracker(int64_t watermark, const OffsetSet& completed_above)
    : base_(watermark), next_(watermark), inherited_(completed_above) {
  inherited_.DropBelow(watermark);
  inherited_size_ = inherited_.size();
}

CompletionTracker::Admission CompletionTracker::Add(int64_t offset, size_t bytes) {
  if (offset < next_) return Admission::kStale;
  PushComplete(next_, offset, 0);
  const bool completed = inherited_.Contains(offset);
  if (completed) {
    PushComplete(offset, offset + 1, bytes);
  } else {
    const uint32_t counted = Counted(bytes, 0);
    slots_.push_back({offset, offset + 1, counted, false});
    ++pending_;
    pending_bytes_ += counted;
  }
  next_ = offset + 1;
  DropInheritedBelow(next_);
  return completed ? Admission::kCompleted : Admission::kNew;
}

void CompletionTracker::SkipTo(int64_t offset) {
  if (offset <= next_) return;
  PushComplete(next_, offset, 0);
  next_ = offset;
  DropInheritedBelow(next_);
}

void CompletionTracker::PushComplete(int64_t begin, int64_t end, size_t bytes) {
  if (begin == end) return;
  ++version_;
  if (slots_.empty()) {
    base_ = end;
    return;
  }
  completed_in_slots_ += end - begin;
  if (!slots_.back().complete) slots_.push_back({begin, end, 0, true});
  Slot& stretch = slots_.back();
  const uint32_t counted = Counted(bytes, stretch.bytes);
  stretch.end = end;
  stretch.bytes += counted;
  hole_bytes_ += counted;
}

void CompletionTracker::DropInheritedBelow(int64_t offset) {
  if (inherited_.empty() || inherited_.ranges().front().begin >= offset) return;
  inherited_.DropBelow(offset);
  inherited_size_ = inherited_.size();
}

void CompletionTracker::Complete(int64_t offset) {
  POSTRIDER_CHECK(IsPending(offset));
  Slot& slot = slots_[Find(offset)];
  slot.complete = true;
  --pending_;
  pending_bytes_ -= slot.bytes;
  hole_bytes_ += slot.bytes;
  ++completed_in_slots_;
  ++version_;
  while (!slots_.empty() && slots_.front().complete) {
    completed_in_slots_ -= slots_.front().end - slots_.front().begin;
    hole_bytes_ -= slots_.front().bytes;
    base_ = slots_.front().end;
    slots_.pop_front();
  }
}

bool CompletionTracker::IsPending(int64_t offset) const {
  return offset >= base_ && offset < next_ && !slots_[Find(offset)].complete;
}

size_t CompletionTracker::Find(int64_t offset) const {
  // Each slot holds at least one offset, and most hold one: the first guess is never too low.
  const auto guess = static_cast<size_t>(
      std::min<uint64_t>(static_cast<uint64_t>(offset - base_), slots_.size() - 1));
  if (slots_[guess].begin <= offset && offset < slots_[guess].end) return guess;
  const auto after =
      std::upper_bound(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(guess), offset,
                       [](int64_t at, const Slot& slot) { return at < slot.end; });
  return static_cast<size_t>(after - slots_.begin());
}

int64_t CompletionTracker::MiddleOfHoles() const {
  const int64_t half = (completed_in_slots_ + 1) / 2;
  int64_t below = 0;
  for (const Slot& slot : slots_) {
    if (!slot.complete) continue;
    below += slot.end - slot.begin;
    if (below >= half) return slot.end;
  }
  return base_;
}

OffsetSet CompletionTracker::CompletedAbove() const {
  OffsetSet completed;
  for (const Slot& slot : slots_) {
    if (slot.complete) completed.Append(slot.begin, slot.end);
  }
  for (const OffsetSet::Range& range : inherited_.ranges()) {
    completed.Append(range.begin, range.end);
  }
  return completed;
}

}  // namespace postrider
