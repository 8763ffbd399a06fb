#include "dlq/reports/attempt_report.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dlq/reports/report_record.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace postrider::dlq {
namespace {

using ::testing::IsEmpty;
using tests::StatusIs;

AttemptReport Whole() {
  IdBytes bytes{};
  bytes.fill(4);
  AttemptReport report;
  report.id = AttemptId(bytes);
  bytes.fill(2);
  report.customer = subscriptions::CustomerId(bytes);
  bytes.fill(3);
  report.endpoint = subscriptions::EndpointId(bytes);
  report.message_id = "bat_1";
  report.messages = 1000;
  report.attempt = 3;
  report.started_at = WallTimeFromMillis(1'700'000'000'123);
  report.duration_ms = 15'000;
  report.outcome = "timeout";
  report.status = 503;
  report.response = std::string("no\0t now", 8);
  report.tenants = {"t1", "t2"};
  return report;
}

TEST(AttemptReportTest, ComesBackAsItWas) {
  for (const AttemptReport& report : {Whole(), AttemptReport()}) {
    const std::string bytes = EncodeAttemptReport(report);
    EXPECT_EQ(ReportKindOf(bytes), ReportKind::kAttempt);
    ASSERT_OK_AND_ASSIGN(const AttemptReport back, DecodeAttemptReport(bytes));
    EXPECT_EQ(back, report);
  }
}

TEST(AttemptReportTest, CutsTheResponse) {
  AttemptReport report = Whole();
  report.response = std::string(2048, 'x');
  ASSERT_OK_AND_ASSIGN(AttemptReport back, DecodeAttemptReport(EncodeAttemptReport(report)));
  EXPECT_EQ(back, report);
  report.response += "y";
  ASSERT_OK_AND_ASSIGN(back, DecodeAttemptReport(EncodeAttemptReport(report)));
  EXPECT_EQ(back.response, std::string(2048, 'x'));
}

TEST(AttemptReportTest, LeavesOutTheResponseWhenItMayTellOfTooManyTenants) {
  AttemptReport report = Whole();
  report.tenants.clear();
  for (int i = 0; i < 16; ++i) report.tenants.push_back(absl::StrCat("t", i));
  ASSERT_OK_AND_ASSIGN(AttemptReport back, DecodeAttemptReport(EncodeAttemptReport(report)));
  EXPECT_EQ(back, report);
  report.tenants.push_back("t16");
  ASSERT_OK_AND_ASSIGN(back, DecodeAttemptReport(EncodeAttemptReport(report)));
  EXPECT_THAT(back.tenants, IsEmpty());
  EXPECT_EQ(back.response, "");
}

TEST(AttemptReportTest, RefusesPrefixesAndReadsMutationsExactlyOrNotAtAll) {
  const std::string bytes = EncodeAttemptReport(Whole());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeAttemptReport(absl::string_view(bytes).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x41);
    const auto back = DecodeAttemptReport(changed);
    if (back.ok()) {
      EXPECT_EQ(EncodeAttemptReport(*back), changed) << i;
    }
  }
}

}  // namespace
}  // namespace postrider::dlq
