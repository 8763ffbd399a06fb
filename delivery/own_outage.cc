#include "delivery/own_outage.h"

#include "absl/hash/hash.h"

namespace postrider::delivery {
namespace {

constexpr int64_t kLookEveryMs = 100;

int64_t Millis(MonotonicTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

void OwnOutage::Note(absl::string_view host, MonotonicTime now, uint64_t failed) {
  const size_t place = absl::HashOf(host) % kPlaces;
  // One more than the time, so that a try at 0 ms is one.
  const uint64_t value = (static_cast<uint64_t>(Millis(now)) + 1) << 1 | failed;
  // A host that is reached all the time is not written for each of its answers.
  constexpr uint64_t kFresh = uint64_t{1000} << 1;
  const uint64_t before = places_[place].load(std::memory_order_relaxed);
  if ((before & 1) == failed && before <= value && value - before < kFresh) return;
  places_[place].store(value, std::memory_order_relaxed);
}

bool OwnOutage::Look(MonotonicTime now) const {
  const int64_t oldest = Millis(now - kSpan);
  size_t tried = 0;
  size_t failed = 0;
  for (const std::atomic<uint64_t>& place : places_) {
    const uint64_t value = place.load(std::memory_order_relaxed);
    if (value == 0 || static_cast<int64_t>(value >> 1) - 1 <= oldest) continue;
    ++tried;
    failed += value & 1;
  }
  return tried >= kHostsLeast && failed * 2 >= tried;
}

bool OwnOutage::active(MonotonicTime now) {
  const int64_t millis = Millis(now);
  const int64_t looked = looked_ms_.load(std::memory_order_relaxed);
  if (looked < 0 || millis - looked >= kLookEveryMs) {
    active_.store(Look(now), std::memory_order_relaxed);
    looked_ms_.store(millis, std::memory_order_relaxed);
  }
  return active_.load(std::memory_order_relaxed);
}

}  // namespace postrider::delivery
