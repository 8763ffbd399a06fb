#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace postrider::loadtest {

struct HopOptions {
  std::string brokers;
  std::string prefix = "hop.";  // of the two topics, which are made and deleted again
  int first_partitions = 20;    // stands for the source topics
  int second_partitions = 64;   // stands for the dispatch topic
  double rate = 1000;           // records per second
  double seconds = 60;
  double skip_seconds = 5;  // at the start, not counted
  uint32_t size_min = 500;
  uint32_t size_max = 900;
  std::string client_properties;    // "name=value,..." for all clients
  std::string producer_properties;  // and more for one kind
  std::string first_consumer_properties;
  std::string second_consumer_properties;
};

struct HopResult {
  uint64_t records = 0;  // that came through
  uint64_t lost = 0;
  double p50_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
};

// Produce, consume, produce, consume, with nothing between: the time that Kafka alone needs for
// what an event does on its way through the product, from the first produce call to the second
// consumer's hand.
absl::StatusOr<HopResult> Hop(const HopOptions& options, const std::atomic<bool>& stop);

}  // namespace postrider::loadtest
