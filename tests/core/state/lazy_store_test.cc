#include "core/state/lazy_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/state/heap_store.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

TEST(LazyStoreTest, IsOpenedByTheFirstPutAlone) {
  int opened = 0;
  const std::unique_ptr<StateStore> store =
      MakeLazyStore([&opened]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
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
  bool there = false;
  const std::unique_ptr<StateStore> store =
      MakeLazyStore([&there]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
        if (!there) return absl::UnavailableError("no such directory");
        return MakeHeapStore(HeapStoreOptions());
      });
  StateBatch put;
  put.Put("k", "v");
  const absl::Status refused = store->Apply(put);
  EXPECT_TRUE(absl::IsDataLoss(refused));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("no such directory"));
  there = true;
  EXPECT_THAT(store->Apply(put), tests::IsOk());
}

}  // namespace
}  // namespace postrider
