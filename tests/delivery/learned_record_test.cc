#include "delivery/learned_record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/base/clock.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr MonotonicTime kNow(hours(7));
const WallTime kWall = WallTimeFromMillis(1'900'000'000'000);

LearnedLimits All() {
  LearnedLimits learned;
  learned.Learn({20, 12.345}, kNow);
  learned.LearnTooLarge(100'000, kNow);
  return learned;
}

TEST(LearnedRecordTest, BringsBackWhatWasWrittenAndRefusesAnythingElse) {
  const auto serializer = LearnedSerializer();
  for (const LearnedRecord& record :
       {LearnedRecord(), RecordOf(All(), 7, kNow, kWall),
        RecordOf(LearnedLimits(All()), UINT64_MAX, kNow - hours(1), kWall)}) {
    const std::string bytes = serializer.encode(record, 1);
    EXPECT_EQ(serializer.decode(bytes, 1), record);
    EXPECT_FALSE(serializer.decode(bytes + "x", 1));
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_FALSE(serializer.decode(bytes.substr(0, cut), 1)) << cut;
    }
  }
  LearnedRecord record = RecordOf(All(), 7, kNow, kWall);
  record.events_max = subscriptions::BatchSettings::kEventsMost + 1;
  EXPECT_FALSE(serializer.decode(serializer.encode(record, 1), 1));
}

TEST(LearnedRecordTest, HoldsAsLongAsItWouldHaveInMemory) {
  const LearnedRecord record = RecordOf(All(), 7, kNow, kWall);
  // Another process, whose clock began at another time.
  const MonotonicTime start(hours(100));
  const auto after = [&](milliseconds by) { return LimitsOf(record, start, kWall + by); };
  LearnedLimits learned = after(hours(24) - milliseconds(1));
  EXPECT_EQ(learned.events_max, 20);
  EXPECT_EQ(learned.bytes_max, 50'000);
  EXPECT_EQ(learned.messages_per_second, 12.345);
  EXPECT_FALSE(learned.Expire(start));
  EXPECT_TRUE(learned.Expire(start + milliseconds(1)));
  EXPECT_FALSE(learned.any());
  EXPECT_FALSE(after(hours(24)).any());
  EXPECT_FALSE(LimitsOf(LearnedRecord(), start, kWall).any());
}

TEST(LearnedRecordTest, NoClockMakesItHoldForLongerThanADay) {
  const LearnedRecord record = RecordOf(All(), 7, kNow, kWall);
  LearnedLimits learned = LimitsOf(record, kNow, WallTimeFromMillis(0));
  EXPECT_EQ(learned.events_max, 20);
  EXPECT_TRUE(learned.Expire(kNow + hours(24)));
  EXPECT_FALSE(learned.any());
}

TEST(LearnedRecordTest, IsWorthWritingWhenItSaysSomethingElseOrHoldsForAnHourLonger) {
  const LearnedRecord stored = RecordOf(All(), 7, kNow, kWall);
  EXPECT_FALSE(WorthWriting(stored, stored));
  EXPECT_TRUE(WorthWriting(stored, LearnedRecord()));
  EXPECT_TRUE(WorthWriting(LearnedRecord(), stored));
  EXPECT_TRUE(WorthWriting(RecordOf(All(), 8, kNow, kWall), stored));
  LearnedLimits learned = All();
  learned.Learn({21, {}}, kNow);
  EXPECT_TRUE(WorthWriting(RecordOf(learned, 7, kNow, kWall), stored));
  // A receiver that repeats its limits with every answer.
  learned = All();
  learned.Learn({20, 12.345}, kNow + hours(1) - milliseconds(1));
  EXPECT_FALSE(WorthWriting(RecordOf(learned, 7, kNow, kWall), stored));
  learned.Learn({20, {}}, kNow + hours(1));
  EXPECT_TRUE(WorthWriting(RecordOf(learned, 7, kNow, kWall), stored));
}

}  // namespace
}  // namespace postrider::delivery
