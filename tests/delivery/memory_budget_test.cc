#include "delivery/memory_budget.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace postrider::delivery {
namespace {

constexpr int64_t kMb = 1 << 20;

MemoryDemand Demand(int64_t limit, int64_t shards, int64_t requests_max = 2'000) {
  MemoryDemand demand;
  demand.limit_bytes = limit;
  demand.shards = shards;
  demand.messages_max = 100'000;
  demand.requests_max = requests_max;
  return demand;
}

int64_t Sum(const MemoryBudget& budget, int64_t shards) {
  const int64_t per_shard = budget.messages + budget.backlog_room + budget.waiting +
                            budget.prefetch + budget.producer + budget.restore_prefetch +
                            budget.connections;
  return budget.process + budget.reserve + budget.overlays + budget.identities +
         budget.state_index + budget.endpoint_state + budget.backlog_store + per_shard * shards;
}

TEST(MemoryBudgetTest, PartsNeverExceedTheLimit) {
  for (const int64_t shards : {1, 2, 3, 8, 64}) {
    for (const int64_t requests : {1, 2'000, 50'000}) {
      const int64_t smallest = SmallestMemoryLimit(Demand(0, shards, requests));
      for (const int64_t limit :
           {smallest, smallest + 1, smallest + 100 * kMb, smallest * 2, smallest * 50}) {
        const absl::StatusOr<MemoryBudget> budget = DivideMemory(Demand(limit, shards, requests));
        ASSERT_TRUE(budget.ok()) << budget.status();
        EXPECT_LE(Sum(*budget, shards), limit) << shards << " shards, " << requests << " requests";
        EXPECT_GE(budget->reserve, limit / 10);
      }
    }
  }
}

TEST(MemoryBudgetTest, MostOfTheLimitIsGivenOut) {
  const absl::StatusOr<MemoryBudget> budget = DivideMemory(Demand(1'024 * kMb, 1));
  ASSERT_TRUE(budget.ok()) << budget.status();
  EXPECT_GE(Sum(*budget, 1), 1'020 * kMb);
}

TEST(MemoryBudgetTest, EveryPartHasItsLeastAtTheSmallestLimit) {
  const int64_t smallest = SmallestMemoryLimit(Demand(0, 4));
  const absl::StatusOr<MemoryBudget> budget = DivideMemory(Demand(smallest, 4));
  ASSERT_TRUE(budget.ok()) << budget.status();
  // Two seconds of what a core delivers: with less, fetching stops for whole seconds.
  EXPECT_GE(budget->prefetch, 32 * kMb);
  EXPECT_GE(budget->producer, 8 * kMb);
  // Several of the largest messages.
  EXPECT_GE(budget->pending_bytes_max, 6 * kMb);
  EXPECT_GE(budget->pending_records_max, 1'000);
  EXPECT_GE(budget->overlays, 16 * kMb);
  EXPECT_GE(budget->state_index, 8 * kMb);
  EXPECT_GE(budget->backlog_store, 32 * kMb);
  EXPECT_GE(budget->connections_max, 2'000);
}

TEST(MemoryBudgetTest, RefusesALimitThatIsTooSmallAndNamesTheSmallest) {
  const int64_t smallest = SmallestMemoryLimit(Demand(0, 8));
  const absl::StatusOr<MemoryBudget> refused = DivideMemory(Demand(smallest - 1, 8));
  ASSERT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  for (const std::string& part : {std::string("memory.limit"), std::string("worker.shards = 8"),
                                  absl::StrCat("works is ", smallest / kMb, "MB")}) {
    EXPECT_TRUE(absl::StrContains(refused.status().message(), part)) << refused.status();
  }
  EXPECT_TRUE(DivideMemory(Demand(smallest / kMb * kMb, 8)).ok());
}

TEST(MemoryBudgetTest, ManyKeyGroupsHaveRoomForTheirStores) {
  MemoryDemand demand = Demand(0, 1);
  demand.key_groups = 4'096;
  demand.limit_bytes = SmallestMemoryLimit(demand);
  const absl::StatusOr<MemoryBudget> budget = DivideMemory(demand);
  ASSERT_TRUE(budget.ok()) << budget.status();
  EXPECT_GE(budget->endpoint_state / demand.key_groups, 64 << 10);
  EXPECT_GE(budget->backlog_store / demand.key_groups, 512 << 10);
  EXPECT_EQ(budget->identities / demand.key_groups, 512 << 10);
  EXPECT_LE(Sum(*budget, 1), demand.limit_bytes);
}

TEST(MemoryBudgetTest, PrefetchStopsGrowingAndMessagesGoOn) {
  const absl::StatusOr<MemoryBudget> some = DivideMemory(Demand(4'096 * kMb, 1));
  const absl::StatusOr<MemoryBudget> more = DivideMemory(Demand(16'384 * kMb, 1));
  ASSERT_TRUE(some.ok() && more.ok());
  EXPECT_EQ(some->prefetch, 64 * kMb);
  EXPECT_EQ(more->prefetch, 64 * kMb);
  EXPECT_GT(more->pending_bytes_max, some->pending_bytes_max * 3);
  EXPECT_EQ(more->pending_records_max, 100'000);
}

}  // namespace
}  // namespace postrider::delivery
