#include "delivery/backlog_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "delivery/flight_result.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::EndpointMode;
using CloseReason = KeyedProcessFunction::CloseReason;

TEST(BacklogRoomTest, GivesAnEndpointAnEighthOrOneBatch) {
  BacklogRoom room(800);
  BacklogRoom::Owner owner;
  BacklogRoom::Hold hold;
  EXPECT_TRUE(room.Take(owner, 100, hold));
  EXPECT_FALSE(room.Take(owner, 1, hold));
  hold.Release();
  EXPECT_TRUE(room.Take(owner, 2'000, hold)) << "one batch, whatever its size";
  BacklogRoom::Owner other;
  BacklogRoom::Hold more;
  EXPECT_FALSE(room.Take(other, 1, more));
  hold.Release();
  EXPECT_EQ(room.used(), 0u);
  EXPECT_TRUE(room.Take(other, 1, more));
}

TEST(BacklogRoomTest, ThoseThatFailHaveHalfOfIt) {
  BacklogRoom room(800);
  std::vector<BacklogRoom::Owner> owners(9);
  std::vector<BacklogRoom::Hold> holds(9);
  for (size_t i = 0; i < 8; ++i) {
    room.SetFailing(owners[i], true);
    EXPECT_EQ(room.Take(owners[i], 100, holds[i]), i < 4) << i;
  }
  EXPECT_TRUE(room.Take(owners[8], 100, holds[8]));
  room.SetFailing(owners[0], false);
  EXPECT_TRUE(room.Take(owners[4], 100, holds[4])) << "one has recovered";
  room.SetFailing(owners[8], true);
  EXPECT_FALSE(room.HasRoom(owners[5], 1));
  holds.clear();
  EXPECT_EQ(room.used(), 0u);
  for (const BacklogRoom::Owner& owner : owners) EXPECT_EQ(owner.bytes, 0u);
}

TEST(BacklogRoomTest, AHoldIsSplitMergedAndLeavesItsOwner) {
  BacklogRoom room(8'000);
  BacklogRoom::Owner owner;
  BacklogRoom::Hold hold = room.TakeAnyway(owner, 100);
  BacklogRoom::Hold part = hold.Split(30);
  EXPECT_EQ(hold.bytes(), 70u);
  part.LeaveOwner();
  EXPECT_EQ(owner.bytes, 70u);
  EXPECT_EQ(room.used(), 100u);
  BacklogRoom::Hold all = hold.Split(1'000);
  EXPECT_EQ(hold.bytes(), 0u);
  hold.Merge(std::move(all));
  EXPECT_EQ(hold.bytes(), 70u);
  hold.Release();
  EXPECT_EQ(room.used(), 30u);
  part.Release();
  EXPECT_EQ(room.used(), 0u);
}

class BacklogMemoryTest : public DeliveryFixture {
 protected:
  BacklogMemoryTest() {
    settings_.mode = EndpointMode::kBatch;
    settings_.batch.events_max = 10;
    settings_.retry.attempts = 10;
    settings_.retry.horizon = seconds(600);
    settings_.retry.first_delay = seconds(2);
    settings_.retry.cap = seconds(2);
  }
  // So many go to the backlog and are not tried.
  void ParkUntried(int64_t first, int64_t last) {
    program_->SetDraining(true);
    for (int64_t n = first; n <= last; ++n) {
      Deliver(MakeRecord(n));
      Settle();
    }
    Advance(seconds(1));
    Settle();
    program_->SetDraining(false);
  }
  size_t Messages(size_t index) const { return EventIds(sink_->at(index)).size(); }
  // Answers all that comes until nothing more is sent for a while; how many messages that were.
  size_t AnswerAll(int status) {
    size_t messages = 0;
    for (int quiet = 0; quiet < 5;) {
      Advance(seconds(1));
      ++quiet;
      for (size_t i = 0; i < sink_->size(); ++i) {
        if (!sink_->at(i).open) continue;
        messages += Messages(i);
        sink_->AnswerStatus(i, status);
        quiet = 0;
      }
      Settle();
    }
    return messages;
  }
  double Backlogged() const { return metrics_.backlog_messages.value(); }
};

TEST_F(BacklogMemoryTest, WhatIsReadBackStaysWithinTheRoomAndAllOfItIsDelivered) {
  options_.backlog_room_bytes = 8 * 10 * 1'000;
  MakeProgram();
  Publish();
  Start();
  ParkUntried(1, 200);
  ASSERT_EQ(Backlogged(), 200);
  EXPECT_EQ(program_->backlog_room().used(), 0u);
  SendAll();
  EXPECT_GE(sink_->size(), 1u);
  EXPECT_LE(program_->backlog_room().used(), options_.backlog_room_bytes / 8) << "its share";
  EXPECT_GT(program_->backlog_room().used(), 0u) << "requests in flight count";
  EXPECT_EQ(AnswerAll(200), 200u);
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(program_->backlog_room().used(), 0u);
}

TEST_F(BacklogMemoryTest, APausedEndpointGivesBackWhatWasReadBackForIt) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 1;
  MakeProgram();
  Publish();
  Start();
  ParkUntried(1, 50);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  const size_t before = program_->backlog_room().used();
  settings_.pause.by_customer = true;
  ++generation_;
  Publish(11);
  EXPECT_LT(program_->backlog_room().used(), before / 10) << "that of what is in flight";
  sink_->AnswerStatus(0, 200);
  Settle();
  EXPECT_EQ(program_->backlog_room().used(), 0u);
  EXPECT_EQ(AnswerAll(200), 0u);
  settings_.pause.by_customer = false;
  ++generation_;
  Publish(12);
  EXPECT_EQ(AnswerAll(200), 49u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogMemoryTest, WithoutRoomForTheBacklogFreshMessagesAreSent) {
  options_.backlog_room_bytes = 8'000;
  MakeProgram();
  Publish();
  Start();
  ParkUntried(1, 50);
  BacklogRoom::Owner other;
  BacklogRoom::Hold taken = program_->backlog_room().TakeAnyway(other, 8'000);
  SendAll();
  Advance(seconds(1));
  EXPECT_EQ(sink_->size(), 0u);
  Deliver(101, 110);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(Messages(0), 10u);
  taken.Release();
  EXPECT_EQ(AnswerAll(200), 60u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogMemoryTest, WhatAFailureLeavesBehindLeavesMemory) {
  Publish();
  Start();
  ParkUntried(1, 200);
  SendAll();
  for (size_t i = 0; i < sink_->size(); ++i) sink_->AnswerStatus(i, 503);
  Settle();
  EXPECT_EQ(program_->backlog_room().used(), 0u);
  EXPECT_GT(program_->waiting_bytes(), 0u);
  EXPECT_GE(AnswerAll(200), 200u);
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(program_->waiting_bytes(), 0u);
}

TEST_F(BacklogMemoryTest, WhatIsParkedInFlightCountsAsReadBack) {
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(program_->backlog_room().used(), 0u);
  Advance(seconds(6));
  Settle();
  Advance(seconds(1));
  Settle();
  EXPECT_EQ(Backlogged(), 10);
  EXPECT_GT(program_->backlog_room().used(), 0u);
  sink_->AnswerStatus(0, 200);
  Settle();
  EXPECT_EQ(program_->backlog_room().used(), 0u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogMemoryTest, ABatchInFlightThatFindsNoRoomIsNotParked) {
  options_.backlog_room_bytes = 8'000;
  MakeProgram();
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  BacklogRoom::Owner other;
  BacklogRoom::Hold taken = program_->backlog_room().TakeAnyway(other, 8'000);
  Advance(seconds(6));
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  sink_->AnswerStatus(0, 200);
  EXPECT_EQ(ctx().completed().size(), 10u);
}

TEST_F(BacklogMemoryTest, ABatchThatWaitsWithoutItsMembersIsTriedAgainAsItWas) {
  options_.waiting_bytes_max = 0;
  MakeProgram();
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  sink_->AnswerStatus(0, 500);
  Settle();
  Advance(milliseconds(1));
  ParkUntried(11, 30);
  EXPECT_GE(Backlogged(), 30);
  // Parked after it had begun to wait: without its members from the second try on.
  for (int tries = 2; tries <= 4; ++tries) {
    const size_t before = sink_->size();
    Advance(seconds(3));
    SendAll();
    bool again = false;
    for (size_t i = before; i < sink_->size(); ++i) {
      if (!sink_->at(i).open) continue;
      if (sink_->at(i).Header("webhook-id") == sink_->at(0).Header("webhook-id")) {
        EXPECT_EQ(sink_->at(i).Header("webhook-attempt"), absl::StrCat(tries));
        EXPECT_EQ(sink_->at(i).request.body, sink_->at(0).request.body);
        again = true;
        sink_->AnswerStatus(i, 500);
        Settle();
        EXPECT_LE(program_->waiting_bytes(), kWaitingBatchBytes);
      } else {
        sink_->AnswerStatus(i, 200);
        Settle();
      }
    }
    EXPECT_TRUE(again) << tries;
  }
  EXPECT_EQ(Backlogged(), 10) << "no member was drained beside";
  EXPECT_EQ(AnswerAll(200), 10u);
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(program_->waiting_bytes(), 0u);
}

TEST_F(BacklogMemoryTest, ARestoredBacklogIsTakenInTurnByTurnAndEachBatchOnce) {
  settings_.mode = EndpointMode::kStreaming;
  settings_.window_max = 32;
  Publish();
  Start();
  absl::flat_hash_set<std::string> ids;
  for (int64_t n = 1; n <= 300; ++n) {
    Deliver(n, n);
    Turn();
    if (sink_->size() == 0 || !sink_->last().open) break;
    ids.insert(sink_->last().Header("webhook-id"));
    sink_->AnswerStatus(sink_->size() - 1, 400 + 29);  // not the breaker's
    ctx().manual_clock().Advance(seconds(3));
    Settle();
  }
  const double parked = Backlogged();
  ASSERT_GE(parked, 1);
  const size_t before = sink_->size();
  NextLife();
  const size_t most = program_->waiting_bytes();
  EXPECT_LE(most, 200 * (kWaitingBatchBytes + kWaitingMemberBytes));
  std::vector<std::string> sent;
  for (int i = 0; i < 30; ++i) {
    Advance(seconds(1));
    SendAll();
    for (size_t at = before; at < sink_->size(); ++at) {
      if (!sink_->at(at).open) continue;
      sent.push_back(sink_->at(at).Header("webhook-id"));
      sink_->AnswerStatus(at, 200);
    }
    Settle();
  }
  EXPECT_EQ(sent.size(), static_cast<size_t>(parked));
  EXPECT_EQ(absl::flat_hash_set<std::string>(sent.begin(), sent.end()).size(), sent.size());
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogMemoryTest, AnEntryThatCannotBeReadIsKeptForInspectionAndTheRestIsDelivered) {
  Publish();
  Start();
  ParkUntried(1, 3);
  // As no worker wrote it.
  std::vector<EncodedChangelogRecord>& log = ctx().changelog(kBacklogChangelog).log;
  bool damaged = false;
  for (EncodedChangelogRecord& record : log) {
    absl::StatusOr<ChangelogRecord> decoded = DecodeChangelogRecord(record.key, record.value);
    ASSERT_TRUE(decoded.ok());
    const absl::optional<StateKey> key = DecodeStateKey(decoded->identity);
    if (damaged || !key || key->state != kBacklogState || decoded->payload.empty()) continue;
    StatePayload payload = *DecodeStatePayload(decoded->payload);
    payload.bytes = "damaged";
    decoded->payload = EncodeStatePayload(payload);
    record = EncodeChangelogRecord(*decoded);
    damaged = true;
  }
  ASSERT_TRUE(damaged);
  NextLife();
  EXPECT_EQ(AnswerAll(200), 2u);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(ctx().emitted()[0].record.topic, "postrider.rejected");
  EXPECT_EQ(ctx().emitted()[0].record.value, "damaged");
  EXPECT_THAT(ctx().emitted()[0].record.headers,
              testing::Contains(testing::Pair("reason", "undecodable_backlog_entry")));
  EXPECT_EQ(Backlogged(), 1) << "until that is acknowledged";
  ctx().AcknowledgeAll();
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_FALSE(ctx().failure().has_value());
}

class BacklogHandoverTest : public BacklogMemoryTest {
 protected:
  void HandOver() {
    function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
    ctx().set_may_act(false);
    operations_ = function_->Operations();
    Settle();
    function_->OnGivenBack(ctx());
    BeginNextLife(CloseReason::kMoved);
    function_->OnInherited(ctx(), operations_);
    function_->OnResume(ctx());
  }
  std::vector<Operation> operations_;
};

TEST_F(BacklogHandoverTest, HeldMessagesAreParkedAfterFiveSecondsAndStayHeld) {
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  ASSERT_TRUE(sink_->MayStart(0));
  HandOver();
  RestoreBacklog();
  for (int64_t n = 1; n <= 10; ++n) DeliverAt(n - 1, MakeRecord(n));
  Advance(milliseconds(4'000));
  Settle();
  EXPECT_EQ(Backlogged(), 0);
  for (int i = 0; i < 3; ++i) {
    Advance(seconds(1));
    Settle();
  }
  EXPECT_EQ(Backlogged(), 10);
  EXPECT_EQ(ctx().completed().size(), 10u) << "the watermark passes them";
  EXPECT_EQ(sink_->size(), 1u) << "held";
  // Handed over once more: the next owner holds the batch that it finds.
  HandOver();
  RestoreBacklog();
  Advance(seconds(3));
  EXPECT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 200);
  function_->OnResult(ctx(), results_.appended.at(0).second);
  Settle();
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogHandoverTest, HeldMessagesThatWereParkedAreTriedAtTheDeadline) {
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  ASSERT_TRUE(sink_->MayStart(0));
  HandOver();
  RestoreBacklog();
  for (int64_t n = 1; n <= 10; ++n) DeliverAt(n - 1, MakeRecord(n));
  for (int i = 0; i < 15; ++i) {
    Advance(seconds(1));
    Settle();
  }
  EXPECT_EQ(Backlogged(), 10);
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_EQ(AnswerAll(200), 20u) << "the first life's request, and the retry";
  EXPECT_EQ(sink_->size(), 2u);
  EXPECT_EQ(Backlogged(), 0);
  EXPECT_EQ(sink_->at(1).Header("webhook-id"), sink_->at(0).Header("webhook-id"));
}

TEST_F(BacklogHandoverTest, AParkedBatchOfMoreThanCanBeNamedIsFinishedByItsResult) {
  settings_.batch.events_max = 300;
  Publish();
  Start();
  Deliver(1, 300);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  for (int i = 0; i < 7; ++i) {
    Advance(seconds(1));
    Settle();
  }
  ASSERT_EQ(Backlogged(), 300);
  HandOver();
  sink_->AnswerStatus(0, 200);
  EXPECT_TRUE(DecodeFlightResult(results_.appended.at(0).second.outcome)->parked_members.empty());
  function_->OnResult(ctx(), results_.appended.at(0).second);  // before the backlog is known
  RestoreBacklog();
  Settle();
  Advance(seconds(60));
  EXPECT_EQ(sink_->size(), 1u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(BacklogHandoverTest, ARecordThatABatchNamesButThatWasNeverParkedIsNotTakenForAnEntry) {
  Publish();
  Start();
  Deliver(100, 109);
  SendAll();
  sink_->AnswerStatus(0, 500);  // has a backlog from here on
  Settle();
  Advance(milliseconds(1));
  Deliver(1, 10);
  SendAll();
  // Half of it finds room.
  ctx().changelog(kBacklogChangelog).room = 5;
  Advance(seconds(6));
  ctx().changelog(kBacklogChangelog).room = 1'000;
  HandOver();
  const size_t first = sink_->size();
  RestoreBacklog();
  const size_t parked = static_cast<size_t>(Backlogged());
  for (int64_t n = 1; n <= 10; ++n) DeliverAt(9 + n, MakeRecord(n));
  Settle();
  Advance(seconds(1));
  EXPECT_GE(parked, 10u);
  Advance(seconds(20));
  SendAll();
  // No result came: each of them is delivered all the same.
  absl::flat_hash_set<std::string> delivered;
  AnswerAll(200);
  for (size_t i = first; i < sink_->size(); ++i) {
    const std::string& body = sink_->at(i).request.body;
    for (int64_t n = 1; n <= 10; ++n) {
      if (body.find(absl::StrCat("\"event_id\":\"e", n, "\"")) != std::string::npos) {
        delivered.insert(absl::StrCat(n));
      }
    }
  }
  EXPECT_EQ(delivered.size(), 10u);
  EXPECT_EQ(Backlogged(), 0);
}

}  // namespace
}  // namespace postrider::delivery
