#pragma once

#include <array>

#include "core/base/metrics.h"
#include "delivery/outcome.h"
#include "dlq/letters/dead_letter_record.h"
#include "dlq/reports/report_record.h"

namespace postrider::delivery {

// The worker's metrics; shared by its shards.
struct DeliveryMetrics {
  explicit DeliveryMetrics(Metrics& metrics);

  Counter& CountOutcome(OutcomeKind kind) { return *outcomes[static_cast<size_t>(kind)]; }
  Counter& CountDeadLetter(dlq::DeadReason reason) {
    return *dead_letters[static_cast<size_t>(reason)];
  }
  Counter& CountRefusal(dlq::RefusalReason reason) {
    return *refusals[static_cast<size_t>(reason)];
  }

  std::array<Counter*, kOutcomeKinds> outcomes{};
  std::array<Counter*, 16> dead_letters{};
  std::array<Counter*, 16> refusals{};
  Counter& delivered;
  Counter& duplicates_dropped;
  Counter& undecodable;
  Counter& resends;
  Histogram& end_to_end_seconds;
  Histogram& attempt_seconds;
  Histogram& batch_messages;
  Gauge& requests_in_flight;
  Gauge& waiting_for_snapshot;
};

}  // namespace postrider::delivery
