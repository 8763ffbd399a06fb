#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"
#include "dlq/reports/report_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using dlq::AttemptReport;
using dlq::EndpointStatus;

// A record of one kind is none of another.
void Decode(absl::string_view bytes) {
  const absl::optional<dlq::ReportKind> kind = dlq::ReportKindOf(bytes);
  const absl::StatusOr<EndpointStatus> status = dlq::DecodeEndpointStatus(bytes);
  const absl::StatusOr<AttemptReport> attempt = dlq::DecodeAttemptReport(bytes);
  POSTRIDER_CHECK(status.ok() || absl::IsDataLoss(status.status()));
  POSTRIDER_CHECK(attempt.ok() || absl::IsDataLoss(attempt.status()));
  if (status.ok()) {
    POSTRIDER_CHECK(kind == dlq::ReportKind::kEndpointStatus && !attempt.ok());
    POSTRIDER_CHECK(EncodeEndpointStatus(*status) == bytes);
    POSTRIDER_CHECK(EndpointHealthStateName(status->state) != "unknown");
  }
  if (attempt.ok()) {
    POSTRIDER_CHECK(kind == dlq::ReportKind::kAttempt);
    POSTRIDER_CHECK(EncodeAttemptReport(*attempt) == bytes);
    POSTRIDER_CHECK(attempt->response.size() <= AttemptReport::kResponseBytesMax);
    POSTRIDER_CHECK(attempt->tenants.size() <= AttemptReport::kTenantsMax);
  }
}

absl::optional<WallTime> OptionalTime(Input& in) {
  if (!in.Flag()) return absl::nullopt;
  return WallTimeFromMillis(in.Signed());
}

void EncodeAndDecodeStatus(Input in) {
  EndpointStatus status;
  status.customer = in.IdOf<subscriptions::CustomerId>();
  status.endpoint = in.IdOf<subscriptions::EndpointId>();
  status.part = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  status.observed_at = WallTimeFromMillis(in.Signed());
  status.state = static_cast<dlq::EndpointHealthState>(1 + in.Byte() % 5);
  status.reason = std::string(in.Text().substr(0, EndpointStatus::kReasonBytesMax));
  status.held_until = OptionalTime(in);
  status.failing_since = OptionalTime(in);
  status.auto_disabled_generation = in.Number();
  status.backlog_messages = in.Number();
  status.backlog_bytes = in.Number();
  status.window = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  status.learned_events_max = in.Number();
  status.learned_messages_per_1000_seconds = in.Number();
  status.last_outcome = std::string(in.Text().substr(0, EndpointStatus::kReasonBytesMax));
  status.last_status = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  status.last_attempt_at = OptionalTime(in);
  status.last_success_at = OptionalTime(in);
  const std::string bytes = EncodeEndpointStatus(status);
  const absl::StatusOr<EndpointStatus> decoded = dlq::DecodeEndpointStatus(bytes);
  POSTRIDER_CHECK(decoded.ok() && *decoded == status);
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(!dlq::DecodeEndpointStatus(absl::string_view(bytes).substr(0, size)).ok());
  }
  POSTRIDER_CHECK(!dlq::DecodeEndpointStatus(bytes + '\0').ok());
}

void EncodeAndDecodeAttempt(Input in) {
  AttemptReport report;
  report.id = in.IdOf<dlq::AttemptId>();
  report.customer = in.IdOf<subscriptions::CustomerId>();
  report.endpoint = in.IdOf<subscriptions::EndpointId>();
  report.message_id = std::string(in.Text());
  report.messages = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  report.attempt = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  report.started_at = WallTimeFromMillis(in.Signed());
  report.duration_ms = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  report.outcome = std::string(in.Text());
  report.status = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  for (int left = in.Byte() % 18; left > 0; --left) report.tenants.emplace_back(in.Text());
  report.response = std::string(in.rest());
  const std::string bytes = EncodeAttemptReport(report);
  const absl::StatusOr<AttemptReport> decoded = dlq::DecodeAttemptReport(bytes);
  if (report.tenants.size() > AttemptReport::kTenantsMax) {
    report.tenants.clear();
    report.response.clear();
  }
  report.response.resize(std::min(report.response.size(), AttemptReport::kResponseBytesMax));
  POSTRIDER_CHECK(decoded.ok() && *decoded == report);
  POSTRIDER_CHECK(!dlq::DecodeAttemptReport(bytes + '\0').ok());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecodeStatus(Input(data, size));
  EncodeAndDecodeAttempt(Input(data, size));
  return 0;
}
