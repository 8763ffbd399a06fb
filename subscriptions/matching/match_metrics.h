#pragma once

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "core/base/metrics.h"
#include "subscriptions/matching/decoder/json_decoder.h"

namespace postrider::subscriptions {

// Why an event that can be decoded goes to nobody. Closed.
enum class UnmatchedReason {
  kNoTenant,
  kNoSubscription,
  kTombstone,       // the record has no value at all
  kReservedTenant,  // a source topic's event names a tenant of ours, or ours names none
};
inline constexpr int kUnmatchedReasons = 4;
absl::string_view UnmatchedReasonName(UnmatchedReason reason);

// The matcher's series. Threads: any.
struct MatchMetrics {
  explicit MatchMetrics(Metrics& metrics);

  Counter& rejected(RejectReason reason) { return *rejected_events[static_cast<size_t>(reason)]; }
  Counter& unmatched(UnmatchedReason reason) {
    return *unmatched_events[static_cast<size_t>(reason)];
  }

  Counter& events;
  Counter& event_bytes;
  Counter& matched_events;
  Counter& messages;
  std::array<Counter*, kRejectReasons> rejected_events;
  std::array<Counter*, kUnmatchedReasons> unmatched_events;
  Histogram& event_seconds;  // decode, match and emit, of one event in 64
  Gauge& waiting_events;     // read, but not matched yet
  Gauge& index_bytes;
  Gauge& index_build_seconds;
};

}  // namespace postrider::subscriptions
