#include "core/stream/memory_account.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <thread>
#include <vector>

namespace postrider {
namespace {

TEST(MemoryAccountTest, GivesOutItsBytesAndNotOneMore) {
  MemoryAccount account(100);
  EXPECT_TRUE(account.Take(60));
  EXPECT_FALSE(account.Take(41));
  EXPECT_TRUE(account.Take(40));
  EXPECT_EQ(account.used(), 100);
  EXPECT_FALSE(account.Take(1));
  EXPECT_TRUE(account.Take(0));
  account.Give(60);
  EXPECT_EQ(account.used(), 40);
  EXPECT_TRUE(account.Take(60));
  EXPECT_FALSE(account.Take(std::numeric_limits<size_t>::max()));
}

TEST(MemoryAccountTest, NeverExceedsItsBoundWhenManyDrawOnIt) {
  constexpr int kRounds = 20'000;
  MemoryAccount account(1'000);
  std::vector<std::thread> owners;
  for (size_t i = 0; i < 4; ++i) {
    owners.emplace_back([&account, i] {
      for (int round = 0; round < kRounds; ++round) {
        if (!account.Take(300 + i)) continue;
        EXPECT_LE(account.used(), account.bytes_max());
        account.Give(300 + i);
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(account.used(), 0);
}

}  // namespace
}  // namespace postrider
