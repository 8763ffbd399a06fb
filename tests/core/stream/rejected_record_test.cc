#include "core/stream/rejected_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace postrider {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Rejection MakeRejection() {
  Rejection rejection;
  rejection.reason = "no_good";
  rejection.source = {"t", 7};
  rejection.offset = 42;
  rejection.rejected_at = WallTimeFromMillis(2'000);
  rejection.key = "k";
  rejection.value = "0123456789";
  return rejection;
}

TEST(RejectedRecordTest, KeepsTheRecordAsItWasAndSaysWhyAndWhence) {
  Rejection rejection = MakeRejection();
  rejection.incarnation_ms = 99;
  rejection.timestamp = WallTimeFromMillis(1'000);
  const AppendRecord record = MakeRejectedRecord(RejectedTopicName("p."), std::move(rejection));
  EXPECT_EQ(record.topic, "p.rejected");
  EXPECT_EQ(record.topic, RejectedTopic("p.", 3).name);
  EXPECT_EQ(record.partition, 0);
  EXPECT_EQ(record.key, "k");
  EXPECT_EQ(record.value, "0123456789");
  EXPECT_THAT(record.headers,
              ElementsAre(Pair("reason", "no_good"), Pair("source", "t/7"), Pair("offset", "42"),
                          Pair("incarnation_ms", "99"), Pair("timestamp_ms", "1000"),
                          Pair("rejected_at_ms", "2000"), Pair("value_bytes", "10")));
}

TEST(RejectedRecordTest, OfALongValueTheBeginningIsKeptAndItsSizeSaid) {
  for (const auto& [bytes_max, kept] : {std::pair(9, "012345678"), std::pair(10, "0123456789")}) {
    Rejection rejection = MakeRejection();
    rejection.value_bytes_max = static_cast<size_t>(bytes_max);
    const AppendRecord record = MakeRejectedRecord("p.rejected", std::move(rejection));
    EXPECT_EQ(record.value, kept);
    EXPECT_THAT(record.headers, testing::Contains(Pair("value_bytes", "10")));
  }
}

// Only then can it be told from a removal, and be appended at all.
TEST(RejectedRecordTest, ARecordWithoutValueIsNoTombstone) {
  Rejection rejection = MakeRejection();
  rejection.value = absl::string_view();
  const AppendRecord record = MakeRejectedRecord("p.rejected", std::move(rejection));
  EXPECT_THAT(record.value, IsEmpty());
  EXPECT_FALSE(record.tombstone);
  EXPECT_THAT(record.headers, testing::Contains(Pair("value_bytes", "0")));
}

}  // namespace
}  // namespace postrider
