#include "delivery/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/id.h"

namespace postrider::delivery {
namespace {

using subscriptions::CustomerId;

CustomerId Customer(uint8_t number) {
  IdBytes bytes{};
  bytes[15] = number;
  return CustomerId(bytes);
}

// Endpoints named "<customer>.<number>", which have so many bytes to send each time.
class FairQueueTest : public testing::Test {
 protected:
  void Enqueue(int customer, int endpoint) {
    queue_.Enqueue(Customer(static_cast<uint8_t>(customer)), nullptr,
                   absl::StrCat(customer, ".", endpoint));
  }
  // One turn; who had it is in line again if it is `busy`.
  std::string Serve(size_t bytes, bool busy = true) {
    std::string served;
    queue_.Serve([&](EndpointFunction*, const std::string& key) {
      served = key;
      if (busy) queue_.Enqueue(CustomerOf(key), nullptr, key);
      return bytes;
    });
    return served;
  }
  static int NumberOf(const std::string& key) { return std::stoi(key); }
  static CustomerId CustomerOf(const std::string& key) {
    return Customer(static_cast<uint8_t>(NumberOf(key)));
  }

  FairQueue queue_{100};
};

TEST_F(FairQueueTest, HasNobodyToServeAtFirst) {
  EXPECT_EQ(queue_.Serve([](EndpointFunction*, const std::string&) { return size_t{1}; }), 0U);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, SharesBytesEquallyBetweenCustomersWhateverTheirEndpoints) {
  // One has a hundred endpoints with large batches, the others one each with small ones.
  for (int endpoint = 0; endpoint < 100; ++endpoint) Enqueue(1, endpoint);
  for (int customer = 2; customer <= 5; ++customer) Enqueue(customer, 0);
  std::map<int, uint64_t> cost;
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::string served = Serve(1000);
    const int customer = NumberOf(served);
    cost[customer] += FairQueue::kTurnCost + 1000;
  }
  for (int customer = 1; customer <= 5; ++customer) {
    EXPECT_NEAR(static_cast<double>(cost[customer]), 20'000 * (FairQueue::kTurnCost + 1000.0) / 5,
                2 * (FairQueue::kTurnCost + 1000.0))
        << customer;
  }
}

TEST_F(FairQueueTest, CountsBytesAndNotTurns) {
  Enqueue(1, 0);
  Enqueue(2, 0);
  std::map<int, uint64_t> cost;
  std::map<int, int> turns;
  for (int turn = 0; turn < 10'000; ++turn) {
    queue_.Serve([&](EndpointFunction*, const std::string& key) {
      const size_t bytes = NumberOf(key) == 1 ? 100'000 : 500;
      queue_.Enqueue(CustomerOf(key), nullptr, key);
      cost[NumberOf(key)] += FairQueue::kTurnCost + bytes;
      ++turns[NumberOf(key)];
      return bytes;
    });
  }
  EXPECT_NEAR(static_cast<double>(cost[1]) / static_cast<double>(cost[2]), 1.0, 0.02);
  EXPECT_GT(turns[2], 30 * turns[1]);
}

TEST_F(FairQueueTest, SharesACustomersPartBetweenItsEndpoints) {
  for (int endpoint = 0; endpoint < 4; ++endpoint) Enqueue(1, endpoint);
  std::map<std::string, uint64_t> cost;
  for (int turn = 0; turn < 4'000; ++turn) {
    queue_.Serve([&](EndpointFunction*, const std::string& key) {
      const size_t bytes = key == "1.0" ? 50'000 : 1'000;
      queue_.Enqueue(Customer(1), nullptr, key);
      cost[key] += FairQueue::kTurnCost + bytes;
      return bytes;
    });
  }
  for (int endpoint = 1; endpoint < 4; ++endpoint) {
    const double other = static_cast<double>(cost[absl::StrCat("1.", endpoint)]);
    EXPECT_NEAR(static_cast<double>(cost["1.0"]) / other, 1.0, 0.1) << endpoint;
  }
}

TEST_F(FairQueueTest, ServesAtOnceWhoAsksForLessThanItsShare) {
  for (int customer = 1; customer <= 50; ++customer) Enqueue(customer, 0);
  for (int turn = 0; turn < 500; ++turn) Serve(1'000'000);
  Enqueue(51, 0);
  EXPECT_EQ(Serve(500, false), "51.0");
  // Again and again, as long as it is less.
  for (int turn = 0; turn < 20; ++turn) {
    for (int other = 0; other < 50; ++other) Serve(1'000'000);
    Enqueue(51, 0);
    EXPECT_EQ(Serve(500, false), "51.0");
  }
}

TEST_F(FairQueueTest, LeavingTheLineForgivesNoDebt) {
  Enqueue(1, 0);
  Enqueue(2, 0);
  uint64_t greedy = 0;
  uint64_t other = 0;
  for (int turn = 0; turn < 1'000; ++turn) {
    // The greedy one is in line only when the other one was served.
    const std::string served = Serve(100'000, false);
    (NumberOf(served) == 1 ? greedy : other) += 1;
    if (NumberOf(served) == 1) {
      Serve(100'000, true);
      ++other;
      Enqueue(1, 0);
    } else {
      Enqueue(2, 0);
    }
  }
  EXPECT_NEAR(static_cast<double>(greedy), static_cast<double>(other), 20);
}

TEST_F(FairQueueTest, KeepsACustomerToATenthOfTheSlotsWhileOthersWait) {
  for (int customer = 1; customer <= 20; ++customer) Enqueue(customer, 0);
  for (int slot = 0; slot < 10; ++slot) queue_.TakeSlot(Customer(1));
  for (int turn = 0; turn < 200; ++turn) EXPECT_NE(Serve(1000), "1.0");
  queue_.GiveSlot(Customer(1));
  EXPECT_EQ(Serve(1000), "1.0");
}

TEST_F(FairQueueTest, LetsACustomerHaveAllSlotsThatNobodyElseWants) {
  Enqueue(1, 0);
  for (int slot = 0; slot < 100; ++slot) {
    ASSERT_TRUE(queue_.HasFreeSlot());
    EXPECT_EQ(Serve(1000), "1.0");
    queue_.TakeSlot(Customer(1));
  }
  EXPECT_FALSE(queue_.HasFreeSlot());
  // Two with work have a half each.
  for (int slot = 0; slot < 60; ++slot) queue_.GiveSlot(Customer(1));
  Enqueue(2, 0);
  int others = 0;
  for (int turn = 0; turn < 40; ++turn) others += NumberOf(Serve(1)) == 2 ? 1 : 0;
  EXPECT_NEAR(others, 20, 1);
}

TEST_F(FairQueueTest, ForgetsCustomersWithoutWork) {
  for (int round = 0; round < 100; ++round) {
    for (int customer = 1; customer <= 200; ++customer) {
      Enqueue(customer, round);
      EXPECT_EQ(Serve(100, false), absl::StrCat(customer, ".", round));
    }
  }
  EXPECT_LE(queue_.customers(), 200U);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, ForgetsAFunctionsEndpoints) {
  Enqueue(1, 0);
  Enqueue(1, 1);
  Enqueue(2, 0);
  EXPECT_EQ(queue_.size(), 3U);
  queue_.Forget(nullptr);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(Serve(1), "");
  Enqueue(2, 7);
  EXPECT_EQ(Serve(1, false), "2.7");
}

}  // namespace
}  // namespace postrider::delivery
