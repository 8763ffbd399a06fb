#include "core/stream/internal/source_lag.h"

#include <chrono>
#include <memory>
#include <vector>

#include "core/base/event_loop.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"

namespace postrider::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SourceLagTest : public ::testing::Test {
 protected:
  SourceLagTest() { log_.MakeTopic("t", 2); }

  void Look(absl::optional<int64_t> next, bool reads = true) {
    lag_.Look({{t0_, next, reads}}, true);
    while (loop_->RunOnce(Duration::zero()) > 0) {
    }
  }
  void LookFor(Duration time, absl::optional<int64_t> next, bool reads = true) {
    for (Duration left = time; left > Duration::zero(); left -= seconds(1)) {
      clock_.Advance(seconds(1));
      Look(next, reads);
    }
  }
  void Write(int count) {
    for (int i = 0; i < count; ++i) log_.Write(t0_, "k", "v");
  }

  ManualClock clock_;
  MemoryLog log_{clock_};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  const TopicPartition t0_{"t", 0};
  SourceLag lag_{log_, *loop_};
};

TEST_F(SourceLagTest, CountsWhatIsNotReadYet) {
  Write(7);
  Look(2);
  LookFor(seconds(1), 2);
  EXPECT_EQ(lag_.records(), 5);
  LookFor(seconds(1), 7);
  EXPECT_EQ(lag_.records(), 0);
  Write(3);
  LookFor(seconds(6), 7);
  EXPECT_EQ(lag_.records(), 3) << "the log is asked again";
}

TEST_F(SourceLagTest, APartitionStandsStillWhenNothingIsReadForHalfAMinute) {
  Write(1);
  Look(0);
  LookFor(seconds(1), 0);  // behind since now
  LookFor(SourceLag::kStandsStill - seconds(1), 0);
  EXPECT_EQ(lag_.standing_still(), 0);
  LookFor(seconds(1), 0);
  EXPECT_EQ(lag_.standing_still(), 1);
  LookFor(seconds(1), 1);
  EXPECT_EQ(lag_.standing_still(), 0);
}

TEST_F(SourceLagTest, WhoGoesOnOrHasReadAllOrMayNotReadDoesNotStandStill) {
  Write(100);
  for (int64_t next = 0; next < 100; ++next) LookFor(seconds(1), next);
  EXPECT_EQ(lag_.standing_still(), 0) << "slowly, but on";
  LookFor(seconds(60), 100);
  EXPECT_EQ(lag_.standing_still(), 0) << "nothing is there";
  Write(1);
  LookFor(seconds(60), 100, false);
  EXPECT_EQ(lag_.standing_still(), 0) << "there is no room";
  LookFor(seconds(29), 100);
  EXPECT_EQ(lag_.standing_still(), 0) << "the time without room does not count";
}

TEST_F(SourceLagTest, WhereNothingEverComesOrTheEndIsNotKnownStandsStill) {
  LookFor(seconds(32), absl::nullopt);
  EXPECT_EQ(lag_.standing_still(), 1) << "not even the word that the partition is empty";
  LookFor(seconds(10), 0);
  EXPECT_EQ(lag_.standing_still(), 0);
  log_.SetReachable(false);
  LookFor(seconds(40), 0);
  EXPECT_EQ(lag_.standing_still(), 1);
  log_.SetReachable(true);
  LookFor(seconds(20), 0);
  EXPECT_EQ(lag_.standing_still(), 0);
}

TEST_F(SourceLagTest, ForgetsPartitionsThatAreNotShownAnyMore) {
  Write(9);
  LookFor(seconds(40), 0);
  EXPECT_EQ(lag_.records(), 9);
  EXPECT_EQ(lag_.standing_still(), 1);
  lag_.Look({}, true);
  EXPECT_EQ(lag_.records(), 0);
  EXPECT_EQ(lag_.standing_still(), 0);
}

}  // namespace
}  // namespace postrider::internal
