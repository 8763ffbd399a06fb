#include "subscriptions/matching/rejected_log.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/json/json.h"
#include "core/json/time_text.h"

namespace postrider::subscriptions {

TopicSpec RejectedTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec spec;
  spec.name = absl::StrCat(prefix, "rejected");
  spec.partitions = 1;
  spec.replication = replication;
  spec.settings = {{"cleanup.policy", "delete"},
                   {"retention.ms", "604800000"},
                   {"min.insync.replicas", replication >= 3 ? "2" : "1"},
                   {"unclean.leader.election.enable", "false"}};
  return spec;
}

AppendRecord MakeRejectedRecord(absl::string_view topic, RejectReason reason,
                                const LogRecord& record, int64_t incarnation_ms, WallTime now) {
  JsonValue value;
  value.Set("reason", RejectReasonName(reason));
  value.Set("topic", record.topic);
  value.Set("partition", record.partition);
  value.Set("offset", record.offset);
  value.Set("incarnation_ms", incarnation_ms);
  value.Set("timestamp", FormatRfc3339(record.timestamp));
  value.Set("rejected_at", FormatRfc3339(now));
  value.Set("value_bytes", record.value.size());
  value.Set("value_base64", absl::Base64Escape(record.value.substr(0, kRejectedValueBytesMax)));
  AppendRecord append;
  append.topic = std::string(topic);
  append.value = value.Serialize();
  return append;
}

}  // namespace postrider::subscriptions
