#include "delivery/files_bound.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace postrider::delivery {
namespace {

TEST(FilesBoundTest, WhatMayBeHeldIsCutByAsMuchAsTheFilesAreTooLarge) {
  FilesBound bound;
  EXPECT_EQ(bound.Look(800, 800, 4'000), UINT64_MAX) << "at its bound, not beyond it";
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), UINT64_MAX) << "at the second look";
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), 2'720u);
}

// They shrink by and by, and nothing is given up twice for it.
TEST(FilesBoundTest, IsNotCutAgainWhileFilesHaveNotFollowed) {
  FilesBound bound;
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), UINT64_MAX) << "at the second look";
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), 2'720u);
  EXPECT_EQ(bound.Look(1'000, 800, 2'720), 2'720u);
  EXPECT_EQ(bound.Look(1'010, 800, 2'720), 2'720u);
  EXPECT_EQ(bound.Look(900, 800, 2'000), 2'720u);
  EXPECT_EQ(bound.Look(800, 800, 2'000), UINT64_MAX);
}

TEST(FilesBoundTest, IsCutAgainWhenFilesGrowOnOrOthersFillTheDisk) {
  FilesBound bound;
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), UINT64_MAX) << "at the second look";
  EXPECT_EQ(bound.Look(1'000, 800, 4'000), 2'720u);
  EXPECT_EQ(bound.Look(1'200, 800, 2'720), 2'266u) << "a fifth larger";
  EXPECT_EQ(bound.Look(1'200, 600, 2'000), 1'500u) << "a quarter less is allowed";
  EXPECT_LE(bound.Look(1'200, 0, 900), 1u) << "nothing is left to it";
}

// What is held by endpoints that have not told it yet is not given up for that.
TEST(FilesBoundTest, IsNotCutBelowWhatMayBeHeldInAnyCase) {
  FilesBound bound;
  EXPECT_EQ(bound.Look(1'000, 800, 0, 800), UINT64_MAX);
  EXPECT_EQ(bound.Look(1'000, 800, 10, 800), 800u);
  EXPECT_EQ(bound.Look(2'000, 800, 10, 800), 800u);
  EXPECT_EQ(bound.Look(2'000, 400, 10, 400), 400u);
}

}  // namespace
}  // namespace postrider::delivery
