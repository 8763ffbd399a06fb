#include "delivery/window.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>

namespace postrider::delivery {
namespace {

TEST(WindowTest, DoublesPerSuccessFromOneToItsLimitAfterAnOutage) {
  Window window(20);
  window.StartSlowly();
  for (const size_t size : {1u, 2u, 4u, 8u, 16u, 20u, 20u}) {
    EXPECT_EQ(window.size(), size);
    window.Apply(WindowEffect::kGrow);
  }
}

TEST(WindowTest, StopsDoublingWhereItIsCut) {
  Window window(32);
  window.StartSlowly();
  for (int i = 0; i < 4; ++i) window.Apply(WindowEffect::kGrow);
  ASSERT_EQ(window.size(), 16u);
  window.Apply(WindowEffect::kHalve);
  EXPECT_EQ(window.size(), 8u);
  for (int i = 0; i < 8; ++i) window.Apply(WindowEffect::kGrow);
  EXPECT_EQ(window.size(), 8u) << "one per round trip";
  window.Apply(WindowEffect::kGrow);
  EXPECT_EQ(window.size(), 9u);
}

TEST(WindowTest, NeverLeavesItsBounds) {
  Window window(1);
  window.StartSlowly();
  window.Apply(WindowEffect::kGrow);
  EXPECT_EQ(window.size(), 1u);
  window.Apply(WindowEffect::kHalve);
  window.Apply(WindowEffect::kOne);
  EXPECT_EQ(window.size(), 1u);
  window.SetLimit(0);
  EXPECT_EQ(window.size(), 1u);
}

}  // namespace
}  // namespace postrider::delivery
