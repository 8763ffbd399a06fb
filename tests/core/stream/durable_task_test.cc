#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/state_key.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"

namespace postrider {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;

const std::function<bool(const std::string&)> kTakesNothing = [](const std::string&) {
  return false;
};
const std::function<bool(const std::string&)> kTakesAll = [](const std::string&) { return true; };

ChangelogRecord ParkedRecord(uint64_t epoch, int64_t offset, const std::string& key = "k") {
  ChangelogRecord record;
  record.epoch = epoch;
  record.identity = EncodeStateKey(3, key, absl::StrCat(offset));
  record.payload = EncodeStatePayload({1, 0, static_cast<uint64_t>(offset), "v"});
  return record;
}

// ---- Restore ----

TEST_F(DurableTest, RestoresWhatWasDurableAfterACrash) {
  Write(t0_, 6);
  world_.takes = [](const std::string& name) { return name != "t/0@1" && name != "t/0@4"; };
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  EXPECT_EQ(a->At(t0_).Count("k"), 4);
  EXPECT_EQ(a->At(t0_).parked(), 2u);
  EXPECT_EQ(Committed(t0_), 6);
  a.reset();
  auto b = Join();
  Pass(milliseconds(6'500), {b.get()});
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(b->At(t0_).Count("k"), 4);
  EXPECT_EQ(b->At(t0_).parked(), 2u);
  world_.takes = kTakesAll;
  Pass(seconds(2), {b.get()});
  EXPECT_EQ(b->At(t0_).parked(), 0u);
  EXPECT_EQ(b->At(t0_).Count("k"), 6);
  for (int64_t offset = 0; offset < 6; ++offset) EXPECT_EQ(world_.taken[Name(t0_, offset)], 1);
  // What is finished does not come back.
  b.reset();
  auto c = Join();
  Pass(milliseconds(8'500), {c.get()});
  EXPECT_EQ(c->At(t0_).parked(), 0u);
  EXPECT_EQ(c->At(t0_).Count("k"), 6);
}

TEST_F(DurableTest, ReadsNoRecordBeforeTheFirstChangelogIsRestored) {
  Write(t0_, 3);
  log_.HoldAppends(true);  // the marker
  auto a = Join();
  Pass(seconds(2), {a.get()});
  EXPECT_TRUE(a->Has(t0_));
  EXPECT_FALSE(a->At(t0_).restored(0));
  EXPECT_THAT(world_.arrived, IsEmpty());
  EXPECT_EQ(a->shard->status().tasks_running, 0);
  EXPECT_EQ(a->shard->status().tasks_restoring, 2);
  EXPECT_EQ(a->Metric("postrider_stream_tasks", ",state=\"restoring\""), 2);
  log_.HoldAppends(false);
  Pass(milliseconds(100), {a.get()});
  EXPECT_TRUE(a->At(t0_).restored(0));
  EXPECT_TRUE(a->At(t0_).restored(1));
  EXPECT_EQ(world_.taken.size(), 3u);
  EXPECT_EQ(a->shard->status().tasks_running, 2);
  EXPECT_EQ(a->shard->status().tasks_restoring, 0);
  EXPECT_EQ(a->Metric("postrider_stream_restores_total"), 4);
}

TEST_F(DurableTest, KeepsItsLeaseWhileItRestores) {
  log_.HoldAppends(true);
  auto a = Join();
  Pass(seconds(20), {a.get()}, milliseconds(50));
  log_.HoldAppends(false);
  Write(t0_, 1);
  Settle({a.get()});
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  EXPECT_EQ(a->Metric("postrider_stream_lease_lapses_total"), 0);
}

TEST_F(DurableTest, RestoresTheLargeChangelogBesideRecords) {
  for (int64_t i = 0; i < 5'000; ++i) WriteChangelog(beside0_, ParkedRecord(1, 100'000 + i));
  Write(t0_, 3);
  auto a = Join();
  // Turn by turn: records are sent before the backlog is there.
  int turns = 0;
  while (world_.arrived.size() < 3 && turns < 200) {
    clock_.Advance(milliseconds(5));
    a->loop->RunOnce(Duration::zero());
    ++turns;
  }
  ASSERT_EQ(world_.arrived.size(), 3u);
  EXPECT_FALSE(a->At(t0_).restored(1));
  EXPECT_LT(a->At(t0_).parked(), 5'000u);
  world_.takes = kTakesNothing;
  Pass(milliseconds(50), {a.get()});
  EXPECT_TRUE(a->At(t0_).restored(1));
  EXPECT_EQ(a->At(t0_).parked(), 5'000u);
}

TEST_F(DurableTest, RestoresAFewTasksBesideAtATime) {
  options_.restores_max = 1;
  for (int64_t i = 0; i < 600; ++i) {
    WriteChangelog(beside0_, ParkedRecord(1, 1'000 + i));
    WriteChangelog({"beside", 1}, ParkedRecord(1, 1'000 + i));
  }
  world_.takes = kTakesNothing;
  auto a = Join();
  bool one_after_the_other = false;
  for (int turn = 0; turn < 200 && !one_after_the_other; ++turn) {
    clock_.Advance(milliseconds(1));
    a->loop->RunOnce(Duration::zero());
    if (!a->Has(t1_) || !a->Has(t0_)) continue;
    const bool first_done = a->At(t0_).restored(1) || a->At(t1_).restored(1);
    EXPECT_TRUE(first_done || a->At(t0_).parked() == 0 || a->At(t1_).parked() == 0);
    one_after_the_other = a->At(t0_).restored(1) != a->At(t1_).restored(1);
  }
  EXPECT_TRUE(one_after_the_other);
  Settle({a.get()});
  EXPECT_EQ(a->At(t0_).parked(), 600u);
  EXPECT_EQ(a->At(t1_).parked(), 600u);
}

TEST_F(DurableTest, RestoresBesideGoOnOneByOneWhenTheyHoldTheirPartOfMemory) {
  options_.restores_max = 4;
  options_.restore_bytes_max = 20'000;  // some hundred identities
  for (int64_t i = 0; i < 3'000; ++i) {
    WriteChangelog(beside0_, ParkedRecord(1, 1'000 + i));
    WriteChangelog({"beside", 1}, ParkedRecord(1, 1'000 + i));
  }
  world_.takes = kTakesNothing;
  auto a = Join();
  uint64_t other_when_first_was_done = 3'000;
  double most = 0;
  for (int turn = 0; turn < 2'000; ++turn) {
    clock_.Advance(milliseconds(100));
    a->loop->RunOnce(Duration::zero());
    if (!a->Has(t1_) || !a->Has(t0_)) continue;
    most = std::max(most, a->Metric("postrider_stream_state_bytes"));
    const bool done0 = a->At(t0_).restored(1);
    const bool done1 = a->At(t1_).restored(1);
    if (done0 && done1) break;
    if (done0 != done1) {
      other_when_first_was_done =
          std::min(other_when_first_was_done, a->At(done0 ? t1_ : t0_).parked());
    }
  }
  EXPECT_LT(other_when_first_was_done, 1'000u) << "it waited";
  EXPECT_GT(most, 20'000) << "and is counted";
  Settle({a.get()});
  EXPECT_EQ(a->At(t0_).parked(), 3'000u);
  EXPECT_EQ(a->At(t1_).parked(), 3'000u);
}

TEST_F(DurableTest, RestoreWaitsForAFullStoreAndGoesOnWhereItStood) {
  options_.changelogs.back().overlay_bytes_max = 2'000;  // a few records
  for (int64_t i = 0; i < 10; ++i) WriteChangelog(beside0_, ParkedRecord(1, 1'000 + i));
  world_.takes = kTakesNothing;
  full_[beside0_] = true;
  Write(t0_, 1);
  auto a = Join();
  Pass(seconds(3), {a.get()});
  EXPECT_EQ(world_.arrived.count("t/0@0"), 1u);
  EXPECT_FALSE(a->At(t0_).restored(1));
  EXPECT_TRUE(a->At(t1_).restored(1));
  EXPECT_EQ(a->Metric("postrider_stream_task_restarts_total"), 0);
  EXPECT_EQ(a->Metric("postrider_stream_restores_running"), 1);
  full_[beside0_] = false;
  Pass(seconds(1), {a.get()});
  EXPECT_TRUE(a->At(t0_).restored(1));
  EXPECT_EQ(a->At(t0_).parked(), 11u);
}

TEST_F(DurableTest, WriteThatAStoreHadNoRoomForIsTakenLater) {
  auto a = Join();
  Settle({a.get()});
  world_.takes = kTakesNothing;
  full_[beside0_] = true;
  Write(t0_, 3);
  Pass(seconds(1), {a.get()});
  EXPECT_EQ(Committed(t0_), 3);  // durable in the log
  EXPECT_EQ(a->At(t0_).parked(), 3u);
  full_[beside0_] = false;
  Pass(milliseconds(500), {a.get()});
  EXPECT_EQ(a->At(t0_).ctx().state(1).overlay_bytes(), 0u);
}

// ---- Faults of a restore ----

class RestoreFault : public DurableTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Damages the first or the second changelog of t/0; returns the record's key.
  std::string Damage(const TopicPartition& tp) {
    if (GetParam() == "unknown state") {
      ChangelogRecord record;
      record.epoch = 1;
      record.identity = EncodeStateKey(40, "k", "");
      record.payload = EncodeStatePayload({1, 0, 0, "1"});
      const EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
      log_.Write(tp, encoded.key, encoded.value);
      return encoded.key;
    }
    EncodedChangelogRecord encoded = EncodeChangelogRecord(ParkedRecord(1, 7));
    if (GetParam() == "newer version") {
      encoded.value[0] = 9;
    } else {
      encoded.value[4] = static_cast<char>(encoded.value[4] ^ 1);
    }
    log_.Write(tp, encoded.key, encoded.value);
    return encoded.key;
  }
};

TEST_P(RestoreFault, DegradesThatTaskAloneUntilItIsMended) {
  const std::string key = Damage(first0_);
  Write(t0_, 2);
  Write(t1_, 2);
  auto a = Join();
  Pass(seconds(10), {a.get()});
  EXPECT_EQ(world_.taken.count("t/0@0"), 0u);
  EXPECT_EQ(world_.taken["t/1@0"], 1);
  EXPECT_EQ(world_.taken["t/1@1"], 1);
  EXPECT_EQ(Committed(t0_), 0);
  EXPECT_EQ(a->shard->status().tasks_failed, 1);
  EXPECT_GE(a->Metric("postrider_stream_restores_failed_total"), 3);
  EXPECT_LE(a->Metric("postrider_stream_restores_failed_total"), 10);
  // Somebody takes the record out.
  log_.WriteTombstone(first0_, key);
  log_.Compact(first0_);
  Pass(seconds(31), {a.get()}, milliseconds(50));
  EXPECT_EQ(world_.taken["t/0@0"], 1);
  EXPECT_EQ(Committed(t0_), 2);
  EXPECT_EQ(a->shard->status().tasks_failed, 0);
}

TEST_P(RestoreFault, BesideRecordsDegradesThatTaskAloneToo) {
  const std::string key = Damage(beside0_);
  auto a = Join();
  Pass(seconds(5), {a.get()});
  EXPECT_GE(a->Metric("postrider_stream_task_restarts_total"), 2);
  EXPECT_TRUE(a->At(t1_).restored(1));
  log_.WriteTombstone(beside0_, key);
  log_.Compact(beside0_);
  Pass(seconds(31), {a.get()}, milliseconds(50));
  EXPECT_TRUE(a->At(t0_).restored(1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RestoreFault,
                         ::testing::Values("unknown state", "newer version", "damaged"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST_F(DurableTest, StateOfANewerVersionIsRefusedUntilTheNewerBinaryIsBack) {
  world_.count_version = 2;
  Write(t0_, 1);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  a.reset();
  world_.count_version = 1;
  Write(t0_, 1);
  auto b = Join();
  Pass(seconds(10), {b.get()});
  EXPECT_EQ(world_.taken.count("t/0@1"), 0u);
  EXPECT_EQ(b->shard->status().tasks_failed, 1);
  b.reset();
  world_.count_version = 2;
  auto c = Join();
  Pass(seconds(10), {c.get()});
  EXPECT_EQ(world_.taken["t/0@1"], 1);
  EXPECT_EQ(c->At(t0_).Count("k"), 2);
}

TEST_F(DurableTest, TaskWhoseStoreCannotBeOpenedIsTriedAgainAlone) {
  broken_.insert(beside0_);
  Write(t0_, 1);
  Write(t1_, 1);
  auto a = Join();
  Pass(seconds(3), {a.get()});
  EXPECT_EQ(world_.taken.count("t/0@0"), 0u);
  EXPECT_EQ(world_.taken["t/1@0"], 1);
  EXPECT_FALSE(a->Has(t0_));
  broken_.clear();
  Pass(seconds(4), {a.get()});
  EXPECT_EQ(world_.taken["t/0@0"], 1);
}

// ---- Epochs ----

TEST_F(DurableTest, EachOwnerMarksBothChangelogsWithItsEpoch) {
  auto a = Join();
  Settle({a.get()});
  const uint64_t first = Epoch(t0_);
  EXPECT_THAT(Changelog(first0_),
              Contains(ChangelogRecord{ChangelogKind::kMarker, first, "", "", 0}));
  EXPECT_THAT(Changelog(beside0_),
              Contains(ChangelogRecord{ChangelogKind::kMarker, first, "", "", 0}));
  a.reset();
  auto b = Join();
  Pass(seconds(7), {b.get()}, milliseconds(50));
  EXPECT_EQ(Epoch(t0_), first + 1);
  EXPECT_THAT(Changelog(first0_),
              Contains(ChangelogRecord{ChangelogKind::kMarker, first + 1, "", "", 0}));
  // The one of a hundred epochs ago goes.
  EXPECT_THAT(Changelog(first0_),
              Contains(ChangelogRecord{ChangelogKind::kErase, first + 1 - kChangelogMarkersKept, "",
                                       "", 0}));
}

TEST_F(DurableTest, FailedAppendRestartsThatTaskAloneAsAnotherOwner) {
  Write(t1_, 1);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  const uint64_t before = Epoch(t0_);
  const uint64_t other = Epoch(t1_);
  // A key that fits into a record, but not into one of the changelog, where zeros cost two bytes.
  log_.Write(t0_, std::string(600'000, '\0'), "v");
  Pass(milliseconds(50), {a.get()});
  EXPECT_EQ(a->Metric("postrider_stream_task_restarts_total"), 1);
  EXPECT_EQ(Committed(t0_), 0);
  world_.latency = [](const std::string&) { return Duration(seconds(1)); };
  Pass(milliseconds(100), {a.get()});
  EXPECT_EQ(Epoch(t0_), before + 1);
  EXPECT_EQ(a->At(t0_).ctx().epoch(), before + 1);
  EXPECT_EQ(Epoch(t1_), other);
  Write(t1_, 1);
  Pass(milliseconds(1'500), {a.get()});
  EXPECT_EQ(a->At(t1_).Count("k"), 2);
  EXPECT_EQ(a->Metric("postrider_stream_task_restarts_total"), 2);
}

TEST_F(DurableTest, LateWritesOfAFormerOwnerChangeNothing) {
  Write(t0_, 4);
  world_.latency = [](const std::string& name) {
    return name == "t/0@0" ? Duration(milliseconds(10)) : Duration(seconds(9));
  };
  world_.takes = [](const std::string& name) { return name != "t/0@2"; };
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  EXPECT_EQ(a->At(t0_).Count("k"), 1);
  log_.Isolate("g", log_.Members("g").front(), true);
  world_.latency = [](const std::string&) { return Duration(milliseconds(10)); };
  world_.takes = kTakesAll;
  auto b = Join();
  Pass(milliseconds(7'500), {a.get(), b.get()});
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(b->At(t0_).Count("k"), 4);
  const uint64_t epoch = Epoch(t0_);
  // The former owner's results come in; it counts, parks, removes, without knowing.
  Pass(seconds(2), {a.get(), b.get()});
  EXPECT_THAT(Changelog(first0_), Contains(Field(&ChangelogRecord::epoch, epoch - 1)));
  EXPECT_THAT(Changelog(beside0_), Contains(ParkedRecord(epoch - 1, 2)));
  EXPECT_EQ(Committed(t0_), 4);
  EXPECT_EQ(Epoch(t0_), epoch);
  a.reset();
  b.reset();
  log_.Compact(first0_);
  log_.Compact(beside0_);
  auto c = Join();
  Pass(seconds(9), {c.get()});
  ASSERT_TRUE(c->Has(t0_));
  EXPECT_EQ(c->At(t0_).Count("k"), 4);
  EXPECT_EQ(c->At(t0_).parked(), 0u);
  EXPECT_EQ(world_.arrived["t/0@2"], 2);
}

TEST_F(DurableTest, ErasesAFormerOwnersRecordsOnlyOnceItsOwnStandForSure) {
  Write(t0_, 1);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  const uint64_t first = Epoch(t0_);
  const ChangelogRecord erased{ChangelogKind::kErase, first, EncodeStateKey(2, "k", ""), "", 0};
  a.reset();
  auto b = Join();
  Pass(milliseconds(5'900), {b.get()});
  ASSERT_FALSE(b->Has(t0_));
  log_.HoldAppends(true);
  Pass(milliseconds(200), {b.get()});
  ASSERT_TRUE(b->Has(t0_));
  log_.HoldAppends(false);
  Pass(milliseconds(1), {b.get()}, milliseconds(1));
  // The count was put again, but the group has not confirmed the owner since.
  EXPECT_THAT(Changelog(first0_), Contains(Field(&ChangelogRecord::epoch, first + 1)));
  EXPECT_THAT(Changelog(first0_), Not(Contains(erased)));
  Pass(milliseconds(1'200), {b.get()});
  EXPECT_THAT(Changelog(first0_), Contains(erased));
}

TEST_F(DurableTest, RemovalOfWhatAFormerOwnerHasParkedWaitsForNoCommit) {
  Write(t0_, 1);
  world_.takes = [](const std::string&) { return false; };
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  ASSERT_TRUE(world_.parked.contains("t/0@0"));
  a.reset();
  world_.takes = kTakesAll;
  auto b = Join();
  for (int i = 0; i < 1'000 && world_.taken["t/0@0"] == 0; ++i) Pass(milliseconds(10), {b.get()});
  ASSERT_EQ(world_.taken["t/0@0"], 1);
  Pass(milliseconds(20), {b.get()});
  EXPECT_TRUE(world_.removed.contains("t/0@0"));
}

// ---- Handover ----

TEST_F(DurableTest, ResultOfWhatWasInFlightFinishesItAtTheNewOwner) {
  Write(t1_, 2);
  world_.latency = [](const std::string& name) {
    return name == "t/1@0" ? Duration(seconds(3)) : Duration(milliseconds(10));
  };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  auto b = Join();
  Pass(milliseconds(1'000), {a.get(), b.get()});
  ASSERT_TRUE(b->Has(t1_));
  ASSERT_FALSE(a->Has(t1_));
  EXPECT_EQ(b->At(t1_).inherited(), 1u);
  EXPECT_EQ(b->At(t1_).held(), 1u);
  EXPECT_EQ(b->Metric("postrider_stream_operations_inherited_total"), 1);
  EXPECT_EQ(Committed(t1_), 0);
  Pass(seconds(2), {a.get(), b.get()});
  EXPECT_EQ(a->Metric("postrider_stream_results_appended_total"), 1);
  EXPECT_EQ(b->Metric("postrider_stream_results_received_total"), 1);
  EXPECT_EQ(world_.arrived["t/1@0"], 1);
  EXPECT_EQ(b->At(t1_).Count("k"), 2);
  EXPECT_EQ(b->At(t1_).held(), 0u);
  EXPECT_EQ(Committed(t1_), 3);  // the result too
}

TEST_F(DurableTest, ResultOfWhatWasParkedRemovesItAtTheNewOwner) {
  Write(t1_, 1);
  world_.takes = kTakesNothing;
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  ASSERT_EQ(Committed(t1_), 1);
  world_.takes = kTakesAll;
  world_.latency = [](const std::string&) { return Duration(seconds(3)); };
  Pass(milliseconds(1'000), {a.get()});
  ASSERT_EQ(world_.arrived["t/1@0"], 2);
  auto b = Join();
  Pass(milliseconds(1'500), {a.get(), b.get()});
  ASSERT_TRUE(b->Has(t1_));
  EXPECT_EQ(b->At(t1_).inherited(), 1u);
  EXPECT_EQ(b->At(t1_).parked(), 1u);
  Pass(milliseconds(2'500), {a.get(), b.get()});
  EXPECT_EQ(b->At(t1_).parked(), 0u);
  EXPECT_EQ(world_.arrived["t/1@0"], 2);
}

TEST_F(DurableTest, InheritedOperationIsAwaitedUntilItsDeadlineOnly) {
  Write(t1_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  auto b = Join();
  Pass(milliseconds(500), {a.get(), b.get()});
  ASSERT_TRUE(b->Has(t1_));
  a.reset();  // its result never comes
  Pass(milliseconds(2'000), {b.get()});
  EXPECT_EQ(world_.arrived["t/1@0"], 1);
  Pass(milliseconds(500), {b.get()});
  EXPECT_EQ(world_.arrived["t/1@0"], 2);
  Pass(milliseconds(2'500), {b.get()});
  EXPECT_EQ(b->At(t1_).Count("k"), 1);
  EXPECT_EQ(Committed(t1_), 1);
}

TEST_F(DurableTest, ResultThatStandsInTheLogIsSeenHoweverLateTheSuccessorComes) {
  Write(t1_, 2);
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(seconds(3), {a.get()});
  ASSERT_TRUE(done);
  a.reset();
  Pass(std::chrono::hours(1), {}, std::chrono::minutes(1));
  auto b = Join();
  Pass(seconds(1), {b.get()});
  EXPECT_EQ(world_.arrived["t/1@0"], 1);
  EXPECT_EQ(world_.arrived["t/1@1"], 1);
  EXPECT_EQ(b->At(t1_).inherited(), 0u);
  EXPECT_EQ(b->At(t1_).Count("k"), 2);
  EXPECT_EQ(Committed(t1_), 4);  // the results too
}

TEST_F(DurableTest, WhatNobodyTellsOfIsSentAgainAtThePartitionsEnd) {
  Write(t1_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  options_.stop_wait_max = milliseconds(500);
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(seconds(1), {a.get()});
  ASSERT_TRUE(done);
  a.reset();
  Pass(seconds(10), {});
  auto b = Join();
  Pass(milliseconds(500), {b.get()});
  EXPECT_EQ(world_.arrived["t/1@0"], 2);
  EXPECT_EQ(b->At(t1_).inherited(), 0u);
}

TEST_F(DurableTest, WhatIsInheritedIsHandedOn) {
  Write(t1_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(5)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  auto b = Join();
  Pass(milliseconds(500), {a.get(), b.get()});
  ASSERT_TRUE(b->Has(t1_));
  auto stopped = std::move(b);
  bool done = false;
  stopped->shard->Stop([&done] { done = true; });
  auto c = Join();
  Pass(milliseconds(2'000), {a.get(), stopped.get(), c.get()});
  EXPECT_TRUE(done);
  SampleMember& owner = c->Has(t1_) ? *c : *a;
  ASSERT_TRUE(owner.Has(t1_));
  Pass(seconds(4), {a.get(), c.get()});
  EXPECT_EQ(world_.arrived["t/1@0"], 1);
  EXPECT_EQ(owner.At(t1_).Count("k"), 1);
}

TEST_F(DurableTest, TaskThatComesStraightBackKeepsItsFlightsItsEpochAndItsState) {
  options_.changelogs.back().overlay_bytes_max = 100'000;
  for (int64_t i = 0; i < 3'000; ++i) WriteChangelog(beside0_, ParkedRecord(1, 1'000 + i));
  full_[beside0_] = true;  // the restore is not over
  Write(t0_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  ASSERT_FALSE(a->At(t0_).restored(1));
  const uint64_t epoch = a->At(t0_).ctx().epoch();
  SampleFunction* const function = &a->At(t0_);
  auto b = Join();
  Pass(milliseconds(700), {a.get(), b.get()});
  ASSERT_TRUE(a->Has(t0_));
  EXPECT_EQ(&a->At(t0_), function);
  EXPECT_EQ(a->At(t0_).ctx().epoch(), epoch);
  world_.takes = kTakesNothing;
  full_[beside0_] = false;
  Pass(seconds(2), {a.get(), b.get()});
  EXPECT_TRUE(a->At(t0_).restored(1));
  EXPECT_EQ(a->At(t0_).parked(), 3'000u);
  EXPECT_EQ(a->At(t0_).Count("k"), 1);
  EXPECT_EQ(world_.arrived["t/0@0"], 1);
  EXPECT_EQ(a->Metric("postrider_stream_results_appended_total"), 0);
}

TEST_F(DurableTest, TaskIsKeptThoughItIsStillRestoring) {
  Write(t0_, 1);
  log_.HoldAppends(true);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  SampleFunction* const function = &a->At(t0_);
  auto b = Join();
  Pass(milliseconds(1'500), {a.get(), b.get()});
  ASSERT_TRUE(a->Has(t0_));
  EXPECT_EQ(&a->At(t0_), function);
  log_.HoldAppends(false);
  Pass(milliseconds(500), {a.get(), b.get()});
  EXPECT_EQ(a->At(t0_).Count("k"), 1);
}

TEST_F(DurableTest, LossOfThePartitionsNamesNothingInTheLog) {
  Write(t0_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(2)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  log_.Expire("g", log_.Members("g").front());
  Pass(milliseconds(300), {a.get()});
  for (const ChangelogRecord& record : Changelog(first0_)) {
    const auto key = DecodeStateKey(record.identity);
    EXPECT_FALSE(key && key->state == kInFlightStateId);
  }
}

TEST_F(DurableTest, ResultRecordThatCannotBeReadIsCountedAndComplete) {
  log_.Write(t0_, "k", "nonsense", {{std::string(kResultHeader), "1"}});
  Write(t0_, 1);
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  EXPECT_EQ(a->Metric("postrider_stream_results_unreadable_total"), 1);
  EXPECT_EQ(Committed(t0_), 2);
  EXPECT_EQ(world_.arrived.size(), 1u);
}

TEST_F(DurableTest, ResultRecordOfANewerVersionFailsTheTask) {
  std::string newer = EncodeOperationResult(OperationResult{"k", {}, {0}, "taken"});
  newer[0] = 2;
  log_.Write(t0_, "k", newer, {{std::string(kResultHeader), "1"}});
  auto a = Join();
  Pass(seconds(1), {a.get()});
  EXPECT_GE(a->Metric("postrider_stream_task_restarts_total"), 2);
  EXPECT_EQ(Committed(t0_), 0);
}

// ---- Stop ----

TEST_F(DurableTest, StopGivesThePartitionsBackAtOnceAndAwaitsWhatIsInFlight) {
  Write(t0_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(3)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  auto b = Join();
  Pass(milliseconds(600), {a.get(), b.get()});
  EXPECT_FALSE(done);
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(b->At(t0_).held(), 1u);
  Write(t0_, 1, "other");
  world_.latency = [](const std::string&) { return Duration(milliseconds(10)); };
  Pass(milliseconds(200), {a.get(), b.get()});
  EXPECT_EQ(b->At(t0_).Count("other"), 1);
  Pass(milliseconds(2'300), {a.get(), b.get()});
  EXPECT_TRUE(done);
  EXPECT_EQ(b->At(t0_).Count("k"), 1);
  EXPECT_EQ(world_.arrived["t/0@0"], 1);
}

TEST_F(DurableTest, WhatIsGatheredForAChangelogIsNotDurableButAtAHandover) {
  options_.changelogs[1].gather = milliseconds(10'000);
  Write(t0_, 1);
  world_.takes = kTakesNothing;
  auto a = Join();
  Pass(milliseconds(500), {a.get()});
  const auto puts = [&] {
    size_t count = 0;
    for (const ChangelogRecord& record : Changelog(beside0_)) {
      if (record.kind == ChangelogKind::kPut) ++count;
    }
    return count;
  };
  EXPECT_EQ(a->At(t0_).parked(), 1u);
  EXPECT_EQ(puts(), 0u);
  EXPECT_EQ(Committed(t0_), 0);
  Pass(milliseconds(10'000), {a.get()});
  EXPECT_GE(puts(), 1u);
  EXPECT_EQ(Committed(t0_), 1);

  const size_t before = puts();
  Write(t0_, 1, "other");
  Pass(milliseconds(100), {a.get()});
  EXPECT_EQ(a->At(t0_).parked(), 2u);
  EXPECT_EQ(puts(), before);
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(milliseconds(300), {a.get()});
  EXPECT_TRUE(done);
  EXPECT_GT(puts(), before);
  EXPECT_EQ(Committed(t0_), 2);
  auto b = Join();
  Pass(milliseconds(300), {b.get()});
  EXPECT_EQ(b->At(t0_).parked(), 2u);
}

TEST_F(DurableTest, AStopIsNoLapseOfTheLease) {
  Write(t0_, 1);
  world_.latency = [](const std::string&) { return Duration(seconds(3)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(milliseconds(100), {a.get()});
  ASSERT_FALSE(done);
  EXPECT_FALSE(a->At(t0_).ctx().MayAct());
  Pass(seconds(3), {a.get()});
  ASSERT_TRUE(done);
  EXPECT_EQ(a->Metric("postrider_stream_lease_lapses_total"), 0);
}

TEST_F(DurableTest, StopAwaitsWhatIsInFlightNoLongerThanItsBound) {
  Write(t0_, 1);
  world_.latency = [](const std::string&) { return Duration(std::chrono::hours(1)); };
  auto a = Join();
  Pass(milliseconds(300), {a.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(milliseconds(19'900), {a.get()}, milliseconds(50));
  EXPECT_FALSE(done);
  Pass(milliseconds(200), {a.get()}, milliseconds(50));
  EXPECT_TRUE(done);
}

// ---- Without a changelog ----

TEST_F(DurableTest, JobWhoseFirstChangelogIsRestoredBesideIsRefused) {
  options_.changelogs.front().restore = ChangelogOptions::Restore::kBeside;
  SystemClock clock;
  Metrics metrics;
  const auto job = Job::Start(log_, clock, metrics, options_,
                              [](const ShardEnvironment&) { return absl::InternalError("no"); });
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace postrider
