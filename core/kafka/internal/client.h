#pragma once

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/metrics.h"

namespace postrider::kafka_internal {

// librdkafka's objects with their ends.
template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
using ConfPtr = std::unique_ptr<rd_kafka_conf_t, Destroyer<rd_kafka_conf_destroy>>;
using ClientPtr = std::unique_ptr<rd_kafka_t, Destroyer<rd_kafka_destroy>>;
using QueuePtr = std::unique_ptr<rd_kafka_queue_t, Destroyer<rd_kafka_queue_destroy>>;
using EventPtr = std::unique_ptr<rd_kafka_event_t, Destroyer<rd_kafka_event_destroy>>;
using MessagePtr = std::unique_ptr<rd_kafka_message_t, Destroyer<rd_kafka_message_destroy>>;
using TopicPtr = std::unique_ptr<rd_kafka_topic_t, Destroyer<rd_kafka_topic_destroy>>;
using HeadersPtr = std::unique_ptr<rd_kafka_headers_t, Destroyer<rd_kafka_headers_destroy>>;
using ErrorPtr = std::unique_ptr<rd_kafka_error_t, Destroyer<rd_kafka_error_destroy>>;
using PartitionListPtr = std::unique_ptr<rd_kafka_topic_partition_list_t,
                                         Destroyer<rd_kafka_topic_partition_list_destroy>>;
using AdminOptionsPtr =
    std::unique_ptr<rd_kafka_AdminOptions_t, Destroyer<rd_kafka_AdminOptions_destroy>>;
using MetadataPtr =
    std::unique_ptr<const rd_kafka_metadata_t, Destroyer<rd_kafka_metadata_destroy>>;

// A non-blocking eventfd that librdkafka writes to when one of its queues gets its first element.
class WakeFd {
 public:
  static absl::StatusOr<std::unique_ptr<WakeFd>> Create();
  // Another descriptor of the same eventfd, with a life of its own.
  absl::StatusOr<std::unique_ptr<WakeFd>> Copy() const;
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  int fd() const { return fd_; }
  // Any thread.
  void Signal();
  void Drain();
  // `queue` is the last of its chain of forwarding.
  void Attach(rd_kafka_queue_t* queue);

 private:
  explicit WakeFd(int fd) : fd_(fd) {}
  const int fd_;
};

struct KafkaMetrics {
  explicit KafkaMetrics(Metrics& metrics);
  Counter& appends_failed;
  Counter& producer_restarts;
  Counter& commits_done;
  Counter& commits_failed;
  Counter& commits_fenced;
  Histogram& commit_seconds;
  Counter& assigned;
  Counter& revoked;
  Counter& lost;
  Counter& out_of_range;
  Counter& stale_records;
  Gauge& unreachable;
};

using Settings = std::vector<std::pair<std::string, std::string>>;

// What every client of one log is made from.
struct ClientConfig {
  std::string brokers;
  absl::flat_hash_map<std::string, std::string> properties;
};

// kInvalidArgument for a property of the operator's that is refused, unknown or malformed.
absl::Status CheckProperties(const ClientConfig& config);

// The operator's properties and above them `own`; logs go to our log.
absl::StatusOr<ConfPtr> MakeConf(const ClientConfig& config, const Settings& own);
absl::StatusOr<ClientPtr> MakeClient(rd_kafka_type_t type, ConfPtr conf);

// "kafka: <what>: <librdkafka's text>" with the code that fits.
absl::Status ToStatus(rd_kafka_resp_err_t err, absl::string_view what,
                      absl::string_view detail = absl::string_view());

}  // namespace postrider::kafka_internal
