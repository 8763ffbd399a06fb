#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "core/base/random.h"
#include "core/stream/state_store.h"
#include "tests/support/status_matchers.h"

namespace postrider::contract {

// What every StateStore is held to. A test binary includes this once and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Heap, StateStoreContract, testing::Values(...));
class StateStoreContractEnvironment {
 public:
  virtual ~StateStoreContractEnvironment() = default;
  // A new store, beside those that were made before; its bound is that many bytes, roughly.
  virtual std::unique_ptr<StateStore> Make(uint64_t bytes_max) = 0;
};
using StateStoreContractFactory = std::function<std::unique_ptr<StateStoreContractEnvironment>()>;

class StateStoreContract : public testing::TestWithParam<StateStoreContractFactory> {
 protected:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  StateStoreContract() : environment_(GetParam()()), store_(environment_->Make(kPlenty)) {}

  static constexpr uint64_t kPlenty = 256 << 20;

  void Put(const std::string& key, const std::string& value) { Put(*store_, key, value); }
  static void Put(StateStore& store, const std::string& key, const std::string& value) {
    StateBatch batch;
    batch.Put(key, value);
    ASSERT_THAT(store.Apply(batch), tests::IsOk());
  }
  static absl::optional<std::string> Get(const StateStore& store, const std::string& key) {
    std::string value;
    const absl::StatusOr<bool> found = store.Get(key, value);
    EXPECT_THAT(found, tests::IsOk());
    if (!found.ok() || !*found) return absl::nullopt;
    return value;
  }
  absl::optional<std::string> Get(const std::string& key) const { return Get(*store_, key); }
  static Entries ScanAll(const StateStore& store, StateRange& range) {
    Entries entries;
    const auto end = store.Scan(range, ScanLimits{1'000'000, size_t{1} << 30},
                                [&](absl::string_view key, absl::string_view value) {
                                  entries.emplace_back(std::string(key), std::string(value));
                                  return true;
                                });
    EXPECT_THAT(end, tests::IsOkAndHolds(ScanEnd::kRangeEnd));
    return entries;
  }
  Entries ScanPrefix(const std::string& prefix) const {
    StateRange range(prefix);
    return ScanAll(*store_, range);
  }

  const std::unique_ptr<StateStoreContractEnvironment> environment_;
  std::unique_ptr<StateStore> store_;
};

TEST_P(StateStoreContract, GivesBackWhatWasPutLast) {
  EXPECT_EQ(Get("a"), absl::nullopt);
  Put("a", "1");
  EXPECT_EQ(Get("a"), "1");
  Put("a", "2");
  EXPECT_EQ(Get("a"), "2");
  StateBatch batch;
  batch.Delete("a");
  batch.Delete("never there");
  ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  EXPECT_EQ(Get("a"), absl::nullopt);
}

TEST_P(StateStoreContract, LeavesTheValueOfAMissingKeyUntouched) {
  std::string value = "as it was";
  EXPECT_THAT(store_->Get("missing", value), tests::IsOkAndHolds(false));
  EXPECT_EQ(value, "as it was");
}

TEST_P(StateStoreContract, TakesKeysAndValuesOfAnyBytes) {
  const std::string key("k\0\xff\0", 4);
  const std::string value("\0\xff\0\0", 4);
  Put(key, value);
  Put("empty value", "");
  EXPECT_EQ(Get(key), value);
  EXPECT_EQ(Get("empty value"), "");
  EXPECT_EQ(Get("k"), absl::nullopt);
}

TEST_P(StateStoreContract, OrdersKeysAsUnsignedBytes) {
  for (const char* key : {"p\xff", "p", "p\x7f", "p\x80", "pa", "q", "o"}) Put(key, key);
  EXPECT_THAT(ScanPrefix("p"),
              testing::ElementsAre(testing::Key("p"), testing::Key("pa"), testing::Key("p\x7f"),
                                   testing::Key("p\x80"), testing::Key("p\xff")));
}

TEST_P(StateStoreContract, ScansFromAStartWithinTheRangeOnly) {
  for (int i = 0; i < 10; ++i) Put(absl::StrCat("r", i), "v");
  Put("s0", "v");
  StateRange range("r");
  Entries seen;
  const auto visit = [&](absl::string_view key, absl::string_view value) {
    seen.emplace_back(std::string(key), std::string(value));
    return true;
  };
  EXPECT_THAT(store_->Scan(range, "r8", ScanLimits{}, visit),
              tests::IsOkAndHolds(ScanEnd::kRangeEnd));
  EXPECT_THAT(seen, testing::ElementsAre(testing::Key("r8"), testing::Key("r9")));
  EXPECT_EQ(range.head(), "r") << "a scan from within must not move the head";
}

TEST_P(StateStoreContract, StopsAtEachLimit) {
  for (int i = 0; i < 10; ++i) Put(absl::StrCat("r", i), std::string(98, 'v'));
  StateRange range("r");
  size_t seen = 0;
  const auto count = [&](absl::string_view, absl::string_view) {
    ++seen;
    return true;
  };
  EXPECT_THAT(store_->Scan(range, ScanLimits{3, 1 << 20}, count),
              tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_EQ(seen, 3u);
  seen = 0;
  EXPECT_THAT(store_->Scan(range, ScanLimits{100, 499}, count),
              tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_EQ(seen, 4u);
  seen = 0;
  EXPECT_THAT(store_->Scan(range, ScanLimits{100, 500}, count),
              tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_EQ(seen, 5u);
  seen = 0;
  EXPECT_THAT(store_->Scan(range, ScanLimits{100, 1}, count), tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_EQ(seen, 1u) << "the first key is given whatever its size";
  seen = 0;
  EXPECT_THAT(store_->Scan(range, ScanLimits{10, 1 << 20}, count),
              tests::IsOkAndHolds(ScanEnd::kRangeEnd));
  EXPECT_EQ(seen, 10u);
  EXPECT_THAT(
      store_->Scan(range, ScanLimits{}, [](absl::string_view, absl::string_view) { return false; }),
      tests::IsOkAndHolds(ScanEnd::kLimit));
}

TEST_P(StateStoreContract, MovesTheHeadToTheFirstLiveKey) {
  for (int i = 0; i < 10; ++i) Put(absl::StrCat("r", i), "v");
  StateBatch batch;
  for (int i = 0; i < 4; ++i) batch.Delete(absl::StrCat("r", i));
  ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  StateRange range("r");
  EXPECT_EQ(ScanAll(*store_, range).size(), 6u);
  EXPECT_EQ(range.head(), "r4");
  range.Include("r1");
  Put("r1", "again");
  EXPECT_EQ(ScanAll(*store_, range).size(), 7u);
  EXPECT_EQ(range.head(), "r1");
}

TEST_P(StateStoreContract, AppliesABatchInItsOrder) {
  StateBatch batch;
  batch.Put("a", "1");
  batch.Put("b", "1");
  batch.Delete("a");
  batch.Put("p1", "1");
  batch.DeletePrefix("p");
  batch.Put("p2", "2");
  ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  EXPECT_EQ(Get("a"), absl::nullopt);
  EXPECT_EQ(Get("b"), "1");
  EXPECT_THAT(ScanPrefix("p"), testing::ElementsAre(testing::Pair("p2", "2")));
}

TEST_P(StateStoreContract, DeletesAPrefixAndNothingBeside) {
  for (const char* key : {"p", "p\x01", "p\xff", "p\xff\xff", "o\xff", "q", "q\x01"}) Put(key, "v");
  StateBatch batch;
  batch.DeletePrefix("p");
  batch.DeletePrefix("nothing");
  ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  EXPECT_THAT(ScanPrefix("p"), testing::IsEmpty());
  EXPECT_EQ(Get("o\xff"), "v");
  EXPECT_EQ(Get("q"), "v");
  EXPECT_EQ(Get("q\x01"), "v");

  Put("x\xff\xff", "v");
  Put("y", "v");
  batch.Clear();
  batch.DeletePrefix("x\xff");
  ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  EXPECT_EQ(Get("x\xff\xff"), absl::nullopt);
  EXPECT_EQ(Get("y"), "v");
}

TEST_P(StateStoreContract, PushesAndPopsAQueueOf100000WithoutWalkingTombstones) {
  constexpr int kEntries = 100'000;
  const auto key = [](int i) { return absl::StrFormat("q%08d", i); };
  StateBatch batch;
  for (int i = 0; i < kEntries;) {
    batch.Clear();
    for (int j = 0; j < 100; ++j, ++i) batch.Put(key(i), "payload");
    ASSERT_THAT(store_->Apply(batch), tests::IsOk());
  }
  StateRange queue("q");
  for (int i = 0; i < kEntries; ++i) {
    std::string first;
    ASSERT_THAT(store_->Scan(queue, ScanLimits{1, 1 << 20},
                             [&](absl::string_view found, absl::string_view) {
                               first = std::string(found);
                               return true;
                             }),
                tests::IsOk());
    ASSERT_EQ(first, key(i));
    batch.Clear();
    batch.Delete(first);
    ASSERT_THAT(store_->Apply(batch), tests::IsOk());
    queue.MoveHeadPast(first);
  }
  EXPECT_THAT(ScanAll(*store_, queue), testing::IsEmpty());
  EXPECT_LE(store_->figures().tombstones_skipped, 1'000u)
      << "scans went over what was deleted at the head";
}

TEST_P(StateStoreContract, RefusesAtItsBoundAndTakesNothingOfTheBatch) {
  store_ = environment_->Make(8 << 20);
  const std::string value(10'000, 'v');
  absl::Status refused;
  int taken = 0;
  for (; taken < 10'000; ++taken) {
    StateBatch batch;
    batch.Delete("never there");
    batch.Put(absl::StrFormat("k%06d", taken), value);
    batch.Put("last", absl::StrCat(taken));
    refused = store_->Apply(batch);
    if (!refused.ok()) break;
  }
  ASSERT_THAT(refused, tests::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GT(taken, 400);
  EXPECT_EQ(Get(absl::StrFormat("k%06d", taken)), absl::nullopt);
  EXPECT_EQ(Get("last"), absl::StrCat(taken - 1));
  EXPECT_EQ(Get("k000000"), value);

  StateBatch deletes;
  deletes.Delete("k000000");
  EXPECT_THAT(store_->Apply(deletes), tests::IsOk()) << "deletes are taken at the bound too";
  EXPECT_EQ(Get("k000000"), absl::nullopt);
}

TEST_P(StateStoreContract, IsLikeNewAfterClear) {
  for (int i = 0; i < 1'000; ++i) Put(absl::StrCat("k", i), "v");
  ASSERT_THAT(store_->Clear(), tests::IsOk());
  EXPECT_THAT(ScanPrefix("k"), testing::IsEmpty());
  EXPECT_EQ(Get("k1"), absl::nullopt);
  EXPECT_EQ(store_->figures().keys, 0u);
  Put("k1", "again");
  EXPECT_THAT(ScanPrefix("k"), testing::ElementsAre(testing::Pair("k1", "again")));
}

TEST_P(StateStoreContract, TellsHowMuchItHolds) {
  for (int i = 0; i < 1'000; ++i) Put(absl::StrCat("k", i), std::string(1'000, 'v'));
  const StoreFigures figures = store_->figures();
  EXPECT_GE(figures.memory_bytes + figures.disk_bytes, 900'000u);
  EXPECT_EQ(figures.keys, 1'000u);
}

TEST_P(StateStoreContract, KeepsTwoTasksApart) {
  const std::unique_ptr<StateStore> other = environment_->Make(kPlenty);
  Put("k", "mine");
  Put(*other, "k", "the other's");
  EXPECT_EQ(Get("k"), "mine");
  ASSERT_THAT(store_->Clear(), tests::IsOk());
  EXPECT_EQ(Get("k"), absl::nullopt);
  EXPECT_EQ(Get(*other, "k"), "the other's");
}

TEST_P(StateStoreContract, AgreesWithAMapOverRandomOperations) {
  constexpr uint64_t kSeed = 20'261'130;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  Random random(kSeed);
  std::map<std::string, std::string> model;
  const auto random_key = [&] {
    std::string key(1, static_cast<char>('a' + random.Below(3)));
    for (uint64_t n = random.Below(3); n > 0; --n) {
      key.push_back(static_cast<char>(random.Below(2) == 0 ? 0xff : random.Below(4)));
    }
    return key;
  };
  for (int round = 0; round < 2'000; ++round) {
    StateBatch batch;
    for (uint64_t n = random.Below(6); n > 0; --n) {
      const std::string key = random_key();
      switch (random.Below(8)) {
        case 0:
          batch.DeletePrefix(key);
          for (auto at = model.lower_bound(key);
               at != model.end() && at->first.compare(0, key.size(), key) == 0;) {
            at = model.erase(at);
          }
          break;
        case 1:
        case 2:
          batch.Delete(key);
          model.erase(key);
          break;
        default: {
          const std::string value = absl::StrCat(random.Below(1'000));
          batch.Put(key, value);
          model[key] = value;
        }
      }
    }
    ASSERT_THAT(store_->Apply(batch), tests::IsOk());
    const std::string key = random_key();
    const auto found = model.find(key);
    ASSERT_EQ(Get(key), found == model.end() ? absl::nullopt : absl::make_optional(found->second));
    if (round % 50 != 0) continue;
    Entries all;
    for (const char* prefix : {"a", "b", "c"}) {
      for (auto& entry : ScanPrefix(prefix)) all.push_back(std::move(entry));
    }
    ASSERT_EQ(all, Entries(model.begin(), model.end()));
  }
}

}  // namespace postrider::contract
