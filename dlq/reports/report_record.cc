#include "dlq/reports/report_record.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "dlq/reports/internal/report_codec.h"

namespace postrider::dlq {

absl::optional<ReportKind> ReportKindOf(absl::string_view bytes) {
  ByteReader reader(bytes);
  const uint8_t version = reader.U8();
  const uint8_t kind = reader.U8();
  if (!reader.ok() || version != internal::kReportVersion ||
      kind < static_cast<uint8_t>(ReportKind::kRefusal) ||
      kind > static_cast<uint8_t>(ReportKind::kAttempt)) {
    return absl::nullopt;
  }
  return static_cast<ReportKind>(kind);
}

absl::string_view RefusalReasonName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kGrantWithdrawn:
      return "grant_withdrawn";
    case RefusalReason::kEndpointDeleted:
      return "endpoint_deleted";
    case RefusalReason::kCollapsed:
      return "collapsed";
    case RefusalReason::kErased:
      return "erased";
  }
  return "unknown";
}

std::string EncodeRefusalReport(const RefusalReport& report) {
  ByteWriter writer;
  writer.U8(internal::kReportVersion);
  writer.U8(static_cast<uint8_t>(ReportKind::kRefusal));
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
  if (ReportKindOf(bytes) != ReportKind::kRefusal) return internal::UnknownReport();
  ByteReader reader(bytes.substr(2));
  RefusalReport report;
  const uint8_t reason = reader.U8();
  report.customer = internal::ReadId<subscriptions::CustomerId>(reader);
  report.endpoint = internal::ReadId<subscriptions::EndpointId>(reader);
  report.message_id = std::string(reader.String());
  report.event_id = std::string(reader.String());
  report.source_topic = std::string(reader.String());
  report.source_partition = static_cast<int32_t>(reader.Zigzag());
  report.source_offset = reader.Zigzag();
  report.time = WallTimeFromMillis(reader.Zigzag());
  if (!reader.done() || reason < 1 || reason > static_cast<uint8_t>(kRefusalReasonLast)) {
    return internal::DamagedReport();
  }
  report.reason = static_cast<RefusalReason>(reason);
  // What was cut to its type, or written in a longer form than ours, is not what we wrote.
  if (EncodeRefusalReport(report) != bytes) return internal::DamagedReport();
  return report;
}

std::string ReportTopicName(absl::string_view prefix) { return absl::StrCat(prefix, "reports"); }

TopicSpec ReportTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec topic;
  topic.name = ReportTopicName(prefix);
  topic.partitions = kReportPartitions;
  topic.replication = replication;
  // Trimmed by the indexer, behind what it has read.
  topic.settings = {
      {"retention.ms", "-1"}, {"retention.bytes", "-1"}, {"cleanup.policy", "delete"}};
  return topic;
}

AppendRecord MakeReportAppend(absl::string_view prefix, const RefusalReport& report) {
  return internal::MakeAppend(prefix, report.customer, EncodeRefusalReport(report));
}

}  // namespace postrider::dlq
