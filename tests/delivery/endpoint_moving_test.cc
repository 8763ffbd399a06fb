#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/stream/changelog.h"
#include "core/stream/state_key.h"
#include "delivery/backlog_state.h"
#include "delivery/outcome.h"
#include "delivery/parked_header.h"
#include "tests/delivery/delivery_fixture.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::EndpointMode;
using testing::ElementsAre;
using testing::IsEmpty;

ParkedHeader OfBatch(uint32_t index, uint32_t count) {
  ParkedHeader header;
  header.batch.emplace();
  header.batch->key = Bytes(9);
  header.batch->index = index;
  header.batch->count = count;
  header.batch->attempts.attempts = 2;
  header.batch->attempts.tries = 3;
  header.batch->attempts.first_try = WallTimeFromMillis(1'899'999'990'000);
  header.batch->attempts.due = WallTimeFromMillis(1'900'000'005'000);
  header.batch->attempts.last_outcome = static_cast<uint32_t>(OutcomeKind::kOtherStatus);
  header.batch->attempts.last_status = 500;
  return header;
}

TEST(ParkedHeader, GivesBackWhatWasWritten) {
  EXPECT_THAT(DecodeParkedHeader(EncodeParkedHeader({})), tests::IsOkAndHolds(ParkedHeader()));
  const ParkedHeader header = OfBatch(4'999, 5'000);
  EXPECT_THAT(DecodeParkedHeader(EncodeParkedHeader(header)), tests::IsOkAndHolds(header));
}

TEST(ParkedHeader, TellsANewerVersionFromDamage) {
  std::string bytes = EncodeParkedHeader(OfBatch(1, 2));
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(DecodeParkedHeader(bytes.substr(0, i)),
                tests::StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(DecodeParkedHeader(bytes + "x"), tests::StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeParkedHeader(EncodeParkedHeader(OfBatch(2, 2))),
              tests::StatusIs(absl::StatusCode::kDataLoss));
  bytes[0] = 2;
  EXPECT_THAT(DecodeParkedHeader(bytes), tests::StatusIs(absl::StatusCode::kUnimplemented));
}

// Messages that were moved from an earlier generation, and what drains for the next one.
class EndpointMovingTest : public DeliveryFixture {
 protected:
  EndpointMovingTest() {
    settings_.mode = EndpointMode::kBatch;
    settings_.batch.events_max = 10;
    settings_.batch.wait_max = seconds(1);
    settings_.retry.attempts = 10;
  }
  void Arrive(int64_t number, const std::string& header) {
    OwnedRecord owned;
    owned.topic = "dispatch";
    owned.offset = next_offset_++;
    owned.key = std::string(endpoint_.view());
    owned.value = subscriptions::EncodeDispatchRecord(MakeRecord(number));
    owned.headers = {{std::string(kParkedHeader), header}};
    function_->OnElement(ctx(), owned.View());
  }
  void Arrive(int64_t number, const ParkedHeader& header) {
    Arrive(number, EncodeParkedHeader(header));
  }
};

TEST_F(EndpointMovingTest, AMovedBatchKeepsItsMembersItsIdItsAttemptsAndItsTime) {
  Publish();
  Start();
  Arrive(1, OfBatch(0, 3));
  Arrive(2, OfBatch(1, 3));
  Settle();
  EXPECT_THAT(ctx().completed(), IsEmpty()) << "it is not there as a whole";
  Arrive(3, OfBatch(2, 3));
  Settle();
  EXPECT_THAT(ctx().completed(), ElementsAre(0, 1, 2));
  EXPECT_EQ(Backlogged(), 3);
  Advance(milliseconds(4'999));
  EXPECT_EQ(sink_->size(), 0u);
  Advance(milliseconds(1));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_THAT(EventIds(sink_->at(0)), ElementsAre("e1", "e2", "e3"));
  EXPECT_EQ(sink_->at(0).Header("webhook-attempt"), "4");
}

TEST_F(EndpointMovingTest, AMovedBatchIsAsItWasAfterARestart) {
  Publish();
  Start();
  Arrive(1, OfBatch(0, 2));
  Arrive(2, OfBatch(1, 2));
  Settle();
  NextLife();
  Advance(seconds(5));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_THAT(EventIds(sink_->at(0)), ElementsAre("e1", "e2"));
  EXPECT_EQ(sink_->at(0).Header("webhook-attempt"), "4");
}

TEST_F(EndpointMovingTest, WhatWasNeverSentGoesToTheBacklogAndIsSentFromThere) {
  Publish();
  Start();
  Arrive(1, OfBatch(0, 1));  // has a backlog from here on
  Settle();
  Arrive(2, ParkedHeader());
  Arrive(3, ParkedHeader());
  Settle();
  EXPECT_THAT(ctx().completed(), ElementsAre(0, 1, 2));
  EXPECT_EQ(sink_->size(), 0u);
  for (int i = 0; i < 6; ++i) Advance(seconds(1));
  std::vector<std::string> sent;
  for (size_t i = 0; i < sink_->size(); ++i) {
    for (const std::string& id : EventIds(sink_->at(i))) sent.push_back(id);
  }
  EXPECT_THAT(sent, testing::UnorderedElementsAre("e1", "e2", "e3"));
}

// As rescale.h passes it on: put by nobody's epoch, without marker and table of states.
TEST_F(EndpointMovingTest, WhatWasKnownOfAnEndpointIsKnownAfterTheMove) {
  settings_.mode = EndpointMode::kStreaming;
  Publish();
  Start();
  Deliver(1, 1);
  Turn();
  HttpResult gone;
  gone.status = 410;
  gone.kept_headers = {{"webhook-batch-max", "3"}};
  sink_->Answer(0, gone);
  Settle();
  std::vector<EncodedChangelogRecord> moved;
  const ScriptedChangelog& written = ctx().changelog(kEndpointChangelog);
  for (size_t i = 0; i < written.log.size(); ++i) {
    ChangelogRecord record = written.Record(i);
    const absl::optional<StateKey> key = DecodeStateKey(record.identity);
    if (!key || (key->state != kHealthState && key->state != kLearnedState)) continue;
    record.epoch = 0;
    moved.push_back(EncodeChangelogRecord(record));
  }
  ASSERT_GE(moved.size(), 2u);
  Settle();
  ctx().changelog(kEndpointChangelog).log.clear();
  ctx().changelog(kBacklogChangelog).log.clear();
  ctx().changelog(kEndpointChangelog).Resize();
  ctx().changelog(kBacklogChangelog).Resize();
  logs_[kEndpointChangelog] = moved;
  next_offset_ = 0;
  BeginNextLife();
  function_->OnResume(ctx());
  RestoreBacklog();
  Deliver(1, 2);
  Advance(seconds(10));
  SendAll();
  Settle();
  EXPECT_EQ(sink_->size(), 1u) << "it is disabled";
  EXPECT_EQ(metrics_.OfHealth(HealthState::kDisabled).value(), 1);
  // The first owner of the generation has made it its own.
  bool reasserted = false;
  for (size_t i = 0; i < ctx().changelog(kEndpointChangelog).log.size(); ++i) {
    const ChangelogRecord record = ctx().changelog(kEndpointChangelog).Record(i);
    const absl::optional<StateKey> key = DecodeStateKey(record.identity);
    reasserted = reasserted || (record.kind == ChangelogKind::kPut && key &&
                                key->state == kHealthState && record.epoch == ctx().epoch());
  }
  EXPECT_TRUE(reasserted);
  settings_.mode = EndpointMode::kBatch;
  ++generation_;
  Publish(11);
  SendAll();
  EXPECT_GT(sink_->size(), 1u) << "until a person changes it";
}

TEST_F(EndpointMovingTest, ABatchWhoseLastMemberDoesNotComeGoesOnWithoutIt) {
  Publish();
  Start();
  Arrive(1, OfBatch(0, 3));
  Deliver(7, 7);  // another one of the endpoint: nothing more of the batch comes
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(0));
  ParkedHeader other = OfBatch(0, 2);
  other.batch->key = Bytes(10);
  Arrive(2, other);
  Settle();
  EXPECT_FALSE(ctx().IsCompleted(2));
  function_->OnPartitionEnd(ctx(), 3);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(2));
  Advance(seconds(5));
  SendAll();
  EXPECT_EQ(sink_->size(), 3u);
}

TEST_F(EndpointMovingTest, AttemptsThatCannotBeReadBeginAnewAndThoseOfANewerVersionWait) {
  Publish();
  Start();
  Arrive(1, "\x01\x07");
  Advance(seconds(1));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-attempt"), "1");
  Arrive(2, "\x02");
  ASSERT_TRUE(ctx().failure().has_value());
  EXPECT_EQ(ctx().failure()->code(), absl::StatusCode::kUnimplemented);
}

TEST_F(EndpointMovingTest, DrainingParksWhatPendsAndBeginsNothing) {
  settings_.window_max = 1;
  settings_.batch.events_max = 2;
  Publish();
  Start();
  Deliver(1, 5);
  Turn();
  ASSERT_EQ(sink_->size(), 1u);  // in flight: 1, 2; ready: 3, 4; open: 5
  program_->SetDraining(true);
  Settle();
  EXPECT_EQ(ctx().completed().size(), 5u);
  Deliver(6, 6);
  Settle();
  EXPECT_TRUE(ctx().IsCompleted(5));
  EXPECT_EQ(Backlogged(), 6);
  sink_->AnswerStatus(0, 200);
  Settle();
  EXPECT_EQ(Backlogged(), 4) << "results count meanwhile";
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 1u);

  Publish(12);
  program_->SetDraining(false);
  for (int i = 0; i < 20 && Backlogged() > 0; ++i) {
    Advance(seconds(1));
    while (sink_->in_flight() > 0) {
      sink_->AnswerStatus(sink_->size() - 1, 200);
      Settle();
      Turn();
    }
  }
  EXPECT_EQ(Backlogged(), 0) << "given up: it delivers again";
}

}  // namespace
}  // namespace postrider::delivery
