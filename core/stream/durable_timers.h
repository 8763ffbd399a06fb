#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/internal/timers.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_key.h"

namespace postrider {

// Timers that outlive the task: one per key and tag, for as long as it is pending and until its
// firing was acknowledged.
//
//   Set() --> pending --due, Fire()--> fired --Acknowledge()--> gone
//                ^  |                    |  '--Set()--> pending
//                |  '------ restart <----'    what has fired and was not acknowledged fires again
//
// While a task lives only the monotonic clock counts. What is stored is wall time, when it was set
// and when it is due, so after a restart a clock that was set back makes it wait no longer than was
// asked for, and one that was set forward makes it fire early by no more than that.
//
// Nothing that is restored fires before the changelog is read to its end: a later record may have
// moved or cancelled it.
//
// Threads: owned by one task. Bounds: by the keys that its owner keeps; about 100 bytes and its key
// in memory for each, and as much again in the store. A new owner writes each one again, as it does
// all values that change in place.
class DurableTimers final : private InPlaceState {
 public:
  // `alarm` is told when Fire() is to be called next, each time that this comes to be earlier and
  // at the end of each Fire(); the last time counts. It is a function's own timer mostly:
  // ctx.SetTimer("", kAlarm, time). `id` is even, as that of every value that changes in place.
  DurableTimers(StateBackend& backend, const Clock& clock, uint16_t id, std::string name,
                absl::AnyInvocable<void(MonotonicTime)> alarm);

  // It is due `delay` from now, between nothing and a hundred years; replaces the one of the same
  // key and tag. False: no room, nothing has changed.
  [[nodiscard]] bool Set(absl::string_view key, uint32_t tag, Duration delay,
                         StateBackend::WriteDone done = {});
  [[nodiscard]] bool Cancel(absl::string_view key, uint32_t tag, StateBackend::WriteDone done = {});
  // What its firing was for is done: it does not come back. If it was set again since, it stays,
  // and `done` is dropped. False: no room.
  [[nodiscard]] bool Acknowledge(absl::string_view key, uint32_t tag,
                                 StateBackend::WriteDone done = {});

  // Fires what is due at `now` and was set before this call, in the order of the times, up to
  // `timers_max`; how many there were. The visitor may set, cancel and acknowledge any.
  using Visitor = absl::FunctionRef<void(absl::string_view key, uint32_t tag, MonotonicTime time)>;
  size_t Fire(MonotonicTime now, size_t timers_max, Visitor fire);

  // When it fires; none when it is not pending, or not restored yet.
  absl::optional<MonotonicTime> TimeOf(absl::string_view key, uint32_t tag) const {
    return timers_.TimeOf(key, tag);
  }
  // Those that are pending, with those that wait for the end of a restore.
  size_t size() const { return timers_.size() + restored_.size(); }
  size_t memory_bytes() const override;

 private:
  struct Times {
    WallTime set_at;
    WallTime due;
  };
  static std::string SubKey(uint32_t tag);
  static absl::optional<uint32_t> TagOf(absl::string_view sub_key);
  static std::string Encode(const Times& times);
  static absl::optional<Times> Decode(absl::string_view bytes);
  Duration Remaining(const Times& times) const;
  void Arm();

  absl::Status Restore(const StateKey& key, uint64_t epoch, absl::string_view payload) override;
  absl::Status RestoreRemoved(const StateKey& key) override;
  absl::StatusOr<bool> Reassert(const StateKey& key) override;
  void OnRestoreEnd() override;

  const StateBackend& backend_;
  const Clock& clock_;
  absl::AnyInvocable<void(MonotonicTime)> alarm_;
  internal::Timers timers_;
  internal::Timers restored_;  // while a restore is going on
  absl::optional<MonotonicTime> armed_for_;
  bool firing_ = false;
};

}  // namespace postrider
