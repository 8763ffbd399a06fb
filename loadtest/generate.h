#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/plan.h"

namespace postrider::loadtest {

struct GenerateOptions {
  std::string brokers;
  std::string properties;  // "name=value,..." for the producer
  std::string file;        // instead of Kafka: a line of JSON an event
  std::string api;         // instead of Kafka: its URL, for POST /v1/events
  std::string publisher_key;
  int connections = 8;      // to the API; one keeps the events' order
  std::string ledger_file;  // empty: none
  uint64_t seed = 1;
  uint64_t first = 0;   // number of the first event
  uint64_t events = 0;  // 0: until the seconds are over
  double seconds = 0;   // 0: until the events are out
  double rate = 0;      // events per second; 0: as fast as they are taken
  uint32_t size_min = 500;
  uint32_t size_max = 900;
  int partitions = 1;  // of a topic that is created
  bool create_topics = false;
};

struct GenerateResult {
  uint64_t events = 0;
  uint64_t acknowledged = 0;
  uint64_t sent_again = 0;  // to the API, so that the log may have them twice
  double seconds = 0;
};

// Produces the events of a seed to the plan's source topics, paced, and writes down each one that
// all in-sync replicas, or the API, acknowledged. It ends early when `stop` is set; what is out
// then is still waited for. Kafka or the API may be away for as long as it likes; the queue is
// bounded.
absl::StatusOr<GenerateResult> Generate(const Plan& plan, const GenerateOptions& options,
                                        const std::atomic<bool>& stop);

// Creates the plan's source topics and waits until they can be used.
absl::Status CreateSourceTopics(const Plan& plan, const std::string& brokers, int partitions);

// Deletes every topic whose name begins with one of `prefixes`, none of them empty. Returns how
// many.
absl::StatusOr<size_t> DeleteTopicsByPrefix(const std::string& brokers,
                                            const std::vector<std::string>& prefixes);

struct PublishOptions {
  std::string brokers;
  std::string properties;
  std::string topic;
  std::string key;
  std::vector<std::pair<std::string, std::string>> headers;
  bool create_topic = false;
};
// Publishes each line of standard input as one record, prints "partition offset" for each once it
// is acknowledged, and fails when one is not.
absl::Status Publish(const PublishOptions& options);

}  // namespace postrider::loadtest
