#include "dlq/reports/endpoint_status.h"

#include <string>

#include "dlq/reports/report_record.h"
#include "tests/support/status_matchers.h"

namespace postrider::dlq {
namespace {

using tests::StatusIs;

template <typename IdType>
IdType FilledId(uint8_t byte) {
  IdBytes bytes{};
  bytes.fill(byte);
  return IdType(bytes);
}

EndpointStatus Whole() {
  EndpointStatus status;
  status.customer = FilledId<subscriptions::CustomerId>(2);
  status.endpoint = FilledId<subscriptions::EndpointId>(3);
  status.part = 5;
  status.observed_at = WallTimeFromMillis(1'700'000'000'123);
  status.state = EndpointHealthState::kDisabled;
  status.reason = "gone";
  status.held_until = WallTimeFromMillis(1'700'000'000'124);
  status.failing_since = WallTimeFromMillis(1);
  status.auto_disabled_generation = 7;
  status.backlog_messages = 1'000'000;
  status.backlog_bytes = 5'000'000'000;
  status.window = 32;
  status.learned_events_max = 10;
  status.learned_bytes_max = 2048;
  status.learned_messages_per_1000_seconds = 2500;
  status.last_outcome = "delivered";
  status.last_status = 204;
  status.last_attempt_at = WallTimeFromMillis(8);
  status.last_success_at = WallTimeFromMillis(9);
  return status;
}

TEST(EndpointStatusTest, ComesBackAsItWas) {
  for (const EndpointStatus& status : {Whole(), EndpointStatus()}) {
    const std::string bytes = EncodeEndpointStatus(status);
    EXPECT_EQ(ReportKindOf(bytes), ReportKind::kEndpointStatus);
    ASSERT_OK_AND_ASSIGN(const EndpointStatus back, DecodeEndpointStatus(bytes));
    EXPECT_EQ(back, status);
    EXPECT_THAT(DecodeRefusalReport(bytes), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(EndpointStatusTest, CutsLongWords) {
  EndpointStatus status = Whole();
  status.reason = std::string(101, 'x');
  ASSERT_OK_AND_ASSIGN(const EndpointStatus back,
                       DecodeEndpointStatus(EncodeEndpointStatus(status)));
  EXPECT_EQ(back.reason, std::string(100, 'x'));
}

TEST(EndpointStatusTest, RefusesPrefixesAndReadsMutationsExactlyOrNotAtAll) {
  const std::string bytes = EncodeEndpointStatus(Whole());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeEndpointStatus(absl::string_view(bytes).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x41);
    const auto back = DecodeEndpointStatus(changed);
    if (back.ok()) {
      EXPECT_EQ(EncodeEndpointStatus(*back), changed) << i;
    }
  }
  EXPECT_THAT(DecodeEndpointStatus(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(EndpointStatusTest, GoesWhereItsCustomersReportsGo) {
  const AppendRecord status = MakeStatusAppend("p.", Whole());
  RefusalReport refusal;
  refusal.customer = Whole().customer;
  const AppendRecord other = MakeReportAppend("p.", refusal);
  EXPECT_EQ(status.topic, "p.reports");
  EXPECT_EQ(status.topic, other.topic);
  EXPECT_EQ(status.partition, other.partition);
  EXPECT_EQ(status.key, other.key);
}

}  // namespace
}  // namespace postrider::dlq
