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

TEST(FilesBoundTest, NothingIsCutForFilesThatAreAboutToShrinkAsLongAsThereIsTime) {
  FilesBound bound;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bound.Look(950, 900, 4'000, 0, 970), UINT64_MAX);
  EXPECT_EQ(bound.Look(971, 900, 4'000, 0, 970), UINT64_MAX) << "at the second look";
  const uint64_t cut = bound.Look(971, 900, 4'000, 0, 970);
  EXPECT_NEAR(static_cast<double>(cut), 4'000 * 0.85 * 900 / 971, 1);
  EXPECT_EQ(bound.Look(960, 900, 3'000, 0, 970), cut);
  EXPECT_EQ(bound.Look(960, 900, 3'000, 0, 0), cut) << "they have not grown since";
  EXPECT_EQ(bound.Look(900, 900, 3'000, 0, 0), UINT64_MAX);
}

}  // namespace
}  // namespace postrider::delivery
