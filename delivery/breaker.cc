#include "delivery/breaker.h"

#include <algorithm>

#include "core/base/check.h"

namespace postrider::delivery {
namespace {

constexpr uint16_t kCountMax = 60'000;
// The bound is reached long before.
constexpr int kOpenedMax = 30;

void Count(uint16_t& counter) {
  if (counter < kCountMax) ++counter;
}

}  // namespace

Duration DrawRest(const BreakerOptions& options, int rests, Duration rest_max, Random& random) {
  Duration bound = options.first_rest;
  for (int i = 0; i < rests && bound < rest_max; ++i) bound *= 2;
  bound = std::min(bound, rest_max);
  const auto jitter = Duration(
      static_cast<Duration::rep>(static_cast<double>(bound.count()) / 2 * random.Fraction()));
  return bound - jitter;
}

absl::optional<MonotonicTime> Breaker::MayStartAt() const {
  switch (state_) {
    case State::kClosed:
      return MonotonicTime{};
    case State::kOpen:
      return open_until_;
    case State::kProbing:
      break;
  }
  return absl::nullopt;
}

bool Breaker::OnStart() {
  if (state_ == State::kClosed) return false;
  POSTRIDER_CHECK(state_ == State::kOpen);
  state_ = State::kProbing;
  return true;
}

// Two hundred years of slots of 3 s.
int32_t Breaker::NumberOf(MonotonicTime now) const {
  return static_cast<int32_t>(now.time_since_epoch() / (options_->span / kSlots));
}

Breaker::Slot& Breaker::SlotOf(MonotonicTime now) {
  const int32_t number = NumberOf(now);
  Slot& slot = slots_[static_cast<size_t>(number) % kSlots];
  if (slot.number != number) slot = Slot{number, 0, 0};
  return slot;
}

bool Breaker::Tripped(MonotonicTime now) const {
  if (failures_in_a_row_ >= options_->failures_in_a_row) return true;
  const int32_t number = NumberOf(now);
  int succeeded = 0;
  int failed = 0;
  for (const Slot& slot : slots_) {
    if (slot.number <= number - static_cast<int32_t>(kSlots)) continue;
    succeeded += slot.succeeded;
    failed += slot.failed;
  }
  const int samples = succeeded + failed;
  return samples >= options_->samples_least && failed >= samples * options_->failed_share;
}

void Breaker::Forget() {
  failures_in_a_row_ = 0;
  slots_ = {};
}

void Breaker::Open(MonotonicTime now, Duration rest_max, Random& random) {
  open_until_ = now + DrawRest(*options_, opened_, rest_max, random);
  opened_ = std::min(opened_ + 1, kOpenedMax);
  state_ = State::kOpen;
}

bool Breaker::OnSuccess(MonotonicTime now, bool probe) {
  if (state_ == State::kClosed) {
    failures_in_a_row_ = 0;
    Count(SlotOf(now).succeeded);
    return false;
  }
  if (!probe) return false;
  state_ = State::kClosed;
  closed_at_ = now;
  Forget();
  return true;
}

bool Breaker::OnFailure(MonotonicTime now, bool probe, Random& random) {
  if (state_ == State::kClosed) {
    ++failures_in_a_row_;
    Count(SlotOf(now).failed);
    if (!Tripped(now)) return false;
    if (closed_at_ && now - *closed_at_ >= options_->span) opened_ = 0;
    Open(now, options_->rest_max, random);
    return true;
  }
  if (!probe) return false;
  ++failures_in_a_row_;
  Open(now, options_->rest_max, random);
  return true;
}

bool Breaker::OnOutage(MonotonicTime now, bool probe, Random& random) {
  if (!probe || state_ != State::kProbing) return false;
  Open(now, options_->outage_rest_max, random);
  return true;
}

bool Breaker::OnNeutral(MonotonicTime now, bool probe) {
  if (!probe || state_ != State::kProbing) return false;
  state_ = State::kOpen;
  open_until_ = now;
  return true;
}

void Breaker::Restore(MonotonicTime open_until, int opened) {
  Forget();
  failures_in_a_row_ = options_->failures_in_a_row;
  opened_ = std::clamp(opened, 1, kOpenedMax);
  open_until_ = open_until;
  state_ = State::kOpen;
}

void Breaker::ProbeNow(MonotonicTime now) {
  if (state_ == State::kOpen) open_until_ = std::min(open_until_, now);
}

void Breaker::Reset() {
  Forget();
  state_ = State::kClosed;
  opened_ = 0;
  closed_at_.reset();
}

}  // namespace postrider::delivery
