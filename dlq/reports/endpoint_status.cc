#include "dlq/reports/endpoint_status.h"

#include "dlq/reports/internal/report_codec.h"
#include "dlq/reports/report_record.h"

namespace postrider::dlq {

using internal::ReadId;
using internal::ReadOptionalTime;
using internal::WriteOptionalTime;

absl::string_view EndpointHealthStateName(EndpointHealthState state) {
  switch (state) {
    case EndpointHealthState::kHealthy:
      return "healthy";
    case EndpointHealthState::kDegraded:
      return "degraded";
    case EndpointHealthState::kProbing:
      return "probing";
    case EndpointHealthState::kPaused:
      return "paused";
    case EndpointHealthState::kDisabled:
      return "disabled";
  }
  return "unknown";
}

std::string EncodeEndpointStatus(const EndpointStatus& status) {
  ByteWriter writer;
  writer.U8(internal::kReportVersion);
  writer.U8(static_cast<uint8_t>(ReportKind::kEndpointStatus));
  writer.Raw(status.customer.view());
  writer.Raw(status.endpoint.view());
  writer.Varint(status.part);
  writer.Zigzag(MillisSinceEpoch(status.observed_at));
  writer.U8(static_cast<uint8_t>(status.state));
  writer.String(absl::string_view(status.reason).substr(0, EndpointStatus::kReasonBytesMax));
  WriteOptionalTime(writer, status.held_until);
  WriteOptionalTime(writer, status.failing_since);
  writer.Varint(status.auto_disabled_generation);
  writer.Varint(status.backlog_messages);
  writer.Varint(status.backlog_bytes);
  writer.Varint(status.window);
  writer.Varint(status.learned_events_max);
  writer.Varint(status.learned_bytes_max);
  writer.Varint(status.learned_messages_per_1000_seconds);
  writer.String(absl::string_view(status.last_outcome).substr(0, EndpointStatus::kReasonBytesMax));
  writer.Varint(status.last_status);
  WriteOptionalTime(writer, status.last_attempt_at);
  WriteOptionalTime(writer, status.last_success_at);
  return writer.Take();
}

absl::StatusOr<EndpointStatus> DecodeEndpointStatus(absl::string_view bytes) {
  if (ReportKindOf(bytes) != ReportKind::kEndpointStatus) return internal::UnknownReport();
  ByteReader reader(bytes.substr(2));
  EndpointStatus status;
  status.customer = ReadId<subscriptions::CustomerId>(reader);
  status.endpoint = ReadId<subscriptions::EndpointId>(reader);
  status.part = static_cast<uint32_t>(reader.Varint());
  status.observed_at = WallTimeFromMillis(reader.Zigzag());
  const uint8_t state = reader.U8();
  status.reason = std::string(reader.String());
  status.held_until = ReadOptionalTime(reader);
  status.failing_since = ReadOptionalTime(reader);
  status.auto_disabled_generation = reader.Varint();
  status.backlog_messages = reader.Varint();
  status.backlog_bytes = reader.Varint();
  status.window = static_cast<uint32_t>(reader.Varint());
  status.learned_events_max = reader.Varint();
  status.learned_bytes_max = reader.Varint();
  status.learned_messages_per_1000_seconds = reader.Varint();
  status.last_outcome = std::string(reader.String());
  status.last_status = static_cast<uint32_t>(reader.Varint());
  status.last_attempt_at = ReadOptionalTime(reader);
  status.last_success_at = ReadOptionalTime(reader);
  if (!reader.done() || state < 1 || state > static_cast<uint8_t>(EndpointHealthState::kDisabled)) {
    return internal::DamagedReport();
  }
  status.state = static_cast<EndpointHealthState>(state);
  // What was cut to its type, or written in a longer form than ours, is not what we wrote.
  if (EncodeEndpointStatus(status) != bytes) return internal::DamagedReport();
  return status;
}

AppendRecord MakeStatusAppend(absl::string_view prefix, const EndpointStatus& status) {
  return internal::MakeAppend(prefix, status.customer, EncodeEndpointStatus(status));
}

}  // namespace postrider::dlq
