#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/metrics.h"
#include "delivery/endpoint_health.h"
#include "delivery/endpoint_reporting.h"
#include "delivery/operational_teller.h"
#include "delivery/outcome.h"
#include "dlq/letters/dead_letter_record.h"
#include "dlq/reports/report_record.h"

namespace postrider::delivery {

// Why a message was parked: made durable where it stands, so that the watermark passes it.
enum class ParkReason : uint8_t {
  kFailed,    // its batch was tried and failed
  kShare,     // its endpoint holds its share of memory
  kAge,       // it held the watermark for too long
  kPressure,  // the shard is at its bounds
  kLongWait,  // its open batch waits for long
  kRescale,   // its pool gets another number of key groups
  kStopped,   // its endpoint is paused or disabled, or its breaker is open
  kHoles,     // too much was completed above it
};
inline constexpr int kParkReasons = 8;
absl::string_view ParkReasonName(ParkReason reason);

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

  Counter& CountParked(ParkReason reason) { return *parked[static_cast<size_t>(reason)]; }

  // Of endpoints that are not healthy.
  Gauge& OfHealth(HealthState state) { return *by_health[static_cast<size_t>(state)]; }

  std::array<Counter*, kOutcomeKinds> outcomes{};
  std::array<Counter*, 16> dead_letters{};
  std::array<Counter*, 16> refusals{};
  std::array<Counter*, kParkReasons> parked{};
  std::array<Gauge*, kHealthStates> by_health{};
  Counter& delivered;
  Counter& duplicates_dropped;
  Counter& undecodable;
  Counter& resends;
  Histogram& end_to_end_seconds;
  Histogram& attempt_seconds;
  Histogram& batch_messages;
  Gauge& requests_in_flight;
  Gauge& disk_used_ratio;
  Gauge& disk_free_bytes;
  Gauge& waiting_for_snapshot;
  Counter& drained;
  Gauge& backlog_messages;
  Gauge& backlog_bytes;
  Counter& results_passed_on;
  Counter& bisections;
  Counter& foreign_acks;
  Counter& breakers_opened;
  Counter& probes;
  Counter& own_outage_failures;
  Counter& token_fetches;
  Counter& token_failures;
  ReportingMetrics reports;
  OperationalMetrics operational;
};

}  // namespace postrider::delivery
