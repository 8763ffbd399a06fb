#include "core/stream/recent_identities.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>

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

// What it must answer, kept in the plainest way.
class PlainIdentities {
 public:
  bool SeenBefore(const IdBytes& identity, int64_t offset) {
    const auto [met, added] = offsets_.try_emplace(identity, offset);
    if (!added) {
      if (met->second < offset) return true;
      met->second = offset;
      return false;
    }
    order_.push_back(identity);
    if (order_.size() > RecentIdentities::kIdentitiesMax) {
      offsets_.erase(order_.front());
      order_.pop_front();
    }
    return false;
  }

 private:
  std::map<IdBytes, int64_t> offsets_;
  std::deque<IdBytes> order_;
};

TEST(RecentIdentitiesTest, AnswersAsAPlainListAlsoWhenPlacesAreDisputed) {
  // 17,000 identities of which many stand in each other's way.
  const auto draw = [](std::mt19937_64& random) {
    IdBytes bytes{};
    const uint64_t high = random() % 68;
    const uint64_t low = (random() % 250) << 32;
    std::memcpy(bytes.data(), &high, sizeof(high));
    std::memcpy(bytes.data() + 8, &low, sizeof(low));
    return bytes;
  };
  std::mt19937_64 random(11);
  RecentIdentities recent;
  PlainIdentities plain;
  // Enough to forget hundreds of them, which then come anew.
  int64_t repeats = 0;
  for (int64_t i = 0; i < 90'000; ++i) {
    const IdBytes identity = draw(random);
    const auto offset = static_cast<int64_t>(random() % 100'000);
    const bool seen = plain.SeenBefore(identity, offset);
    ASSERT_EQ(recent.SeenBefore(identity, offset), seen) << i;
    repeats += seen ? 1 : 0;
  }
  EXPECT_GT(repeats, 10'000);
  EXPECT_EQ(recent.size(), RecentIdentities::kIdentitiesMax);
}

}  // namespace
}  // namespace postrider
