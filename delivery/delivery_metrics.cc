#include "delivery/delivery_metrics.h"

#include <vector>

namespace postrider::delivery {
namespace {
const std::vector<double> kLatencySeconds = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                             1,     2,    5,    10,   30,  60,  300};
}  // namespace

absl::string_view ParkReasonName(ParkReason reason) {
  switch (reason) {
    case ParkReason::kFailed:
      return "failed";
    case ParkReason::kShare:
      return "share";
    case ParkReason::kAge:
      return "age";
    case ParkReason::kPressure:
      return "pressure";
    case ParkReason::kLongWait:
      return "long_wait";
    case ParkReason::kRescale:
      return "rescale";
    case ParkReason::kStopped:
      return "stopped";
    case ParkReason::kHoles:
      return "holes";
  }
  return "unknown";
}

DeliveryMetrics::DeliveryMetrics(Metrics& metrics)
    : delivered(metrics.AddCounter("postrider_delivery_messages_delivered_total",
                                   "Messages that a receiver took.")),
      duplicates_dropped(metrics.AddCounter(
          "postrider_delivery_duplicates_dropped_total",
          "Messages met before at a lower offset, with exactly the same identity.")),
      undecodable(metrics.AddCounter("postrider_delivery_undecodable_total",
                                     "Dispatch records that could not be decoded.")),
      resends(metrics.AddCounter(
          "postrider_delivery_resends_total",
          "Requests sent a second time within one attempt, as a kept connection was dead.")),
      end_to_end_seconds(metrics.AddHistogram("postrider_delivery_end_to_end_seconds",
                                              "From the event's time to the receiver's 2xx.",
                                              kLatencySeconds)),
      attempt_seconds(metrics.AddHistogram("postrider_delivery_attempt_seconds",
                                           "Duration of a request, queueing left out.",
                                           kLatencySeconds)),
      batch_messages(metrics.AddHistogram("postrider_delivery_batch_messages",
                                          "Messages per request.",
                                          {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000})),
      requests_in_flight(metrics.AddGauge("postrider_delivery_requests_in_flight",
                                          "Requests that wait for their outcome.")),
      disk_used_ratio(metrics.AddGauge(
          "postrider_delivery_state_disk_used_ratio",
          "What the backlog has on its disk or is to be written there, as a part of that and what "
          "is free; it is held at about state.disk_share_max.")),
      disk_free_bytes(metrics.AddGauge("postrider_delivery_state_disk_free_bytes",
                                       "What is free on the disk of the backlog.")),
      waiting_for_snapshot(
          metrics.AddGauge("postrider_delivery_endpoints_waiting_for_snapshot",
                           "Endpoints whose messages are newer than the snapshot.")),
      drained(metrics.AddCounter("postrider_delivery_drained_total",
                                 "Messages read back from the backlog to be sent.")),
      backlog_messages(metrics.AddGauge("postrider_delivery_backlog_messages",
                                        "Messages in the backlogs of this worker's key groups.")),
      backlog_bytes(metrics.AddGauge("postrider_delivery_backlog_bytes",
                                     "Bytes of the records of those messages.")),
      results_passed_on(metrics.AddCounter(
          "postrider_delivery_results_passed_on_total",
          "Outcomes of requests whose key group had moved, passed on to its new owner.")),
      bisections(metrics.AddCounter("postrider_delivery_bisections_total",
                                    "Batches that were refused and sent again in pieces.")),
      foreign_acks(metrics.AddCounter(
          "postrider_delivery_foreign_acks_total",
          "Ids and places in partial acknowledgements that name no message of the batch.")),
      breakers_opened(metrics.AddCounter("postrider_delivery_breakers_opened_total",
                                         "Breakers that opened, after failed probes too.")),
      probes(metrics.AddCounter("postrider_delivery_probes_total",
                                "Requests by which an endpoint with an open breaker was probed.")),
      own_outage_failures(metrics.AddCounter(
          "postrider_delivery_own_outage_failures_total",
          "Requests that failed before they were sent while most hosts could not be reached: "
          "charged to nobody.")),
      token_fetches(metrics.AddCounter("postrider_delivery_token_fetches_total",
                                       "Access tokens that providers were asked for.")),
      token_failures(
          metrics.AddCounter("postrider_delivery_token_failures_total",
                             "Those that were not given, or not asked for without room.")),
      reports(metrics),
      operational(metrics) {
  for (int i = 1; i < kHealthStates; ++i) {
    by_health[static_cast<size_t>(i)] =
        &metrics.AddGauge("postrider_delivery_endpoints",
                          "Endpoints in memory, or parts of them, that are not healthy, by state.",
                          {{"state", HealthStateName(static_cast<HealthState>(i))}});
  }
  for (int i = 0; i < kOutcomeKinds; ++i) {
    outcomes[static_cast<size_t>(i)] =
        &metrics.AddCounter("postrider_delivery_attempts_total", "Attempts by outcome.",
                            {{"outcome", OutcomeName(static_cast<OutcomeKind>(i))}});
  }
  for (int i = 0; i < kParkReasons; ++i) {
    parked[static_cast<size_t>(i)] = &metrics.AddCounter(
        "postrider_delivery_parked_total", "Messages made durable where they stand, by reason.",
        {{"reason", ParkReasonName(static_cast<ParkReason>(i))}});
  }
  for (uint64_t i = 1; i <= static_cast<uint64_t>(dlq::kDeadReasonLast); ++i) {
    dead_letters[i] = &metrics.AddCounter(
        "postrider_delivery_dead_letters_total", "Messages given up, by reason.",
        {{"reason", dlq::DeadReasonName(static_cast<dlq::DeadReason>(i))}});
  }
  for (uint64_t i = 1; i <= static_cast<uint64_t>(dlq::kRefusalReasonLast); ++i) {
    refusals[i] = &metrics.AddCounter(
        "postrider_delivery_refused_total", "Messages withheld or discarded, by reason.",
        {{"reason", dlq::RefusalReasonName(static_cast<dlq::RefusalReason>(i))}});
  }
}

}  // namespace postrider::delivery
