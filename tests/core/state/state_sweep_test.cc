// What a state backend does by itself as time goes on: removes what has expired, tries again what
// the store refused, tells of room.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/fakes/state_serializers.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

// A store that can be made to refuse.
class RefusingStore final : public StateStore {
 public:
  absl::Status Apply(const StateBatch& batch) override {
    if (full) return absl::ResourceExhaustedError("the store is full");
    return heap_->Apply(batch);
  }
  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    return heap_->Get(key, value);
  }
  using StateStore::Scan;
  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    return heap_->Scan(range, from, limits, visit);
  }
  absl::Status Clear() override { return heap_->Clear(); }
  StoreFigures figures() const override { return heap_->figures(); }
  bool full = false;

 private:
  std::unique_ptr<StateStore> heap_ = MakeHeapStore({});
};

// One life of a task: its values live a second, its map for ever, its list ten seconds.
struct Task {
  Task(const Clock& clock, ScriptedChangelog& changelog, uint64_t epoch,
       size_t overlay_bytes_max = 1 << 20)
      : backend(StateBackendOptions{epoch, overlay_bytes_max}, store, changelog,
                [this](absl::Status why) { fault = std::move(why); }),
        value(backend, clock, {2, "value", milliseconds{1'000}}, NumberSerializer<int>()),
        map(backend, clock, {4, "map", milliseconds{0}}, NumberSerializer<int>()),
        list(backend, clock, {5, "list", milliseconds{10'000}}, 1) {}

  RefusingStore store;
  absl::Status fault;
  StateBackend backend;
  ValueState<int> value;
  MapState<int> map;
  ListState list;
};

class StateSweepTest : public testing::Test {
 protected:
  std::unique_ptr<Task> Restore(uint64_t epoch) {
    auto task = std::make_unique<Task>(clock_, changelog_, epoch);
    ChangelogReplay replay(epoch, ReplayRuleOf);
    task->backend.BeginRestore(replay);
    const std::vector<EncodedChangelogRecord> log = changelog_.log;
    for (const EncodedChangelogRecord& record : log) {
      EXPECT_THAT(task->backend.RestoreRecord(record.key, record.value), tests::IsOk());
    }
    task->backend.EndRestore();
    changelog_.AnswerAll();
    return task;
  }
  // As compaction leaves it, long afterwards: the last record of each key, no tombstones.
  void Compact() {
    std::map<std::string, std::string> last;
    for (const EncodedChangelogRecord& record : changelog_.log) last[record.key] = record.value;
    changelog_ = ScriptedChangelog();
    for (const auto& [key, value] : last) {
      if (!value.empty()) changelog_.log.push_back({key, value});
    }
    changelog_.Resize();
  }
  size_t Sweep(Task& task, size_t values_max = 100) {
    const size_t removed = task.backend.Sweep(clock_.Wall(), values_max);
    changelog_.AnswerAll();
    EXPECT_THAT(task.fault, tests::IsOk());
    return removed;
  }
  void Push(Task& task, const std::string& identity, uint64_t order) {
    EXPECT_THAT(task.list.Push("k", order, identity, 1, "v"),
                tests::IsOkAndHolds(ListState::Pushed::kTaken));
  }

  ManualClock clock_;
  ScriptedChangelog changelog_;
  Task task_{clock_, changelog_, 1};
};

TEST_F(StateSweepTest, RemovesFromStoreAndLogWhatHasExpired) {
  ASSERT_TRUE(task_.value.Put("a", 1));
  ASSERT_TRUE(task_.map.Put("a", "s", 1));
  Push(task_, "x", 1);
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{999});
  EXPECT_EQ(Sweep(task_), 0u);
  clock_.Advance(milliseconds{1});
  EXPECT_EQ(Sweep(task_), 1u);
  EXPECT_EQ(Sweep(task_), 0u);
  clock_.Advance(milliseconds{9'000});
  EXPECT_EQ(task_.list.size("k"), 1u);
  EXPECT_EQ(Sweep(task_), 1u);
  EXPECT_EQ(task_.list.size("k"), 0u);
  EXPECT_EQ(task_.store.figures().keys, 1u);  // of the map
  Compact();
  EXPECT_EQ(changelog_.log.size(), 4u);  // the names of three states, and the map's value
}

TEST_F(StateSweepTest, RemovesNoMoreAtOnceThanItIsAllowed) {
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(task_.value.Put(absl::StrCat("k", i), i));
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{1'000});
  EXPECT_EQ(Sweep(task_, 10), 10u);
  EXPECT_EQ(Sweep(task_, 10), 10u);
  EXPECT_EQ(Sweep(task_, 10), 5u);
  EXPECT_EQ(task_.store.figures().keys, 0u);
}

TEST_F(StateSweepTest, LeavesAValueThatWasPutAgainMeanwhile) {
  ASSERT_TRUE(task_.value.Put("a", 1));
  Push(task_, "x", 1);
  clock_.Advance(milliseconds{600});
  ASSERT_TRUE(task_.value.Put("a", 2));
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{600});
  EXPECT_EQ(Sweep(task_), 0u);
  EXPECT_THAT(task_.value.Get("a"), tests::IsOkAndHolds(absl::make_optional(2)));
  clock_.Advance(milliseconds{400});
  EXPECT_EQ(Sweep(task_), 1u);
}

TEST_F(StateSweepTest, SweepsWhatWasRestoredAndWhatTheLogReplacedLater) {
  ASSERT_TRUE(task_.value.Put("a", 1));
  ASSERT_TRUE(task_.value.Put("b", 1));
  Push(task_, "x", 1);
  clock_.Advance(milliseconds{600});
  ASSERT_TRUE(task_.value.Put("a", 2));
  changelog_.AnswerAll();
  const std::unique_ptr<Task> next = Restore(2);
  clock_.Advance(milliseconds{400});
  EXPECT_EQ(Sweep(*next), 1u);
  EXPECT_THAT(next->value.Get("a"), tests::IsOkAndHolds(absl::make_optional(2)));
  clock_.Advance(milliseconds{9'000});
  EXPECT_EQ(Sweep(*next), 2u);
  EXPECT_EQ(next->store.figures().keys, 0u);
  Compact();
  const std::unique_ptr<Task> third = Restore(3);
  EXPECT_EQ(third->store.figures().keys, 0u);
  EXPECT_EQ(third->list.size(), 0u);
}

TEST_F(StateSweepTest, SweepsNothingWhileTheLogIsBeingRead) {
  ASSERT_TRUE(task_.value.Put("a", 1));
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{2'000});
  Task next(clock_, changelog_, 2);
  ChangelogReplay replay(2, ReplayRuleOf);
  next.backend.BeginRestore(replay);
  for (const EncodedChangelogRecord& record : std::vector<EncodedChangelogRecord>(changelog_.log)) {
    ASSERT_THAT(next.backend.RestoreRecord(record.key, record.value), tests::IsOk());
  }
  EXPECT_EQ(Sweep(next), 0u);
  next.backend.EndRestore();
  EXPECT_EQ(Sweep(next), 1u);
}

TEST_F(StateSweepTest, GoesOnWhereALogWithoutRoomStoppedIt) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(task_.value.Put(absl::StrCat("k", i), i));
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{1'000});
  changelog_.room = 2;
  EXPECT_EQ(Sweep(task_), 2u);
  changelog_.room = 100;
  EXPECT_EQ(Sweep(task_), 3u);
}

// A sweep takes nothing that a restore would bring back, whatever was acknowledged and compacted.
TEST(StateSweepSimulation, BringsBackNothingThatHasExpired) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    ManualClock clock;
    ScriptedChangelog changelog;
    uint64_t epoch = 1;
    auto task = std::make_unique<Task>(clock, changelog, epoch);
    std::map<std::string, std::pair<int, WallTime>> model;  // value, and when it expires
    for (int i = 0; i < 300; ++i) {
      const std::string key = absl::StrCat("k", random.Below(5));
      switch (random.Below(6)) {
        case 0:
          ASSERT_TRUE(task->value.Put(key, i));
          model[key] = {i, clock.Wall() + milliseconds{1'000}};
          break;
        case 1:
          ASSERT_TRUE(task->value.Clear(key));
          model.erase(key);
          break;
        case 2:
          clock.Advance(milliseconds{random.Below(600)});
          break;
        case 3:
          task->backend.Sweep(clock.Wall(), 1 + random.Below(3));
          break;
        case 4:
          while (changelog.waiting() > 0) changelog.Answer(random.Below(changelog.waiting()));
          break;
        default: {
          if (random.Below(5) != 0) break;
          changelog.AnswerAll();
          const std::vector<EncodedChangelogRecord> log = changelog.log;
          task.reset();
          changelog = ScriptedChangelog();
          // Compaction may have dropped any record that has a later one of its key.
          std::map<std::string, size_t> last;
          for (size_t at = 0; at < log.size(); ++at) last[log[at].key] = at;
          for (size_t at = 0; at < log.size(); ++at) {
            if (last[log[at].key] == at || random.Below(2) == 0) changelog.log.push_back(log[at]);
          }
          changelog.Resize();
          const std::vector<EncodedChangelogRecord> kept = changelog.log;
          task = std::make_unique<Task>(clock, changelog, ++epoch);
          ChangelogReplay replay(epoch, ReplayRuleOf);
          task->backend.BeginRestore(replay);
          for (const EncodedChangelogRecord& record : kept) {
            ASSERT_THAT(task->backend.RestoreRecord(record.key, record.value), tests::IsOk());
          }
          task->backend.EndRestore();
          break;
        }
      }
      ASSERT_THAT(task->fault, tests::IsOk());
      for (int k = 0; k < 5; ++k) {
        const auto found = model.find(absl::StrCat("k", k));
        const bool lives = found != model.end() && clock.Wall() < found->second.second;
        ASSERT_THAT(
            task->value.Get(absl::StrCat("k", k)),
            tests::IsOkAndHolds(lives ? absl::make_optional(found->second.first) : absl::nullopt))
            << "step " << i;
      }
    }
    clock.Advance(milliseconds{2'000});
    changelog.AnswerAll();
    task->backend.OnRoom();
    for (int i = 0; i < 20; ++i) task->backend.Sweep(clock.Wall(), 10);
    changelog.AnswerAll();
    EXPECT_EQ(task->store.figures().keys, 0u);
  }
}

TEST_F(StateSweepTest, AsksForAnotherTryWhenTheStoreHasRefused) {
  task_.store.full = true;
  int done = 0;
  ASSERT_TRUE(task_.map.Put("k", "s", 1, [&] { ++done; }));
  EXPECT_FALSE(task_.backend.wants_retry());
  changelog_.AnswerAll();
  EXPECT_EQ(done, 1);  // it is durable in the log
  EXPECT_TRUE(task_.backend.wants_retry());
  task_.backend.OnRoom();
  EXPECT_TRUE(task_.backend.wants_retry());
  EXPECT_GT(task_.backend.overlay_bytes(), 0u);
  task_.store.full = false;
  task_.backend.OnRoom();
  EXPECT_FALSE(task_.backend.wants_retry());
  EXPECT_EQ(task_.backend.overlay_bytes(), 0u);
  EXPECT_EQ(task_.store.figures().keys, 1u);
}

TEST_F(StateSweepTest, TellsOfRoomOnceTheOverlayIsAtHalfAfterARefusal) {
  ScriptedChangelog changelog;
  Task task(clock_, changelog, 1, 4'000);
  int told = 0;
  task.backend.SetRoomCallback([&] { ++told; });
  int taken = 0;
  while (task.map.Put("k", absl::StrCat(taken), taken)) ++taken;
  ASSERT_GT(taken, 4);
  while (changelog.waiting() > 0) {
    const size_t before = task.backend.overlay_bytes();
    changelog.Answer(0);
    EXPECT_EQ(told, task.backend.overlay_bytes() <= 2'000 ? 1 : 0) << "before: " << before;
  }
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(task.map.Put("k", "again", 1));
  changelog.AnswerAll();
  EXPECT_EQ(told, 1);
}

TEST_F(StateSweepTest, SaysWhatItHoldsInMemory) {
  const size_t empty = task_.backend.memory_bytes();
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(task_.list.Push(absl::StrCat("key ", i), 1, "id", 1, std::string(1'000, 'v')),
                tests::IsOk());
  }
  EXPECT_GT(task_.backend.memory_bytes(), empty + 100 * 1'000);
  changelog_.AnswerAll();
  EXPECT_LT(task_.backend.memory_bytes(), empty + 100 * 1'000);
  EXPECT_GT(task_.backend.memory_bytes(), empty + 100 * 100);

  Task next(clock_, changelog_, 2);
  ChangelogReplay replay(2, ReplayRuleOf);
  next.backend.BeginRestore(replay);
  for (size_t i = 0; i < 101; ++i) {
    ASSERT_THAT(next.backend.RestoreRecord(changelog_.log[i].key, changelog_.log[i].value),
                tests::IsOk());
  }
  EXPECT_GT(next.backend.memory_bytes(), empty + 100 * 150);
}

}  // namespace
}  // namespace postrider
