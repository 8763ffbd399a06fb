#include "core/stream/durable_timers.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kVersion = 1;
constexpr milliseconds kDelayMax = std::chrono::hours(24 * 365 * 100);
// Wall times beyond this, either way, were never written.
constexpr int64_t kMillisMax = int64_t{1} << 56;

}  // namespace

DurableTimers::DurableTimers(StateBackend& backend, const Clock& clock, uint16_t id,
                             std::string name, absl::AnyInvocable<void(MonotonicTime)> alarm)
    : InPlaceState(backend, clock, StateDescriptor{id, std::move(name), milliseconds{0}},
                   StateVersions{kVersion, kVersion}),
      backend_(backend),
      clock_(clock),
      alarm_(std::move(alarm)) {}

std::string DurableTimers::SubKey(uint32_t tag) {
  ByteWriter out;
  out.Varint(tag);
  return out.Take();
}

absl::optional<uint32_t> DurableTimers::TagOf(absl::string_view sub_key) {
  ByteReader in(sub_key);
  const uint64_t tag = in.Varint();
  if (!in.done() || tag > UINT32_MAX || SubKey(static_cast<uint32_t>(tag)) != sub_key) {
    return absl::nullopt;
  }
  return static_cast<uint32_t>(tag);
}

std::string DurableTimers::Encode(const Times& times) {
  ByteWriter out;
  out.Zigzag(MillisSinceEpoch(times.set_at));
  out.Zigzag(MillisSinceEpoch(times.due) - MillisSinceEpoch(times.set_at));
  return out.Take();
}

absl::optional<DurableTimers::Times> DurableTimers::Decode(absl::string_view bytes) {
  ByteReader in(bytes);
  const int64_t set_at = in.Zigzag();
  const int64_t delay = in.Zigzag();
  if (!in.done() || set_at < -kMillisMax || set_at > kMillisMax || delay < 0 ||
      delay > kDelayMax.count()) {
    return absl::nullopt;
  }
  return Times{WallTimeFromMillis(set_at), WallTimeFromMillis(set_at + delay)};
}

Duration DurableTimers::Remaining(const Times& times) const {
  return std::clamp(times.due - clock_.Wall(), milliseconds{0}, times.due - times.set_at);
}

bool DurableTimers::Set(absl::string_view key, uint32_t tag, Duration delay,
                        StateBackend::WriteDone done) {
  delay = std::clamp<Duration>(delay, Duration::zero(), kDelayMax);
  const WallTime wall = clock_.Wall();
  // Rounded up: after a restart it is not early.
  const Times times{wall, wall + std::chrono::ceil<milliseconds>(delay)};
  if (!Put(key, SubKey(tag), kVersion, Encode(times), std::move(done))) return false;
  restored_.Cancel(key, tag);
  timers_.Set(key, tag, clock_.Now() + delay);
  Arm();
  return true;
}

bool DurableTimers::Cancel(absl::string_view key, uint32_t tag, StateBackend::WriteDone done) {
  if (!Clear(key, SubKey(tag), std::move(done))) return false;
  restored_.Cancel(key, tag);
  timers_.Cancel(key, tag);
  return true;
}

bool DurableTimers::Acknowledge(absl::string_view key, uint32_t tag, StateBackend::WriteDone done) {
  return timers_.TimeOf(key, tag) || Clear(key, SubKey(tag), std::move(done));
}

size_t DurableTimers::Fire(MonotonicTime now, size_t timers_max, Visitor fire) {
  armed_for_ = absl::nullopt;
  firing_ = true;
  const uint64_t mark = timers_.mark();
  size_t fired = 0;
  while (fired < timers_max && !backend_.failed()) {
    const absl::optional<internal::Timers::Due> due = timers_.PopDue(now, mark);
    if (!due) break;
    ++fired;
    fire(due->key, due->tag, due->time);
  }
  firing_ = false;
  Arm();
  return fired;
}

void DurableTimers::Arm() {
  const absl::optional<MonotonicTime> earliest = timers_.Earliest();
  if (firing_ || !earliest || (armed_for_ && *armed_for_ <= *earliest)) return;
  armed_for_ = earliest;
  alarm_(*earliest);
}

size_t DurableTimers::memory_bytes() const {
  return InPlaceState::memory_bytes() + timers_.memory_bytes() + restored_.memory_bytes();
}

absl::Status DurableTimers::Restore(const StateKey& key, uint64_t epoch,
                                    absl::string_view payload) {
  RETURN_IF_ERROR(InPlaceState::Restore(key, epoch, payload));
  const absl::optional<StatePayload> decoded = DecodeStatePayload(payload);
  const absl::optional<uint32_t> tag = TagOf(key.sub_key);
  const absl::optional<Times> times = decoded ? Decode(decoded->bytes) : absl::nullopt;
  if (!tag || !times) return Unreadable(name());
  restored_.Set(key.key, *tag, clock_.Now() + Remaining(*times));
  return absl::OkStatus();
}

absl::Status DurableTimers::RestoreRemoved(const StateKey& key) {
  if (const absl::optional<uint32_t> tag = TagOf(key.sub_key)) restored_.Cancel(key.key, *tag);
  return InPlaceState::RestoreRemoved(key);
}

void DurableTimers::OnRestoreEnd() {
  // There are more of those that were restored than of those that were set meanwhile.
  while (const absl::optional<internal::Timers::Due> live =
             timers_.PopDue(MonotonicTime::max(), timers_.mark())) {
    restored_.Set(live->key, live->tag, live->time);
  }
  std::swap(timers_, restored_);
  Arm();
}

absl::StatusOr<bool> DurableTimers::Reassert(const StateKey& key) {
  const absl::optional<uint32_t> tag = TagOf(key.sub_key);
  ASSIGN_OR_RETURN(const absl::optional<Found> found, Get(key.key, key.sub_key));
  const absl::optional<Times> times = found ? Decode(found->bytes) : absl::nullopt;
  const absl::optional<MonotonicTime> time =
      tag ? timers_.TimeOf(key.key, *tag) : absl::optional<MonotonicTime>();
  const WallTime wall = clock_.Wall();
  if (!times || !time || wall >= times->set_at) return InPlaceState::Reassert(key);
  // The clock was set back. By the present one, so that a series of restarts does not begin its
  // wait again and again.
  const Duration left = std::max(*time - clock_.Now(), Duration::zero());
  const Times again{wall, wall + std::chrono::ceil<milliseconds>(left)};
  return Put(key.key, key.sub_key, kVersion, Encode(again), {});
}

}  // namespace postrider
