#include "core/stream/shard.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/stream/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/stream/shard_fixture.h"
#include "tests/fakes/forwarding_log.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using tests::IsOk;
using tests::StatusIs;
using CommitFault = MemoryLog::CommitFault;

// Refuses the commits of one partition.
class CommitRefusingLog final : public ForwardingLog {
 public:
  using ForwardingLog::ForwardingLog;
  absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop,
                                                           const GroupOptions& options,
                                                           GroupHandler& handler) override {
    auto consumer = ForwardingLog::JoinGroup(loop, options, handler);
    if (!consumer.ok()) return consumer.status();
    return std::make_unique<Consumer>(*this, *std::move(consumer));
  }

  absl::optional<TopicPartition> refused;
  absl::Status status = absl::UnavailableError("not now");

 private:
  class Consumer final : public GroupConsumer {
   public:
    Consumer(const CommitRefusingLog& log, std::unique_ptr<GroupConsumer> consumer)
        : log_(log), consumer_(std::move(consumer)) {}
    int wake_fd() const override { return consumer_->wake_fd(); }
    size_t Poll(size_t records_max) override { return consumer_->Poll(records_max); }
    void Start(std::vector<StartPosition> positions) override {
      consumer_->Start(std::move(positions));
    }
    void Restart(const TopicPartition& tp, int64_t offset) override {
      consumer_->Restart(tp, offset);
    }
    void Release() override { consumer_->Release(); }
    void Commit(std::vector<CommitEntry> entries, CommitDone done) override {
      std::vector<absl::optional<absl::Status>> known;
      std::vector<CommitEntry> passed;
      for (CommitEntry& entry : entries) {
        const bool refuses = log_.refused == entry.tp;
        known.push_back(refuses ? absl::make_optional(log_.status) : absl::nullopt);
        if (!refuses) passed.push_back(std::move(entry));
      }
      consumer_->Commit(std::move(passed), [known = std::move(known), done = std::move(done)](
                                               std::vector<absl::Status> some) mutable {
        std::vector<absl::Status> statuses;
        size_t next = 0;
        for (const auto& status : known) statuses.push_back(status ? *status : some.at(next++));
        std::move(done)(std::move(statuses));
      });
    }
    MonotonicTime LeaseUntil() const override { return consumer_->LeaseUntil(); }
    void Leave(absl::AnyInvocable<void() &&> done) override { consumer_->Leave(std::move(done)); }

   private:
    const CommitRefusingLog& log_;
    std::unique_ptr<GroupConsumer> consumer_;
  };
};

// ---- Claim ----

TEST_F(ShardTest, ClaimsBeforeItOpensAndReads) {
  Write(t0_, 2);
  OffsetSet completed;
  completed.Append(1, 2);
  Preset(t0_, 0, 7, completed);
  Preset(t1_, 0, 3);
  log_.SetCommitFault(CommitFault::kHold);
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  EXPECT_EQ(Metadata(t0_).epoch, 8u);
  EXPECT_EQ(Metadata(t0_).completed, completed);
  EXPECT_EQ(Metadata(t0_).incarnation_ms, 1234);
  EXPECT_EQ(Metadata(t1_).epoch, 4u);
  EXPECT_EQ(Metadata(t0_).writer, Metadata(t1_).writer);
  log_.SetCommitFault(CommitFault::kNone);
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "element 0", "skipped 1", "end 2", "resume"));
  EXPECT_EQ(a->At(t0_).ctx().epoch(), 8u);
  EXPECT_EQ(a->At(t0_).ctx().incarnation_ms(), 1234);
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
}

TEST_F(ShardTest, ClaimIsTriedAgainWhileTheLogRefusesIt) {
  Preset(t0_, 0, 1);
  Preset(t1_, 0, 1);
  log_.SetCommitFault(CommitFault::kRefuse);
  auto a = Join();
  Pass(seconds(1), {a.get()});
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  EXPECT_EQ(Metadata(t0_).epoch, 1u);
  log_.SetCommitFault(CommitFault::kNone);
  Pass(seconds(2), {a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "end 0", "resume"));
  EXPECT_EQ(Metadata(t0_).epoch, 2u);
}

TEST_F(ShardTest, FencedClaimWaitsForTheNextAssignment) {
  Preset(t0_, 0, 1);
  Preset(t1_, 0, 1);
  log_.SetCommitFault(CommitFault::kRefuse);
  auto a = Join();
  Settle({a.get()});
  log_.SetCommitFault(CommitFault::kNone);
  const uint64_t member = log_.Members("g").front();
  log_.Isolate("g", member, true);
  Pass(seconds(1), {a.get()});  // the claim is sent again and does not arrive
  log_.Expire("g", member);
  EXPECT_EQ(Metadata(t0_).epoch, 1u);
  log_.Isolate("g", member, false);
  Settle({a.get()});
  EXPECT_EQ(a->Metric("postrider_stream_fenced_total"), 1);
  EXPECT_EQ(a->Metric("postrider_stream_rebalances_total"), 2);
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "end 0", "resume"));
  EXPECT_EQ(Metadata(t0_).epoch, 2u);
}

TEST_F(ShardTest, PartitionWithoutCommitIsClaimedAtTheLogStartBeforeItIsOpened) {
  Write(t0_, 5);
  log_.TrimNow(t0_, 2);
  log_.SetCommitFault(CommitFault::kHold);
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  EXPECT_EQ(Committed(t0_), 2);
  EXPECT_EQ(Committed(t1_), 0);
  EXPECT_EQ(Metadata(t0_).incarnation_ms, MillisSinceEpoch(clock_.Wall()));
  log_.SetCommitFault(CommitFault::kNone);
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_),
              ElementsAre("open", "element 2", "element 3", "element 4", "end 5", "resume"));
}

TEST_F(ShardTest, SourceOfAFreshGroupBeginsAtTheEnd) {
  options_.start = StartPolicy::kLogStartOnceEstablished;
  Write(t0_, 5);
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "end 5", "resume"));
  EXPECT_EQ(Committed(t0_), 5);
}

TEST_F(ShardTest, SourceOfAnEstablishedGroupBeginsAtTheStart) {
  options_.start = StartPolicy::kLogStartOnceEstablished;
  Write(t0_, 1);
  Preset(t1_, 0, 1);
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "element 0", "end 1", "resume"));
}

TEST_F(ShardTest, TopicMadeLaterBeginsAtTheStartEvenIfTheGroupNeverCommitted) {
  options_.start = StartPolicy::kLogStartOnceEstablished;
  options_.group.topics = {"^later.*"};
  auto a = Join();
  Settle({a.get()});
  log_.MakeTopic("later", 1);
  log_.Write({"later", 0}, "k", "v");
  Settle({a.get()});
  EXPECT_THAT(a->Take({"later", 0}), ElementsAre("open", "element 0", "end 1", "resume"));
}

TEST_F(ShardTest, SiblingsOfAFreshGroupAllBeginAtTheEnd) {
  options_.start = StartPolicy::kLogStartOnceEstablished;
  Write(t0_, 5);
  Write(t1_, 5);
  ShardSiblings siblings;
  auto a = Join(&siblings);
  auto b = Join(&siblings);
  // The first one has claimed before the second one learns of its assignment.
  Settle({a.get()});
  EXPECT_EQ(Committed(t0_), 5);
  Settle({a.get(), b.get()});
  EXPECT_EQ(Committed(t1_), 5);
  EXPECT_THAT(b->Take(t1_), ElementsAre("open", "end 5", "resume"));
}

TEST_F(ShardTest, CommitThatIsNotOursCountsAsAResetOnPurpose) {
  Write(t0_, 3);
  log_.SetCommitted("g", t0_, {2, "someone else's"});
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "element 2", "end 3", "resume"));
  EXPECT_EQ(Metadata(t0_).incarnation_ms, MillisSinceEpoch(clock_.Wall()));
  EXPECT_EQ(a->Metric("postrider_stream_metadata_unreadable_total"), 1);
}

// ---- Commits ----

TEST_F(ShardTest, CommitsWatermarkAndHolesEachInterval) {
  Write(t0_, 5);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  a->At(t0_).Complete(3);
  EXPECT_EQ(Committed(t0_), 0);
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 1);
  OffsetSet completed;
  completed.Append(3, 4);
  EXPECT_EQ(Metadata(t0_).completed, completed);
  a->At(t0_).Complete(1);
  a->At(t0_).Complete(2);
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 4);
}

TEST_F(ShardTest, OnlyChangedPartitionsAreCommitted) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  std::vector<std::string> commits;
  log_.SetCommitObserver([&](const std::string&, uint64_t, const CommitEntry& entry) {
    commits.push_back(absl::StrCat(entry.tp.ToString(), "@", entry.position.offset));
  });
  a->At(t0_).Complete(0);
  Pass(milliseconds(400), {a.get()});
  EXPECT_THAT(commits, ElementsAre("t/0@1"));
}

TEST_F(ShardTest, IdleShardRenewsItsLeaseOnceASecond) {
  auto a = Join();
  Settle({a.get()});
  int commits = 0;
  log_.SetCommitObserver([&](const std::string&, uint64_t, const CommitEntry&) { ++commits; });
  Pass(seconds(20), {a.get()}, milliseconds(50));
  EXPECT_GE(commits, 16);
  EXPECT_LE(commits, 20);
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  EXPECT_EQ(a->Metric("postrider_stream_lease_lapses_total"), 0);
}

TEST_F(ShardTest, OneCommitIsOutstandingAtMost) {
  Write(t0_, 3);
  auto a = Join();
  Settle({a.get()});
  log_.SetCommitFault(CommitFault::kHold);
  int commits = 0;
  log_.SetCommitObserver([&](const std::string&, uint64_t, const CommitEntry&) { ++commits; });
  for (int64_t offset = 0; offset < 3; ++offset) {
    a->At(t0_).Complete(offset);
    Pass(milliseconds(400), {a.get()});
  }
  EXPECT_EQ(commits, 1);
  log_.SetCommitFault(CommitFault::kNone);
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 3);
}

TEST_F(ShardTest, RefusedCommitIsRepeated) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  log_.SetCommitFault(CommitFault::kRefuse);
  a->At(t0_).Complete(0);
  Pass(seconds(1), {a.get()});
  EXPECT_EQ(Committed(t0_), 0);
  log_.SetCommitFault(CommitFault::kNone);
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 1);
}

TEST_F(ShardTest, AfterACrashPendingRecordsComeAgainAndCompletedOnesDoNot) {
  Write(t0_, 6);
  auto a = Join();
  Settle({a.get()});
  for (const int64_t offset : {0, 2, 3, 5}) a->At(t0_).Complete(offset);
  Pass(milliseconds(200), {a.get()});
  const uint64_t epoch = a->At(t0_).ctx().epoch();
  const int64_t incarnation = a->At(t0_).ctx().incarnation_ms();
  a.reset();
  auto b = Join();
  Pass(seconds(7), {b.get()}, milliseconds(100));
  EXPECT_THAT(b->Take(t0_), ElementsAre("open", "element 1", "skipped 2", "skipped 3", "element 4",
                                        "skipped 5", "end 6", "resume"));
  EXPECT_EQ(b->At(t0_).ctx().epoch(), epoch + 1);
  EXPECT_EQ(b->At(t0_).ctx().incarnation_ms(), incarnation);
}

// ---- Rebalance ----

TEST_F(ShardTest, TaskThatComesStraightBackKeepsItsMemory) {
  Write(t0_, 3);
  auto a = Join();
  Settle({a.get()});
  const uint64_t epoch = a->At(t0_).ctx().epoch();
  a->At(t0_).Complete(1);
  a->Take(t0_);
  auto b = Join();
  Settle({a.get(), b.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("handover", "end 3", "resume"));
  EXPECT_EQ(a->At(t0_).ctx().epoch(), epoch);
  EXPECT_EQ(a->At(t0_).pending(), (std::set<int64_t>{0, 2}));
  EXPECT_FALSE(a->Has(t1_));
  EXPECT_TRUE(b->Has(t1_));
  EXPECT_EQ(a->Metric("postrider_stream_tasks_kept_total"), 1);
  Write(t0_, 1);
  Settle({a.get(), b.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("element 3", "end 4"));
  a->At(t0_).CompleteAll();
  Pass(milliseconds(200), {a.get(), b.get()});
  EXPECT_EQ(Committed(t0_), 4);
}

TEST_F(ShardTest, TaskWhoseCommitAnotherChangedBeginsAnew) {
  Write(t0_, 3);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  Pass(milliseconds(200), {a.get()});
  a->Take(t0_);
  Preset(t0_, 1, 77);
  auto b = Join();
  Settle({a.get(), b.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("handover", "close", "open", "element 1", "element 2",
                                        "end 3", "resume"));
  EXPECT_EQ(a->At(t0_).ctx().epoch(), 78u);
  EXPECT_EQ(a->At(t0_).ctx().incarnation_ms(), 1234);
}

TEST_F(ShardTest, EpochRisesWithEachOwner) {
  auto a = Join();
  Settle({a.get()});
  uint64_t epoch = a->At(t0_).ctx().epoch();
  for (int i = 0; i < 3; ++i) {
    a.reset();
    a = Join();
    Pass(seconds(7), {a.get()}, milliseconds(100));
    EXPECT_EQ(a->At(t0_).ctx().epoch(), epoch + 1);
    epoch = a->At(t0_).ctx().epoch();
  }
}

TEST_F(ShardTest, RevokeWaitsForWhatIsInFlight) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).flights = 1;
  auto b = Join();
  Pass(milliseconds(249), {a.get(), b.get()}, milliseconds(1));
  EXPECT_FALSE(a->At(t0_).ctx().MayAct());
  EXPECT_FALSE(b->Has(t1_));
  Pass(milliseconds(1), {a.get(), b.get()}, milliseconds(1));
  EXPECT_TRUE(b->Has(t1_));
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
}

TEST_F(ShardTest, RevokeGivesBackAtOnceWhenTheResultIsInAndCommitsIt) {
  Write(t0_, 1);
  Write(t1_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t1_).flights = 1;
  auto b = Join();
  Pass(milliseconds(100), {a.get(), b.get()});
  a->At(t1_).flights = 0;
  a->At(t1_).Complete(0);
  Settle({a.get(), b.get()});
  EXPECT_EQ(Committed(t1_), 1);
  EXPECT_THAT(b->Take(t1_), ElementsAre("open", "end 1", "resume"));
}

TEST_F(ShardTest, RevokeWaitsForAppendsThatWaitForTheirAnswer) {
  log_.MakeTopic("out", 1);
  Write(t1_, 1);
  auto a = Join();
  Settle({a.get()});
  log_.HoldAppends(true);
  ScriptedFunction& function = a->At(t1_);
  ASSERT_TRUE(function.ctx().Emit({"out", 0, "k", "v", {}},
                                  [&function](absl::StatusOr<int64_t>) { function.Complete(0); }));
  auto b = Join();
  Pass(milliseconds(100), {a.get(), b.get()});
  EXPECT_FALSE(b->Has(t1_));
  log_.HoldAppends(false);
  Settle({a.get(), b.get()});
  EXPECT_EQ(Committed(t1_), 1);
  EXPECT_THAT(b->Take(t1_), ElementsAre("open", "end 1", "resume"));
}

TEST_F(ShardTest, FinalCommitWhoseAnswerWasLostStillKeepsTheMemory) {
  Write(t0_, 2);
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  a->At(t0_).Complete(0);
  log_.SetCommitFault(CommitFault::kLoseAnswer);
  auto b = Join();
  Settle({a.get()});
  log_.SetCommitFault(CommitFault::kNone);
  Pass(seconds(1), {a.get(), b.get()});
  EXPECT_EQ(Committed(t0_), 1);
  EXPECT_THAT(a->Take(t0_), ElementsAre("handover", "end 2", "resume"));
}

TEST_F(ShardTest, FinalCommitIsAwaitedForASecondAtMost) {
  Write(t0_, 2);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  log_.SetCommitFault(CommitFault::kHold);
  auto b = Join();
  Pass(milliseconds(999), {a.get(), b.get()}, milliseconds(1));
  EXPECT_EQ(log_.Generation("g"), 1);
  Pass(milliseconds(1), {a.get(), b.get()}, milliseconds(1));
  EXPECT_EQ(log_.Generation("g"), 2);
}

TEST_F(ShardTest, LostTaskKeepsItsMemoryIfNobodyElseWasThere) {
  Write(t0_, 2);
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  log_.Expire("g", log_.Members("g").front());
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("handover", "end 2", "resume"));
  EXPECT_EQ(a->At(t0_).pending().size(), 2u);
}

TEST_F(ShardTest, FencedMemberNeverCommitsOverItsSuccessor) {
  Write(t0_, 4);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  Pass(milliseconds(200), {a.get()});
  log_.Isolate("g", log_.Members("g").front(), true);
  auto b = Join();
  for (const int64_t offset : {1, 2, 3}) a->At(t0_).Complete(offset);
  Pass(seconds(7), {a.get(), b.get()}, milliseconds(50));
  ASSERT_TRUE(b->Has(t0_));
  EXPECT_EQ(b->At(t0_).pending(), (std::set<int64_t>{1, 2, 3}));
  EXPECT_FALSE(a->At(t0_).ctx().MayAct());
  const auto committed = log_.Committed("g", t0_);
  std::set<uint64_t> writers;
  log_.SetCommitObserver(
      [&](const std::string&, uint64_t member, const CommitEntry&) { writers.insert(member); });
  log_.Isolate("g", 1, false);
  clock_.Advance(milliseconds(1));
  Settle({a.get()});
  EXPECT_EQ(log_.Committed("g", t0_), committed);
  EXPECT_TRUE(writers.empty());
  EXPECT_GE(a->Metric("postrider_stream_lost_total"), 1);
  Pass(seconds(2), {a.get(), b.get()});
  // One of the two goes on with it, from what the successor had committed.
  EXPECT_EQ(a->Has(t0_) + b->Has(t0_), 1);
  EXPECT_EQ((a->Has(t0_) ? a : b)->At(t0_).pending(), (std::set<int64_t>{1, 2, 3}));
}

// ---- Lease ----

TEST_F(ShardTest, NothingMayBeDoneFiveSecondsAfterTheLastAcknowledgedCommitWasIssued) {
  auto a = Join();
  Settle({a.get()});
  const MonotonicTime issued = clock_.Now();
  log_.SetReachable(false);
  Pass(milliseconds(4'999), {a.get()}, milliseconds(1));
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  Pass(milliseconds(1), {a.get()}, milliseconds(1));
  EXPECT_EQ(clock_.Now(), issued + seconds(5));
  EXPECT_FALSE(a->At(t0_).ctx().MayAct());
  EXPECT_EQ(a->Metric("postrider_stream_lease_lapses_total"), 1);
  EXPECT_FALSE(a->shard->status().log_reachable);
  a->Take(t0_);
  Pass(seconds(3), {a.get()});
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  log_.SetReachable(true);
  Pass(milliseconds(500), {a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("resume"));
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
}

TEST_F(ShardTest, StallLongerThanTheLeaseIsNoticedBeforeAnythingIsDone) {
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  // The thread stands still; no turn of the loop has run since.
  clock_.Advance(seconds(6));
  EXPECT_FALSE(a->At(t0_).ctx().MayAct());
  Pass(seconds(1), {a.get()});
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  EXPECT_THAT(a->Take(t0_), Contains("resume"));
}

// ---- Bounds ----

TEST_F(ShardTest, StopsReadingAtTheBoundOfRecordsAndGoesOnAtHalf) {
  options_.pending_records_max = 10;
  Write(t0_, 40);
  auto a = Join();
  Settle({a.get()});
  EXPECT_EQ(a->At(t0_).pending().size(), 10u);
  EXPECT_TRUE(a->At(t0_).ctx().under_pressure());
  EXPECT_THAT(a->Take(t0_), Contains("pressure").Times(1));
  for (int64_t offset = 0; offset < 4; ++offset) a->At(t0_).Complete(offset);
  Settle({a.get()});
  EXPECT_EQ(a->At(t0_).pending().size(), 6u);
  a->At(t0_).Complete(4);
  clock_.Advance(milliseconds(1));
  Pass(milliseconds(50), {a.get()});
  EXPECT_EQ(a->At(t0_).pending().size(), 10u);
  EXPECT_THAT(a->Take(t0_), Contains("pressure").Times(1));
}

TEST_F(ShardTest, StopsReadingAtTheBoundOfBytes) {
  options_.pending_bytes_max = 55;  // a record has eleven
  Write(t0_, 40);
  auto a = Join();
  Settle({a.get()});
  EXPECT_GE(a->At(t0_).pending().size(), 5u);
  EXPECT_LE(a->At(t0_).pending().size(), 6u);
  EXPECT_TRUE(a->At(t0_).ctx().under_pressure());
}

TEST_F(ShardTest, StopsReadingWhenOneRecordHoldsTheWatermarkForLong) {
  options_.tracked_records_max = 20;
  Write(t0_, 100);
  auto a = Join();
  a->on_create = [](ScriptedFunction& function, const TopicPartition&) {
    function.on_element = [&function](TaskContext&, const LogRecord& record) {
      if (record.offset > 0) function.Complete(record.offset);
    };
  };
  Settle({a.get()});
  EXPECT_TRUE(a->At(t0_).ctx().under_pressure());
  a->At(t0_).Complete(0);
  Pass(milliseconds(50), {a.get()});
  EXPECT_THAT(a->Take(t0_), Contains("element 99"));
}

// What is told of holes, each second, when all but the first of so many records complete.
class ShardHolesTest : public ShardTest {
 protected:
  std::unique_ptr<ShardMember> Open(int64_t records, int64_t step) {
    Write(t0_, static_cast<int>(records));
    auto a = Join();
    a->on_create = [step](ScriptedFunction& function, const TopicPartition&) {
      function.on_element = [&function, step](TaskContext&, const LogRecord& record) {
        if (record.offset % step != 0) function.Complete(record.offset);
      };
    };
    Settle({a.get()});
    a->Take(t0_);
    return a;
  }
};

TEST_F(ShardHolesTest, TellsEachSecondWhereHalfOfThemLieUntilTheyAreFewer) {
  options_.holes_max = 20;
  auto a = Open(21, 21);
  Pass(seconds(1), {a.get()});
  EXPECT_THAT(a->Take(t0_), Contains("holes 11").Times(1));
  Pass(seconds(1), {a.get()});
  EXPECT_THAT(a->Take(t0_), Contains("holes 11").Times(1));
  a->At(t0_).Complete(0);
  Pass(seconds(2), {a.get()});
  EXPECT_THAT(a->Take(t0_), Not(Contains(StartsWith("holes"))));
}

TEST_F(ShardHolesTest, AreFewBelowTheBound) {
  options_.holes_max = 21;
  auto a = Open(21, 21);
  Pass(seconds(2), {a.get()});
  EXPECT_THAT(a->Take(t0_), Not(Contains(StartsWith("holes"))));
}

TEST_F(ShardHolesTest, CountByTheirBytes) {
  options_.hole_bytes_max = 220;  // a record has eleven
  auto a = Open(21, 21);
  Pass(seconds(1), {a.get()});
  EXPECT_THAT(a->Take(t0_), Contains("holes 11").Times(1));
}

TEST_F(ShardHolesTest, TellBeforeACommitCannotNameThemAll) {
  // Every second record pends: a bit for each offset.
  auto a = Open(18'000, 2);
  Pass(seconds(1), {a.get()});
  EXPECT_THAT(a->Take(t0_), Not(Contains(StartsWith("holes"))));
  Write(t0_, 2'000);
  Pass(seconds(2), {a.get()});
  EXPECT_THAT(a->Take(t0_), Contains(StartsWith("holes")));
  EXPECT_EQ(a->Metric("postrider_stream_holes_forgotten"), 0);
}

TEST_F(ShardTest, FullShardTakesAtMostOneRecordASecondAndKeepsItsLease) {
  options_.pending_records_max = 100;
  Write(t0_, 1'000);
  auto a = Join();
  Settle({a.get()});
  ASSERT_EQ(a->At(t0_).pending().size(), 100u);
  Pass(seconds(10), {a.get()}, milliseconds(25));
  EXPECT_LE(a->At(t0_).pending().size(), 110u);
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  EXPECT_THAT(a->Take(t0_), Contains("pressure").Times(11)) << "at once, and each second";
  EXPECT_EQ(a->Metric("postrider_stream_lease_lapses_total"), 0);
}

// A log that gives a record with every answer.
class GenerousLog final : public ForwardingLog {
 public:
  using ForwardingLog::ForwardingLog;
  class Consumer final : public GroupConsumer {
   public:
    explicit Consumer(std::unique_ptr<GroupConsumer> consumer) : consumer_(std::move(consumer)) {}
    int wake_fd() const override { return consumer_->wake_fd(); }
    size_t Poll(size_t records_max) override {
      return consumer_->Poll(std::max<size_t>(records_max, 1));
    }
    void Start(std::vector<StartPosition> positions) override {
      consumer_->Start(std::move(positions));
    }
    void Restart(const TopicPartition& tp, int64_t offset) override {
      consumer_->Restart(tp, offset);
    }
    void Release() override { consumer_->Release(); }
    void Commit(std::vector<CommitEntry> entries, CommitDone done) override {
      consumer_->Commit(std::move(entries), std::move(done));
    }
    MonotonicTime LeaseUntil() const override { return consumer_->LeaseUntil(); }
    void Leave(absl::AnyInvocable<void() &&> done) override { consumer_->Leave(std::move(done)); }

   private:
    std::unique_ptr<GroupConsumer> consumer_;
  };

  absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop, const GroupOptions& o,
                                                           GroupHandler& handler) override {
    return std::make_unique<Consumer>(*ForwardingLog::JoinGroup(loop, o, handler));
  }
};

TEST_F(ShardTest, FullShardPassesOverWhatIsBeyondItsReserveAndReadsItLater) {
  GenerousLog generous(log_);
  options_.pending_records_max = 16;
  Write(t0_, 60);
  auto a = std::make_unique<ShardMember>(generous, clock_, options_, 77);
  Settle({a.get()});
  ASSERT_EQ(a->At(t0_).pending().size(), 16u);
  Pass(seconds(20), {a.get()}, milliseconds(25));
  EXPECT_EQ(a->At(t0_).pending().size(), 18u);
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  for (int i = 0; i < 20; ++i) {
    a->At(t0_).CompleteAll();
    Pass(milliseconds(250), {a.get()});
  }
  EXPECT_EQ(Committed(t0_), 60);
  EXPECT_EQ(a->Metric("postrider_stream_records_read_total"), 60);
}

TEST_F(ShardTest, FullShardTakesPartInARebalance) {
  options_.pending_records_max = 10;
  Write(t0_, 100);
  auto a = Join();
  Settle({a.get()});
  auto b = Join();
  Pass(seconds(2), {a.get(), b.get()});
  EXPECT_TRUE(b->Has(t1_));
  EXPECT_TRUE(a->Has(t0_));
}

TEST_F(ShardTest, MoreRecordsThanATurnTakesAreReadInTheNext) {
  Write(t0_, 2'500);
  auto a = Join();
  Settle({a.get()});
  EXPECT_EQ(a->At(t0_).pending().size(), 2'500u);
}

// ---- Outputs ----

TEST_F(ShardTest, AnswersOfAppendsDoNotReachAClosedTask) {
  log_.MakeTopic("out", 1);
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  log_.HoldAppends(true);
  int answers = 0;
  ASSERT_TRUE(a->At(t0_).ctx().Emit({"out", 0, "k", "v", {}},
                                    [&answers](absl::StatusOr<int64_t>) { ++answers; }));
  auto guarded = a->At(t0_).ctx().Guard([&answers] { ++answers; });
  a->At(t0_).ctx().Fail(absl::InternalError("broken"));
  Settle({a.get()});
  log_.HoldAppends(false);
  Pass(milliseconds(500), {a.get()});
  std::move(guarded)();
  EXPECT_EQ(answers, 0);
}

TEST_F(ShardTest, GuardedCallbacksRunWhileTheTaskLives) {
  auto a = Join();
  Settle({a.get()});
  int calls = 0;
  std::move(a->At(t0_).ctx().Guard([&calls] { ++calls; }))();
  EXPECT_EQ(calls, 1);
}

TEST_F(ShardTest, TaskWhoseAppendWasRefusedHearsWhenThereIsRoom) {
  log_.MakeTopic("out", 1);
  options_.producer.queue_records_max = 2;
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  a->Take(t1_);
  log_.HoldAppends(true);
  int answers = 0;
  const auto emit = [&] {
    return a->At(t0_).ctx().Emit({"out", 0, "k", "v", {}},
                                 [&answers](absl::StatusOr<int64_t>) { ++answers; });
  };
  EXPECT_TRUE(emit());
  EXPECT_TRUE(emit());
  AppendRecord refused{"out", 0, "k", "still here", {}};
  LogProducer::AppendDone done = [&answers](absl::StatusOr<int64_t>) { answers += 100; };
  EXPECT_FALSE(a->At(t0_).ctx().Emit(std::move(refused), std::move(done)));
  EXPECT_EQ(refused.value, "still here");
  std::move(done)(0);
  EXPECT_EQ(answers, 100);
  log_.HoldAppends(false);
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("room"));
  EXPECT_THAT(a->Take(t1_), IsEmpty());
}

// ---- Timers ----

TEST_F(ShardTest, TimersFireAtTheirTimeOnceAndInOrder) {
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  const MonotonicTime now = clock_.Now();
  const auto ms = [](MonotonicTime time) {
    return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
  };
  a->At(t0_).ctx().SetTimer("late", 1, now + milliseconds(30));
  a->At(t0_).ctx().SetTimer("b", 1, now + milliseconds(20));
  a->At(t0_).ctx().SetTimer("a", 2, now + milliseconds(20));
  a->At(t0_).ctx().SetTimer("gone", 1, now + milliseconds(20));
  a->At(t0_).ctx().CancelTimer("gone", 1);
  Pass(milliseconds(19), {a.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  Pass(milliseconds(1), {a.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), ElementsAre(absl::StrCat("timer b 1 ", ms(now + milliseconds(20))),
                                        absl::StrCat("timer a 2 ", ms(now + milliseconds(20)))));
  a->At(t0_).ctx().SetTimer("late", 1, now + milliseconds(25));  // replaced by an earlier one
  Pass(milliseconds(5), {a.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), ElementsAre(absl::StrCat("timer late 1 ", ms(now + milliseconds(25)))));
  Pass(milliseconds(100), {a.get()});
  EXPECT_THAT(a->Take(t0_), IsEmpty());
}

TEST_F(ShardTest, TimerSetForNowInATimerWaitsForTheNextTurn) {
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  int left = 3;
  a->At(t0_).on_timer = [&] {
    if (--left > 0) a->At(t0_).ctx().SetTimer("k", 1, clock_.Now());
  };
  a->At(t0_).ctx().SetTimer("k", 1, clock_.Now());
  a->loop->RunOnce(Duration::zero());
  EXPECT_EQ(left, 2);
  Settle({a.get()});
  EXPECT_EQ(left, 0);
}

TEST_F(ShardTest, NoTimerFiresAfterItsTaskWasClosed) {
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).ctx().SetTimer("k", 1, clock_.Now() + milliseconds(10));
  a->At(t0_).ctx().Fail(absl::InternalError("broken"));
  Pass(milliseconds(50), {a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "end 0", "resume", "close"));
}

TEST_F(ShardTest, TimersThatAreDueWhileGivenBackFireAfterTheResume) {
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  a->At(t0_).flights = 1;
  a->At(t0_).ctx().SetTimer("k", 1, clock_.Now() + milliseconds(100));
  auto b = Join();
  Pass(milliseconds(249), {a.get(), b.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), ElementsAre("handover"));
  Pass(milliseconds(10), {a.get(), b.get()}, milliseconds(1));
  const std::vector<std::string> events = a->Take(t0_);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(events, Contains("resume"));
  EXPECT_THAT(events, Contains(::testing::StartsWith("timer k 1")));
}

// ---- Failures ----

TEST_F(ShardTest, FailedTaskAloneBeginsAgainFromItsLastCommit) {
  Write(t0_, 4);
  Write(t1_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  a->At(t0_).Complete(2);
  Pass(milliseconds(200), {a.get()});
  a->At(t0_).Complete(1);
  a->Take(t0_);
  a->Take(t1_);
  a->At(t0_).ctx().Fail(absl::InternalError("broken"));
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("close"));
  EXPECT_EQ(a->shard->status().tasks_running, 1);
  EXPECT_EQ(a->shard->status().tasks_failed, 1);
  Write(t0_, 1);
  Pass(milliseconds(99), {a.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), IsEmpty());
  Pass(milliseconds(1), {a.get()}, milliseconds(1));
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "resume", "element 1", "skipped 2", "element 3",
                                        "element 4", "end 5"));
  EXPECT_THAT(a->Take(t1_), IsEmpty());
  EXPECT_EQ(a->Metric("postrider_stream_task_restarts_total"), 1);
  a->At(t0_).CompleteAll();
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 5);
}

TEST_F(ShardTest, TaskThatFailsWhileAClaimIsRefusedBeginsAgainAfterIt) {
  Write(t0_, 2);
  auto a = Join();
  Pass(milliseconds(200), {a.get()});
  log_.SetCommitFault(MemoryLog::CommitFault::kRefuse);
  auto b = Join();
  Settle({a.get(), b.get()});
  a->Take(t0_);
  ASSERT_TRUE(a->Has(t0_));
  a->At(t0_).ctx().Fail(absl::InternalError("broken"));
  Pass(seconds(1), {a.get(), b.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("close"));
  log_.SetCommitFault(MemoryLog::CommitFault::kNone);
  Pass(seconds(6), {a.get(), b.get()});
  ASSERT_TRUE(a->Has(t0_));
  EXPECT_EQ(a->At(t0_).pending(), (std::set<int64_t>{0, 1}));
  a->At(t0_).CompleteAll();
  Pass(milliseconds(200), {a.get(), b.get()});
  EXPECT_EQ(Committed(t0_), 2);
}

TEST_F(ShardTest, DelayOfAFailingTaskDoublesUpToHalfAMinute) {
  Write(t0_, 1);
  auto a = Join();
  a->on_create = [this](ScriptedFunction& function, const TopicPartition& tp) {
    if (tp != t0_) return;
    function.on_element = [](TaskContext& ctx, const LogRecord&) {
      ctx.Fail(absl::InternalError("always"));
    };
  };
  Settle({a.get()});
  std::vector<int64_t> gaps;
  MonotonicTime last = clock_.Now();
  for (int i = 0; i < 150'000 && gaps.size() < 11; ++i) {
    a->Take(t0_);
    Pass(milliseconds(1), {a.get()}, milliseconds(1));
    if (a->events[t0_].empty()) continue;
    const auto events = a->Take(t0_);
    if (std::find(events.begin(), events.end(), "open") == events.end()) continue;
    gaps.push_back(std::chrono::duration_cast<milliseconds>(clock_.Now() - last).count());
    last = clock_.Now();
  }
  EXPECT_THAT(gaps,
              ElementsAre(100, 200, 400, 800, 1'600, 3'200, 6'400, 12'800, 25'600, 30'000, 30'000));
  EXPECT_THAT(a->Take(t1_), Not(Contains("close")));
}

TEST_F(ShardTest, FailureInsideACallStopsFurtherCallsAtOnce) {
  Write(t0_, 3);
  auto a = Join();
  a->on_create = [](ScriptedFunction& function, const TopicPartition&) {
    function.on_element = [](TaskContext& ctx, const LogRecord&) {
      ctx.Fail(absl::InternalError("at the first record"));
    };
  };
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_), ElementsAre("open", "element 0", "close"));
}

TEST_F(ShardTest, PartitionThatMayNotBeCommittedIsClaimedAgainByItself) {
  Write(t0_, 1);
  Write(t1_, 1);
  CommitRefusingLog log(log_);
  log.refused = t1_;
  log.status = absl::PermissionDeniedError("no right");
  ShardMember member(log, clock_, options_, 1);
  Pass(seconds(20), {&member});
  EXPECT_THAT(member.Take(t0_), Contains("element 0")) << "the other goes on";
  EXPECT_THAT(member.Take(t1_), IsEmpty()) << "without the claim nothing is done";
  EXPECT_EQ(member.Metric("postrider_stream_tasks", ",state=\"failed\""), 1);
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("have failed")));
  const double tried = member.Metric("postrider_stream_task_restarts_total");
  EXPECT_GE(tried, 7) << "100 ms, doubling";
  EXPECT_LE(tried, 9);
  log.refused = absl::nullopt;
  Pass(seconds(30), {&member});
  EXPECT_THAT(member.Take(t1_), ElementsAre("open", "element 0", "end 1", "resume"));
  EXPECT_EQ(member.Metric("postrider_stream_tasks", ",state=\"failed\""), 0);
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()), IsOk());
  member.At(t1_).CompleteAll();
  Pass(seconds(1), {&member});
  EXPECT_EQ(Committed(t1_), 1);
}

TEST_F(ShardTest, TaskThatLosesTheRightToCommitBeginsAgainFromItsLastCommit) {
  Write(t0_, 3);
  Write(t1_, 3);
  CommitRefusingLog log(log_);
  ShardMember member(log, clock_, options_, 1);
  Settle({&member});
  member.At(t1_).Complete(0);
  member.At(t1_).Complete(2);
  Pass(seconds(1), {&member});
  const uint64_t epoch = Metadata(t1_).epoch;
  log.refused = t1_;
  log.status = absl::PermissionDeniedError("no right");
  auto other = Join();
  Pass(seconds(1), {&member, other.get()}, milliseconds(5));
  other->shard->Stop([] {});
  Pass(seconds(5), {&member, other.get()}, milliseconds(5));
  other.reset();
  Pass(seconds(2), {&member});
  EXPECT_FALSE(member.Has(t1_));
  EXPECT_EQ(member.Metric("postrider_stream_tasks", ",state=\"failed\""), 1);
  member.Take(t1_);
  log.refused = absl::nullopt;
  Pass(seconds(30), {&member});
  EXPECT_THAT(member.Take(t1_), ElementsAre("open", "element 1", "skipped 2", "end 3", "resume"));
  EXPECT_GT(Metadata(t1_).epoch, epoch);
  member.At(t1_).CompleteAll();
  Pass(seconds(1), {&member});
  EXPECT_EQ(Committed(t1_), 3);
}

// ---- Commits that are gone ----

TEST_F(ShardTest, CommitThatThisShardHadMadeIsMissed) {
  Write(t0_, 3);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).CompleteAll();
  Pass(seconds(1), {a.get()});
  EXPECT_EQ(a->Metric("postrider_stream_commits_gone_total"), 0) << "a group begins without any";
  const uint64_t member = log_.Members("g").front();
  log_.Isolate("g", member, true);
  Pass(seconds(1), {a.get()});
  log_.Expire("g", member);
  log_.ForgetCommits("g");
  log_.Isolate("g", member, false);
  a->Take(t0_);
  Pass(seconds(1), {a.get()});
  EXPECT_EQ(a->Metric("postrider_stream_commits_gone_total"), 2);
  EXPECT_THAT(a->Take(t0_), Contains("element 0")) << "from the log's start";
}

TEST_F(ShardTest, TopicThatWasTrimmedHadACommit) {
  Write(t0_, 5);
  log_.TrimNow(t0_, 2);
  {
    auto a = Join();
    Settle({a.get()});
    EXPECT_EQ(a->Metric("postrider_stream_commits_gone_total"), 0)
        << "others may trim it by their own rules";
  }
  log_.ForgetCommits("g");
  Pass(seconds(10), {});
  options_.trim_safety = std::chrono::hours(1);
  auto b = Join();
  Pass(seconds(10), {b.get()});
  EXPECT_EQ(b->Metric("postrider_stream_commits_gone_total"), 1) << "t/1 is as it was made";
  EXPECT_THAT(b->Take(t0_), Contains("element 2"));
}

TEST_F(ShardTest, SourceOfAGroupThatHadCommitsBeginsAtTheStartWithoutAny) {
  options_.start = StartPolicy::kLogStartOnceEstablished;
  options_.group_had_commits = true;
  Write(t0_, 2);
  {
    auto a = Join();
    Settle({a.get()});
    EXPECT_THAT(a->Take(t0_), ElementsAre("open", "element 0", "element 1", "end 2", "resume"));
    EXPECT_EQ(a->Metric("postrider_stream_commits_gone_total"), 2);
  }
  log_.MakeTopic("u", 1);
  options_.group.topics = {"t", "u"};
  Pass(seconds(10), {});
  auto b = Join();
  Pass(seconds(10), {b.get()});
  EXPECT_EQ(b->Metric("postrider_stream_commits_gone_total"), 0) << "a new topic has no commit yet";
}

// ---- Log start and end ----

TEST_F(ShardTest, CommitBelowTheLogStartIsAnIncidentAndGoesOnFromTheStart) {
  Write(t0_, 10);
  OffsetSet completed;
  completed.Append(3, 4);
  completed.Append(8, 9);
  Preset(t0_, 2, 5, completed);
  log_.TrimNow(t0_, 7);
  auto a = Join();
  Settle({a.get()});
  EXPECT_THAT(a->Take(t0_),
              ElementsAre("open", "element 7", "skipped 8", "element 9", "end 10", "resume"));
  EXPECT_EQ(a->Metric("postrider_stream_out_of_range_total", ",side=\"below_start\""), 1);
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 7);
}

TEST_F(ShardTest, PendingRecordsOutliveATrimAboveThem) {
  options_.pending_records_max = 4;
  Write(t0_, 20);
  auto a = Join();
  Settle({a.get()});
  ASSERT_EQ(a->At(t0_).pending().size(), 4u);
  log_.TrimNow(t0_, 15);
  a->At(t0_).Complete(1);
  a->At(t0_).Complete(2);
  Pass(milliseconds(300), {a.get()});
  EXPECT_EQ(a->At(t0_).pending(), (std::set<int64_t>{0, 3, 15, 16}));
  EXPECT_EQ(Committed(t0_), 0);
  a->At(t0_).Complete(0);
  a->At(t0_).Complete(3);
  Pass(milliseconds(300), {a.get()});
  EXPECT_EQ(Committed(t0_), 15);
}

TEST_F(ShardTest, TopicMadeAnewIsReadFromItsStartAsAnotherIncarnation) {
  Write(t0_, 3);
  Preset(t0_, 5'000, 1);
  auto a = Join();
  Settle({a.get()});
  const auto events = a->Take(t0_);
  EXPECT_THAT(events, Contains("element 0"));
  EXPECT_THAT(events, Contains("element 2"));
  EXPECT_EQ(a->At(t0_).ctx().incarnation_ms(), MillisSinceEpoch(clock_.Wall()));
  EXPECT_EQ(a->Metric("postrider_stream_out_of_range_total", ",side=\"above_end\""), 1);
  a->At(t0_).CompleteAll();
  Pass(milliseconds(200), {a.get()});
  EXPECT_EQ(Committed(t0_), 3);
}

TEST_F(ShardTest, TopicIsTrimmedToTheWatermarkOfAnHourAgo) {
  options_.trim_safety = std::chrono::hours(1);
  Write(t0_, 10);
  auto a = Join();
  a->on_create = [](ScriptedFunction& function, const TopicPartition&) {
    function.on_element = [&function](TaskContext&, const LogRecord& record) {
      if (record.offset != 8) function.Complete(record.offset);
    };
  };
  Pass(std::chrono::minutes(60), {a.get()}, milliseconds(500));
  EXPECT_EQ(log_.Records(t0_).size(), 10u);
  Pass(std::chrono::minutes(3), {a.get()}, milliseconds(500));
  ASSERT_EQ(log_.Records(t0_).size(), 2u);
  EXPECT_EQ(log_.Records(t0_).front().offset, 8);
}

TEST_F(ShardTest, RestartDoesNotPutTrimmingOff) {
  options_.trim_safety = std::chrono::hours(1);
  Write(t0_, 10);
  auto a = Join();
  a->on_create = [](ScriptedFunction& function, const TopicPartition&) {
    function.on_element = [&function](TaskContext&, const LogRecord& record) {
      function.Complete(record.offset);
    };
  };
  Pass(std::chrono::minutes(40), {a.get()}, milliseconds(500));
  a.reset();
  Write(t0_, 1);
  a = Join();
  Pass(std::chrono::minutes(22), {a.get()}, milliseconds(500));
  ASSERT_EQ(log_.Records(t0_).size(), 1u);  // the younger one
  EXPECT_EQ(log_.Records(t0_).front().offset, 10);
}

TEST_F(ShardTest, TrimmingLeavesWhatIsHeld) {
  options_.trim_safety = milliseconds(1);
  int64_t held = 3;
  options_.trim_limit = [&](const TopicPartition& tp) {
    return tp == t0_ ? absl::optional<int64_t>(held) : absl::nullopt;
  };
  Write(t0_, 10);
  Write(t1_, 10);
  auto a = Join();
  a->on_create = [](ScriptedFunction& function, const TopicPartition&) {
    function.on_element = [&function](TaskContext&, const LogRecord& record) {
      function.Complete(record.offset);
    };
  };
  Pass(std::chrono::minutes(3), {a.get()}, milliseconds(500));
  EXPECT_EQ(log_.Records(t0_).size(), 7u);
  EXPECT_EQ(log_.Records(t1_).size(), 0u);
  held = 20;
  Pass(std::chrono::minutes(2), {a.get()}, milliseconds(500));
  EXPECT_EQ(log_.Records(t0_).size(), 0u);
}

TEST_F(ShardTest, BusyPressuredAndIdleTimeAddUpToOne) {
  options_.pending_records_max = 10;
  auto a = Join();
  const auto sum = [&a] {
    return a->Metric("postrider_stream_busy_ratio") + a->Metric("postrider_stream_idle_ratio") +
           a->Metric("postrider_stream_pressured_ratio");
  };
  Pass(seconds(2), {a.get()});
  EXPECT_NEAR(sum(), 1, 1e-9);
  EXPECT_EQ(a->Metric("postrider_stream_pressured_ratio"), 0);
  Write(t0_, 20);
  Pass(seconds(3), {a.get()});
  EXPECT_NEAR(sum(), 1, 1e-9);
  EXPECT_GT(a->Metric("postrider_stream_pressured_ratio"), 0);
  EXPECT_NEAR(a->Metric("postrider_stream_idle_ratio"), 0, 1e-9);
}

// ---- Stop ----

TEST_F(ShardTest, StopDrainsCommitsAndLeaves) {
  Write(t0_, 2);
  auto a = Join();
  Settle({a.get()});
  a->Take(t0_);
  a->At(t0_).flights = 1;
  a->At(t0_).Complete(0);
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Write(t0_, 1);
  Pass(seconds(10), {a.get()}, milliseconds(50));
  EXPECT_FALSE(done);
  EXPECT_TRUE(a->At(t0_).ctx().MayAct());
  EXPECT_THAT(a->Take(t0_), ElementsAre("shutdown"));
  a->At(t0_).Complete(1);
  a->At(t0_).flights = 0;
  Pass(milliseconds(500), {a.get()});
  EXPECT_TRUE(done);
  EXPECT_EQ(Committed(t0_), 2);
  EXPECT_THAT(log_.Members("g"), IsEmpty());
  EXPECT_THAT(a->Take(t0_), ElementsAre("close"));
}

TEST_F(ShardTest, StopWaitsNoLongerThanItsBound) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).flights = 1;
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(milliseconds(19'999), {a.get()}, milliseconds(1));
  EXPECT_FALSE(done);
  Pass(milliseconds(100), {a.get()});
  EXPECT_TRUE(done);
  EXPECT_EQ(Committed(t0_), 0);
}

TEST_F(ShardTest, StopEndsWhileTheLogIsUnreachable) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).Complete(0);
  log_.SetReachable(false);
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(seconds(7), {a.get()});
  EXPECT_TRUE(done);
}

TEST_F(ShardTest, StopBeforeTheFirstAssignmentLeavesAtOnce) {
  log_.SetReachable(false);
  auto a = Join();
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  log_.SetReachable(true);
  Settle({a.get()});
  EXPECT_TRUE(done);
  EXPECT_THAT(log_.Members("g"), IsEmpty());
}

TEST_F(ShardTest, StopDuringARebalanceLeavesAfterGivingBack) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).flights = 1;
  auto b = Join();
  Settle({a.get(), b.get()});
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  Pass(seconds(1), {a.get(), b.get()});
  EXPECT_TRUE(done);
  EXPECT_TRUE(b->Has(t0_));
  EXPECT_TRUE(b->Has(t1_));
}

TEST_F(ShardTest, RevokeDuringAStopGivesBackSoon) {
  Write(t0_, 1);
  auto a = Join();
  Settle({a.get()});
  a->At(t0_).flights = 1;
  bool done = false;
  a->shard->Stop([&done] { done = true; });
  auto b = Join();
  Pass(seconds(3), {a.get(), b.get()});
  EXPECT_TRUE(done);
  EXPECT_TRUE(b->Has(t0_));
}

// ---- Status ----

// Says that partitions end later than they do, as when fetching stands still.
class LateEndLog final : public ForwardingLog {
 public:
  using ForwardingLog::ForwardingLog;
  void Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
            absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) override {
    ForwardingLog::Ends(
        loop, std::move(partitions),
        [more = more, done = std::move(done)](std::vector<absl::optional<int64_t>> ends) mutable {
          for (absl::optional<int64_t>& end : ends) *end += more;
          std::move(done)(std::move(ends));
        });
  }
  int64_t more = 0;
};

TEST_F(ShardTest, TellsHowFarItIsBehindAndThatNothingIsRead) {
  LateEndLog log(log_);
  ShardMember member(log, clock_, options_, 1);
  Write(t0_, 3);
  Pass(seconds(60), {&member}, milliseconds(100));
  EXPECT_EQ(member.Metric("postrider_stream_lag_records"), 0);
  EXPECT_EQ(member.Metric("postrider_stream_partitions_standing_still"), 0);
  log.more = 4;
  Pass(seconds(20), {&member}, milliseconds(100));
  EXPECT_EQ(member.Metric("postrider_stream_lag_records"), 8);
  EXPECT_EQ(member.shard->status().lag_records, 8);
  EXPECT_EQ(member.shard->status().standing_still, 0);
  Pass(seconds(20), {&member}, milliseconds(100));
  EXPECT_EQ(member.Metric("postrider_stream_partitions_standing_still"), 2);
  EXPECT_EQ(member.shard->status().standing_still, 2);
}

TEST_F(ShardTest, FullShardIsBehindButDoesNotStandStill) {
  options_.pending_records_max = 8;
  auto a = Join();
  Write(t0_, 100);
  Pass(seconds(120), {a.get()}, milliseconds(100));
  EXPECT_GT(a->Metric("postrider_stream_lag_records"), 80);
  EXPECT_EQ(a->Metric("postrider_stream_partitions_standing_still"), 0);
  EXPECT_THAT(AtWork(a->shard->status(), clock_.Now()), IsOk());
}

TEST_F(ShardTest, AgeOfTheCommitIsThatOfThePartitionThatWaitsLongest) {
  CommitRefusingLog log(log_);
  ShardMember member(log, clock_, options_, 1);
  Write(t0_, 1);
  Write(t1_, 1);
  Pass(seconds(3), {&member});
  EXPECT_LE(member.Metric("postrider_stream_commit_age_seconds"), 1);
  log.refused = t1_;
  Pass(seconds(20), {&member});
  EXPECT_LE(member.Metric("postrider_stream_commit_age_seconds"), 2)
      << "nothing is to be committed";
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()), IsOk());
  member.At(t1_).CompleteAll();
  Pass(seconds(9), {&member});
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()), IsOk());
  Pass(seconds(3), {&member});
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no commit")))
      << "though those of the other partition are";
  EXPECT_GT(member.Metric("postrider_stream_commit_age_seconds"), 10);
  log.refused = absl::nullopt;
  Pass(seconds(2), {&member});
  EXPECT_THAT(AtWork(member.shard->status(), clock_.Now()), IsOk());
  EXPECT_LE(member.Metric("postrider_stream_commit_age_seconds"), 1);
}

TEST_F(ShardTest, SaysWhatItHolds) {
  Write(t0_, 3);
  auto a = Join();
  EXPECT_EQ(a->shard->status().shards_assigned, 0);
  Settle({a.get()});
  a->At(t0_).Complete(1);
  EXPECT_EQ(a->shard->status().shards_assigned, 1);
  EXPECT_EQ(a->shard->status().tasks_running, 2);
  Pass(seconds(2), {a.get()}, milliseconds(50));
  EXPECT_EQ(a->Metric("postrider_stream_tasks", ",state=\"running\""), 2);
  EXPECT_EQ(a->Metric("postrider_stream_pending_records"), 2);
  EXPECT_EQ(a->Metric("postrider_stream_pending_bytes"), 22);
  EXPECT_EQ(a->Metric("postrider_stream_holes"), 1);
  EXPECT_EQ(a->Metric("postrider_stream_records_read_total"), 3);
  EXPECT_GE(a->Metric("postrider_stream_watermark_age_seconds"), 1.0);
  EXPECT_LE(a->Metric("postrider_stream_watermark_age_seconds"), 2.0);
  EXPECT_GT(a->turns, 0);
}

}  // namespace
}  // namespace postrider
