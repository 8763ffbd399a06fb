#include "delivery/unreached_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/base/clock.h"
#include "core/base/random.h"

namespace postrider::delivery {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class UnreachedHostsTest : public testing::Test {
 protected:
  void Miss(int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_THAT(hosts_.OnUnreached("a:80", now_, false, random_), IsEmpty());
    }
  }

  BreakerOptions options_;
  UnreachedHosts hosts_{options_};
  Random random_{7};
  MonotonicTime now_{seconds(1'000)};
};

TEST_F(UnreachedHostsTest, AHostThatIsReachedHasNoEntry) {
  EXPECT_EQ(hosts_.MayStartAt("a:80"), MonotonicTime{});
  EXPECT_FALSE(hosts_.OnStart("a:80"));
  EXPECT_THAT(hosts_.OnReached("a:80"), IsEmpty());
  Miss(9);
  EXPECT_EQ(hosts_.size(), 1u);
  EXPECT_EQ(hosts_.MayStartAt("a:80"), MonotonicTime{}) << "nine are not ten";
  hosts_.OnReached("a:80");
  EXPECT_EQ(hosts_.size(), 0u);
}

TEST_F(UnreachedHostsTest, AfterTenFailuresOneProbesAndTheOthersWaitForWhatComesOfIt) {
  Miss(10);
  ASSERT_GT(hosts_.MayStartAt("a:80"), now_);
  EXPECT_EQ(hosts_.MayStartAt("a:81"), MonotonicTime{}) << "another port";
  now_ = *hosts_.MayStartAt("a:80");
  EXPECT_TRUE(hosts_.OnStart("a:80"));
  EXPECT_FALSE(hosts_.MayStartAt("a:80").has_value());
  hosts_.Await("a:80", {nullptr, "two"});
  hosts_.Await("a:80", {nullptr, "one"});
  hosts_.Await("a:80", {nullptr, "one"});
  EXPECT_THAT(hosts_.OnUnreached("a:80", now_, false, random_), IsEmpty()) << "an older request";
  EXPECT_THAT(hosts_.OnUnreached("a:80", now_, true, random_),
              ElementsAre(Pair(nullptr, "one"), Pair(nullptr, "two")));
  EXPECT_GT(hosts_.MayStartAt("a:80"), now_);
}

TEST_F(UnreachedHostsTest, WhoeverReachesItOpensItForAll) {
  Miss(10);
  hosts_.Await("a:80", {nullptr, "one"});
  EXPECT_THAT(hosts_.OnReached("a:80"), ElementsAre(Pair(nullptr, "one")));
  EXPECT_EQ(hosts_.MayStartAt("a:80"), MonotonicTime{});
}

TEST_F(UnreachedHostsTest, AProbeWithoutAnEndIsFollowedByAnother) {
  Miss(10);
  now_ = *hosts_.MayStartAt("a:80");
  hosts_.OnStart("a:80");
  hosts_.Await("a:80", {nullptr, "one"});
  EXPECT_THAT(hosts_.OnUnknown("a:80", now_, true), ElementsAre(Pair(nullptr, "one")));
  EXPECT_EQ(hosts_.MayStartAt("a:80"), now_);
}

TEST_F(UnreachedHostsTest, RestsAfterAProbeInOurOwnOutage) {
  Miss(10);
  now_ = *hosts_.MayStartAt("a:80");
  hosts_.OnStart("a:80");
  hosts_.Await("a:80", {nullptr, "one"});
  EXPECT_THAT(hosts_.OnOutage("a:80", now_, true, random_), ElementsAre(Pair(nullptr, "one")));
  EXPECT_GT(hosts_.MayStartAt("a:80"), now_);
  EXPECT_THAT(hosts_.OnOutage("b:80", now_, true, random_), IsEmpty()) << "a host without entry";
}

TEST_F(UnreachedHostsTest, ForgetsWhoIsGone) {
  Miss(10);
  hosts_.Await("a:80", {nullptr, "one"});
  hosts_.Forget(nullptr);
  EXPECT_THAT(hosts_.OnReached("a:80"), IsEmpty());
}

}  // namespace
}  // namespace postrider::delivery
