#include "delivery/erase_line.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace postrider::delivery {
namespace {

// "key from..until" of the first one, which is then looked through.
std::string Next(EraseLine& line) {
  const std::string until = line.until() == UINT64_MAX ? "" : std::to_string(line.until());
  std::string next = line.key() + " " + std::to_string(line.from()) + ".." + until;
  line.End();
  return next;
}
std::vector<std::string> Rest(EraseLine& line) {
  std::vector<std::string> all;
  while (!line.empty()) all.push_back(Next(line));
  return all;
}

TEST(EraseLineTest, TakesEachOnceInTurn) {
  EraseLine line;
  EXPECT_TRUE(line.empty());
  line.Join("a");
  line.Join("b");
  line.Join("a");
  EXPECT_EQ(Rest(line), (std::vector<std::string>{"a 0..", "b 0.."}));
}

TEST(EraseLineTest, WhoJoinsAnewGoesOnAndComesOnceMoreForWhatWasPassed) {
  EraseLine line;
  line.Join("a");
  line.Join("b");
  line.Advance(50);
  for (const char* key : {"a", "b", "c"}) line.Join(key);
  EXPECT_EQ(Rest(line), (std::vector<std::string>{"a 50..", "b 0..", "c 0..", "a 0..50"}));
}

TEST(EraseLineTest, AStreamOfWishesMovesOn) {
  EraseLine line;
  line.Join("a");
  line.Join("b");
  std::vector<std::string> looked_at;
  for (int i = 0; i < 4; ++i) {
    line.Advance(line.from() + 50);
    line.Join("a");
    line.Join("b");
    if (i % 2 == 1) looked_at.push_back(Next(line));
  }
  EXPECT_EQ(looked_at, (std::vector<std::string>{"a 100..", "b 100.."}));
  EXPECT_EQ(Rest(line), (std::vector<std::string>{"a 0..", "b 0..100"}));
}

TEST(EraseLineTest, WhatIsAddedBehindTheEndOfASecondRoundWidensIt) {
  EraseLine line;
  line.Join("a");
  line.Advance(50);
  line.Join("a");
  EXPECT_EQ(Next(line), "a 50..");
  EXPECT_EQ(line.until(), 50u);
  line.Advance(10);
  line.Join("a", 70);
  EXPECT_EQ(Rest(line), std::vector<std::string>{"a 10.."});
}

TEST(EraseLineTest, OfOneThatIsAddedOnlyWhatLiesBehindItIsLookedAt) {
  EraseLine line;
  line.Join("a", 40);
  EXPECT_EQ(line.from(), 40u);
  line.Join("a", 60);
  EXPECT_EQ(line.from(), 40u);
  line.Join("a", 20);
  line.Join("a", 30);
  EXPECT_EQ(Rest(line), (std::vector<std::string>{"a 40..", "a 20..40"}));
}

}  // namespace
}  // namespace postrider::delivery
