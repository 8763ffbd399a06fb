#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// What no role can do anything with, for whoever runs the service: one topic of one partition, kept
// 7 days. A record there has key and value of the one that was rejected, as they were, and headers
// that say why and whence:
//
//   reason          of a small closed set of each role
//   source, offset  topic/partition and offset that it was read at
//   incarnation_ms  of a source topic's partition
//   timestamp_ms    the rejected record's
//   rejected_at_ms
//   value_bytes     of the rejected record: of a long value only the beginning may be here
//
// Times are milliseconds since 1970, in decimal like all numbers.
std::string RejectedTopicName(absl::string_view prefix);
TopicSpec RejectedTopic(absl::string_view prefix, int16_t replication);

struct Rejection {
  absl::string_view reason;
  TopicPartition source;
  int64_t offset = 0;
  absl::optional<int64_t> incarnation_ms;
  absl::optional<WallTime> timestamp;
  WallTime rejected_at;
  std::string key;
  absl::string_view value;
  size_t value_bytes_max = static_cast<size_t>(-1);  // of the value so many are kept
};

AppendRecord MakeRejectedRecord(std::string topic, Rejection rejection);

}  // namespace postrider
