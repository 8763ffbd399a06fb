// The STATE cases that the stores and keyed state decide, each named by its id.
// POSTRIDER_CASES_SCALE multiplies the sizes: 200 gives those of the recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/state/process_directory.h"
#include "core/state/rocksdb_store.h"
#include "core/stream/changelog.h"
#include "core/stream/durable_timers.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_store.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

int Scale() {
  const char* text = std::getenv("POSTRIDER_CASES_SCALE");
  int scale = 1;
  return text != nullptr && absl::SimpleAtoi(text, &scale) && scale >= 1 ? scale : 1;
}

// Due times that are put at the end and deleted at the front, at a steady depth. What a search for
// the first one costs must not grow: it is measured by the deleted keys that it steps over, which
// do not depend on how busy the machine is.
void RunTimerQueue(StateStore& store, int turns, int depth, uint64_t disk_factor) {
  const std::string payload(100, 'p');
  const auto key = [](int i) { return absl::StrFormat("due/%012d", i); };
  StateRange due("due/");
  StateBatch batch;
  for (int i = 0; i < depth; ++i) {
    batch.Put(key(i), payload);
    if (batch.size() < 1'000 && i + 1 < depth) continue;
    ASSERT_THAT(store.Apply(batch), tests::IsOk());
    batch.Clear();
  }
  const int window = turns / 10;
  std::vector<uint64_t> skipped;
  uint64_t before = store.figures().tombstones_skipped;
  for (int i = 0; i < turns; ++i) {
    std::string first;
    ASSERT_THAT(store.Scan(due, ScanLimits{1, 1 << 20},
                           [&](absl::string_view found, absl::string_view) {
                             first = std::string(found);
                             return true;
                           }),
                tests::IsOk());
    ASSERT_EQ(first, key(i));
    batch.Clear();
    batch.Delete(first);
    batch.Put(key(i + depth), payload);
    absl::Status applied = store.Apply(batch);
    for (int tries = 0; absl::IsResourceExhausted(applied) && tries < 10'000'000; ++tries) {
      applied = store.Apply(batch);  // A flush goes on beside.
    }
    ASSERT_THAT(applied, tests::IsOk());
    due.MoveHeadPast(first);
    if ((i + 1) % window != 0) continue;
    const uint64_t now = store.figures().tombstones_skipped;
    skipped.push_back(now - before);
    before = now;
  }
  for (const uint64_t of_window : skipped) {
    EXPECT_LE(of_window, static_cast<uint64_t>(window) / 100) << "searches go over what is deleted";
  }
  const uint64_t live = static_cast<uint64_t>(depth) * (payload.size() + key(0).size());
  EXPECT_LE(store.figures().disk_bytes, disk_factor * live)
      << "nothing deleted gives its room back";
}

TEST(StateCases, STATE_01_TheFirstDueTimeIsFoundAtOnceHoweverManyHaveGoneOnDisk) {
  tests::TemporaryDirectory directory;
  RocksdbSharedOptions shared_options;
  shared_options.memory_bytes = 16 << 20;  // So that it goes to disk early.
  const auto shared = RocksdbShared::Create(shared_options);
  RocksdbStoreOptions options;
  options.directory = absl::StrCat(directory.path(), "/store");
  auto store = OpenRocksdbStore(*shared, options);
  ASSERT_THAT(store, tests::IsOk());
  RunTimerQueue(**store, 100'000 * Scale(), std::min(20'000 * Scale(), 100'000), 3);
}

TEST(StateCases, STATE_01_TheFirstDueTimeIsFoundAtOnceHoweverManyHaveGoneInMemory) {
  const auto store = MakeHeapStore({});
  RunTimerQueue(*store, 100'000 * Scale(), std::min(20'000 * Scale(), 100'000), 3);
}

// A job with two states in one changelog, as column families of one database would be: what is to
// be sent, and when. Ours are told apart from the recipe in this: the stores have no write-ahead
// log and are wiped at a start (DESIGN 4), the changelog is what a crash leaves. It may end at any
// record: a process dies, or the machine does and what was not acknowledged is gone.
class CrashedStateTest : public testing::Test {
 protected:
  struct Task {
    Task(const Clock& clock, ScriptedChangelog& changelog, uint64_t epoch,
         std::unique_ptr<StateStore> with)
        : store(std::move(with)),
          backend(StateBackendOptions{epoch}, *store, changelog,
                  [this](absl::Status why) { fault = std::move(why); }),
          payloads(backend, clock, StateDescriptor{5, "payloads", {}}, 1),
          timers(backend, clock, 2, "timers", [](MonotonicTime) {}) {}

    std::unique_ptr<StateStore> store;
    absl::Status fault;
    StateBackend backend;
    ListState payloads;
    DurableTimers timers;
  };

  static std::vector<std::string> Payloads(Task& task) {
    std::vector<std::string> ids;
    task.payloads.ForEachKey(
        [&](absl::string_view key, uint64_t) { ids.push_back(std::string(key)); });
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  std::unique_ptr<StateStore> NewStore() {
    RocksdbStoreOptions options;
    options.directory = absl::StrCat(directory_.path(), "/", made_++);
    auto store = OpenRocksdbStore(*shared_, options);
    EXPECT_THAT(store, tests::IsOk());
    return *std::move(store);
  }

  tests::TemporaryDirectory directory_;
  std::unique_ptr<RocksdbShared> shared_ = RocksdbShared::Create({});
  int made_ = 0;
};

TEST_F(CrashedStateTest, STATE_03_NoTimerIsWithoutPayloadAndNoPayloadIsLostWhereverTheLogEnds) {
  // Over RocksDB now and then, since opening one costs most of the time; the heap has the same
  // contract.
  const int points = 500 * Scale();
  int orphans = 0;
  for (int point = 0; point < points; ++point) {
    SCOPED_TRACE(absl::StrCat("seed ", point));
    Random random(static_cast<uint64_t>(point));
    ManualClock clock;
    ScriptedChangelog changelog;
    std::vector<std::string> durable;   // payloads whose write was acknowledged
    std::vector<std::string> finished;  // whose removal was begun
    const auto erase = [](std::vector<std::string>& from, const std::string& id) {
      from.erase(std::remove(from.begin(), from.end(), id), from.end());
    };
    {
      auto task = std::make_unique<Task>(clock, changelog, 1, MakeHeapStore({}));
      std::vector<std::string> there;
      for (int i = 0; i < 40; ++i) {
        if (random.Below(3) != 0 || there.empty()) {
          const std::string id = absl::StrFormat("m%03d", i);
          // The payload first: then a log that ends in between leaves one without a timer, whose
          // owner finds it by the list and sets one.
          ASSERT_THAT(task->payloads.Push(id, static_cast<uint64_t>(i), id, 1, "payload",
                                          [&durable, id] { durable.push_back(id); }),
                      tests::IsOkAndHolds(ListState::Pushed::kTaken));
          ASSERT_TRUE(task->timers.Set(id, 1, seconds(10)));
          there.push_back(id);
        } else {
          const std::string id = there[random.Below(there.size())];
          ASSERT_TRUE(task->timers.Cancel(id, 1));
          ASSERT_THAT(task->payloads.Remove(id, id), tests::IsOkAndHolds(true));
          finished.push_back(id);
          erase(there, id);
        }
        // Answers come late, in the log's order.
        for (uint64_t n = random.Below(4); n > 0 && changelog.waiting() > 0; --n) {
          changelog.Answer(0);
        }
      }
      ASSERT_THAT(task->fault, tests::IsOk());
    }
    // Anything behind what was acknowledged may be gone.
    const size_t acknowledged = changelog.acknowledged();
    const size_t end = acknowledged + random.Below(changelog.log.size() - acknowledged + 1);
    const std::vector<EncodedChangelogRecord> log(
        changelog.log.begin(), changelog.log.begin() + static_cast<std::ptrdiff_t>(end));
    changelog.DropAnswers();
    changelog.log = log;
    changelog.Resize();

    ChangelogReplay replay(2, ReplayRuleOf);
    Task task(clock, changelog, 2, point % 25 == 0 ? NewStore() : MakeHeapStore({}));
    task.backend.BeginRestore(replay);
    for (const EncodedChangelogRecord& record : log) {
      ASSERT_THAT(task.backend.RestoreRecord(record.key, record.value), tests::IsOk());
    }
    task.backend.EndRestore();
    changelog.AnswerAll();
    ASSERT_THAT(task.fault, tests::IsOk());
    const std::vector<std::string> restored = Payloads(task);
    for (const std::string& id : durable) {
      if (std::find(finished.begin(), finished.end(), id) != finished.end()) continue;
      EXPECT_TRUE(std::binary_search(restored.begin(), restored.end(), id)) << id << " is lost";
    }
    // What the owner does after a restore: a timer for each payload that has none.
    for (const std::string& id : restored) {
      if (task.timers.TimeOf(id, 1)) continue;
      ++orphans;
      ASSERT_TRUE(task.timers.Set(id, 1, seconds(10)));
    }
    EXPECT_EQ(task.timers.size(), restored.size()) << "a timer has no payload";
    clock.Advance(seconds(10));
    size_t fired = 0;
    task.timers.Fire(clock.Now(), 1'000, [&](absl::string_view key, uint32_t, MonotonicTime) {
      fired += std::binary_search(restored.begin(), restored.end(), std::string(key)) ? 1 : 0;
    });
    EXPECT_EQ(fired, restored.size());
  }
  EXPECT_GT(orphans, 10) << "no log ended between the two";
}

// Somebody removes what the stores of a running process lie in: the store says so when it needs its
// files, its successor is made anew, and the next process may still wipe it all.
TEST(StateCases, OPS_01_AStoreWhoseFilesWereRemovedSaysSoAndAnotherIsMadeInItsPlace) {
  tests::TemporaryDirectory parent;
  const std::string path = absl::StrCat(parent.path(), "/state");
  auto process = ProcessDirectory::Acquire(path, ProcessDirectory::Contents::kWiped);
  ASSERT_THAT(process, tests::IsOk());
  RocksdbSharedOptions shared_options;
  shared_options.memory_bytes = 8 << 20;
  const auto shared = RocksdbShared::Create(shared_options);
  RocksdbStoreOptions options;
  options.directory = absl::StrCat(path, "/0.0");
  auto store = OpenRocksdbStore(*shared, options);
  ASSERT_THAT(store, tests::IsOk());
  std::filesystem::remove_all(path);
  absl::Status status;
  Random random(1);
  for (int i = 0; i < 1'000'000 && (status.ok() || absl::IsResourceExhausted(status)); ++i) {
    std::string value;  // Nothing that compresses.
    for (int j = 0; j < 1'000; ++j) value.push_back(static_cast<char>(random.Below(256)));
    StateBatch batch;
    batch.Put(absl::StrCat(i), value);
    status = (*store)->Apply(batch);
  }
  EXPECT_THAT(status, tests::StatusIs(absl::StatusCode::kDataLoss));
  options.directory = absl::StrCat(path, "/0.1");
  auto next = OpenRocksdbStore(*shared, options);
  ASSERT_THAT(next, tests::IsOk());
  store->reset();
  StateBatch batch;
  batch.Put("k", "v");
  EXPECT_THAT((*next)->Apply(batch), tests::IsOk());
  next->reset();
  *process = nullptr;
  EXPECT_THAT(ProcessDirectory::Acquire(path, ProcessDirectory::Contents::kWiped), tests::IsOk());
  EXPECT_FALSE(std::filesystem::exists(options.directory));
}

// A value's time to live is wall time: set forward by an hour it ends an hour early, set back an
// hour late, and what has ended does not come back with another clock.
TEST(StateCases, STATE_05_ATimeToLiveIsOffByNoMoreThanTheClockWasSet) {
  for (const hours jump : {hours(1), hours(-1), hours(24), hours(-24)}) {
    SCOPED_TRACE(jump.count());
    ManualClock clock;
    ScriptedChangelog changelog;
    const auto store = MakeHeapStore({});
    absl::Status fault;
    StateBackend backend(StateBackendOptions{1}, *store, changelog,
                         [&fault](absl::Status why) { fault = std::move(why); });
    StateDescriptor descriptor{5, "entries", {}};
    descriptor.ttl = hours(48);
    ListState list(backend, clock, descriptor, 1);
    ASSERT_THAT(list.Push("k", 1, "id", 1, "v"), tests::IsOkAndHolds(ListState::Pushed::kTaken));
    changelog.AnswerAll();
    const WallTime begin = clock.Wall();
    clock.SetWall(begin + jump);
    const auto live = [&] {
      bool found = false;
      EXPECT_THAT(
          list.Scan("k", ScanLimits{}, [&found](const ListState::Entry&) { return found = true; }),
          tests::IsOk());
      return found;
    };
    clock.Advance(hours(48) - jump - milliseconds(1));
    EXPECT_TRUE(live());
    clock.Advance(milliseconds(1));
    EXPECT_FALSE(live());
    // Swept, it is gone whatever the clock says later.
    EXPECT_EQ(backend.Sweep(clock.Wall(), 100), 1u);
    changelog.AnswerAll();
    clock.SetWall(begin);
    EXPECT_FALSE(live());
    EXPECT_THAT(fault, tests::IsOk());
  }
}

}  // namespace
}  // namespace postrider
