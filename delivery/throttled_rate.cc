#include "delivery/throttled_rate.h"

#include <algorithm>

namespace postrider::delivery {

void ThrottledRate::OnStart(MonotonicTime now) {
  if (!bucket_.rate()) return;
  if (now - refused_when_ >= kKept) return bucket_.SetRate(absl::nullopt);
  if (!begun_) begun_ = now;
  bucket_.Take(now, 1);
}

void ThrottledRate::OnTaken(MonotonicTime now) {
  const int64_t number = now.time_since_epoch() / kSlot;
  Slot& slot = slots_[static_cast<size_t>(number) % kSlots];
  if (slot.number != number) slot = Slot{number, 0};
  ++slot.taken;
  const absl::optional<double> rate = bucket_.rate();
  if (rate) bucket_.SetRate(*rate + (*rate < refused_at_ ? kCreep : kClimb));
}

int ThrottledRate::TakenLately(MonotonicTime now) const {
  const int64_t number = now.time_since_epoch() / kSlot;
  int taken = 0;
  for (const Slot& slot : slots_) {
    if (slot.number > number - static_cast<int64_t>(kSlots)) taken += slot.taken;
  }
  return taken;
}

void ThrottledRate::OnRefused(MonotonicTime now) {
  const int taken = TakenLately(now);
  const absl::optional<double> rate = bucket_.rate();
  if (!rate && taken < kTakenLeast) return;
  double at = rate.value_or(taken);
  // What was taken says something when it was a whole second's; and no more than half at once.
  const bool whole = begun_ && now - *begun_ >= std::chrono::seconds(1);
  if (rate && whole) at = std::clamp<double>(taken, *rate / 2, *rate);
  refused_at_ = at;
  refused_when_ = now;
  begun_.reset();
  bucket_.SetRate(std::max(at * kCut, kLeast));
}

}  // namespace postrider::delivery
