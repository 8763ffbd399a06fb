#include "delivery/own_outage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OwnOutageTest : public testing::Test {
 protected:
  void Reach(int first, int last) {
    for (int i = first; i <= last; ++i) outage_->OnReached(Host(i), now_);
  }
  void Miss(int first, int last) {
    for (int i = first; i <= last; ++i) outage_->OnUnreached(Host(i), now_);
  }
  bool Active() {
    now_ += milliseconds(100);
    return outage_->active(now_);
  }
  static std::string Host(int number) { return absl::StrCat("host", number, ".example"); }

  std::unique_ptr<OwnOutage> outage_ = std::make_unique<OwnOutage>();
  MonotonicTime now_{seconds(1'000)};
};

// The hash is seeded anew in each process, and of two hosts at one place one counts: of so many 20
// have places of their own as good as surely.
constexpr int kMany = 40;

TEST_F(OwnOutageTest, SaysNothingOfFewHosts) {
  Miss(1, 19);
  EXPECT_FALSE(Active());
}

TEST_F(OwnOutageTest, IsAnOutageWhenAllOfManyHostsFail) {
  Miss(1, kMany);
  EXPECT_TRUE(Active());
}

TEST_F(OwnOutageTest, IsNoneWhenMostAreReached) {
  Miss(1, kMany);
  Reach(kMany + 1, 3 * kMany);
  EXPECT_FALSE(Active());
}

TEST_F(OwnOutageTest, OneHostThatFailsOftenIsOneHost) {
  for (int i = 0; i < 1'000; ++i) Miss(1, 3);
  EXPECT_FALSE(Active());
}

TEST_F(OwnOutageTest, TheLastTryOfAHostCounts) {
  Reach(1, kMany);
  now_ += seconds(2);
  Miss(1, kMany);
  EXPECT_TRUE(Active());
  Reach(1, kMany);
  EXPECT_FALSE(Active());
}

TEST_F(OwnOutageTest, TriesOfMoreThanTenSecondsAgoSayNothing) {
  Miss(1, kMany);
  now_ += seconds(10);
  EXPECT_FALSE(Active());
}

TEST_F(OwnOutageTest, LooksAgainAfterATenthOfASecond) {
  EXPECT_FALSE(Active());
  Miss(1, kMany);
  EXPECT_FALSE(outage_->active(now_ + milliseconds(99)));
  EXPECT_TRUE(outage_->active(now_ + milliseconds(100)));
}

TEST_F(OwnOutageTest, ShardsTellItAtTheSameTime) {
  std::vector<std::thread> shards;
  for (int shard = 0; shard < 4; ++shard) {
    shards.emplace_back([this, shard] {
      for (int i = 0; i < 2'000; ++i) {
        const MonotonicTime now = now_ + milliseconds(i);
        outage_->OnUnreached(Host(i % 50 + shard * 50), now);
        static_cast<void>(outage_->active(now));
      }
    });
  }
  for (std::thread& shard : shards) shard.join();
  EXPECT_TRUE(outage_->active(now_ + milliseconds(2'100)));
}

}  // namespace
}  // namespace postrider::delivery
