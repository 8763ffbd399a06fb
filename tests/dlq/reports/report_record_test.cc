#include "dlq/reports/report_record.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "tests/support/status_matchers.h"

namespace postrider::dlq {
namespace {

using tests::StatusIs;

RefusalReport Sample() {
  IdBytes customer{};
  customer.fill(2);
  IdBytes endpoint{};
  endpoint.fill(3);
  RefusalReport report;
  report.reason = RefusalReason::kEndpointDeleted;
  report.customer = subscriptions::CustomerId(customer);
  report.endpoint = subscriptions::EndpointId(endpoint);
  report.message_id = "msg_1";
  report.event_id = std::string("e\0v", 3);
  report.source_topic = "events.a";
  report.source_partition = 7;
  report.source_offset = 1'000;
  report.time = WallTimeFromMillis(1'700'000'000'123);
  return report;
}

TEST(ReportRecordTest, ComesBackAsItWas) {
  const RefusalReport report = Sample();
  ASSERT_OK_AND_ASSIGN(RefusalReport back, DecodeRefusalReport(EncodeRefusalReport(report)));
  EXPECT_EQ(back.reason, report.reason);
  EXPECT_EQ(back.customer, report.customer);
  EXPECT_EQ(back.endpoint, report.endpoint);
  EXPECT_EQ(back.message_id, report.message_id);
  EXPECT_EQ(back.event_id, report.event_id);
  EXPECT_EQ(back.source_topic, report.source_topic);
  EXPECT_EQ(back.source_partition, report.source_partition);
  EXPECT_EQ(back.source_offset, report.source_offset);
  EXPECT_EQ(back.time, report.time);
}

TEST(ReportRecordTest, EveryReasonComesBackAndHasAName) {
  RefusalReport report = Sample();
  for (uint8_t number = 1; number <= static_cast<uint8_t>(kRefusalReasonLast); ++number) {
    report.reason = static_cast<RefusalReason>(number);
    EXPECT_NE(RefusalReasonName(report.reason), "unknown");
    ASSERT_OK_AND_ASSIGN(const RefusalReport back,
                         DecodeRefusalReport(EncodeRefusalReport(report)));
    EXPECT_EQ(back.reason, report.reason);
  }
}

TEST(ReportRecordTest, HasTheseBytesForEver) {
  EXPECT_EQ(absl::BytesToHexString(EncodeRefusalReport(Sample())),
            "010102"
            "02020202020202020202020202020202"
            "03030303030303030303030303030303"
            "056d73675f31"
            "03650076"
            "086576656e74732e61"
            "0e"
            "d00f"
            "f6a1abfef962");
}

TEST(ReportRecordTest, RefusesPrefixesAndReadsMutationsExactlyOrNotAtAll) {
  const std::string bytes = EncodeRefusalReport(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeRefusalReport(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(DecodeRefusalReport(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss));
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string mutated = bytes;
      mutated[i] = static_cast<char>(value);
      const absl::StatusOr<RefusalReport> decoded = DecodeRefusalReport(mutated);
      if (decoded.ok()) {
        EXPECT_EQ(EncodeRefusalReport(*decoded), mutated) << i << " " << value;
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500u);
}

TEST(ReportRecordTest, ACustomersReportsLieInOnePartition) {
  const AppendRecord append = MakeReportAppend("p.", Sample());
  EXPECT_EQ(append.topic, "p.reports");
  RefusalReport other = Sample();
  other.event_id = "another";
  EXPECT_EQ(MakeReportAppend("p.", other).partition, append.partition);
  EXPECT_EQ(ReportTopic("p.", 1).name, "p.reports");
}

TEST(ReportRecordTest, NoReportGoesByAgeBeforeItWasRead) {
  const auto settings = ReportTopic("p.", 1).settings;
  const auto said = [&settings](const std::string& name, const std::string& value) {
    return std::count(settings.begin(), settings.end(), std::make_pair(name, value)) == 1;
  };
  EXPECT_TRUE(said("retention.ms", "-1"));
  EXPECT_TRUE(said("retention.bytes", "-1"));
}

}  // namespace
}  // namespace postrider::dlq
