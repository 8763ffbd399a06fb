#include "core/stream/inherited_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <vector>

#include "core/base/clock.h"
#include "tests/fakes/manual_clock.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

IdBytes IdOf(uint8_t first) {
  IdBytes id{};
  id[0] = first;
  return id;
}

class InheritedOperationsTest : public testing::Test {
 protected:
  // Its deadline lies so far ahead.
  Operation Make(uint8_t id, std::vector<int64_t> offsets, milliseconds left) {
    return {"k", IdOf(id), std::move(offsets), clock_.Wall() + left};
  }
  std::vector<Operation> Lapsed() { return inherited_.TakeLapsed(clock_.Now()); }

  ManualClock clock_;
  InheritedOperations inherited_;
};

TEST_F(InheritedOperationsTest, TellsWhichOperationCarriesARecord) {
  inherited_.Add({Make(1, {3, 7}, seconds(1)), Make(2, {5}, seconds(1)), Make(3, {}, seconds(1))},
                 clock_);
  EXPECT_EQ(inherited_.size(), 3u);
  ASSERT_NE(inherited_.Carrying(7), nullptr);
  EXPECT_EQ(inherited_.Carrying(7)->id, IdOf(1));
  EXPECT_EQ(inherited_.Carrying(5)->id, IdOf(2));
  EXPECT_EQ(inherited_.Carrying(4), nullptr);
  EXPECT_TRUE(inherited_.Remove(IdOf(1)));
  EXPECT_FALSE(inherited_.Remove(IdOf(1)));
  EXPECT_EQ(inherited_.Carrying(7), nullptr);
  EXPECT_EQ(inherited_.Find(IdOf(1)), nullptr);
  EXPECT_NE(inherited_.Find(IdOf(3)), nullptr);
}

TEST_F(InheritedOperationsTest, LapsesAtTheDeadlineWhenTheEndWasSeenBefore) {
  inherited_.Add({Make(1, {3}, seconds(2))}, clock_);
  inherited_.OnPartitionEnd();
  EXPECT_EQ(inherited_.NextLapse(), clock_.Now() + seconds(2));
  clock_.Advance(milliseconds(1'999));
  EXPECT_THAT(Lapsed(), IsEmpty());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(Lapsed(), ElementsAre(Field(&Operation::id, IdOf(1))));
  EXPECT_TRUE(inherited_.empty());
  EXPECT_EQ(inherited_.Carrying(3), nullptr);
  EXPECT_EQ(inherited_.NextLapse(), absl::nullopt);
}

TEST_F(InheritedOperationsTest, LapsesAtTheEndWhenTheDeadlineHasPassedLongAgo) {
  inherited_.Add({Make(1, {3}, -std::chrono::hours(1))}, clock_);
  clock_.Advance(milliseconds(4'999));
  EXPECT_THAT(Lapsed(), IsEmpty());
  inherited_.OnPartitionEnd();
  EXPECT_EQ(Lapsed().size(), 1u);
}

TEST_F(InheritedOperationsTest, WaitsForAnEndFiveSecondsPastTheDeadline) {
  inherited_.Add({Make(1, {3}, seconds(2)), Make(2, {4}, -seconds(2))}, clock_);
  EXPECT_EQ(inherited_.DeadlineOf(IdOf(2)), clock_.Now());
  EXPECT_EQ(inherited_.LastWaitOf(IdOf(1)), clock_.Now() + seconds(7));
  clock_.Advance(milliseconds(4'999));
  EXPECT_THAT(Lapsed(), IsEmpty());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(Lapsed(), ElementsAre(Field(&Operation::id, IdOf(2))));
  clock_.Advance(milliseconds(1'999));
  EXPECT_THAT(Lapsed(), IsEmpty());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(Lapsed(), ElementsAre(Field(&Operation::id, IdOf(1))));
}

TEST_F(InheritedOperationsTest, ADeadlineFromAnyCenturyIsTwoMinutesAheadAtMost) {
  for (const int64_t deadline :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    for (const int64_t wall : {int64_t{-5'000}, int64_t{1'700'000'000'000}}) {
      clock_.SetWall(WallTimeFromMillis(wall));
      inherited_.Add({{"k", IdOf(1), {3}, WallTimeFromMillis(deadline)}}, clock_);
      EXPECT_EQ(inherited_.DeadlineOf(IdOf(1)),
                clock_.Now() + (deadline < 0 ? minutes(0) : minutes(2)));
    }
  }
}

// Two records may name one offset when an owner had lost its memory in between.
TEST_F(InheritedOperationsTest, TheLaterOfTwoCarriesARecordAndStaysWhenTheOtherEnds) {
  inherited_.Add({Make(1, {3, 4}, seconds(1)), Make(2, {4}, seconds(1))}, clock_);
  EXPECT_TRUE(inherited_.Remove(IdOf(1)));
  EXPECT_EQ(inherited_.Carrying(3), nullptr);
  ASSERT_NE(inherited_.Carrying(4), nullptr);
  EXPECT_EQ(inherited_.Carrying(4)->id, IdOf(2));
}

}  // namespace
}  // namespace postrider
