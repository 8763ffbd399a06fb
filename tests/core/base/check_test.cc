#include "core/base/check.h"

#include "gtest/gtest.h"

namespace postrider {
namespace {

TEST(CheckTest, LetsATrueConditionPassAndEvaluatesItOnce) {
  int evaluated = 0;
  POSTRIDER_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, StopsTheProcessAndNamesThePlaceAndTheCondition) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(POSTRIDER_CHECK(1 + 1 == 3), "check_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace postrider
