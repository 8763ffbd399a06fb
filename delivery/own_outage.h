#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"

namespace postrider::delivery {

// Tells whether it is this process that cannot reach anybody (a dead uplink, a dead resolver), so
// that no receiver is blamed for it (RULES 3, "Our own outage"): of at least 20 distinct hosts that
// were tried within 10 s, half failed before a request was sent. What counts of a host is its last
// try.
//
// A host stands at the place of its hash; of two at one place the later one counts. So it may count
// fewer hosts than there are, never more.
//
// Threads: any; without locks, as it lies on the way of each answer.
// Bounds:  one table of 4,096 places.
class OwnOutage {
 public:
  static constexpr Duration kSpan = std::chrono::seconds(10);
  static constexpr size_t kHostsLeast = 20;

  // A request to `host` was sent, or answered.
  void OnReached(absl::string_view host, MonotonicTime now) { Note(host, now, 0); }
  // It failed before it was sent: no address, no connection, no TLS.
  void OnUnreached(absl::string_view host, MonotonicTime now) { Note(host, now, 1); }
  // Looked at anew at most every 100 ms.
  bool active(MonotonicTime now);

 private:
  static constexpr size_t kPlaces = 4096;
  void Note(absl::string_view host, MonotonicTime now, uint64_t failed);
  bool Look(MonotonicTime now) const;

  // The time of the last try in ms, and in the last bit whether it failed; 0: none.
  std::array<std::atomic<uint64_t>, kPlaces> places_{};
  std::atomic<int64_t> looked_ms_{-1};
  std::atomic<bool> active_{false};
};

}  // namespace postrider::delivery
