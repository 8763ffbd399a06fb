#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"

namespace postrider::delivery {

// The timers of an EndpointFunction. Of an endpoint:
inline constexpr uint32_t kBatchTimer = 1;
inline constexpr uint32_t kSendTimer = 2;
// Of the function, under a key that no endpoint has.
inline constexpr absl::string_view kFunctionKey = "";
inline constexpr uint32_t kSweepTimer = 3;  // looks for endpoints that have been idle
inline constexpr uint32_t kAgeTimer = 4;    // looks for messages that have pended for long
inline constexpr uint32_t kInheritedTimer = 5;
inline constexpr uint32_t kRebuildTimer = 6;  // goes on with what a restored backlog holds
inline constexpr uint32_t kBoundsTimer = 7;   // backlogs beyond their bounds
inline constexpr uint32_t kEraseTimer = 10;   // what is to be forgotten
inline constexpr uint32_t kOrphanTimer = 8;   // goes on with what nothing in the backlog needs
inline constexpr uint32_t kSecretsTimer = 9;  // signing secrets that end soon
inline constexpr std::chrono::minutes kSecretsInterval{10};
inline constexpr std::chrono::minutes kSweepInterval{1};
inline constexpr std::chrono::seconds kAgeInterval{1};

inline double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// How long ago `then` was: between none and a century, whatever a clock or an event says.
inline Duration Age(WallTime now, WallTime then) {
  constexpr auto kCentury =
      static_cast<uint64_t>(std::chrono::milliseconds(std::chrono::years(100)).count());
  if (then >= now) return Duration::zero();
  const uint64_t millis =
      static_cast<uint64_t>(MillisSinceEpoch(now)) - static_cast<uint64_t>(MillisSinceEpoch(then));
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(millis, kCentury)));
}

}  // namespace postrider::delivery
