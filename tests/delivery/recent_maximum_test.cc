#include "delivery/recent_maximum.h"

#include <gtest/gtest.h>

namespace postrider::delivery {
namespace {

TEST(RecentMaximumTest, KeepsTheLargestForAsManyLooksAsItHas) {
  RecentMaximum recent(3);
  EXPECT_EQ(recent.See(5), 5u);
  EXPECT_EQ(recent.See(9), 9u);
  EXPECT_EQ(recent.See(4), 9u);
  EXPECT_EQ(recent.See(3), 9u) << "the last of the three";
  EXPECT_EQ(recent.See(2), 4u) << "one look later it is forgotten";
  EXPECT_EQ(recent.See(10), 10u);
}

TEST(RecentMaximumTest, OfOneLookIsThatLook) {
  RecentMaximum recent(1);
  EXPECT_EQ(recent.See(5), 5u);
  EXPECT_EQ(recent.See(4), 4u);
}

}  // namespace
}  // namespace postrider::delivery
