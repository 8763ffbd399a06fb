#include "delivery/file_budget.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

FileDemand Demand(int64_t limit) {
  FileDemand demand;
  demand.limit = limit;
  demand.shards = 2;
  demand.key_groups = 64;
  demand.requests_max = 1'000;
  demand.connections_max = 10'000;
  demand.others = 1'000;
  return demand;
}
// 512 for the process, 1,000 for other roles, 64 x 16 for stores, 2 x (1,000 + 64) for shards.
constexpr int64_t kSmallest = 512 + 1'000 + 1'024 + 2'128;

TEST(FileBudgetTest, RefusesALimitThatIsTooSmallForTheRequestsAndNamesOneThatWorks) {
  EXPECT_THAT(IdleConnectionsWithin(Demand(kSmallest - 1)),
              tests::StatusIs(absl::StatusCode::kInvalidArgument,
                              ::testing::HasSubstr(std::to_string(kSmallest))));
  ASSERT_OK_AND_ASSIGN(const int64_t least, IdleConnectionsWithin(Demand(kSmallest)));
  EXPECT_EQ(least, 64);
}

TEST(FileBudgetTest, KeepsFewerConnectionsWhereFilesAreFew) {
  ASSERT_OK_AND_ASSIGN(const int64_t few, IdleConnectionsWithin(Demand(10'000)));
  EXPECT_EQ(few, (10'000 - 512 - 1'000 - 64 * 64) / 2 - 1'000);
  // All that may be open at once stays below the limit.
  EXPECT_LE(512 + 1'000 + 64 * 64 + 2 * (1'000 + few), 10'000);
}

TEST(FileBudgetTest, KeepsWhatMemoryAllowsWhereFilesAreMany) {
  ASSERT_OK_AND_ASSIGN(const int64_t all, IdleConnectionsWithin(Demand(1'000'000)));
  EXPECT_EQ(all, 10'000);
}

}  // namespace
}  // namespace postrider::delivery
