#include "core/stream/identity_filter.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/random.h"

namespace postrider {
namespace {

TEST(IdentityFilter, HasAllThatWereAddedAndFewOthers) {
  Random random(7'301);
  IdentityFilter filter;
  EXPECT_FALSE(filter.MayHave(random.Next()));
  std::vector<uint64_t> added;
  for (size_t n = 0; n < 200'000; ++n) {
    added.push_back(random.Next());
    filter.Add(added.back());
  }
  for (const uint64_t hash : added) ASSERT_TRUE(filter.MayHave(hash));
  size_t mistaken = 0;
  for (size_t n = 0; n < 100'000; ++n) mistaken += filter.MayHave(random.Next()) ? 1 : 0;
  EXPECT_LT(mistaken, 5'000u);
}

TEST(IdentityFilter, TakesNoMoreMemoryThanItsBoundAndKnowsNothingThen) {
  Random random(7'302);
  IdentityFilter filter;
  constexpr size_t kAtLeast = 3'400'000;
  constexpr size_t kBytesMax = 5'600'000;
  size_t n = 0;
  for (; n < kAtLeast; ++n) filter.Add(random.Next());
  EXPECT_LT(filter.memory_bytes(), kBytesMax);
  size_t mistaken = 0;
  for (int i = 0; i < 1'000; ++i) mistaken += filter.MayHave(random.Next()) ? 1 : 0;
  EXPECT_LT(mistaken, 100u);
  for (; n < 2 * kAtLeast; ++n) filter.Add(random.Next());
  EXPECT_EQ(filter.memory_bytes(), 0u);
  EXPECT_TRUE(filter.MayHave(random.Next()));
  filter.Clear();
  EXPECT_FALSE(filter.MayHave(random.Next()));
}

}  // namespace
}  // namespace postrider
