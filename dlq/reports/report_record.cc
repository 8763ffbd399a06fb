#include "dlq/reports/report_record.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/stream/key_groups.h"

namespace postrider::dlq {
namespace {
constexpr uint8_t kVersion = 1;
constexpr uint8_t kKindRefusal = 1;
}  // namespace

absl::string_view RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kGrantWithdrawn:
      return "grant_withdrawn";
    case RefusalReason::kEndpointDeleted:
      return "endpoint_deleted";
  }
  return "unknown";
}

std::string EncodeRefusalReport(const RefusalReport& report) {
  ByteWriter writer;
  writer.U8(kVersion);
  writer.U8(kKindRefusal);
  writer.U8(static_cast<uint8_t>(report.reason));
  writer.Raw(report.customer.view());
  writer.Raw(report.endpoint.view());
  writer.String(report.message_id);
  writer.String(report.event_id);
  writer.String(report.source_topic);
  writer.Zigzag(report.source_partition);
  writer.Zigzag(report.source_offset);
  writer.Zigzag(MillisSinceEpoch(report.time));
  return writer.Take();
}

absl::StatusOr<RefusalReport> DecodeRefusalReport(absl::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.U8() != kVersion || reader.U8() != kKindRefusal) {
    return absl::DataLossError("dlq: a report record of an unknown version or kind");
  }
  RefusalReport report;
  const uint8_t reason = reader.U8();
  IdBytes customer{};
  IdBytes endpoint{};
  for (IdBytes* id : {&customer, &endpoint}) {
    const absl::string_view raw = reader.Raw(16);
    if (raw.size() == 16) std::memcpy(id->data(), raw.data(), 16);
  }
  report.customer = subscriptions::CustomerId(customer);
  report.endpoint = subscriptions::EndpointId(endpoint);
  report.message_id = std::string(reader.String());
  report.event_id = std::string(reader.String());
  report.source_topic = std::string(reader.String());
  report.source_partition = static_cast<int32_t>(reader.Zigzag());
  report.source_offset = reader.Zigzag();
  report.time = WallTimeFromMillis(reader.Zigzag());
  if (!reader.done() || reason < 1 ||
      reason > static_cast<uint8_t>(RefusalReason::kEndpointDeleted)) {
    return absl::DataLossError("dlq: a damaged report record");
  }
  report.reason = static_cast<RefusalReason>(reason);
  // What was cut to its type, or written in a longer form than ours, is not what we wrote.
  if (EncodeRefusalReport(report) != bytes) {
    return absl::DataLossError("dlq: a report record in a form that is not ours");
  }
  return report;
}

std::string ReportTopicName(absl::string_view prefix) { return absl::StrCat(prefix, "reports"); }

TopicSpec ReportTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec topic;
  topic.name = ReportTopicName(prefix);
  topic.partitions = kReportPartitions;
  topic.replication = replication;
  topic.settings = {{"retention.ms", "604800000"}, {"cleanup.policy", "delete"}};
  return topic;
}

AppendRecord MakeReportAppend(absl::string_view prefix, const RefusalReport& report) {
  AppendRecord append;
  append.topic = ReportTopicName(prefix);
  append.partition = KeyGroupOf(report.customer.view(), 0, kReportPartitions);
  append.key = std::string(report.customer.view());
  append.value = EncodeRefusalReport(report);
  return append;
}

}  // namespace postrider::dlq
