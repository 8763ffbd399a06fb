#include "delivery/part_share.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "absl/types/optional.h"

namespace postrider::delivery {
namespace {

TEST(PartShareTest, TheSharesOfAllPartsAreTheLimit) {
  for (const int parts : {1, 2, 3, 7, 64}) {
    for (const int64_t limit : {64, 65, 100, 1'048'576, 1'073'741'823}) {
      int64_t sum = 0;
      double rate = 0;
      for (uint32_t part = 0; part < static_cast<uint32_t>(parts); ++part) {
        const PartShare share(part, parts);
        sum += share.Of(limit);
        rate += *share.Of(absl::optional<double>(static_cast<double>(limit)));
      }
      EXPECT_EQ(sum, limit) << parts;
      EXPECT_NEAR(rate, static_cast<double>(limit), 1e-6 * rate) << parts;
    }
  }
}

TEST(PartShareTest, TheRemainderGoesToTheFirstParts) {
  EXPECT_EQ(PartShare(0, 4).Of(6), 2);
  EXPECT_EQ(PartShare(1, 4).Of(6), 2);
  EXPECT_EQ(PartShare(2, 4).Of(6), 1);
  EXPECT_EQ(PartShare(3, 4).Of(6), 1);
}

TEST(PartShareTest, AnEndpointThatIsNotSpreadHasAllOfIt) {
  const PartShare share(0, 1);
  EXPECT_EQ(share.Of(32), 32);
  EXPECT_EQ(share.Of(absl::optional<double>(0.001)), 0.001);
  EXPECT_FALSE(share.Of(absl::optional<double>()).has_value());
  EXPECT_EQ(share.Between(std::chrono::seconds(1)), std::chrono::seconds(1));
}

TEST(PartShareTest, ThereIsAtLeastOneForEach) { EXPECT_EQ(PartShare(3, 4).Of(2), 1); }

TEST(PartShareTest, APartLeftOverCountsItselfAndThoseBeforeIt) {
  const PartShare share(3, 1);
  EXPECT_EQ(share.parts(), 4);
  EXPECT_EQ(share.Of(32), 8);
  EXPECT_EQ(share.Between(std::chrono::seconds(1)), std::chrono::seconds(4));
}

}  // namespace
}  // namespace postrider::delivery
