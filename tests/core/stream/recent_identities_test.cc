#include "core/stream/recent_identities.h"

#include <cstdint>
#include <cstring>

#include "core/base/id.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

IdBytes Identity(uint64_t number) {
  IdBytes bytes{};
  std::memcpy(bytes.data() + 8, &number, sizeof(number));
  return bytes;
}

TEST(RecentIdentitiesTest, OnlyALowerOffsetMakesARepeat) {
  RecentIdentities recent;
  EXPECT_FALSE(recent.SeenBefore(Identity(1), 10));
  EXPECT_FALSE(recent.SeenBefore(Identity(1), 10));
  EXPECT_TRUE(recent.SeenBefore(Identity(1), 11));
  EXPECT_FALSE(recent.SeenBefore(Identity(1), 9));
  EXPECT_TRUE(recent.SeenBefore(Identity(1), 10));
}

TEST(RecentIdentitiesTest, AllBitsCount) {
  RecentIdentities recent;
  IdBytes other = Identity(1);
  other[0] = 1;
  EXPECT_FALSE(recent.SeenBefore(Identity(1), 1));
  EXPECT_FALSE(recent.SeenBefore(other, 2));
  EXPECT_FALSE(recent.SeenBefore(Identity(2), 3));
}

TEST(RecentIdentitiesTest, TheOldestIsForgottenWhenFull) {
  RecentIdentities recent;
  const auto max = static_cast<int64_t>(RecentIdentities::kIdentitiesMax);
  for (int64_t i = 0; i < max; ++i) {
    ASSERT_FALSE(recent.SeenBefore(Identity(static_cast<uint64_t>(i)), i));
  }
  EXPECT_TRUE(recent.SeenBefore(Identity(0), max));
  EXPECT_FALSE(recent.SeenBefore(Identity(static_cast<uint64_t>(max)), max));
  EXPECT_EQ(recent.size(), RecentIdentities::kIdentitiesMax);
  EXPECT_TRUE(recent.SeenBefore(Identity(1), max + 1));
  EXPECT_FALSE(recent.SeenBefore(Identity(0), max + 1));
  for (int64_t i = 0; i < 3 * max; ++i) {
    ASSERT_FALSE(recent.SeenBefore(Identity(static_cast<uint64_t>(i + 5 * max)), i));
  }
  EXPECT_EQ(recent.size(), RecentIdentities::kIdentitiesMax);
}

}  // namespace
}  // namespace postrider
