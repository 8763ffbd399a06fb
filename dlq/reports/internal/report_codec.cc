#include "dlq/reports/internal/report_codec.h"

#include "core/stream/key_groups.h"
#include "dlq/reports/report_record.h"

namespace postrider::dlq::internal {

absl::Status UnknownReport() {
  return absl::DataLossError("dlq: a report record of an unknown version or kind");
}

absl::Status DamagedReport() {
  return absl::DataLossError("dlq: a report record that is damaged, or in a form that is not ours");
}

AppendRecord MakeAppend(absl::string_view prefix, subscriptions::CustomerId customer,
                        std::string value) {
  AppendRecord append;
  append.topic = ReportTopicName(prefix);
  append.partition = KeyGroupOf(customer.view(), 0, kReportPartitions);
  append.key = std::string(customer.view());
  append.value = std::move(value);
  return append;
}

}  // namespace postrider::dlq::internal
