#pragma once

#include <chrono>
#include <cstdint>

namespace postrider {

// The time base of MonotonicTime: nanoseconds since boot, going on while the machine sleeps.
// It is a tag; read it through a Clock.
struct BootTimeBase {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<BootTimeBase>;
  static constexpr bool is_steady = true;
};

using Duration = std::chrono::nanoseconds;
using MonotonicTime = std::chrono::time_point<BootTimeBase, Duration>;
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

// Where every component gets its time from, so that tests set it by hand (tests/fakes/manual_clock.h).
// Threads: any.
class Clock {
 public:
  virtual ~Clock() = default;

  // Never goes back; comparable within one boot of one machine only.
  virtual MonotonicTime Now() const = 0;
  // Milliseconds since the Unix epoch; may jump either way.
  virtual WallTime Wall() const = 0;
};

// CLOCK_BOOTTIME and CLOCK_REALTIME.
class SystemClock final : public Clock {
 public:
  MonotonicTime Now() const override;
  WallTime Wall() const override;
};

inline int64_t MillisSinceEpoch(WallTime time) { return time.time_since_epoch().count(); }
inline WallTime WallTimeFromMillis(int64_t millis) {
  return WallTime(std::chrono::milliseconds(millis));
}

}  // namespace postrider
