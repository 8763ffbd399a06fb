#pragma once

#include <librdkafka/rdkafka.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider::loadtest::internal {

struct KafkaFree {
  void operator()(rd_kafka_t* kafka) const { rd_kafka_destroy(kafka); }
  void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
  void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
  void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
};
template <typename T>
using KafkaPtr = std::unique_ptr<T, KafkaFree>;

using Properties = std::vector<std::pair<std::string, std::string>>;
// "a=1,b=2"; empty is none.
absl::StatusOr<Properties> ParseProperties(absl::string_view text);

// Called from Poll with the opaque of a record and how it fared.
using DeliveryReport = void (*)(rd_kafka_t*, const rd_kafka_message_t*, void*);

// Later properties overrule earlier ones. `report` may be null; `opaque` is what it gets.
absl::StatusOr<KafkaPtr<rd_kafka_t>> MakeProducer(const Properties& properties,
                                                  DeliveryReport report, void* opaque);
absl::StatusOr<KafkaPtr<rd_kafka_t>> MakeConsumer(const Properties& properties);

// Creates what is missing, in chunks of 50, and waits until each partition has a leader.
absl::Status CreateTopics(rd_kafka_t* kafka, const std::vector<std::string>& topics, int partitions,
                          int timeout_s);
absl::Status DeleteTopics(rd_kafka_t* kafka, const std::vector<std::string>& topics);
// The topics whose names begin with one of `prefixes`.
absl::StatusOr<std::vector<std::string>> ListTopics(rd_kafka_t* kafka,
                                                    const std::vector<std::string>& prefixes);

}  // namespace postrider::loadtest::internal
