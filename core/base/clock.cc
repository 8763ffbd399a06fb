#include "core/base/clock.h"

#include <time.h>

#include "core/base/check.h"

namespace postrider {
namespace {

std::chrono::nanoseconds Read(clockid_t id) {
  timespec now;
  POSTRIDER_CHECK(clock_gettime(id, &now) == 0);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

MonotonicTime SystemClock::Now() const { return MonotonicTime(Read(CLOCK_BOOTTIME)); }

WallTime SystemClock::Wall() const {
  return WallTime(std::chrono::floor<std::chrono::milliseconds>(Read(CLOCK_REALTIME)));
}

}  // namespace postrider
