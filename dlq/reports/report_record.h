#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::dlq {

// What a record of the topic of reports tells; closed: add at the end, never renumber.
enum class ReportKind : uint8_t {
  kRefusal = 1,         // RefusalReport
  kEndpointStatus = 2,  // endpoint_status.h
  kAttempt = 3,         // attempt_report.h
};
// No value: of a version or kind that is not known here. Looks at the first bytes only.
absl::optional<ReportKind> ReportKindOf(absl::string_view bytes);

// Why a message was completed without being sent or given up; closed: add at the end, never
// renumber.
enum class RefusalReason : uint8_t {
  kGrantWithdrawn = 1,   // withheld: its customer may not see this tenant any more
  kEndpointDeleted = 2,  // discarded
  kCollapsed = 3,        // discarded: a newer message of its key waits in a full backlog
  kErased = 4,           // discarded: it was to be forgotten
};
inline constexpr RefusalReason kRefusalReasonLast = RefusalReason::kErased;
absl::string_view RefusalReasonName(RefusalReason reason);

// One message that was withheld or discarded, without its payload: with it every message is
// accounted for.
struct RefusalReport {
  RefusalReason reason = RefusalReason::kGrantWithdrawn;
  subscriptions::CustomerId customer;
  subscriptions::EndpointId endpoint;
  std::string message_id;  // msg_...
  std::string event_id;
  std::string source_topic;
  int32_t source_partition = 0;
  int64_t source_offset = 0;
  WallTime time;
};

std::string EncodeRefusalReport(const RefusalReport& report);
// kDataLoss for anything that Encode would not have written, or of a newer version.
absl::StatusOr<RefusalReport> DecodeRefusalReport(absl::string_view bytes);

// What the indexer has read stays for so long; what it has not, until it has.
inline constexpr std::chrono::hours kReportsKept{24 * 7};
inline constexpr int32_t kReportPartitions = 8;
std::string ReportTopicName(absl::string_view prefix);
TopicSpec ReportTopic(absl::string_view prefix, int16_t replication);
AppendRecord MakeReportAppend(absl::string_view prefix, const RefusalReport& report);

}  // namespace postrider::dlq
