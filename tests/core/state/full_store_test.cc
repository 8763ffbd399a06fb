// A store at its bound: it refuses puts, and must never stop what would free it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/state/rocksdb_store.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"
#include "core/stream/memory_account.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_key.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/fakes/state_serializers.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using testing::IsEmpty;

constexpr size_t kOverlayBytes = 256 << 10;
constexpr size_t kValueBytes = 8'000;

// A value that no compression makes smaller.
std::string Noise(uint64_t seed, size_t bytes = kValueBytes) {
  Random random(seed);
  std::string value;
  value.reserve(bytes);
  while (value.size() < bytes) value.push_back(static_cast<char>(random.Below(256)));
  return value;
}

// One life of a task.
struct Task {
  Task(std::unique_ptr<StateStore> made, const Clock& clock, ScriptedChangelog& changelog,
       uint64_t epoch, MemoryAccount* account = nullptr, size_t overlay_bytes = kOverlayBytes)
      : store(std::move(made)),
        backend(Options(epoch, account, overlay_bytes), *store, changelog,
                [this](absl::Status why) { fault = std::move(why); }),
        value(backend, clock, {2, "value", std::chrono::milliseconds{0}}, TextSerializer()),
        list(backend, clock, {5, "list", std::chrono::milliseconds{0}}, 1) {
    backend.SetRoomCallback([this] { ++rooms; });
  }
  static StateBackendOptions Options(uint64_t epoch, MemoryAccount* account, size_t overlay_bytes) {
    StateBackendOptions options;
    options.epoch = epoch;
    options.overlay_bytes_max = overlay_bytes;
    options.overlays = account;
    return options;
  }

  bool Push(int i) {
    const auto pushed = list.Push("k", static_cast<uint64_t>(i), absl::StrFormat("id%06d", i), 1,
                                  Noise(static_cast<uint64_t>(i)));
    EXPECT_THAT(pushed, tests::IsOk());
    return pushed.ok() && *pushed == ListState::Pushed::kTaken;
  }
  bool Remove(int i) {
    const auto removed = list.Remove("k", absl::StrFormat("id%06d", i));
    EXPECT_THAT(removed, tests::IsOk());
    return removed.ok() && *removed;
  }
  // The numbers of the entries that are there, each with its own value.
  std::vector<int> List() {
    std::vector<int> entries;
    EXPECT_THAT(list.Scan("k", ScanLimits{1'000'000, size_t{1} << 40},
                          [&](const ListState::Entry& entry) {
                            entries.push_back(static_cast<int>(entry.order));
                            EXPECT_EQ(entry.value, Noise(entry.order));
                            return true;
                          }),
                tests::IsOkAndHolds(ScanEnd::kRangeEnd));
    return entries;
  }

  std::unique_ptr<StateStore> store;
  absl::Status fault;
  StateBackend backend;
  ValueState<std::string> value;
  ListState list;
  int rooms = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StateStore>(const std::string& directory, uint64_t bytes_max)> make;
};

class FullStoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  std::unique_ptr<StateStore> MakeStore(uint64_t bytes_max) {
    return GetParam().make(absl::StrCat(directory_.path(), "/", made_++), bytes_max);
  }
  std::unique_ptr<Task> MakeTask(uint64_t epoch, uint64_t bytes_max = kBytesMax) {
    return std::make_unique<Task>(MakeStore(bytes_max), clock_, changelog_, epoch);
  }
  // Entries 0.. until neither store nor overlay take one more; how many there are.
  int Fill(Task& task, int from = 0) {
    int i = from;
    for (; i < 10'000 && task.Push(i); ++i) changelog_.AnswerAll();
    EXPECT_LT(i, 10'000);
    EXPECT_TRUE(task.backend.wants_retry());
    return i;
  }
  // Tries again, as a shard does now and then, until `done`. What works on a disk takes its time.
  static bool RetryUntil(Task& task, const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      task.backend.OnRoom();
      std::this_thread::yield();
    }
    return true;
  }
  // What a new owner reads.
  absl::Status Restore(Task& task, ChangelogReplay& replay, size_t& next) {
    if (task.backend.restoring() == nullptr) task.backend.BeginRestore(replay);
    for (; next < end_; ++next) {
      const EncodedChangelogRecord& record = changelog_.log[next];
      const absl::Status taken = task.backend.RestoreRecord(record.key, record.value);
      if (!taken.ok()) return taken;
    }
    task.backend.EndRestore();
    return absl::OkStatus();
  }

  static constexpr uint64_t kBytesMax = 2 << 20;

  tests::TemporaryDirectory directory_;
  int made_ = 0;
  ManualClock clock_;
  ScriptedChangelog changelog_;
  size_t end_ = 0;  // of the log, for Restore()
};

TEST_P(FullStoreTest, RemovalsGoOnBesidePutsThatHaveFilledTheOverlayAndMakeRoomForThem) {
  const auto task = MakeTask(1);
  const int entries = Fill(*task);
  EXPECT_GT(entries, 200);
  // The oldest lie in the store, the youngest in the overlay.
  for (int i = 0; i < entries - 10; ++i) {
    ASSERT_TRUE(task->Remove(i)) << i << " of " << entries;
    changelog_.AnswerAll();
  }
  EXPECT_TRUE(RetryUntil(*task, [&] { return task->backend.overlay_bytes() == 0; }));
  EXPECT_EQ(task->List().size(), 10u);
  EXPECT_GT(task->rooms, 0);
  for (int i = entries; i < entries + 100; ++i) {
    // The disk may have to be compacted once more.
    ASSERT_TRUE(RetryUntil(*task, [&] { return task->Push(i); })) << i;
    changelog_.AnswerAll();
  }
  EXPECT_TRUE(RetryUntil(*task, [&] { return task->backend.overlay_bytes() == 0; }));
  EXPECT_EQ(task->List().size(), 110u);
  EXPECT_THAT(task->fault, tests::IsOk());
}

TEST_P(FullStoreTest, TheRemovalOfWhatTheStoreNeverTookMakesRoomAtOnce) {
  const auto task = MakeTask(1);
  const int entries = Fill(*task);
  const size_t full = task->backend.overlay_bytes();
  for (int i = entries - 10; i < entries; ++i) ASSERT_TRUE(task->Remove(i));
  changelog_.AnswerAll();
  EXPECT_LT(task->backend.overlay_bytes(), full - 10 * kValueBytes);
  EXPECT_EQ(task->List().size(), static_cast<size_t>(entries - 10));
  EXPECT_TRUE(task->Push(entries));
}

TEST_P(FullStoreTest, ClearsAreTakenToo) {
  const auto task = MakeTask(1);
  ASSERT_TRUE(task->value.Put("v", "1"));
  changelog_.AnswerAll();
  Fill(*task);
  ASSERT_TRUE(task->value.Clear("v"));
  changelog_.AnswerAll();
  EXPECT_THAT(task->value.Get("v"), tests::IsOkAndHolds(absl::optional<std::string>()));
}

TEST_P(FullStoreTest, IsRestoredWithWhatOnlyTheOverlayHeldAndGoesOnFromThere) {
  const auto before = MakeTask(1);
  const int entries = Fill(*before);
  end_ = changelog_.log.size();
  changelog_.DropAnswers();
  changelog_.Resize();

  const auto task = MakeTask(2);
  ChangelogReplay replay(2, ReplayRuleOf);
  size_t next = 0;
  absl::Status restored;
  EXPECT_TRUE(RetryUntil(*task,
                         [&] {
                           restored = Restore(*task, replay, next);
                           return !absl::IsResourceExhausted(restored);
                         }))
      << next << " of " << end_;
  ASSERT_THAT(restored, tests::IsOk());
  changelog_.AnswerAll();
  EXPECT_EQ(task->List().size(), static_cast<size_t>(entries));
  for (int i = 0; i < entries; ++i) {
    ASSERT_TRUE(task->Remove(i)) << i;
    changelog_.AnswerAll();
  }
  EXPECT_TRUE(RetryUntil(*task, [&] { return task->backend.overlay_bytes() == 0; }));
  EXPECT_THAT(task->List(), IsEmpty());
  StateRange all(StatePrefix(5));
  EXPECT_THAT(task->store->Scan(all, ScanLimits{},
                                [](absl::string_view, absl::string_view) {
                                  ADD_FAILURE() << "something is left in the store";
                                  return true;
                                }),
              tests::IsOk());
}

TEST_P(FullStoreTest, ARestoreThatDoesNotFitGoesOnWhenLiveRemovalsMakeRoom) {
  const auto before = MakeTask(1, 4 * kBytesMax);
  const int entries = Fill(*before);
  end_ = changelog_.log.size();
  changelog_.DropAnswers();
  changelog_.Resize();

  // The bound is lower now.
  const auto task = MakeTask(2);
  ChangelogReplay replay(2, ReplayRuleOf);
  size_t next = 0;
  ASSERT_THAT(Restore(*task, replay, next), tests::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_LE(task->backend.overlay_bytes(), kOverlayBytes / 4 * 5);
  int removed = 0;
  absl::Status restored;
  EXPECT_TRUE(RetryUntil(*task,
                         [&] {
                           if (removed < entries - 20) {
                             EXPECT_TRUE(task->Remove(removed)) << removed;
                             ++removed;
                           }
                           changelog_.AnswerAll();
                           restored = Restore(*task, replay, next);
                           return !absl::IsResourceExhausted(restored);
                         }))
      << next << " of " << end_ << ", removed " << removed;
  ASSERT_THAT(restored, tests::IsOk());
  // What the restore holds comes before new puts.
  EXPECT_TRUE(RetryUntil(*task, [&] {
    if (task->value.Put("v", "live")) return true;
    if (removed < entries) {
      EXPECT_TRUE(task->Remove(removed++));
    }
    changelog_.AnswerAll();
    return false;
  }));
  changelog_.AnswerAll();
  EXPECT_EQ(task->List().size(), static_cast<size_t>(entries - removed));
  EXPECT_THAT(task->value.Get("v"), tests::IsOkAndHolds(absl::make_optional<std::string>("live")));
}

TEST_P(FullStoreTest, ARemovalInTheLogReachesWhatTheRestoreHolds) {
  const auto before = MakeTask(1);
  const int entries = Fill(*before);
  for (int i = entries - 3; i < entries; ++i) ASSERT_TRUE(before->Remove(i));
  changelog_.AnswerAll();
  end_ = changelog_.log.size();

  const auto task = MakeTask(2);
  ChangelogReplay replay(2, ReplayRuleOf);
  size_t next = 0;
  EXPECT_TRUE(
      RetryUntil(*task, [&] { return !absl::IsResourceExhausted(Restore(*task, replay, next)); }));
  EXPECT_EQ(task->List().size(), static_cast<size_t>(entries - 3));
}

INSTANTIATE_TEST_SUITE_P(
    Stores, FullStoreTest,
    testing::Values(StoreKind{"Heap",
                              [](const std::string&, uint64_t bytes_max) {
                                HeapStoreOptions options;
                                options.bytes_max = bytes_max;
                                return MakeHeapStore(options);
                              }},
                    StoreKind{"Rocksdb",
                              [](const std::string& directory, uint64_t bytes_max) {
                                static const auto shared = RocksdbShared::Create({});
                                RocksdbStoreOptions options;
                                options.directory = directory;
                                options.bytes_max = bytes_max;
                                auto store = OpenRocksdbStore(*shared, options);
                                EXPECT_THAT(store, tests::IsOk());
                                return *std::move(store);
                              }}),
    [](const testing::TestParamInfo<StoreKind>& kind) { return kind.param.name; });

std::unique_ptr<StateStore> SmallStore(size_t bytes_max) {
  HeapStoreOptions options;
  options.bytes_max = bytes_max;
  return MakeHeapStore(options);
}

class OverlayRoomTest : public testing::Test {
 protected:
  ManualClock clock_;
  ScriptedChangelog changelog_;
};

TEST_F(OverlayRoomTest, PutsNeverUseTheRoomOfRemovals) {
  Task task(SmallStore(1), clock_, changelog_, 1);
  for (int i = 0; task.value.Put(absl::StrCat("k", i), std::string(100, 'x')); ++i) {
  }
  EXPECT_LE(task.backend.overlay_bytes(), kOverlayBytes);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(task.value.Clear(absl::StrCat("never there ", i))) << i;
  EXPECT_FALSE(task.value.Put("one more", std::string(100, 'x')));
}

TEST_F(OverlayRoomTest, TheRoomOfRemovalsIsBoundedAndWhoeverWasRefusedIsTold) {
  Task task(SmallStore(1), clock_, changelog_, 1);
  for (int i = 0; task.value.Put(absl::StrCat("k", i), std::string(100, 'x')); ++i) {
  }
  changelog_.AnswerAll();
  const size_t filled = task.backend.overlay_bytes();
  EXPECT_GT(filled, kOverlayBytes / 2);
  int removals = 0;
  while (removals < 100'000 && task.value.Clear(absl::StrCat("never there ", removals))) ++removals;
  EXPECT_GT(removals, 50);
  EXPECT_LT(removals, 100'000);
  EXPECT_LE(task.backend.overlay_bytes(), kOverlayBytes + StateBackendOptions().removal_bytes_max);
  const int before = task.rooms;
  changelog_.AnswerAll();
  EXPECT_EQ(task.rooms, before + 1) << "the overlay is above half of its bound all the time";
  EXPECT_EQ(task.backend.overlay_bytes(), filled);
  EXPECT_TRUE(task.value.Clear("never there either"));
}

TEST_F(OverlayRoomTest, RemovalsOfWhatIsNotThereAreBoundedToo) {
  Task task(SmallStore(1 << 20), clock_, changelog_, 1);
  int removals = 0;
  while (removals < 100'000 && task.Remove(removals)) ++removals;
  EXPECT_LT(removals, 100'000);
}

TEST_F(OverlayRoomTest, OthersThatHoldAllThereIsLeaveEachTaskAMinimumAndItsRemovals) {
  MemoryAccount account(1 << 20);
  Task first(SmallStore(1), clock_, changelog_, 1, &account, 16 << 20);
  for (int i = 0; first.value.Put(absl::StrCat("k", i), std::string(1'000, 'x')); ++i) {
  }
  changelog_.AnswerAll();
  ASSERT_GT(account.used(), account.bytes_max() / 10 * 9);

  ScriptedChangelog log;
  Task second(SmallStore(1), clock_, log, 1, &account);
  int puts = 0;
  while (puts < 1'000 && second.value.Put(absl::StrCat("k", puts), std::string(1'000, 'y'))) ++puts;
  EXPECT_GE(puts, 10);
  EXPECT_LT(puts, 1'000);
  log.AnswerAll();
  EXPECT_TRUE(second.backend.wants_retry());
  for (int i = 0; i < puts; ++i) {
    ASSERT_TRUE(second.value.Clear(absl::StrCat("k", i))) << i;
    log.AnswerAll();
  }
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(second.value.Clear(absl::StrCat("never there ", i)));
  log.AnswerAll();
  EXPECT_EQ(second.backend.overlay_bytes(), 0u);
  EXPECT_TRUE(second.value.Put("k", std::string(1'000, 'y')));
  EXPECT_LE(account.used(), account.bytes_max());
}

TEST_F(OverlayRoomTest, AValueThatIsWrittenAgainAndAgainTakesTheRoomOfOne) {
  Task task(SmallStore(1), clock_, changelog_, 1);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(task.value.Put("k", absl::StrCat(std::string(1'000, 'x'), i))) << i;
    changelog_.AnswerAll();
  }
  EXPECT_LT(task.backend.overlay_bytes(), 5'000u);
  EXPECT_THAT(
      task.value.Get("k"),
      tests::IsOkAndHolds(absl::make_optional(absl::StrCat(std::string(1'000, 'x'), 9'999))));
}

TEST_F(OverlayRoomTest, APutThatFitsIsTakenThoughAllThatWaitDoNot) {
  Task task(SmallStore(20'000), clock_, changelog_, 1);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(task.value.Put(absl::StrCat("k", i), std::string(1'000, 'x')));
  }
  changelog_.AnswerAll();
  EXPECT_GT(task.store->figures().keys, 10u) << "64 writes at once are too many for the store";
}

// Against a map, over a store and an overlay that are full most of the time.
TEST_F(OverlayRoomTest, ShowsWhatWasWrittenLastWhateverTheStoreTakes) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    ScriptedChangelog changelog;
    Task task(SmallStore(3'000), clock_, changelog, 1, nullptr, 6'000);
    std::map<std::string, std::string> model;
    std::map<uint64_t, bool> list;
    for (int step = 0; step < 3'000; ++step) {
      const std::string key = absl::StrCat("k", random.Below(12));
      const uint64_t entry = random.Below(1'000);
      switch (random.Below(7)) {
        case 0:
        case 1: {
          const std::string value(random.Below(600), static_cast<char>('a' + random.Below(26)));
          if (task.value.Put(key, value)) model[key] = value;
          break;
        }
        case 2:
          if (task.value.Clear(key)) model.erase(key);
          break;
        case 3: {
          const auto pushed = task.list.Push("q", entry, absl::StrCat(entry), 1, "payload");
          ASSERT_THAT(pushed, tests::IsOk());
          if (*pushed == ListState::Pushed::kTaken) list[entry] = true;
          break;
        }
        case 4: {
          const uint64_t gone = list.empty() ? entry : list.begin()->first;
          const auto removed = task.list.Remove("q", absl::StrCat(gone));
          ASSERT_THAT(removed, tests::IsOk());
          if (*removed) list.erase(gone);
          break;
        }
        case 5:
          if (changelog.waiting() > 0) {
            changelog.Answer(static_cast<size_t>(random.Below(changelog.waiting())));
          }
          break;
        default:
          if (random.Below(4) == 0) changelog.AnswerAll();
          task.backend.OnRoom();
      }
      const auto found = model.find(key);
      ASSERT_THAT(task.value.Get(key),
                  tests::IsOkAndHolds(found == model.end() ? absl::nullopt
                                                           : absl::make_optional(found->second)));
      std::vector<uint64_t> queue;
      ASSERT_THAT(task.list.Scan("q", ScanLimits{},
                                 [&](const ListState::Entry& at) {
                                   queue.push_back(at.order);
                                   return true;
                                 }),
                  tests::IsOk());
      ASSERT_EQ(queue.size(), list.size());
      ASSERT_TRUE(std::equal(queue.begin(), queue.end(), list.begin(),
                             [](uint64_t at, const auto& in) { return at == in.first; }));
    }
    // All is removed: nothing is left anywhere.
    for (int round = 0; round < 1'000 && (!model.empty() || !list.empty()); ++round) {
      while (!model.empty() && task.value.Clear(model.begin()->first)) model.erase(model.begin());
      while (!list.empty() && *task.list.Remove("q", absl::StrCat(list.begin()->first))) {
        list.erase(list.begin());
      }
      changelog.AnswerAll();
    }
    EXPECT_TRUE(model.empty() && list.empty());
    task.backend.OnRoom();
    EXPECT_EQ(task.backend.overlay_bytes(), 0u);
    StateRange values(StatePrefix(2));
    StateRange entries(StatePrefix(5));
    for (StateRange* range : {&values, &entries}) {
      ASSERT_THAT(task.store->Scan(*range, ScanLimits{},
                                   [](absl::string_view, absl::string_view) {
                                     ADD_FAILURE() << "left in the store";
                                     return true;
                                   }),
                  tests::IsOk());
    }
    EXPECT_THAT(task.fault, tests::IsOk());
  }
}

}  // namespace
}  // namespace postrider
