#include "delivery/store_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "core/base/metrics.h"
#include "core/state/heap_store.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using testing::HasSubstr;

class StoreFiguresTest : public testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<StateStore>> OpenHeap(const TopicPartition&) {
    HeapStoreOptions options;
    options.bytes_max = kBytesMax;
    return MakeHeapStore(options);
  }
  static void Put(StateStore& store, const std::string& key, size_t bytes) {
    StateBatch batch;
    batch.Put(key, std::string(bytes, 'x'));
    ASSERT_THAT(store.Apply(batch), tests::IsOk());
  }

  static constexpr uint64_t kBytesMax = 1'000'000;
  Metrics metrics_;
  StoreFiguresKeeper keeper_{metrics_};
};

TEST_F(StoreFiguresTest, SumsTheStoresOfItsThreadAndForgetsThoseThatAreClosed) {
  const OpenStore open = keeper_.Counted("backlog", kBytesMax, OpenHeap);
  auto first = open({"t", 0});
  auto second = open({"t", 1});
  ASSERT_THAT(first, tests::IsOk());
  ASSERT_THAT(second, tests::IsOk());
  Put(**first, "a", 1'000);
  Put(**second, "b", 500'000);
  Put(**second, "c", 1'000);
  EXPECT_EQ(keeper_.Total("backlog").keys, 0) << "nobody has looked yet";
  keeper_.LookAtMine();
  EXPECT_EQ(keeper_.Total("backlog").keys, 3);
  EXPECT_GE(keeper_.Total("backlog").memory_bytes, 502'000);
  EXPECT_EQ(keeper_.Total("endpoint_state").keys, 0);
  const std::string text = metrics_.Expose();
  EXPECT_THAT(text, HasSubstr("postrider_delivery_state_stores{store=\"backlog\"} 2"));
  EXPECT_THAT(text, HasSubstr("postrider_delivery_state_keys{store=\"backlog\"} 3"));
  EXPECT_THAT(text, HasSubstr("postrider_delivery_state_fullest_ratio{store=\"backlog\"} 0.50"));

  EXPECT_LT(keeper_.Fullness("backlog", 0).ratio, 0.1);
  EXPECT_NEAR(keeper_.Fullness("backlog", 1).ratio, 0.5, 0.01);
  EXPECT_EQ(keeper_.Fullness("backlog", 2).ratio, 0);
  EXPECT_EQ(keeper_.Fullness("endpoint_state", 1).ratio, 0);

  second->reset();
  EXPECT_EQ(keeper_.Fullness("backlog", 1).ratio, 0);
  EXPECT_EQ(keeper_.Total("backlog").keys, 1);
  EXPECT_THAT(metrics_.Expose(), HasSubstr("postrider_delivery_state_stores{store=\"backlog\"} 1"));
}

TEST_F(StoreFiguresTest, PassesOnWhatAStoreIsAsked) {
  auto store = keeper_.Counted("backlog", kBytesMax, OpenHeap)({"t", 0});
  ASSERT_THAT(store, tests::IsOk());
  Put(**store, "ab", 3);
  std::string value;
  EXPECT_THAT((*store)->Get("ab", value), tests::IsOkAndHolds(true));
  EXPECT_EQ(value, "xxx");
  StateRange range("a");
  std::string seen;
  EXPECT_THAT((*store)->Scan(range, ScanLimits(),
                             [&](absl::string_view key, absl::string_view) {
                               seen = std::string(key);
                               return true;
                             }),
              tests::IsOkAndHolds(ScanEnd::kRangeEnd));
  EXPECT_EQ(seen, "ab");
  EXPECT_EQ((*store)->figures().keys, 1);
  EXPECT_THAT((*store)->Clear(), tests::IsOk());
  EXPECT_THAT((*store)->Get("ab", value), tests::IsOkAndHolds(false));
}

TEST_F(StoreFiguresTest, LooksAtNoStoreOfAnotherThread) {
  const OpenStore open = keeper_.Counted("backlog", kBytesMax, OpenHeap);
  auto mine = open({"t", 0});
  ASSERT_THAT(mine, tests::IsOk());
  Put(**mine, "a", 10);
  std::thread([&] {
    auto others = open({"t", 1});
    ASSERT_THAT(others, tests::IsOk());
    Put(**others, "b", 10);
    keeper_.LookAtMine();
    EXPECT_EQ(keeper_.Total("backlog").keys, 1);
  }).join();
  EXPECT_EQ(keeper_.Total("backlog").keys, 0) << "the other one is closed, mine was not looked at";
  keeper_.LookAtMine();
  EXPECT_EQ(keeper_.Total("backlog").keys, 1);
}

TEST_F(StoreFiguresTest, AStoreThatCannotBeOpenedIsNotCounted) {
  const OpenStore open =
      keeper_.Counted("backlog", kBytesMax,
                      [](const TopicPartition&) -> absl::StatusOr<std::unique_ptr<StateStore>> {
                        return absl::UnavailableError("no disk");
                      });
  EXPECT_THAT(open({"t", 0}), tests::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(metrics_.Expose(), HasSubstr("postrider_delivery_state_stores{store=\"backlog\"} 0"));
}

}  // namespace
}  // namespace postrider::delivery
