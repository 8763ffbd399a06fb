#include "core/stream/keyed_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

StateDescriptor Descriptor(uint16_t id, milliseconds ttl = milliseconds{0}) {
  return StateDescriptor{id, absl::StrCat("state ", id), ttl};
}

// One life of a task.
struct Task {
  Task(const Clock& clock, ScriptedChangelog& changelog, uint64_t epoch,
       size_t overlay_bytes_max = 1 << 20)
      : store(MakeHeapStore({})),
        backend(StateBackendOptions{epoch, overlay_bytes_max}, *store, changelog,
                [this](absl::Status why) { fault = std::move(why); }),
        value(backend, clock, Descriptor(2, milliseconds{1'000}), NumberSerializer<int>()),
        map(backend, clock, Descriptor(4), NumberSerializer<int>()),
        list(backend, clock, Descriptor(5), 1) {}

  absl::optional<int> Value(const std::string& key) const {
    auto found = value.Get(key);
    EXPECT_THAT(found, tests::IsOk());
    return *found;
  }
  std::vector<std::string> List(const std::string& key) {
    std::vector<std::string> entries;
    EXPECT_THAT(list.Scan(key, ScanLimits{},
                          [&](const ListState::Entry& entry) {
                            entries.push_back(
                                absl::StrCat(entry.order, ":", entry.identity, "=", entry.value));
                            return true;
                          }),
                tests::IsOkAndHolds(ScanEnd::kRangeEnd));
    return entries;
  }
  std::map<std::string, int> Map(const std::string& key) {
    std::map<std::string, int> entries;
    EXPECT_THAT(map.ForEach(key, "", ScanLimits{},
                            [&](absl::string_view sub_key, const int& found) {
                              entries[std::string(sub_key)] = found;
                              return true;
                            }),
                tests::IsOkAndHolds(ScanEnd::kRangeEnd));
    return entries;
  }

  std::unique_ptr<StateStore> store;
  absl::Status fault;
  StateBackend backend;
  ValueState<int> value;
  MapState<int> map;
  ListState list;
};

std::map<std::string, ListState::Place> Places(Task& task, const std::string& key) {
  std::map<std::string, ListState::Place> places;
  EXPECT_THAT(task.list.Scan(key, ScanLimits{},
                             [&](const ListState::Entry& entry) {
                               places[std::string(entry.identity)] = entry.place;
                               return true;
                             }),
              tests::IsOk());
  return places;
}

class KeyedStateTest : public testing::Test {
 protected:
  // The log begins behind the records that name the states.
  KeyedStateTest() {
    EXPECT_TRUE(task_.value.Put("k", 1));
    EXPECT_TRUE(task_.map.Put("k", "s", 1));
    EXPECT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOk());
    EXPECT_TRUE(task_.value.Clear("k"));
    EXPECT_TRUE(task_.map.Remove("k", "s"));
    EXPECT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
    changelog_.AnswerAll();
    EXPECT_EQ(task_.store->figures().keys, 0u);
    changelog_ = ScriptedChangelog();
  }
  // Records of the log from `first` on that are not of the table of states.
  std::vector<ChangelogRecord> Records(size_t first) const {
    std::vector<ChangelogRecord> records;
    for (size_t i = first; i < changelog_.log.size(); ++i) {
      ChangelogRecord record = changelog_.Record(i);
      if (DecodeStateKey(record.identity)->state != kStateTableId) {
        records.push_back(std::move(record));
      }
    }
    return records;
  }
  // The next owner: reads `records` of the log.
  std::unique_ptr<Task> Restore(uint64_t epoch, size_t records) {
    auto task = std::make_unique<Task>(clock_, changelog_, epoch);
    ChangelogReplay replay(epoch, ReplayRuleOf);
    task->backend.BeginRestore(replay);
    for (size_t i = 0; i < records; ++i) {
      EXPECT_THAT(task->backend.RestoreRecord(changelog_.log[i].key, changelog_.log[i].value),
                  tests::IsOk());
    }
    task->backend.EndRestore();
    return task;
  }

  ManualClock clock_;
  ScriptedChangelog changelog_;
  Task task_{clock_, changelog_, 1};
};

TEST_F(KeyedStateTest, ShowsAWriteAtOnceAndStoresItWhenItIsAcknowledged) {
  int done = 0;
  ASSERT_TRUE(task_.value.Put("k", 7, [&] { ++done; }));
  EXPECT_EQ(task_.Value("k"), 7);
  EXPECT_EQ(task_.store->figures().keys, 0u);
  EXPECT_EQ(done, 0);
  changelog_.Answer(0);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(task_.store->figures().keys, 2u);  // and when it expires
  EXPECT_EQ(task_.backend.overlay_bytes(), 0u);
  EXPECT_EQ(task_.Value("k"), 7);
}

TEST_F(KeyedStateTest, StoresNothingBeforeAllEarlierWritesAreAcknowledged) {
  std::vector<int> done;
  ASSERT_TRUE(task_.value.Put("k", 1, [&] { done.push_back(1); }));
  ASSERT_TRUE(task_.value.Put("k", 2, [&] { done.push_back(2); }));
  ASSERT_TRUE(task_.value.Put("other", 3, [&] { done.push_back(3); }));
  changelog_.Answer(2);
  changelog_.Answer(1);
  EXPECT_THAT(done, IsEmpty());
  EXPECT_EQ(task_.store->figures().keys, 0u);
  changelog_.Answer(0);
  EXPECT_THAT(done, ElementsAre(1, 2, 3));
  EXPECT_EQ(task_.store->figures().keys, 4u);
  EXPECT_EQ(task_.Value("k"), 2);
}

TEST_F(KeyedStateTest, FailsTheTaskWhenAnAppendFails) {
  int done = 0;
  ASSERT_TRUE(task_.value.Put("k", 1, [&] { ++done; }));
  ASSERT_TRUE(task_.value.Put("l", 2, [&] { ++done; }));
  changelog_.Answer(0, absl::AbortedError("the log has gone"));
  changelog_.Answer(0);
  EXPECT_THAT(task_.fault, tests::StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(done, 0);
  EXPECT_EQ(task_.store->figures().keys, 0u);
  EXPECT_FALSE(task_.value.Put("m", 3));
}

TEST_F(KeyedStateTest, TakesNothingWhenTheLogOrTheOverlayIsFull) {
  changelog_.room = 1;
  ASSERT_TRUE(task_.value.Put("k", 1));
  EXPECT_FALSE(task_.value.Put("k", 2));
  EXPECT_EQ(task_.Value("k"), 1);
  changelog_.AnswerAll();
  EXPECT_TRUE(task_.value.Put("k", 2));

  ScriptedChangelog roomy;
  Task small(clock_, roomy, 1, 4'000);
  int taken = 0;
  while (small.map.Put("k", absl::StrCat(taken), taken)) ++taken;
  EXPECT_GT(taken, 5);
  EXPECT_LT(taken, 40);
  EXPECT_EQ(roomy.log.size(), static_cast<size_t>(taken) + 1);  // and the state's name
  roomy.AnswerAll();
  EXPECT_TRUE(small.map.Put("k", "again", 1));
}

TEST_F(KeyedStateTest, MissesAValueThatHasExpired) {
  ASSERT_TRUE(task_.value.Put("k", 1));
  changelog_.AnswerAll();
  clock_.Advance(milliseconds{999});
  EXPECT_EQ(task_.Value("k"), 1);
  clock_.Advance(milliseconds{1});
  EXPECT_EQ(task_.Value("k"), absl::nullopt);
}

TEST_F(KeyedStateTest, ShowsAMapInTheOrderOfItsSubKeysOverStoreAndOverlay) {
  for (const char* sub_key : {"b", "d"}) ASSERT_TRUE(task_.map.Put("k", sub_key, 1));
  ASSERT_TRUE(task_.map.Put("kk", "z", 9));
  changelog_.AnswerAll();
  for (const char* sub_key : {"a", "c", "d", "e"}) ASSERT_TRUE(task_.map.Put("k", sub_key, 2));
  ASSERT_TRUE(task_.map.Remove("k", "b"));
  EXPECT_THAT(task_.Map("k"), ElementsAre(testing::Pair("a", 2), testing::Pair("c", 2),
                                          testing::Pair("d", 2), testing::Pair("e", 2)));
  std::vector<std::string> seen;
  EXPECT_THAT(task_.map.ForEach("k", "c", ScanLimits{2, 1'000},
                                [&](absl::string_view sub_key, const int&) {
                                  seen.push_back(std::string(sub_key));
                                  return true;
                                }),
              tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_THAT(seen, ElementsAre("c", "d"));
}

TEST_F(KeyedStateTest, KeepsAListInItsOrderWhateverTheOrderOfPushes) {
  using Pushed = ListState::Pushed;
  EXPECT_THAT(task_.list.Push("k", 20, "b", 1, "2"), tests::IsOkAndHolds(Pushed::kTaken));
  changelog_.AnswerAll();
  EXPECT_THAT(task_.list.Push("k", 10, "a", 1, "1"), tests::IsOkAndHolds(Pushed::kTaken));
  EXPECT_THAT(task_.list.Push("k", 20, "b", 1, "again"), tests::IsOkAndHolds(Pushed::kThere));
  EXPECT_THAT(task_.List("k"), ElementsAre("10:a=1", "20:b=2"));
  changelog_.AnswerAll();
  EXPECT_THAT(task_.List("k"), ElementsAre("10:a=1", "20:b=2"));
  EXPECT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  EXPECT_THAT(task_.List("k"), ElementsAre("20:b=2"));
  EXPECT_THAT(task_.list.Push("k", 5, "c", 1, "3"), tests::IsOkAndHolds(Pushed::kTaken));
  EXPECT_THAT(task_.List("k"), ElementsAre("5:c=3", "20:b=2"));
  EXPECT_EQ(task_.list.size("k"), 2u);
  EXPECT_EQ(task_.list.size(), 2u);
}

TEST_F(KeyedStateTest, CountsTheBytesOfAListsValuesAlsoAfterARestore) {
  ASSERT_THAT(task_.list.Push("k", 1, "a", 1, "123"), tests::IsOk());
  ASSERT_THAT(task_.list.Push("k", 2, "b", 1, "45"), tests::IsOk());
  ASSERT_THAT(task_.list.Push("l", 3, "c", 1, "6"), tests::IsOk());
  EXPECT_EQ(task_.list.bytes("k"), 5u);
  EXPECT_EQ(task_.list.bytes(), 6u);
  ASSERT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  changelog_.AnswerAll();
  EXPECT_EQ(task_.list.bytes("k"), 2u);
  const std::unique_ptr<Task> next = Restore(2, changelog_.log.size());
  EXPECT_EQ(next->list.bytes("k"), 2u);
  EXPECT_EQ(next->list.bytes(), 3u);
  ASSERT_THAT(next->list.Push("k", 2, "b", 1, "4567"), tests::IsOk());
  EXPECT_EQ(next->list.bytes(), 5u);
  ASSERT_THAT(next->list.Remove("k", "b"), tests::IsOkAndHolds(true));
  EXPECT_EQ(next->list.bytes("k"), 0u);
}

TEST_F(KeyedStateTest, SaysThatARepeatedRemovalIsDurableOnlyWhenItIs) {
  ASSERT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOk());
  ASSERT_TRUE(task_.value.Put("k", 1));
  changelog_.AnswerAll();
  int done = 0;
  ASSERT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  ASSERT_TRUE(task_.value.Clear("k"));
  ASSERT_THAT(task_.list.Remove("k", "a", [&] { ++done; }), tests::IsOkAndHolds(true));
  ASSERT_TRUE(task_.value.Clear("k", [&] { ++done; }));
  ASSERT_TRUE(task_.backend.WhenDurable([&] { ++done; }));
  EXPECT_EQ(done, 0);
  changelog_.AnswerAll();
  EXPECT_EQ(done, 3);
  EXPECT_FALSE(task_.backend.WhenDurable([&] { ++done; }));
  EXPECT_EQ(done, 3);
  EXPECT_EQ(task_.list.size(), 0u);
}

TEST_F(KeyedStateTest, ErasesTheRecordOfAnEntryThatIsRemoved) {
  ASSERT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOk());
  ASSERT_THAT(task_.list.Remove("k", "a"), tests::IsOk());
  ASSERT_EQ(changelog_.log.size(), 2u);
  EXPECT_EQ(changelog_.log[1].key, changelog_.log[0].key);
  EXPECT_EQ(changelog_.log[1].value, "");
}

TEST_F(KeyedStateTest, ComesBackUnderTheNextEpochAndReassertsWhatChangesInPlace) {
  ASSERT_TRUE(task_.value.Put("k", 1));
  ASSERT_TRUE(task_.map.Put("k", "s", 2));
  ASSERT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOk());
  changelog_.AnswerAll();
  const std::unique_ptr<Task> next = Restore(2, changelog_.log.size());
  EXPECT_EQ(next->Value("k"), 1);
  EXPECT_THAT(next->Map("k"), ElementsAre(testing::Pair("s", 2)));
  EXPECT_THAT(next->List("k"), ElementsAre("1:a=1"));
  EXPECT_EQ(next->list.size(), 1u);
  std::vector<std::pair<ChangelogKind, uint64_t>> written;
  for (const ChangelogRecord& record : Records(3)) {
    written.emplace_back(record.kind, record.epoch);
  }
  EXPECT_THAT(written, ElementsAre(testing::Pair(ChangelogKind::kPut, 2u),
                                   testing::Pair(ChangelogKind::kPut, 2u),
                                   testing::Pair(ChangelogKind::kErase, 1u),
                                   testing::Pair(ChangelogKind::kErase, 1u)));
  EXPECT_FALSE(next->backend.settled());
  changelog_.AnswerAll();
  EXPECT_TRUE(next->backend.settled());
}

TEST_F(KeyedStateTest, PutsAnEntryOfAnEarlierEpochAgainAtItsPlace) {
  ASSERT_THAT(task_.list.Push("k", 7, "a", 1, "1"), tests::IsOk());
  changelog_.AnswerAll();
  const std::unique_ptr<Task> next = Restore(2, 1);
  EXPECT_THAT(next->list.Push("k", 9, "a", 1, "1"), tests::IsOkAndHolds(ListState::Pushed::kTaken));
  EXPECT_THAT(next->List("k"), ElementsAre("7:a=1"));
  EXPECT_EQ(next->list.size("k"), 1u);
  EXPECT_EQ(Records(1)[0].epoch, 2u);
  EXPECT_EQ(Records(1)[1].kind, ChangelogKind::kErase);
}

// A repeat of its input, behind the first one and read while the log was: the entry keeps the place
// of the first, or it would come after what had been put behind it.
TEST_F(KeyedStateTest, AnEntryThatIsPutBeforeItIsReadKeepsItsFirstPlace) {
  for (const auto& [order, identity] : {std::pair(7, "a"), std::pair(8, "b"), std::pair(9, "c")}) {
    ASSERT_THAT(task_.list.Push("k", static_cast<uint64_t>(order), identity, 1, "1"),
                tests::IsOk());
  }
  changelog_.AnswerAll();
  Task next(clock_, changelog_, 2);
  ChangelogReplay replay(2, ReplayRuleOf);
  next.backend.BeginRestore(replay);
  for (const auto& [order, identity] : {std::pair(11, "a"), std::pair(13, "c")}) {
    ASSERT_THAT(next.list.Push("k", static_cast<uint64_t>(order), identity, 1, "1"),
                tests::IsOkAndHolds(ListState::Pushed::kTaken));
  }
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_THAT(next.backend.RestoreRecord(changelog_.log[i].key, changelog_.log[i].value),
                tests::IsOk());
  }
  ASSERT_THAT(next.list.Remove("k", "c"), tests::IsOkAndHolds(true));
  next.backend.EndRestore();
  EXPECT_THAT(next.List("k"), ElementsAre("7:a=1", "8:b=1"));
  EXPECT_EQ(next.list.size("k"), 2u);
  EXPECT_EQ(next.list.bytes("k"), 2u);
  changelog_.AnswerAll();
  EXPECT_TRUE(next.backend.settled());
  EXPECT_THAT(next.List("k"), ElementsAre("7:a=1", "8:b=1"));
  const std::unique_ptr<Task> third = Restore(3, changelog_.log.size());
  EXPECT_THAT(third->List("k"), ElementsAre("7:a=1", "8:b=1"));
  ASSERT_THAT(third->list.Remove("k", "a"), tests::IsOkAndHolds(true));
  ASSERT_THAT(third->list.Remove("k", "b"), tests::IsOkAndHolds(true));
  changelog_.AnswerAll();
  EXPECT_EQ(third->list.size(), 0u);
}

// The record of the former owner may outlive the one that takes this owner's out of the log: a
// compaction keeps it, and its erasure may never be written.
TEST_F(KeyedStateTest, RemovesAnEntryForGoodBeforeItsFormerRecordIsErased) {
  ASSERT_THAT(task_.list.Push("k", 7, "a", 1, "1"), tests::IsOk());
  changelog_.AnswerAll();
  const std::unique_ptr<Task> next = Restore(2, 1);
  ASSERT_THAT(next->list.Push("k", 7, "a", 1, "1"), tests::IsOkAndHolds(ListState::Pushed::kTaken));
  ASSERT_THAT(next->list.Remove("k", "a"), tests::IsOkAndHolds(true));
  // What stands after a crash that the erasure did not outlive.
  std::map<std::string, std::string> compacted;
  for (size_t i = 0; i < changelog_.log.size(); ++i) {
    const ChangelogRecord record = changelog_.Record(i);
    if (record.kind == ChangelogKind::kErase && record.epoch == 1) continue;
    compacted[changelog_.log[i].key] = changelog_.log[i].value;
  }
  changelog_.DropAnswers();
  changelog_.log.clear();
  for (const auto& [key, value] : compacted) changelog_.log.push_back({key, value});
  const std::unique_ptr<Task> third = Restore(3, changelog_.log.size());
  EXPECT_THAT(third->List("k"), IsEmpty());
}

TEST_F(KeyedStateTest, RemovesWhatAScanHasShownWithTheSameRecordAsWhatItLooksUp) {
  for (const char* identity : {"a", "b"}) {
    ASSERT_THAT(task_.list.Push("k", 7, identity, 1, "12"), tests::IsOk());
  }
  changelog_.AnswerAll();
  const std::map<std::string, ListState::Place> shown = Places(task_, "k");
  ASSERT_EQ(shown.size(), 2u);
  ASSERT_THAT(task_.list.Remove("k", "a", shown.at("a")), tests::IsOkAndHolds(true));
  ASSERT_THAT(task_.list.Remove("k", "b"), tests::IsOkAndHolds(true));
  EXPECT_EQ(Records(2)[0].kind, Records(2)[1].kind);
  EXPECT_EQ(Records(2)[0].epoch, Records(2)[1].epoch);
  EXPECT_EQ(task_.list.size(), 0u);
  EXPECT_EQ(task_.list.bytes(), 0u);
  changelog_.AnswerAll();
  EXPECT_EQ(task_.store->figures().keys, 0u);
}

// The place that was shown names the former epoch: its record alone would be taken out of the log.
TEST_F(KeyedStateTest, RemovesForGoodWhatWasPutAgainSinceItWasShown) {
  ASSERT_THAT(task_.list.Push("k", 7, "a", 1, "1"), tests::IsOk());
  changelog_.AnswerAll();
  const std::unique_ptr<Task> next = Restore(2, 1);
  const std::map<std::string, ListState::Place> shown = Places(*next, "k");
  ASSERT_THAT(next->list.Push("k", 7, "a", 1, "1"), tests::IsOkAndHolds(ListState::Pushed::kTaken));
  changelog_.AnswerAll();
  ASSERT_TRUE(next->backend.settled());
  ASSERT_THAT(next->list.Remove("k", "a", shown.at("a")), tests::IsOkAndHolds(true));
  changelog_.AnswerAll();
  EXPECT_EQ(next->list.size(), 0u);
  const std::unique_ptr<Task> third = Restore(3, changelog_.log.size());
  EXPECT_THAT(third->List("k"), IsEmpty());
}

TEST_F(KeyedStateTest, LooksUpWhatWasRemovedAndPutElsewhereSinceItWasShown) {
  for (const char* identity : {"a", "b"}) {
    ASSERT_THAT(task_.list.Push("k", 7, identity, 1, "1"), tests::IsOk());
  }
  const std::map<std::string, ListState::Place> shown = Places(task_, "k");
  ASSERT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  ASSERT_THAT(task_.list.Push("k", 9, "a", 1, "123"),
              tests::IsOkAndHolds(ListState::Pushed::kTaken));
  ASSERT_THAT(task_.list.Remove("k", "a", shown.at("a")), tests::IsOkAndHolds(true));
  // It is gone: its place is good for nothing any more.
  ASSERT_THAT(task_.list.Remove("k", "b"), tests::IsOkAndHolds(true));
  ASSERT_THAT(task_.list.Remove("k", "b", shown.at("b")), tests::IsOkAndHolds(true));
  EXPECT_EQ(task_.list.size(), 0u);
  EXPECT_EQ(task_.list.bytes(), 0u);
  changelog_.AnswerAll();
  EXPECT_EQ(task_.store->figures().keys, 0u);
  // Nor when the list has begun anew.
  ASSERT_THAT(task_.list.Push("k", 11, "a", 1, "1"), tests::IsOk());
  ASSERT_THAT(task_.list.Remove("k", "a", shown.at("a")), tests::IsOkAndHolds(true));
  EXPECT_EQ(task_.list.size("k"), 0u);
  changelog_.AnswerAll();
  EXPECT_EQ(task_.store->figures().keys, 0u);
}

TEST_F(KeyedStateTest, RevivesNothingThatIsFinishedWhileItRestores) {
  ASSERT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOk());
  ASSERT_TRUE(task_.value.Put("k", 1));
  changelog_.AnswerAll();
  Task next(clock_, changelog_, 2);
  ChangelogReplay replay(2, ReplayRuleOf);
  next.backend.BeginRestore(replay);
  EXPECT_THAT(next.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  EXPECT_EQ(changelog_.Record(2).kind, ChangelogKind::kDelete);
  ASSERT_TRUE(next.value.Put("k", 2));
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_THAT(next.backend.RestoreRecord(changelog_.log[i].key, changelog_.log[i].value),
                tests::IsOk());
  }
  changelog_.AnswerAll();
  next.backend.EndRestore();
  changelog_.AnswerAll();
  EXPECT_THAT(next.List("k"), IsEmpty());
  EXPECT_EQ(next.Value("k"), 2);
  const std::unique_ptr<Task> third = Restore(3, changelog_.log.size());
  EXPECT_THAT(third->List("k"), IsEmpty());
  EXPECT_EQ(third->Value("k"), 2);
}

TEST_F(KeyedStateTest, RefusesToRestoreAValueOfANewerVersion) {
  const std::string payload = EncodeStatePayload(StatePayload{2, 0, 0, "1"});
  const EncodedChangelogRecord record = EncodeChangelogRecord(
      ChangelogRecord{ChangelogKind::kPut, 1, EncodeStateKey(2, "k", ""), payload});
  ChangelogReplay replay(2, ReplayRuleOf);
  Task older(clock_, changelog_, 2);
  older.backend.BeginRestore(replay);
  EXPECT_THAT(older.backend.RestoreRecord(record.key, record.value),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              testing::HasSubstr("'state 2' has version 2")));
}

TEST_F(KeyedStateTest, RefusesToRestoreAStateThatItDoesNotKnow) {
  const EncodedChangelogRecord record = EncodeChangelogRecord(
      ChangelogRecord{ChangelogKind::kPut, 1, EncodeStateKey(99, "k", ""), ""});
  ChangelogReplay replay(2, ReplayRuleOf);
  Task task(clock_, changelog_, 2);
  task.backend.BeginRestore(replay);
  EXPECT_THAT(
      task.backend.RestoreRecord(record.key, record.value),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("state 99")));
}

// What a task holds, as plain maps.
struct Model {
  std::map<std::string, int> values;
  std::map<std::string, std::map<std::string, int>> maps;
  std::map<std::string, std::map<std::pair<uint64_t, std::string>, std::string>> lists;
  friend bool operator==(const Model&, const Model&) = default;
};

// Random work, answers in any order, refusals, and crashes at any point: what comes back is the
// state after some write that lies at or behind the last one that was said to be durable.
TEST(KeyedStateSimulation, GivesBackAPrefixThatHoldsEverythingDurable) {
  const std::vector<std::string> keys = {"a", "b"};
  uint64_t crashes = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    ManualClock clock;
    ScriptedChangelog changelog;
    std::vector<Model> after = {Model()};  // by the number of records in the log
    Model model;
    size_t durable = 0;  // records of the log when the last `done` ran
    uint64_t epoch = 1;
    auto task = std::make_unique<Task>(clock, changelog, epoch);
    const auto random_key = [&] { return keys[random.Below(keys.size())]; };
    const auto read = [&] {
      Model seen;
      for (const std::string& key : keys) {
        if (const auto value = task->Value(key)) seen.values[key] = *value;
        if (auto map = task->Map(key); !map.empty()) seen.maps[key] = std::move(map);
        auto& list = seen.lists[key];
        EXPECT_THAT(
            task->list.Scan(
                key, ScanLimits{},
                [&](const ListState::Entry& entry) {
                  list[{entry.order, std::string(entry.identity)}] = std::string(entry.value);
                  return true;
                }),
            tests::IsOk());
        EXPECT_EQ(task->list.size(key), list.size());
        if (list.empty()) seen.lists.erase(key);
      }
      return seen;
    };
    for (int i = 0; i < 300; ++i) {
      const std::string key = random_key();
      const std::string sub_key = absl::StrCat("s", random.Below(4));
      const int number = static_cast<int>(random.Below(1'000));
      changelog.room = random.Below(8) == 0 ? changelog.waiting() : 1'000;
      // Which record the write is: the first one of a state comes behind the state's name.
      const auto written = std::make_shared<size_t>(changelog.log.size());
      const auto done = [&durable, &changelog, written] {
        EXPECT_TRUE(changelog.IsAnswered(*written));
        durable = std::max(durable, *written + 1);
      };
      Model next = model;
      bool taken = false;
      switch (random.Below(9)) {
        case 0:
          taken = task->value.Put(key, number, done);
          next.values[key] = number;
          break;
        case 1:
          taken = task->value.Clear(key, done);
          next.values.erase(key);
          break;
        case 2:
          taken = task->map.Put(key, sub_key, number, done);
          next.maps[key][sub_key] = number;
          break;
        case 3:
          taken = task->map.Remove(key, sub_key, done);
          next.maps[key].erase(sub_key);
          if (next.maps[key].empty()) next.maps.erase(key);
          break;
        case 4:
        case 5: {
          // An identity has its order for ever.
          const uint64_t order = random.Below(50);
          const std::string identity = absl::StrCat("i", order);
          taken =
              *task->list.Push(key, order, identity, 1, sub_key, done) == ListState::Pushed::kTaken;
          next.lists[key][{order, identity}] = sub_key;
          break;
        }
        case 6: {
          const auto list = model.lists.find(key);
          if (list == model.lists.end()) break;
          auto entry = list->second.begin();
          if (random.Below(3) == 0) std::advance(entry, random.Below(list->second.size()));
          const std::string& identity = entry->first.second;
          taken = random.Below(2) == 0
                      ? *task->list.Remove(key, identity, done)
                      : *task->list.Remove(key, identity, Places(*task, key).at(identity));
          next.lists[key].erase(entry->first);
          if (next.lists[key].empty()) next.lists.erase(key);
          break;
        }
        case 7:
          for (uint64_t n = random.Below(5); n > 0 && changelog.waiting() > 0; --n) {
            changelog.Answer(random.Below(changelog.waiting()));
          }
          break;
        default: {
          if (random.Below(4) != 0) break;
          // A crash: the log holds what was acknowledged, and of the rest as much as it likes.
          ++crashes;
          const size_t least = std::max(durable, changelog.acknowledged());
          const size_t kept = least + random.Below(changelog.log.size() - least + 1);
          changelog.room = 1'000;
          std::vector<EncodedChangelogRecord> log(
              changelog.log.begin(), changelog.log.begin() + static_cast<std::ptrdiff_t>(kept));
          task.reset();
          changelog = ScriptedChangelog();
          changelog.log.swap(log);
          changelog.Resize();
          task = std::make_unique<Task>(clock, changelog, ++epoch);
          ChangelogReplay replay(epoch, ReplayRuleOf);
          task->backend.BeginRestore(replay);
          for (size_t at = 0; at < kept; ++at) {
            ASSERT_THAT(task->backend.RestoreRecord(changelog.log[at].key, changelog.log[at].value),
                        tests::IsOk());
          }
          model = after[kept];
          ASSERT_EQ(read(), model) << "as restored";
          task->backend.EndRestore();
          after.resize(kept + 1);
          break;
        }
      }
      if (taken) {
        if (DecodeStateKey(changelog.Record(*written).identity)->state == kStateTableId) ++*written;
        after.resize(*written + 1, model);
        model = next;
      }
      after.resize(changelog.log.size() + 1, model);
      ASSERT_EQ(read(), model) << "step " << i;
      ASSERT_THAT(task->fault, tests::IsOk());
    }
  }
  EXPECT_GT(crashes, 100u);
}

TEST_F(KeyedStateTest, FindsAnEntryByItsIdentityAlone) {
  EXPECT_THAT(task_.list.Has("k", "a"), tests::IsOkAndHolds(false));
  EXPECT_THAT(task_.list.Push("k", 1, "a", 1, "1"), tests::IsOkAndHolds(ListState::Pushed::kTaken));
  EXPECT_THAT(task_.list.Has("k", "a"), tests::IsOkAndHolds(true));
  EXPECT_THAT(task_.list.Has("k", "b"), tests::IsOkAndHolds(false));
  EXPECT_THAT(task_.list.Has("l", "a"), tests::IsOkAndHolds(false));
  changelog_.AnswerAll();
  EXPECT_THAT(task_.list.Has("k", "a"), tests::IsOkAndHolds(true));
  EXPECT_THAT(task_.list.Remove("k", "a"), tests::IsOkAndHolds(true));
  EXPECT_THAT(task_.list.Has("k", "a"), tests::IsOkAndHolds(false));
}

TEST_F(KeyedStateTest, NamesEachKeyThatHasValuesOnceAFewAtATime) {
  const std::vector<std::string> keys = {"", "a", std::string("a\0", 2), "b", "c\xff", "d"};
  for (const std::string& key : keys) {
    for (const char* sub_key : {"x", "y", "z"}) EXPECT_TRUE(task_.map.Put(key, sub_key, 1));
    EXPECT_TRUE(task_.value.Put(key, 1));
    if (key == "b") changelog_.AnswerAll();
  }
  // From a key that was shown on, over the next calls.
  const auto all = [&](size_t values_max) {
    std::vector<std::string> shown;
    while (true) {
      const size_t before = shown.size();
      const auto end =
          task_.map.ForEachKey(shown.empty() ? absl::string_view() : shown.back(),
                               ScanLimits{values_max, 1 << 20}, [&](absl::string_view key) {
                                 shown.emplace_back(key);
                                 return true;
                               });
      EXPECT_THAT(end, tests::IsOk());
      if (!end.ok() || *end == ScanEnd::kRangeEnd) return shown;
      // The empty key cannot be gone on after.
      if (shown.size() == before || shown.back().empty()) return shown;
    }
  };
  EXPECT_EQ(all(1'000), keys);
  EXPECT_EQ(all(4), keys);
  for (const char* sub_key : {"x", "y", "z"}) {
    EXPECT_TRUE(task_.map.Remove("", sub_key));
    EXPECT_TRUE(task_.map.Remove("b", sub_key));
  }
  changelog_.AnswerAll();
  const std::vector<std::string> left = {"a", std::string("a\0", 2), "c\xff", "d"};
  EXPECT_EQ(all(1), left);
  EXPECT_EQ(all(2), left);
  EXPECT_TRUE(task_.map.Put("", "x", 1)) << "below where the first key was";
  EXPECT_EQ(all(1'000).size(), left.size() + 1);
  std::vector<std::string> values;
  EXPECT_THAT(task_.value.ForEachKey("", ScanLimits{},
                                     [&](absl::string_view key) {
                                       values.emplace_back(key);
                                       return values.size() < 3;
                                     }),
              tests::IsOkAndHolds(ScanEnd::kLimit));
  EXPECT_EQ(values.size(), 3u);
}

}  // namespace
}  // namespace postrider
