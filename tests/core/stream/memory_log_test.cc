#include "tests/fakes/memory_log.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// A member that takes everything it is given at once.
class Reader final : public GroupHandler {
 public:
  Reader(MemoryLog& log, EventLoop& loop, const GroupOptions& options) {
    auto joined = log.JoinGroup(loop, options, *this);
    POSTRIDER_CHECK(joined.ok());
    consumer_ = *std::move(joined);
  }
  void OnAssigned(Assignment assignment) override {
    last_ = std::move(assignment);
    std::vector<StartPosition> positions;
    for (const AssignedPartition& partition : last_.partitions) {
      seen_.push_back(absl::StrCat("assigned ", partition.tp.ToString()));
      const bool committed = partition.committed.has_value();
      positions.push_back({partition.tp,
                           committed ? StartPosition::At::kOffset : StartPosition::At::kLogStart,
                           committed ? partition.committed->offset : 0});
    }
    consumer_->Start(std::move(positions));
  }
  void OnRevoked() override {
    seen_.push_back("revoked");
    if (releases_) consumer_->Release();
  }
  void OnLost() override {
    seen_.push_back("lost");
    consumer_->Release();
  }
  void OnRecord(const LogRecord& record) override { seen_.push_back(std::string(record.value)); }
  void OnPartitionEnd(const TopicPartition&, int64_t next) override {
    seen_.push_back(absl::StrCat("end ", next));
  }
  void OnOutOfRange(const TopicPartition& tp, int64_t log_start) override {
    seen_.push_back(absl::StrCat("out of range ", log_start));
    consumer_->Restart(tp, log_start);
  }
  void OnReachable(bool reachable) override {
    seen_.push_back(reachable ? "reachable" : "unreachable");
  }

  std::vector<std::string> Take() { return std::exchange(seen_, {}); }
  // What a poll brought.
  std::vector<std::string> Poll(size_t records_max = 1'000) {
    consumer_->Poll(records_max);
    return Take();
  }
  absl::Status Commit(const TopicPartition& tp, int64_t offset, const std::string& metadata = "") {
    absl::Status answer = absl::UnknownError("no answer");
    consumer_->Commit({{tp, {offset, metadata}}},
                      [&answer](std::vector<absl::Status> all) { answer = all.front(); });
    consumer_->Poll(0);
    return answer;
  }
  std::unique_ptr<GroupConsumer> consumer_;
  Assignment last_;
  bool releases_ = true;

 private:
  std::vector<std::string> seen_;
};

class MemoryLogTest : public ::testing::Test {
 protected:
  MemoryLogTest() {
    loop_ = *EventLoop::Create(clock_);
    log_.MakeTopic("t", 2);
    options_.group = "g";
    options_.topics = {"t"};
  }
  ManualClock clock_;
  std::unique_ptr<EventLoop> loop_;
  MemoryLog log_{clock_};
  GroupOptions options_;
  const TopicPartition t0_{"t", 0};
  const TopicPartition t1_{"t", 1};
};

TEST_F(MemoryLogTest, GivesRecordsInOrderThenTheEnd) {
  log_.Write(t0_, "k", "a");
  log_.Write(t0_, "k", "b");
  Reader reader(log_, *loop_, options_);
  EXPECT_THAT(reader.Poll(),
              ElementsAre("assigned t/0", "assigned t/1", "a", "b", "end 2", "end 0"));
  log_.Write(t1_, "k", "c");
  EXPECT_THAT(reader.Poll(), ElementsAre("c", "end 1"));
  EXPECT_THAT(reader.Poll(), ElementsAre());
}

TEST_F(MemoryLogTest, PollTakesNoMoreThanAsked) {
  for (int i = 0; i < 3; ++i) log_.Write(t0_, "k", absl::StrCat(i));
  Reader reader(log_, *loop_, options_);
  EXPECT_THAT(reader.Poll(0), ElementsAre("assigned t/0", "assigned t/1", "end 0"));
  EXPECT_THAT(reader.Poll(2), ElementsAre("0", "1"));
  EXPECT_THAT(reader.Poll(2), ElementsAre("2", "end 3"));
}

TEST_F(MemoryLogTest, SecondMemberTakesHalfAfterTheFirstReleased) {
  Reader first(log_, *loop_, options_);
  first.Poll();
  EXPECT_TRUE(first.Commit(t1_, 7, "meta").ok());
  Reader second(log_, *loop_, options_);
  EXPECT_THAT(second.Poll(), ElementsAre());
  EXPECT_THAT(first.Poll(), ElementsAre("revoked", "assigned t/0", "end 0"));
  second.consumer_->Poll(0);
  ASSERT_EQ(second.last_.partitions.size(), 1u);
  EXPECT_EQ(second.last_.partitions[0].tp, t1_);
  EXPECT_EQ(second.last_.partitions[0].committed, (CommittedPosition{7, "meta"}));
  EXPECT_TRUE(second.last_.group_has_commits);
}

TEST_F(MemoryLogTest, CrashedMemberHoldsTheGroupUntilItsSessionEnds) {
  auto first = std::make_unique<Reader>(log_, *loop_, options_);
  first->Poll();
  first.reset();
  Reader second(log_, *loop_, options_);
  clock_.Advance(milliseconds(5'999));
  EXPECT_THAT(second.Poll(), ElementsAre());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(second.Poll(), ElementsAre("assigned t/0", "assigned t/1", "end 0", "end 0"));
}

TEST_F(MemoryLogTest, CommitsOfAnExpiredMemberAreFenced) {
  Reader first(log_, *loop_, options_);
  first.Poll();
  log_.Isolate("g", log_.Members("g").front(), true);
  Reader second(log_, *loop_, options_);
  clock_.Advance(seconds(6));
  second.Poll();
  EXPECT_EQ(second.last_.partitions.size(), 2u);
  absl::Status answer;
  first.consumer_->Commit({{t0_, {3, ""}}},
                          [&answer](std::vector<absl::Status> all) { answer = all.front(); });
  EXPECT_THAT(first.Poll(), ElementsAre());
  EXPECT_TRUE(second.Commit(t0_, 1).ok());
  log_.Isolate("g", 1, false);
  EXPECT_THAT(first.Poll(), ElementsAre("lost"));
  EXPECT_TRUE(absl::IsAborted(answer));
  EXPECT_EQ(log_.Committed("g", t0_)->offset, 1);
}

TEST_F(MemoryLogTest, CommitsCountWhileTheGroupWaitsForTheRelease) {
  for (int i = 0; i < 5; ++i) log_.Write(t0_, "k", "v");
  Reader first(log_, *loop_, options_);
  first.releases_ = false;
  first.Poll();
  Reader second(log_, *loop_, options_);
  EXPECT_THAT(first.Poll(), ElementsAre("revoked"));
  EXPECT_TRUE(first.Commit(t0_, 5).ok());
  first.consumer_->Release();
  EXPECT_THAT(first.Poll(), ElementsAre("assigned t/0", "end 5"));
}

TEST_F(MemoryLogTest, HeldCommitIsStoredAndTheLeaseCountsFromItsIssue) {
  Reader reader(log_, *loop_, options_);
  reader.Poll();
  log_.SetCommitFault(MemoryLog::CommitFault::kHold);
  const MonotonicTime issued = clock_.Now();
  absl::optional<absl::Status> answer;
  reader.consumer_->Commit({{t0_, {4, ""}}},
                           [&answer](std::vector<absl::Status> all) { answer = all.front(); });
  reader.Poll();
  EXPECT_FALSE(answer.has_value());
  EXPECT_EQ(log_.Committed("g", t0_)->offset, 4);
  clock_.Advance(seconds(2));
  log_.SetCommitFault(MemoryLog::CommitFault::kNone);
  EXPECT_EQ(reader.consumer_->LeaseUntil(), MonotonicTime::min());
  reader.Poll();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok());
  EXPECT_EQ(reader.consumer_->LeaseUntil(), issued + seconds(5));
}

TEST_F(MemoryLogTest, RefusedCommitsAreNotStoredAndLostAnswersAre) {
  Reader reader(log_, *loop_, options_);
  reader.Poll();
  log_.SetCommitFault(MemoryLog::CommitFault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(reader.Commit(t0_, 4)));
  EXPECT_FALSE(log_.Committed("g", t0_).has_value());
  log_.SetCommitFault(MemoryLog::CommitFault::kLoseAnswer);
  EXPECT_TRUE(absl::IsUnavailable(reader.Commit(t0_, 4)));
  EXPECT_EQ(log_.Committed("g", t0_)->offset, 4);
}

TEST_F(MemoryLogTest, TellsWhenThePositionWasTrimmedAway) {
  for (int i = 0; i < 3; ++i) log_.Write(t0_, "k", absl::StrCat(i));
  log_.SetCommitted("g", t0_, {0, ""});
  log_.TrimNow(t0_, 2);
  Reader reader(log_, *loop_, options_);
  EXPECT_THAT(reader.Poll(),
              ElementsAre("assigned t/0", "assigned t/1", "out of range 2", "2", "end 3", "end 0"));
}

TEST_F(MemoryLogTest, GapsArePassedOver) {
  log_.Write(t0_, "k", "a");
  log_.SkipOffsets(t0_, 3);
  EXPECT_EQ(log_.Write(t0_, "k", "b"), 4);
  log_.SkipOffsets(t0_, 2);
  Reader reader(log_, *loop_, options_);
  EXPECT_THAT(reader.Poll(),
              ElementsAre("assigned t/0", "assigned t/1", "a", "b", "end 7", "end 0"));
}

// Reads partitions of its choice.
class Reads final : public ReadHandler {
 public:
  Reads(MemoryLog& log, EventLoop& loop) : reader_(*log.OpenReader(loop, ReaderOptions(), *this)) {}
  void OnRecord(const LogRecord& record) override {
    seen_.push_back(record.value.data() == nullptr
                        ? absl::StrCat("-", std::string(record.key))
                        : absl::StrCat(std::string(record.key), "=", std::string(record.value)));
  }
  void OnPartitionEnd(const TopicPartition&, int64_t next) override {
    seen_.push_back(absl::StrCat("end ", next));
  }
  std::vector<std::string> Poll(size_t records_max = 1'000) {
    reader_->Poll(records_max);
    return std::exchange(seen_, {});
  }
  PartitionReader& reader() { return *reader_; }

 private:
  std::vector<std::string> seen_;
  std::unique_ptr<PartitionReader> reader_;
};

TEST_F(MemoryLogTest, CompactionKeepsTheLastOfEachKeyAndDropsTombstonesOnDemand) {
  log_.Write(t0_, "a", "1");
  log_.Write(t0_, "b", "1");
  log_.Write(t0_, "a", "2");
  log_.WriteTombstone(t0_, "b");
  log_.Compact(t0_);
  Reads reads(log_, *loop_);
  reads.reader().Add({t0_, StartPosition::At::kLogStart, 0});
  EXPECT_THAT(reads.Poll(), ElementsAre("a=2", "-b", "end 4"));
  log_.Compact(t0_, MemoryLog::Tombstones::kDrop);
  reads.reader().Add({t0_, StartPosition::At::kOffset, 1});
  EXPECT_THAT(reads.Poll(), ElementsAre("a=2", "end 4"));
  EXPECT_EQ(log_.Write(t0_, "c", ""), 4);
  EXPECT_THAT(reads.Poll(), ElementsAre("c=", "end 5"));
}

TEST_F(MemoryLogTest, ReaderWaitsForTheLogAndForAMissingPartition) {
  Reads reads(log_, *loop_);
  log_.Write(t0_, "a", "1");
  log_.SetReachable(false);
  reads.reader().Add({t0_, StartPosition::At::kLogStart, 0});
  reads.reader().Add({{"later", 0}, StartPosition::At::kLogStart, 0});
  EXPECT_THAT(reads.Poll(), ElementsAre());
  log_.SetReachable(true);
  EXPECT_THAT(reads.Poll(), ElementsAre("a=1", "end 1"));
  log_.MakeTopic("later", 1);
  EXPECT_THAT(reads.Poll(), ElementsAre("end 0"));
}

TEST_F(MemoryLogTest, LeavingGivesBackFirst) {
  Reader first(log_, *loop_, options_);
  Reader second(log_, *loop_, options_);
  first.Poll();
  second.Poll();
  bool left = false;
  first.consumer_->Leave([&left] { left = true; });
  EXPECT_THAT(first.Poll(), ElementsAre("revoked"));
  EXPECT_TRUE(left);
  EXPECT_THAT(second.Poll(),
              ElementsAre("revoked", "assigned t/0", "assigned t/1", "end 0", "end 0"));
}

TEST_F(MemoryLogTest, PatternFindsNewTopicsAndSkipsExcludedOnes) {
  options_.topics = {"^t.*"};
  options_.excluded_prefixes = {"tx"};
  Reader reader(log_, *loop_, options_);
  EXPECT_THAT(reader.Poll(), ElementsAre("assigned t/0", "assigned t/1", "end 0", "end 0"));
  log_.MakeTopic("tx1", 1);
  log_.MakeTopic("u", 1);
  EXPECT_THAT(reader.Poll(), ElementsAre());
  log_.MakeTopic("t2", 1);
  EXPECT_THAT(reader.Poll(), ElementsAre("revoked", "assigned t/0", "assigned t/1", "assigned t2/0",
                                         "end 0", "end 0", "end 0"));
}

TEST_F(MemoryLogTest, RoundRobinSpreadsTopicsOfOnePartition) {
  for (int i = 0; i < 4; ++i) log_.MakeTopic(absl::StrCat("s", i), 1);
  options_.topics = {"^s.*"};
  options_.strategy = AssignmentStrategy::kRoundRobin;
  Reader first(log_, *loop_, options_);
  Reader second(log_, *loop_, options_);
  first.Poll();
  second.Poll();
  EXPECT_EQ(first.last_.partitions.size(), 2u);
  EXPECT_EQ(second.last_.partitions.size(), 2u);
}

TEST_F(MemoryLogTest, AppendsAreAnsweredInOrderFromTheLoop) {
  auto producer = *log_.OpenProducer(*loop_, ProducerOptions());
  std::vector<int64_t> offsets;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(producer->Append(
        {"t", 0, "k", "v", {}},
        [&offsets](absl::StatusOr<int64_t> offset) { offsets.push_back(offset.value_or(-1)); }));
  }
  EXPECT_THAT(offsets, ElementsAre());
  loop_->RunOnce(Duration::zero());
  EXPECT_THAT(offsets, ElementsAre(0, 1, 2));
  EXPECT_EQ(log_.Records(t0_).size(), 3u);
}

TEST_F(MemoryLogTest, AppendRefusesWhenFullAndTellsWhenThereIsRoom) {
  ProducerOptions options;
  options.queue_records_max = 2;
  auto producer = *log_.OpenProducer(*loop_, options);
  int answered = 0;
  int room = 0;
  producer->SetRoomCallback([&room] { ++room; });
  const auto append = [&] {
    return producer->Append({"t", 0, "k", "v", {}}, [&](absl::StatusOr<int64_t>) { ++answered; });
  };
  log_.HoldAppends(true);
  EXPECT_TRUE(append());
  EXPECT_TRUE(append());
  EXPECT_FALSE(append());
  loop_->RunOnce(Duration::zero());
  EXPECT_EQ(answered, 0);
  EXPECT_EQ(log_.Records(t0_).size(), 2u);
  log_.HoldAppends(false);
  loop_->RunOnce(Duration::zero());
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(room, 1);
}

TEST_F(MemoryLogTest, AppendsWaitForAnUnreachableLog) {
  auto producer = *log_.OpenProducer(*loop_, ProducerOptions());
  log_.SetReachable(false);
  absl::StatusOr<int64_t> answer = -1;
  int answers = 0;
  ASSERT_TRUE(producer->Append({"t", 0, "k", "v", {}}, [&](absl::StatusOr<int64_t> offset) {
    answer = std::move(offset);
    ++answers;
  }));
  loop_->RunOnce(Duration::zero());
  EXPECT_EQ(answers, 0);
  EXPECT_TRUE(log_.Records(t0_).empty());
  log_.SetReachable(true);
  loop_->RunOnce(Duration::zero());
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(answer.value_or(-1), 0);
}

TEST_F(MemoryLogTest, ClosingAProducerAbortsWhatWaits) {
  auto producer = *log_.OpenProducer(*loop_, ProducerOptions());
  absl::Status answer;
  ASSERT_TRUE(producer->Append({"t", 0, "k", "v", {}},
                               [&](absl::StatusOr<int64_t> offset) { answer = offset.status(); }));
  producer.reset();
  EXPECT_TRUE(absl::IsAborted(answer));
}

TEST_F(MemoryLogTest, AppendToAMissingPartitionIsAnsweredNotFound) {
  auto producer = *log_.OpenProducer(*loop_, ProducerOptions());
  absl::Status answer;
  ASSERT_TRUE(producer->Append({"t", 2, "k", "v", {}},
                               [&](absl::StatusOr<int64_t> offset) { answer = offset.status(); }));
  loop_->RunOnce(Duration::zero());
  EXPECT_TRUE(absl::IsNotFound(answer));
}

TEST_F(MemoryLogTest, AMemberThatDoesNotPollIsDropped) {
  Reader first(log_, *loop_, options_);
  first.Poll();
  clock_.Advance(milliseconds(9'999));
  Reader second(log_, *loop_, options_);
  EXPECT_THAT(second.Poll(), ElementsAre());
  clock_.Advance(milliseconds(1));
  second.Poll();
  EXPECT_EQ(second.last_.partitions.size(), 2u);
  EXPECT_THAT(first.Poll(), ElementsAre("lost"));
}

}  // namespace
}  // namespace postrider
