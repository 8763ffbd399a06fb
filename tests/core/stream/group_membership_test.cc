#include "core/stream/group_membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/stream/group_coordinator.h"
#include "tests/fakes/manual_clock.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using Kind = GroupMembership::Event::Kind;

class GroupMembershipTest : public testing::Test {
 protected:
  GroupMembershipTest() { options_.group = "g"; }

  std::unique_ptr<GroupMembership> Join(int* wakes = nullptr) {
    return std::make_unique<GroupMembership>(coordinator_, options_, [wakes] {
      if (wakes != nullptr) ++*wakes;
    });
  }
  static std::vector<int32_t> PartitionsOf(const GroupMembership::Event& event) {
    std::vector<int32_t> partitions;
    for (const AssignedPartition& one : event.assignment.partitions) {
      partitions.push_back(one.tp.partition);
    }
    return partitions;
  }
  // What it is given, after it has given back what it had.
  static std::vector<int32_t> TakeNext(GroupMembership& member) {
    GroupMembership::Event event = member.Next();
    if (event.kind == Kind::kRevoked) {
      member.Release();
      member.Rejoin();
      event = member.Next();
    }
    return PartitionsOf(event);
  }

  ManualClock clock_;
  GroupCoordinator coordinator_{clock_};
  GroupOptions options_;
  const std::string topic_ = "t";
};

TEST_F(GroupMembershipTest, GivesTheOnlyMemberEverythingWithWhatWasCommitted) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 2);
  coordinator_.group("g").committed[{topic_, 1}] = {7, "m"};
  const auto member = Join();
  const GroupMembership::Event event = member->Next();
  ASSERT_EQ(event.kind, Kind::kAssigned);
  EXPECT_EQ(PartitionsOf(event), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(event.assignment.group_has_commits);
  EXPECT_FALSE(event.assignment.partitions[0].committed.has_value());
  ASSERT_TRUE(event.assignment.partitions[1].committed.has_value());
  EXPECT_EQ(event.assignment.partitions[1].committed->offset, 7);
  EXPECT_TRUE(member->has({topic_, 1}));
  EXPECT_FALSE(member->has({topic_, 2}));
  EXPECT_EQ(member->Next().kind, Kind::kNone);
}

TEST_F(GroupMembershipTest, GivesNobodyAnythingBeforeAllHaveReleased) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 4);
  int wakes = 0;
  const auto first = Join(&wakes);
  ASSERT_EQ(first->Next().kind, Kind::kAssigned);
  const int before = wakes;
  const auto second = Join();
  EXPECT_GT(wakes, before);
  EXPECT_EQ(second->Next().kind, Kind::kNone);
  ASSERT_EQ(first->Next().kind, Kind::kRevoked);
  EXPECT_FALSE(first->fenced());  // it may still commit
  EXPECT_TRUE(first->has({topic_, 3}));
  EXPECT_EQ(second->Next().kind, Kind::kNone);
  first->Release();
  first->Rejoin();
  EXPECT_EQ(PartitionsOf(first->Next()), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(PartitionsOf(second->Next()), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(first->generation(), second->generation());
}

TEST_F(GroupMembershipTest, FencesAMemberThatHasMissedAGeneration) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 2);
  const auto stuck = Join();
  ASSERT_EQ(stuck->Next().kind, Kind::kAssigned);
  const auto other = Join();
  clock_.Advance(options_.poll_interval_max - milliseconds(1));
  other->Polled();
  coordinator_.Expire("g");
  EXPECT_EQ(other->Next().kind, Kind::kNone);
  EXPECT_FALSE(stuck->fenced());
  clock_.Advance(milliseconds(1));
  coordinator_.Expire("g");
  EXPECT_EQ(PartitionsOf(other->Next()), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(stuck->fenced());
  ASSERT_EQ(stuck->Next().kind, Kind::kLost);
  stuck->Release();
  EXPECT_EQ(stuck->Next().kind, Kind::kNone);  // it has joined anew
  EXPECT_EQ(TakeNext(*other), (std::vector<int32_t>{0}));
  EXPECT_EQ(TakeNext(*stuck), (std::vector<int32_t>{1}));
}

TEST_F(GroupMembershipTest, DropsAMemberThatPollsButDoesNotRelease) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 2);
  const auto holds = Join();
  ASSERT_EQ(holds->Next().kind, Kind::kAssigned);
  const auto other = Join();
  ASSERT_EQ(holds->Next().kind, Kind::kRevoked);
  clock_.Advance(options_.poll_interval_max);
  holds->Polled();
  other->Polled();
  coordinator_.ExpireAll();
  EXPECT_EQ(PartitionsOf(other->Next()), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(holds->fenced());
}

TEST_F(GroupMembershipTest, GivesAMemberWithoutHeartbeatsItsSessionsTime) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 1);
  const auto silent = Join();
  ASSERT_EQ(silent->Next().kind, Kind::kAssigned);
  coordinator_.FindMember("g", silent->id())->silent_since = clock_.Now();
  clock_.Advance(options_.session_timeout - milliseconds(1));
  coordinator_.Expire("g");
  EXPECT_FALSE(silent->fenced());
  coordinator_.RestartTimes();
  clock_.Advance(options_.session_timeout - milliseconds(1));
  coordinator_.Expire("g");
  EXPECT_FALSE(silent->fenced());
  clock_.Advance(milliseconds(1));
  coordinator_.Expire("g");
  EXPECT_TRUE(silent->fenced());
}

TEST_F(GroupMembershipTest, DealsOutPartitionsOfManyTopicsInTurn) {
  options_.topics = {"^t.*"};
  options_.strategy = AssignmentStrategy::kRoundRobin;
  coordinator_.AddTopic("t1", 1);
  coordinator_.AddTopic("t2", 1);
  coordinator_.AddTopic("t3", 1);
  const auto first = Join();
  const auto second = Join();
  EXPECT_EQ(TakeNext(*first).size(), 2u);
  EXPECT_EQ(TakeNext(*second).size(), 1u);
}

TEST_F(GroupMembershipTest, TellsOfATopicThatComesAndOfOneThatGoes) {
  options_.topics = {"^t.*"};
  const auto member = Join();
  EXPECT_EQ(member->Next().kind, Kind::kNothingMatches);
  coordinator_.AddTopic("other", 1);
  EXPECT_EQ(member->Next().kind, Kind::kNone);
  coordinator_.AddTopic(topic_, 1);
  EXPECT_EQ(PartitionsOf(member->Next()), (std::vector<int32_t>{0}));
  coordinator_.group("g").committed[{topic_, 0}] = {1, ""};
  EXPECT_EQ(coordinator_.PositionsOf(topic_).size(), 1u);
  coordinator_.RemoveTopic(topic_);
  ASSERT_EQ(member->Next().kind, Kind::kRevoked);
  member->Release();
  EXPECT_EQ(member->Next().kind, Kind::kNothingMatches);
  EXPECT_TRUE(coordinator_.PositionsOf(topic_).empty());
}

TEST_F(GroupMembershipTest, GivesBackWhatItHasBeforeItLeaves) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 1);
  const auto leaver = Join();
  ASSERT_EQ(leaver->Next().kind, Kind::kAssigned);
  const auto heir = Join();
  bool left = false;
  leaver->Leave([&left] { left = true; });
  ASSERT_EQ(leaver->Next().kind, Kind::kRevoked);
  EXPECT_EQ(leaver->Next().kind, Kind::kNone);
  leaver->Release();
  leaver->Rejoin();
  EXPECT_EQ(heir->Next().kind, Kind::kNone);
  GroupMembership::Event event = leaver->Next();
  ASSERT_EQ(event.kind, Kind::kLeft);
  std::move(event.left)();
  EXPECT_TRUE(left);
  EXPECT_EQ(PartitionsOf(heir->Next()), (std::vector<int32_t>{0}));
  EXPECT_EQ(leaver->Next().kind, Kind::kNone);
}

TEST_F(GroupMembershipTest, GoesAtOnceWhenItIsDropped) {
  options_.topics = {topic_};
  coordinator_.AddTopic(topic_, 1);
  const auto dropped = Join();
  ASSERT_EQ(dropped->Next().kind, Kind::kAssigned);
  const auto heir = Join();
  dropped->Drop();
  EXPECT_EQ(PartitionsOf(heir->Next()), (std::vector<int32_t>{0}));
  EXPECT_EQ(coordinator_.Names(), (std::vector<std::string>{"g"}));
}

}  // namespace
}  // namespace postrider
