#include <string>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "dlq/reports/report_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using dlq::DecodeRefusalReport;
using dlq::EncodeRefusalReport;
using dlq::RefusalReport;

void Decode(absl::string_view bytes) {
  const absl::StatusOr<RefusalReport> decoded = DecodeRefusalReport(bytes);
  if (decoded.ok()) {
    POSTRIDER_CHECK(EncodeRefusalReport(*decoded) == bytes);
    POSTRIDER_CHECK(dlq::RefusalReasonName(decoded->reason) != "unknown");
  } else {
    POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()));
  }
}

void EncodeAndDecode(Input in) {
  RefusalReport report;
  report.reason = static_cast<dlq::RefusalReason>(
      in.Between(1, static_cast<int>(dlq::kRefusalReasonLast)));
  report.customer = in.IdOf<subscriptions::CustomerId>();
  report.endpoint = in.IdOf<subscriptions::EndpointId>();
  report.message_id = std::string(in.Text());
  report.event_id = std::string(in.Text());
  report.source_topic = std::string(in.Text());
  report.source_partition = static_cast<int32_t>(in.Between(INT32_MIN, INT32_MAX));
  report.source_offset = in.Signed();
  report.time = WallTimeFromMillis(in.Signed());
  const std::string bytes = EncodeRefusalReport(report);
  const absl::StatusOr<RefusalReport> decoded = DecodeRefusalReport(bytes);
  POSTRIDER_CHECK(decoded.ok());
  POSTRIDER_CHECK(decoded->reason == report.reason);
  POSTRIDER_CHECK(decoded->customer == report.customer);
  POSTRIDER_CHECK(decoded->endpoint == report.endpoint);
  POSTRIDER_CHECK(decoded->message_id == report.message_id);
  POSTRIDER_CHECK(decoded->event_id == report.event_id);
  POSTRIDER_CHECK(decoded->source_topic == report.source_topic);
  POSTRIDER_CHECK(decoded->source_partition == report.source_partition);
  POSTRIDER_CHECK(decoded->source_offset == report.source_offset);
  POSTRIDER_CHECK(decoded->time == report.time);
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(!DecodeRefusalReport(absl::string_view(bytes).substr(0, size)).ok());
  }
  POSTRIDER_CHECK(!DecodeRefusalReport(bytes + '\0').ok());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
