// A job with durable state whose group has expired, or was deleted, while nobody ran.

#include <chrono>
#include <memory>

#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"

namespace postrider {
namespace {

class LostGroupTest : public DurableTest {
 protected:
  static double Gone(const SampleMember& member) {
    return member.Metric("postrider_stream_commits_gone_total");
  }
};

TEST_F(LostGroupTest, OwnersBeforeShowByTheirMarkersThatACommitIsGone) {
  Write(t0_, 6);
  world_.takes = [](const std::string& name) { return name != "t/0@1"; };
  auto a = Join();
  Pass(seconds(1), {a.get()});
  EXPECT_EQ(Gone(*a), 0) << "the first owner of all";
  EXPECT_EQ(Committed(t0_), 6);
  a.reset();
  log_.ForgetCommits("g");
  auto b = Join();
  Pass(seconds(10), {b.get()});
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(Gone(*b), 2);
  EXPECT_EQ(Committed(t0_), 6) << "all was read again from the log's start";
  EXPECT_EQ(b->At(t0_).parked(), 1u) << "what was parked stays so, once";
}

TEST_F(LostGroupTest, AnOwnerWhoFindsACommitMissesNone) {
  Write(t0_, 1);
  auto a = Join();
  Pass(seconds(1), {a.get()});
  a.reset();
  auto b = Join();
  Pass(seconds(10), {b.get()});
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(Gone(*b), 0);
}

TEST_F(LostGroupTest, AFirstOwnerThatFailsAndBeginsAgainMissesNone) {
  Write(t0_, 1);
  broken_.insert({"beside", 0});
  auto a = Join();
  Pass(seconds(2), {a.get()});
  broken_.clear();
  Pass(seconds(10), {a.get()});
  ASSERT_TRUE(a->Has(t0_));
  EXPECT_EQ(Gone(*a), 0) << "the marker is its own";
}

}  // namespace
}  // namespace postrider
