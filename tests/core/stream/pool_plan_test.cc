#include "core/stream/pool_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/stream/control_record.h"
#include "core/stream/record.h"
#include "core/stream/trim_holds.h"

namespace postrider {
namespace {

using testing::HasSubstr;
using Phase = PoolRecord::Phase;
using Work = PoolPlan::Work;

const WallTime kNow = WallTimeFromMillis(1'000'000);

class PoolPlanTest : public testing::Test {
 protected:
  // What the roles of `default` do at `now` after that record.
  void Apply(const std::string& key, const std::string& value) {
    LogRecord record;
    record.topic = "control";
    record.key = key;
    record.value = value;
    control_.Apply(record);
  }
  void Say(Phase phase, WallTime lease_until) {
    PoolRecord record;
    record.pool = "default";
    record.phase = phase;
    record.generation = 2;
    record.key_groups = 16;
    record.lease_until = lease_until;
    Apply(PoolKey("default"), EncodePoolRecord(record));
  }
  PoolPlan Plan(WallTime now = kNow) const { return PlanFor(control_, "default", 64, now); }

  ControlState control_;
};

TEST_F(PoolPlanTest, RunsTheFirstGenerationOfAPoolThatWasNeverRescaled) {
  PoolPlan first;
  first.key_groups = 64;
  EXPECT_EQ(Plan(), first);
  Say(Phase::kSteady, kNow);
  EXPECT_EQ(PlanFor(control_, "other", 64, kNow), first);
}

TEST_F(PoolPlanTest, RunsTheGenerationThatThePointerNames) {
  Say(Phase::kSteady, kNow);
  const PoolPlan plan = Plan();
  EXPECT_EQ(plan.generation, 2u);
  EXPECT_EQ(plan.key_groups, 16);
  EXPECT_TRUE(plan.match);
  EXPECT_EQ(plan.work, Work::kRun);
  EXPECT_EQ(plan.why, "");
  EXPECT_EQ(plan.again_at, absl::nullopt);
}

TEST_F(PoolPlanTest, DrainsUntilTheLeaseIsOver) {
  const WallTime lease = kNow + std::chrono::milliseconds(1);
  Say(Phase::kDraining, lease);
  PoolPlan plan = Plan();
  EXPECT_FALSE(plan.match);
  EXPECT_EQ(plan.work, Work::kDrain);
  EXPECT_EQ(plan.again_at, lease);
  EXPECT_THAT(plan.why, HasSubstr("being rescaled"));
  plan = Plan(lease);
  EXPECT_TRUE(plan.match);
  EXPECT_EQ(plan.work, Work::kRun);
}

TEST_F(PoolPlanTest, StandsStillWhileItIsMovedHoweverLong) {
  Say(Phase::kMoving, kNow - std::chrono::hours(100));
  const PoolPlan plan = Plan();
  EXPECT_FALSE(plan.match);
  EXPECT_EQ(plan.work, Work::kStop);
  EXPECT_EQ(plan.again_at, absl::nullopt);
}

TEST_F(PoolPlanTest, StandsStillWhileItsRecordCannotBeRead) {
  Apply(PoolKey("default"), "of a newer version");
  EXPECT_EQ(Plan().work, Work::kStop);
  EXPECT_FALSE(Plan().match);
  EXPECT_THAT(Plan().why, HasSubstr("cannot be read"));
  Say(Phase::kSteady, kNow);
  EXPECT_EQ(Plan().work, Work::kRun);
}

TEST_F(PoolPlanTest, TakesNoRecordUnderAnotherPoolsKey) {
  PoolRecord record;
  record.pool = "other";
  Apply(PoolKey("default"), EncodePoolRecord(record));
  EXPECT_EQ(Plan().work, Work::kStop);
}

}  // namespace
}  // namespace postrider
