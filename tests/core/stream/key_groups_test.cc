#include "core/stream/key_groups.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

TEST(KeyGroupsTest, IsTheHashModuloTheNumber) {
  // XXH64 of "" and "abc" with seed 0, as its authors publish them.
  EXPECT_EQ(KeyGroupOf("", 0, 1'000'000), static_cast<int32_t>(0xef46db3751d8e999ULL % 1'000'000));
  EXPECT_EQ(KeyGroupOf("abc", 0, 1'000'000),
            static_cast<int32_t>(0x44bc2cf5ad770999ULL % 1'000'000));
}

TEST(KeyGroupsTest, PartZeroIsTheKeyAlone) {
  EXPECT_EQ(KeyGroupOf("abc", 0, 64), 0x44bc2cf5ad770999ULL % 64);
  int differ = 0;
  for (uint32_t part = 1; part <= 20; ++part) {
    if (KeyGroupOf("abc", part, 1'000'000) != KeyGroupOf("abc", 0, 1'000'000)) ++differ;
  }
  EXPECT_EQ(differ, 20);
}

TEST(KeyGroupsTest, PartIsFourLittleEndianBytesBehindTheKey) {
  const char spread[] = {'a', 'b', 'c', 2, 1, 0, 0};
  EXPECT_EQ(KeyGroupOf("abc", 0x102, 1'000'000),
            KeyGroupOf(absl::string_view(spread, sizeof(spread)), 0, 1'000'000));
}

TEST(KeyGroupsTest, SpreadsKeysEvenly) {
  std::vector<int> counts(64, 0);
  for (int i = 0; i < 64'000; ++i) {
    const int32_t group = KeyGroupOf(absl::StrCat("endpoint ", i), 0, 64);
    ASSERT_GE(group, 0);
    ASSERT_LT(group, 64);
    ++counts[static_cast<size_t>(group)];
  }
  for (const int count : counts) {
    EXPECT_GT(count, 800);
    EXPECT_LT(count, 1'200);
  }
}

TEST(KeyGroupsTest, OneGroupTakesAll) { EXPECT_EQ(KeyGroupOf("x", 7, 1), 0); }

}  // namespace
}  // namespace postrider
