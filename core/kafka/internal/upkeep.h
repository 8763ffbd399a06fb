#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/kafka/internal/client.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::kafka_internal {

// Real time, for calls that block on a network.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout);
  int left_ms() const;

 private:
  const std::chrono::steady_clock::time_point end_;
};

// Whether another try may do better: the broker is away, or its parts are moving.
bool MayPass(rd_kafka_resp_err_t err);

// The calls of Log of the same names. They block until the deadline at most and try again what may
// pass. `admin` is a consumer's client without a group.
//
// Threads: any.
absl::StatusOr<int64_t> OffsetForTime(rd_kafka_t* admin, const TopicPartition& tp, WallTime time,
                                      const Deadline& deadline);
// Does not try again: no value for what was not told at once.
std::vector<absl::optional<int64_t>> Ends(rd_kafka_t* admin,
                                          const std::vector<TopicPartition>& partitions,
                                          const Deadline& deadline);
absl::StatusOr<Log::GroupState> DescribeGroup(rd_kafka_t* admin, const std::string& group,
                                              const std::vector<TopicPartition>& partitions,
                                              const Deadline& deadline);
// That the partitions exist is the caller's to check.
absl::Status ResetGroup(rd_kafka_t* admin, const std::string& group,
                        const std::vector<CommitEntry>& entries, const Deadline& deadline);
// Accepted; the metadata may show it for a while yet.
absl::Status DeleteTopic(rd_kafka_t* admin, const std::string& topic, const Deadline& deadline);
absl::Status FreezeTopic(const ClientConfig& config, rd_kafka_t* admin, const std::string& topic,
                         int32_t partitions, const Deadline& deadline);

}  // namespace postrider::kafka_internal
