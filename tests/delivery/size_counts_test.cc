#include "delivery/size_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "delivery/backlog_levels.h"

namespace postrider::delivery {
namespace {

SizeCounts Counted(const std::vector<uint64_t>& sizes) {
  SizeCounts counts;
  for (const uint64_t size : sizes) counts.Add(size);
  return counts;
}

TEST(SizeCountsTest, LeavesSmallOnesAloneAndFillsTheBound) {
  EXPECT_EQ(Counted({}).LevelWithin(0).bytes, UINT64_MAX);
  EXPECT_EQ(Counted({400, 600}).LevelWithin(1'000).bytes, UINT64_MAX);
  EXPECT_EQ(Counted({400, 601}).LevelWithin(1'000).bytes, 600u);
  EXPECT_EQ(Counted({900, 50, 900, 150}).LevelWithin(1'000).bytes, 400u);
  EXPECT_EQ(Counted({500, 500}).LevelWithin(0).bytes, 0u);
  EXPECT_EQ(Counted({700, 700, 700}).LevelWithin(1'000).bytes, 333u);
  EXPECT_EQ(Counted({UINT64_MAX / 2, 1}).LevelWithin(11).bytes, 10u);
}

TEST(SizeCountsTest, WhatIsTakenAwayCountsNoMore) {
  SizeCounts counts = Counted({700, 700, 20});
  EXPECT_EQ(counts.total(), 1'420u);
  counts.Remove(700);
  counts.Remove(20);
  EXPECT_EQ(counts.total(), 700u);
  EXPECT_EQ(counts.LevelWithin(699).bytes, 699u);
  counts.Remove(700);
  EXPECT_TRUE(counts.empty());
  EXPECT_EQ(counts.LevelWithin(0).bytes, UINT64_MAX);
}

// However many endpoints there are.
TEST(SizeCountsTest, LooksAtFewOfMany) {
  std::mt19937_64 random(7);
  SizeCounts counts;
  for (int i = 0; i < 200'000; ++i) counts.Add(random() >> (random() % 64) >> 20);
  const SizeCounts::Level level = counts.LevelWithin(counts.total() / 2);
  EXPECT_NE(level.bytes, UINT64_MAX);
  EXPECT_GT(level.looked_at, 0u);
  EXPECT_LE(level.looked_at, 1'920u);
}

TEST(SizeCountsTest, IsNeverAboveTheExactLevelAndLessThanA32ndBelowIt) {
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> sizes(1 + random() % 50);
    const uint64_t most = uint64_t{1} << (1 + random() % 40);
    for (uint64_t& size : sizes) size = random() % most;
    const SizeCounts counts = Counted(sizes);
    if (counts.total() == 0) continue;
    const uint64_t bytes_max = random() % counts.total();
    const uint64_t exact = LevelOf(sizes, bytes_max);
    const uint64_t level = counts.LevelWithin(bytes_max).bytes;
    ASSERT_LE(level, exact) << "seed " << seed;
    ASSERT_GE(level, exact - exact / 32) << "seed " << seed;
  }
}

}  // namespace
}  // namespace postrider::delivery
