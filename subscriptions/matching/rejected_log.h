#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "subscriptions/matching/decoder/json_decoder.h"

namespace postrider::subscriptions {

// What could not be decoded, for whoever runs the service: JSON records in a topic of one
// partition, kept 7 days. {"reason", "topic", "partition", "offset", "incarnation_ms", "timestamp",
// "rejected_at", "value_bytes", "value_base64"}, the last being the first kRejectedValueBytesMax
// bytes of the value.
inline constexpr size_t kRejectedValueBytesMax = 1'024;

TopicSpec RejectedTopic(absl::string_view prefix, int16_t replication);

AppendRecord MakeRejectedRecord(absl::string_view topic, RejectReason reason,
                                const LogRecord& record, int64_t incarnation_ms, WallTime now);

}  // namespace postrider::subscriptions
