#include "core/crypto/random.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace postrider {
namespace {

class FixedClock final : public Clock {
 public:
  explicit FixedClock(int64_t millis) : wall_(WallTimeFromMillis(millis)) {}
  MonotonicTime Now() const override { return MonotonicTime(); }
  WallTime Wall() const override { return wall_; }

 private:
  WallTime wall_;
};

TEST(RandomTest, AnIdBeginsWithTheTime) {
  const IdBytes id = NewIdBytes(FixedClock(0x0123456789ab));
  EXPECT_EQ(id[0], 0x01);
  EXPECT_EQ(id[1], 0x23);
  EXPECT_EQ(id[5], 0xab);
  EXPECT_LT(NewIdBytes(FixedClock(1'000)), NewIdBytes(FixedClock(1'001)));
}

TEST(RandomTest, IdsOfOneMomentDiffer) {
  const FixedClock clock(1'700'000'000'000);
  std::set<IdBytes> ids;
  for (int i = 0; i < 1'000; ++i) ids.insert(NewIdBytes(clock));
  EXPECT_EQ(ids.size(), 1'000u);
}

TEST(RandomTest, FillsAsMuchAsAsked) {
  std::string bytes(10'002, '\0');
  FillRandom(bytes.data() + 1, bytes.size() - 2);
  EXPECT_EQ(bytes.front(), '\0');
  EXPECT_EQ(bytes.back(), '\0');
  EXPECT_NE(bytes.substr(1, 16), std::string(16, '\0'));
  EXPECT_NE(bytes.substr(9'985, 16), std::string(16, '\0'));
}

}  // namespace
}  // namespace postrider
