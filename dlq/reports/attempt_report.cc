#include "dlq/reports/attempt_report.h"

#include "dlq/reports/internal/report_codec.h"
#include "dlq/reports/report_record.h"

namespace postrider::dlq {

using internal::ReadId;

std::string EncodeAttemptReport(const AttemptReport& report) {
  const bool too_many = report.tenants.size() > AttemptReport::kTenantsMax;
  ByteWriter writer;
  writer.U8(internal::kReportVersion);
  writer.U8(static_cast<uint8_t>(ReportKind::kAttempt));
  writer.Raw(report.id.view());
  writer.Raw(report.customer.view());
  writer.Raw(report.endpoint.view());
  writer.String(report.message_id);
  writer.Varint(report.messages);
  writer.Varint(report.attempt);
  writer.Zigzag(MillisSinceEpoch(report.started_at));
  writer.Varint(report.duration_ms);
  writer.String(report.outcome);
  writer.Varint(report.status);
  writer.String(
      too_many ? absl::string_view()
               : absl::string_view(report.response).substr(0, AttemptReport::kResponseBytesMax));
  writer.Varint(too_many ? 0 : report.tenants.size());
  if (!too_many) {
    for (const std::string& tenant : report.tenants) writer.String(tenant);
  }
  return writer.Take();
}

absl::StatusOr<AttemptReport> DecodeAttemptReport(absl::string_view bytes) {
  if (ReportKindOf(bytes) != ReportKind::kAttempt) return internal::UnknownReport();
  ByteReader reader(bytes.substr(2));
  AttemptReport report;
  report.id = ReadId<AttemptId>(reader);
  report.customer = ReadId<subscriptions::CustomerId>(reader);
  report.endpoint = ReadId<subscriptions::EndpointId>(reader);
  report.message_id = std::string(reader.String());
  report.messages = static_cast<uint32_t>(reader.Varint());
  report.attempt = static_cast<uint32_t>(reader.Varint());
  report.started_at = WallTimeFromMillis(reader.Zigzag());
  report.duration_ms = static_cast<uint32_t>(reader.Varint());
  report.outcome = std::string(reader.String());
  report.status = static_cast<uint32_t>(reader.Varint());
  report.response = std::string(reader.String());
  const uint64_t tenants = reader.Varint();
  for (uint64_t i = 0; i < tenants && i <= AttemptReport::kTenantsMax && reader.ok(); ++i) {
    report.tenants.emplace_back(reader.String());
  }
  if (!reader.done() || EncodeAttemptReport(report) != bytes) return internal::DamagedReport();
  return report;
}

AppendRecord MakeAttemptAppend(absl::string_view prefix, const AttemptReport& report) {
  return internal::MakeAppend(prefix, report.customer, EncodeAttemptReport(report));
}

}  // namespace postrider::dlq
