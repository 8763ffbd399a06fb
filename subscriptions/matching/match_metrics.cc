#include "subscriptions/matching/match_metrics.h"

namespace postrider::subscriptions {

absl::string_view UnmatchedReasonName(UnmatchedReason reason) {
  switch (reason) {
    case UnmatchedReason::kNoTenant:
      return "no_tenant";
    case UnmatchedReason::kNoSubscription:
      return "no_subscription";
    case UnmatchedReason::kTombstone:
      return "tombstone";
    case UnmatchedReason::kReservedTenant:
      return "reserved_tenant";
  }
  return "unknown";
}

MatchMetrics::MatchMetrics(Metrics& metrics)
    : events(metrics.AddCounter("postrider_matching_events_total", "Events matched or refused.")),
      event_bytes(metrics.AddCounter("postrider_matching_event_bytes_total", "Their bytes.")),
      matched_events(metrics.AddCounter("postrider_matching_matched_events_total",
                                        "Events that go to at least one endpoint.")),
      messages(metrics.AddCounter("postrider_matching_messages_total",
                                  "Messages handed to the dispatch topic.")),
      event_seconds(metrics.AddHistogram(
          "postrider_matching_event_seconds",
          "Decoding, matching and emitting an event; one event in 64 is measured.",
          {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1})),
      waiting_events(metrics.AddGauge("postrider_matching_waiting_events",
                                      "Events read that wait for room or for a snapshot.")),
      index_bytes(metrics.AddGauge("postrider_matching_index_bytes",
                                   "Memory of the match index beside the snapshot.")),
      index_build_seconds(metrics.AddGauge("postrider_matching_index_build_seconds",
                                           "How long the last match index took to build.")) {
  for (int i = 0; i < kRejectReasons; ++i) {
    rejected_events[static_cast<size_t>(i)] = &metrics.AddCounter(
        "postrider_matching_rejected_events_total", "Events sent to the rejected topic.",
        {{"reason", RejectReasonName(static_cast<RejectReason>(i))}});
  }
  for (int i = 0; i < kUnmatchedReasons; ++i) {
    unmatched_events[static_cast<size_t>(i)] = &metrics.AddCounter(
        "postrider_matching_unmatched_events_total", "Events that go to no endpoint.",
        {{"reason", UnmatchedReasonName(static_cast<UnmatchedReason>(i))}});
  }
}

}  // namespace postrider::subscriptions
