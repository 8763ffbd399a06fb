#include "core/state/lazy_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/state/heap_store.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

TEST(LazyStoreTest, IsOpenedByTheFirstPutAlone) {
  const ManualClock clock;
  int opened = 0;
  const std::unique_ptr<StateStore> store =
      MakeLazyStore(clock, [&opened]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
        ++opened;
        return MakeHeapStore(HeapStoreOptions());
      });
  std::string value;
  StateBatch removal;
  removal.Delete("k");
  EXPECT_THAT(store->Apply(removal), tests::IsOk());
  EXPECT_THAT(store->Get("k", value), tests::IsOkAndHolds(false));
  EXPECT_EQ(opened, 0);
  StateBatch put;
  put.Put("k", "v");
  EXPECT_THAT(store->Apply(put), tests::IsOk());
  EXPECT_THAT(store->Apply(put), tests::IsOk());
  EXPECT_EQ(opened, 1);
  EXPECT_THAT(store->Get("k", value), tests::IsOkAndHolds(true));
  EXPECT_EQ(value, "v");
}

TEST(LazyStoreTest, TriesAgainToOpen) {
  const ManualClock clock;
  bool there = false;
  const std::unique_ptr<StateStore> store =
      MakeLazyStore(clock, [&there]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
        if (!there) return absl::UnavailableError("no such directory");
        return MakeHeapStore(HeapStoreOptions());
      });
  StateBatch put;
  put.Put("k", "v");
  const absl::Status refused = store->Apply(put);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("no such directory"));
  there = true;
  EXPECT_THAT(store->Apply(put), tests::IsOk());
}

TEST(LazyStoreTest, OnAFullDiskIsOpenedOnceASecondAtMost) {
  ManualClock clock;
  int tried = 0;
  bool full = true;
  const std::unique_ptr<StateStore> store =
      MakeLazyStore(clock, [&]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
        ++tried;
        if (full) return absl::ResourceExhaustedError("no space");
        return MakeHeapStore(HeapStoreOptions());
      });
  StateBatch put;
  put.Put("k", "v");
  for (int i = 0; i < 10; ++i) {
    const absl::Status refused = store->Apply(put);
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("no space"));
  }
  EXPECT_EQ(tried, 1);
  full = false;
  clock.Advance(std::chrono::milliseconds(999));
  EXPECT_TRUE(absl::IsResourceExhausted(store->Apply(put)));
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_THAT(store->Apply(put), tests::IsOk());
  EXPECT_EQ(tried, 2);
}

}  // namespace
}  // namespace postrider
