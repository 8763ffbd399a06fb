#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "core/stream/changelog.h"
#include "core/stream/state_key.h"
#include "delivery/backlog_state.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::seconds;

// Batches and attempts whose last entry was removed when their owner ended.
class BacklogOrphansTest : public DeliveryFixture {
 protected:
  BacklogOrphansTest() {
    settings_.mode = subscriptions::EndpointMode::kBatch;
    settings_.batch.events_max = 3;
    settings_.retry.first_delay = seconds(2);
    settings_.retry.cap = seconds(2);
  }
  // The records of one state in what this life has written.
  size_t Written(uint16_t state, ChangelogKind kind) {
    const ScriptedChangelog& changelog = ctx().changelog(kBacklogChangelog);
    size_t count = 0;
    for (size_t i = 0; i < changelog.log.size(); ++i) {
      const ChangelogRecord record = changelog.Record(i);
      if (record.kind == kind && absl::StartsWith(record.identity, StatePrefix(state))) ++count;
    }
    return count;
  }
  // Three messages fail as a batch; it is delivered, but the owner ends when only the removals of
  // the entries are durable.
  void LeaveOrphans() {
    Publish();
    Start();
    Deliver(1, 3);
    Turn();
    sink_->AnswerStatus(0, 500);
    Settle();
    ASSERT_EQ(Written(kBatchesState, ChangelogKind::kPut), 1u);
    ASSERT_EQ(Written(kAttemptsState, ChangelogKind::kPut), 1u);
    Advance(seconds(2));
    ASSERT_EQ(sink_->size(), 2u);
    sink_->AnswerStatus(1, 200);
    ScriptedChangelog& changelog = ctx().changelog(kBacklogChangelog);
    for (int i = 0; i < 3; ++i) changelog.Answer(0);
    ASSERT_GT(changelog.waiting(), 0u);
  }
};

TEST_F(BacklogOrphansTest, AreRemovedOnceTheBacklogIsRestored) {
  LeaveOrphans();
  NextLife();
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(Written(kBatchesState, ChangelogKind::kClear), 1u);
  EXPECT_EQ(Written(kAttemptsState, ChangelogKind::kClear), 1u);
  Settle();
  NextLife();
  EXPECT_EQ(Written(kBatchesState, ChangelogKind::kClear), 0u) << "it is gone";
}

TEST_F(BacklogOrphansTest, WaitForRoomAndAreRemovedThen) {
  LeaveOrphans();
  BeginNextLife();
  ctx().changelog(kBacklogChangelog).room = 0;
  RestoreBacklog();
  EXPECT_EQ(Written(kBatchesState, ChangelogKind::kClear), 0u);
  ctx().changelog(kBacklogChangelog).room = 100;
  function_->OnRoom(ctx());
  Advance(seconds(1));
  EXPECT_EQ(Written(kBatchesState, ChangelogKind::kClear), 1u);
  EXPECT_EQ(Written(kAttemptsState, ChangelogKind::kClear), 1u);
}

TEST_F(BacklogOrphansTest, LeaveTheBatchesOfEntriesAlone) {
  Publish();
  Start();
  Deliver(1, 3);
  Turn();
  sink_->AnswerStatus(0, 500);
  Settle();
  NextLife();
  EXPECT_EQ(Written(kBatchesState, ChangelogKind::kClear), 0u);
  EXPECT_EQ(Written(kAttemptsState, ChangelogKind::kClear), 0u);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
}

}  // namespace
}  // namespace postrider::delivery
