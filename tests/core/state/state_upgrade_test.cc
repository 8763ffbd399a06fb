// The versions of states across binaries: what an older and a newer one write, read and refuse, and
// what the table of states in a changelog says.

#include "core/stream/state_upgrade.h"

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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/state/heap_store.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_key.h"
#include "core/stream/state_table.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Version 1 is the name alone, version 2 has a colour behind it.
struct Thing {
  std::string name;
  std::string colour = "grey";
  friend bool operator==(const Thing&, const Thing&) = default;
};

StateSerializer<Thing> Things(StateVersions versions) {
  StateSerializer<Thing> serializer;
  serializer.version_write = versions.write;
  serializer.version_max = versions.max;
  serializer.encode = [](const Thing& thing, uint32_t version) {
    return version == 1 ? thing.name : absl::StrCat(thing.name, ":", thing.colour);
  };
  serializer.decode = [](absl::string_view bytes, uint32_t version) -> absl::optional<Thing> {
    if (version == 1) return Thing{std::string(bytes)};
    const std::vector<std::string> parts = absl::StrSplit(bytes, ':');
    if (parts.size() != 2) return absl::nullopt;
    return Thing{parts[0], parts[1]};
  };
  return serializer;
}

constexpr StateVersions kOld{1, 1};
constexpr StateVersions kNew{1, 2};

// A life of a binary that has one value and one list.
struct Binary {
  Binary(const Clock& clock, ScriptedChangelog& changelog, uint64_t epoch, StateVersions versions,
         uint16_t id = 2, const std::string& name = "thing")
      : log(changelog),
        store(MakeHeapStore({})),
        backend(StateBackendOptions{epoch}, *store, changelog,
                [this](absl::Status why) { fault = std::move(why); }),
        value(backend, clock, {id, name, {}}, Things(versions)),
        list(backend, clock, {5, "things", {}}, versions) {}

  // All that it has written is in the log.
  ~Binary() { log.AnswerAll(); }
  Binary(const Binary&) = delete;
  Binary& operator=(const Binary&) = delete;

  absl::Status Restore(uint64_t epoch, const std::vector<EncodedChangelogRecord>& records) {
    ChangelogReplay replay(epoch, ReplayRuleOf);
    backend.BeginRestore(replay);
    for (const EncodedChangelogRecord& record : records) {
      if (absl::Status status = backend.RestoreRecord(record.key, record.value); !status.ok()) {
        return status;
      }
    }
    backend.EndRestore();
    return absl::OkStatus();
  }

  ScriptedChangelog& log;
  std::unique_ptr<StateStore> store;
  absl::Status fault;
  StateBackend backend;
  ValueState<Thing> value;
  ListState list;
};

class StateUpgradeTest : public testing::Test {
 protected:
  // The next owner, with the log as compaction leaves it at last.
  absl::StatusOr<std::unique_ptr<Binary>> Start(StateVersions versions, uint16_t id = 2,
                                                const std::string& name = "thing") {
    changelog_.AnswerAll();
    std::map<std::string, std::string> last;
    for (const EncodedChangelogRecord& record : changelog_.log) last[record.key] = record.value;
    std::vector<EncodedChangelogRecord> log;
    for (const EncodedChangelogRecord& record : changelog_.log) {
      if (last[record.key] == record.value && !record.value.empty()) log.push_back(record);
    }
    changelog_ = ScriptedChangelog();
    changelog_.log = log;
    changelog_.Resize();
    auto binary = std::make_unique<Binary>(clock_, changelog_, ++epoch_, versions, id, name);
    if (absl::Status status = binary->Restore(epoch_, log); !status.ok()) return status;
    changelog_.AnswerAll();
    return binary;
  }
  void Finish(const std::string& state, uint32_t version) {
    changelog_.log.push_back(FinishRecord(state, version));
    changelog_.Resize();
  }
  // The versions of the values in the log, by state id.
  std::vector<std::pair<int, uint32_t>> Versions() const {
    std::vector<std::pair<int, uint32_t>> versions;
    for (size_t i = 0; i < changelog_.log.size(); ++i) {
      const ChangelogRecord record = changelog_.Record(i);
      if (record.kind != ChangelogKind::kPut) continue;
      const uint16_t state = DecodeStateKey(record.identity)->state;
      if (state != kStateTableId) {
        versions.emplace_back(state, DecodeStatePayload(record.payload)->version);
      }
    }
    return versions;
  }

  ManualClock clock_;
  ScriptedChangelog changelog_;
  uint64_t epoch_ = 0;
};

TEST_F(StateUpgradeTest, WritesTheNameAndIdOfAStateBeforeItsFirstValue) {
  const auto binary = Start(kOld);
  ASSERT_THAT(binary, tests::IsOk());
  EXPECT_TRUE(changelog_.log.empty());  // nothing was used yet
  ASSERT_TRUE((*binary)->value.Put("k", Thing{"a"}));
  ASSERT_TRUE((*binary)->value.Put("l", Thing{"b"}));
  ASSERT_EQ(changelog_.log.size(), 3u);
  EXPECT_EQ(changelog_.Record(0).identity, StateTableIdentity("thing"));
  EXPECT_EQ(DecodeStateTableEntry(changelog_.Record(0).payload), (StateTableEntry{2, 1, 1}));
}

TEST_F(StateUpgradeTest, GoesForwardAndBackUntilTheUpgradeIsFinished) {
  {
    const auto old = Start(kOld);
    ASSERT_THAT(old, tests::IsOk());
    ASSERT_TRUE((*old)->value.Put("by old", Thing{"a"}));
  }
  {
    // The newer one reads what the older one wrote, and writes what that one reads.
    const auto newer = Start(kNew);
    ASSERT_THAT(newer, tests::IsOk());
    EXPECT_THAT((*newer)->value.Get("by old"),
                tests::IsOkAndHolds(absl::make_optional(Thing{"a", "grey"})));
    ASSERT_TRUE((*newer)->value.Put("by new", Thing{"b", "red"}));
    ASSERT_THAT((*newer)->list.Push("k", 1, "id", (*newer)->list.version_write(), "v"),
                tests::IsOk());
    EXPECT_EQ((*newer)->list.version_write(), 1u);
  }
  const auto back = Start(kOld);
  ASSERT_THAT(back, tests::IsOk());
  EXPECT_THAT((*back)->value.Get("by old"), tests::IsOkAndHolds(absl::make_optional(Thing{"a"})));
  EXPECT_THAT((*back)->value.Get("by new"), tests::IsOkAndHolds(absl::make_optional(Thing{"b"})));
  for (const auto& [state, version] : Versions()) EXPECT_EQ(version, 1u) << "state " << state;
}

TEST_F(StateUpgradeTest, WritesTheNewVersionOnceItIsFinishedAndTheOldBinaryRefuses) {
  {
    const auto newer = Start(kNew);
    ASSERT_THAT(newer, tests::IsOk());
    ASSERT_TRUE((*newer)->value.Put("before", Thing{"a", "red"}));
  }
  Finish("thing", 2);
  {
    const auto newer = Start(kNew);
    ASSERT_THAT(newer, tests::IsOk());
    ASSERT_TRUE((*newer)->value.Put("after", Thing{"b", "red"}));
    EXPECT_EQ((*newer)->list.version_write(), 1u);  // of another state
  }
  EXPECT_THAT(Start(kOld).status(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("'thing'"), HasSubstr("version 2"),
                                    HasSubstr("reads up to 1"), HasSubstr("newer binary"))));
  const auto newer = Start(kNew);
  ASSERT_THAT(newer, tests::IsOk());
  EXPECT_THAT((*newer)->value.Get("before"),
              tests::IsOkAndHolds(absl::make_optional(Thing{"a", "grey"})));
  EXPECT_THAT((*newer)->value.Get("after"),
              tests::IsOkAndHolds(absl::make_optional(Thing{"b", "red"})));
}

TEST_F(StateUpgradeTest, RefusesAfterTheFinishEvenIfNothingWasWrittenSince) {
  const auto old = Start(kOld);
  ASSERT_THAT(old, tests::IsOk());
  ASSERT_TRUE((*old)->value.Put("k", Thing{"a"}));
  Finish("thing", 2);
  EXPECT_THAT(Start(kOld).status(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("'thing' to version 2 is finished"),
                                    HasSubstr("reads up to 1"))));
  EXPECT_THAT(Start(kNew).status(), tests::IsOk());
}

TEST_F(StateUpgradeTest, StaysFinishedWhenTheRecordOfItIsLost) {
  // A savepoint holds values and the table of states, not the record.
  Finish("thing", 2);
  {
    const auto newer = Start(kNew);
    ASSERT_THAT(newer, tests::IsOk());
    ASSERT_TRUE((*newer)->value.Put("k", Thing{"a", "red"}));
  }
  changelog_.AnswerAll();
  std::vector<EncodedChangelogRecord> kept;
  for (size_t i = 0; i < changelog_.log.size(); ++i) {
    if (changelog_.Record(i).kind != ChangelogKind::kFinish) kept.push_back(changelog_.log[i]);
  }
  changelog_.log = kept;
  changelog_.Resize();
  const auto newer = Start(kNew);
  ASSERT_THAT(newer, tests::IsOk());
  ASSERT_TRUE((*newer)->value.Put("l", Thing{"b", "red"}));
  EXPECT_EQ(Versions().back(), (std::pair<int, uint32_t>(2, 2)));
  EXPECT_THAT(Start(kOld).status(), tests::StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StateUpgradeTest, CountsTheHighestFinish) {
  Finish("thing", 2);
  Finish("thing", 1);
  const auto newer = Start(kNew);
  ASSERT_THAT(newer, tests::IsOk());
  ASSERT_TRUE((*newer)->value.Put("k", Thing{"a", "red"}));
  EXPECT_THAT(Versions(), ElementsAre(testing::Pair(2, 2u)));
}

TEST_F(StateUpgradeTest, RefusesAStateThatItDoesNotKnowByItsName) {
  const auto first = Start(kOld, 8, "other");
  ASSERT_THAT(first, tests::IsOk());
  ASSERT_TRUE((*first)->value.Put("k", Thing{"a"}));
  EXPECT_THAT(Start(kOld).status(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("'other' (id 8)"), HasSubstr("does not know"))));
}

TEST_F(StateUpgradeTest, RefusesAnIdThatHasAnotherName) {
  const auto first = Start(kOld, 2, "thing");
  ASSERT_THAT(first, tests::IsOk());
  ASSERT_TRUE((*first)->value.Put("k", Thing{"a"}));
  EXPECT_THAT(Start(kOld, 2, "renamed").status(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'thing' (id 2)")));
  EXPECT_THAT(Start(kOld, 8, "thing").status(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("'thing' has id 2 in the changelog and 8")));
  EXPECT_THAT(Start(kOld, 2, "thing").status(), tests::IsOk());
}

TEST_F(StateUpgradeTest, RefusesTheFinishOfAStateThatItDoesNotKnow) {
  Finish("of tomorrow", 3);
  EXPECT_THAT(Start(kNew).status(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("'of tomorrow' to version 3")));
}

TEST_F(StateUpgradeTest, KeepsTheTableUnderEachNewEpoch) {
  {
    const auto first = Start(kOld);
    ASSERT_THAT(first, tests::IsOk());
    ASSERT_TRUE((*first)->value.Put("k", Thing{"a"}));
  }
  for (int i = 0; i < 3; ++i) {
    const auto next = Start(kOld);
    ASSERT_THAT(next, tests::IsOk());
    EXPECT_TRUE((*next)->backend.settled());
  }
  size_t entries = 0;
  std::map<std::string, std::string> last;
  for (const EncodedChangelogRecord& record : changelog_.log) last[record.key] = record.value;
  for (const auto& [key, value] : last) {
    const ChangelogRecord record = *DecodeChangelogRecord(key, value);
    if (record.identity != StateTableIdentity("thing") || value.empty()) continue;
    ++entries;
    EXPECT_EQ(record.epoch, epoch_);
  }
  EXPECT_EQ(entries, 1u);
}

TEST_F(StateUpgradeTest, SeesARecordThatItCannotKeepThoughItHasWrittenTheStateMeanwhile) {
  // A changelog that is restored beside delivery: the state is used before its entry is met.
  ScriptedChangelog changelog;
  changelog.log.push_back(EncodeChangelogRecord(
      {ChangelogKind::kPut, 1, StateTableIdentity("thing"), EncodeStateTableEntry({2, 2, 2})}));
  changelog.Resize();
  const std::vector<EncodedChangelogRecord> log = changelog.log;
  Binary old(clock_, changelog, 2, kOld);
  ChangelogReplay replay(2, ReplayRuleOf);
  old.backend.BeginRestore(replay);
  ASSERT_TRUE(old.value.Put("k", Thing{"a"}));
  EXPECT_THAT(old.backend.RestoreRecord(log[0].key, log[0].value),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 2")));
}

TEST_F(StateUpgradeTest, ErasesTheEntryOfTheEpochBeforeWhenItHasDeclaredTheStateItself) {
  {
    const auto first = Start(kOld);
    ASSERT_THAT(first, tests::IsOk());
    ASSERT_TRUE((*first)->value.Put("k", Thing{"a"}));
  }
  changelog_.AnswerAll();
  const std::vector<EncodedChangelogRecord> log = changelog_.log;
  Binary next(clock_, changelog_, ++epoch_, kOld);
  ChangelogReplay replay(epoch_, ReplayRuleOf);
  next.backend.BeginRestore(replay);
  ASSERT_TRUE(next.value.Put("l", Thing{"b"}));
  for (const EncodedChangelogRecord& record : log) {
    ASSERT_THAT(next.backend.RestoreRecord(record.key, record.value), tests::IsOk());
  }
  next.backend.EndRestore();
  changelog_.AnswerAll();
  size_t declared = 0;
  for (size_t i = log.size(); i < changelog_.log.size(); ++i) {
    const ChangelogRecord record = changelog_.Record(i);
    if (record.identity != StateTableIdentity("thing")) continue;
    if (record.kind == ChangelogKind::kPut) ++declared;
    if (record.kind == ChangelogKind::kErase) {
      EXPECT_EQ(record.epoch, epoch_ - 1);
    }
  }
  EXPECT_EQ(declared, 1u);
  EXPECT_THAT(Start(kOld).status(), tests::IsOk());
}

// ---- Records that cannot be read ----

TEST_F(StateUpgradeTest, RefusesARecordOfAWrongChecksumAndKeepsTheRest) {
  const auto first = Start(kOld);
  ASSERT_THAT(first, tests::IsOk());
  ASSERT_TRUE((*first)->value.Put("k", Thing{"a"}));
  changelog_.AnswerAll();
  std::vector<EncodedChangelogRecord> log = changelog_.log;
  log[1].value.back() = static_cast<char>(log[1].value.back() ^ 1);
  Binary next(clock_, changelog_, 2, kOld);
  EXPECT_THAT(next.Restore(2, log),
              tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum does not fit")));
  EXPECT_THAT(next.fault, tests::IsOk());
  EXPECT_EQ(changelog_.waiting(), 0u);  // nothing was written to the log
}

TEST_F(StateUpgradeTest, RefusesAStateTableThatCannotBeRead) {
  const std::string whole = EncodeStateTableEntry({2, 1, 1});
  for (const std::string& payload :
       {std::string(), whole.substr(0, whole.size() - 1), whole + "x", "\x02" + whole.substr(1),
        EncodeStateTableEntry({2, 0, 1}), EncodeStateTableEntry({2, 2, 1})}) {
    Binary next(clock_, changelog_, 2, kOld);
    EXPECT_THAT(next.Restore(2, {EncodeChangelogRecord({ChangelogKind::kPut, 1,
                                                        StateTableIdentity("thing"), payload})}),
                tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("table of states")));
  }
}

TEST_F(StateUpgradeTest, RefusesAChangelogRecordThatIsNone) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"x", "y"}, {std::string(12, '\0'), "value"}, {"\x01identity12345678", "v"}}) {
    Binary next(clock_, changelog_, 2, kOld);
    EXPECT_THAT(next.Restore(2, {EncodedChangelogRecord{key, value}}),
                tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cannot be read")));
  }
}

// ---- The command's part ----

// A table's entry as an owner of `epoch` writes it.
void WriteEntry(MemoryLog& log, int32_t partition, uint64_t epoch, const std::string& name,
                const StateTableEntry& entry) {
  const EncodedChangelogRecord record = EncodeChangelogRecord(
      {ChangelogKind::kPut, epoch, StateTableIdentity(name), EncodeStateTableEntry(entry)});
  log.Write({"changelog", partition}, record.key, record.value);
}

TEST(FindStateUpgrades, NamesWhatEveryOwnerReadsAndWasNotFinished) {
  ManualClock clock;
  MemoryLog log(clock);
  log.MakeTopic("changelog", 2);
  const auto find = [&] { return FindStateUpgrades(log, clock, "changelog", milliseconds(1'000)); };
  EXPECT_THAT(find(), tests::IsOkAndHolds(testing::IsEmpty()));
  WriteEntry(log, 0, 1, "a", {2, 1, 1});
  WriteEntry(log, 0, 2, "a", {2, 1, 2});
  WriteEntry(log, 0, 1, "a", {2, 1, 1});  // late, by the owner before
  WriteEntry(log, 0, 2, "b", {4, 1, 1});
  EXPECT_THAT(find(), tests::IsOkAndHolds(ElementsAre(StateUpgrade{"a", 2})));
  WriteEntry(log, 1, 7, "a", {2, 1, 2});
  EXPECT_THAT(find(), tests::IsOkAndHolds(ElementsAre(StateUpgrade{"a", 2})));
  ASSERT_THAT(FinishStateUpgrades(log, clock, "changelog", {{"a", 2}}, milliseconds(1'000)),
              tests::IsOk());
  EXPECT_THAT(find(), tests::IsOkAndHolds(testing::IsEmpty()));
  WriteEntry(log, 0, 3, "a", {2, 2, 3});
  WriteEntry(log, 1, 8, "a", {2, 2, 3});
  EXPECT_THAT(find(), tests::IsOkAndHolds(ElementsAre(StateUpgrade{"a", 3})));
}

TEST(FindStateUpgrades, FinishesAgainWhatCameToAnEndInSomePartitionsOnly) {
  ManualClock clock;
  MemoryLog log(clock);
  log.MakeTopic("changelog", 2);
  WriteEntry(log, 0, 2, "a", {2, 1, 2});
  const EncodedChangelogRecord record = FinishRecord("a", 2);
  log.Write({"changelog", 0}, record.key, record.value);
  EXPECT_THAT(FindStateUpgrades(log, clock, "changelog", milliseconds(1'000)),
              tests::IsOkAndHolds(ElementsAre(StateUpgrade{"a", 2})));
}

TEST(FindStateUpgrades, RefusesWhileAWorkerHasTheBinaryBefore) {
  ManualClock clock;
  MemoryLog log(clock);
  log.MakeTopic("changelog", 2);
  WriteEntry(log, 0, 2, "a", {2, 1, 2});
  WriteEntry(log, 1, 7, "a", {2, 1, 1});
  EXPECT_THAT(FindStateUpgrades(log, clock, "changelog", milliseconds(1'000)),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("changelog/1"), HasSubstr("'a' up to version 1"))));
}

TEST(FinishStateUpgrades, TellsEveryPartition) {
  ManualClock clock;
  MemoryLog log(clock);
  ASSERT_THAT(log.EnsureTopics({TopicSpec{"changelog", 3, 1, {}}}, milliseconds(1'000)),
              tests::IsOk());
  ASSERT_THAT(
      FinishStateUpgrades(log, clock, "changelog", {{"a", 2}, {"b", 7}}, milliseconds(1'000)),
      tests::IsOk());
  for (int32_t partition = 0; partition < 3; ++partition) {
    std::vector<std::pair<std::string, uint32_t>> finished;
    for (const auto& record : log.Records({"changelog", partition})) {
      const auto decoded = DecodeChangelogRecord(record.key, record.value);
      ASSERT_THAT(decoded, tests::IsOk());
      EXPECT_EQ(decoded->kind, ChangelogKind::kFinish);
      finished.emplace_back(decoded->identity, decoded->version);
    }
    EXPECT_THAT(finished, ElementsAre(testing::Pair("a", 2u), testing::Pair("b", 7u)));
  }
}

TEST(FinishStateUpgrades, RefusesWhatIsNoStateAndAChangelogThatIsMissing) {
  ManualClock clock;
  MemoryLog log(clock);
  EXPECT_THAT(FinishStateUpgrades(log, clock, "changelog", {{"a", 2}}, milliseconds(1'000)),
              tests::StatusIs(absl::StatusCode::kNotFound));
  for (const StateUpgrade& upgrade : {StateUpgrade{"", 2}, StateUpgrade{"a", 0}}) {
    EXPECT_THAT(FinishStateUpgrades(log, clock, "changelog", {upgrade}, milliseconds(1'000)),
                tests::StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace postrider
