// What is to be forgotten, and what a deleted endpoint's backlog becomes.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "delivery/endpoint_timers.h"
#include "delivery/parked_header.h"
#include "dlq/reports/report_record.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using subscriptions::EndpointMode;

class EndpointErasingTest : public DeliveryFixture {
 protected:
  EndpointErasingTest() {
    granted_ = {"t1", "t2"};
    settings_.mode = EndpointMode::kStreaming;
    settings_.retry.attempts = 50;
    settings_.retry.horizon = hours(24 * 7);
  }
  void DeliverOf(const std::string& tenant, int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      subscriptions::DispatchRecord record = MakeRecord(n);
      record.tenant = tenant;
      Deliver(record);
      if (n % 500 == 0) Settle();  // so that what is written has room
    }
  }
  void Keep() { KeepFor(100); }
  // Turns of a few timers.
  void KeepFor(int turns) {
    for (int i = 0; i < turns; ++i) {
      Advance(milliseconds(20));
      ctx().AcknowledgeAll();
      Settle();
    }
  }
  // A batch of e1 of t1 and e2 to e4 of t2, which fails and waits for an hour.
  void FailABatch() {
    settings_.mode = EndpointMode::kBatch;
    settings_.batch.events_max = 4;
    settings_.retry.schedule = {hours(1)};  // and at most a tenth more
    Publish();
    Start();
    DeliverOf("t1", 1, 1);
    DeliverOf("t2", 2, 4);
    SendAll();
    ASSERT_EQ(sink_->size(), 1u);
    sink_->AnswerStatus(0, 500);
    Settle();
    ASSERT_EQ(BacklogMessages(), 4u);
  }
  // To a worker that is told of the one request that is in flight.
  void MoveWithARequestInFlight() {
    function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
    ctx().set_may_act(false);
    const std::vector<Operation> operations = function_->Operations();
    ASSERT_EQ(operations.size(), 1u);
    Settle();
    function_->OnGivenBack(ctx());
    BeginNextLife(KeyedProcessFunction::CloseReason::kMoved);
    function_->OnInherited(ctx(), operations);
  }
  void Erase(absl::optional<std::string> tenant, absl::optional<std::string> event) {
    subscriptions::Erasure wish;
    wish.id = subscriptions::ErasureId(Bytes(static_cast<uint8_t>(erasures_.size() + 1)));
    wish.tenant = std::move(tenant);
    wish.event_id = std::move(event);
    wish.requested_at = ctx().clock().Wall();
    erasures_.push_back(std::move(wish));
  }
  double Erased() { return metrics_.CountRefusal(dlq::RefusalReason::kErased).value(); }
};

TEST_F(EndpointErasingTest, ForgetsATenantsMessagesInABacklogThatWaits) {
  BeginPaused();
  DeliverOf("t1", 1, 3'000);
  DeliverOf("t2", 3'001, 6'000);
  Settle();
  ASSERT_EQ(BacklogMessages(), 6'001u);
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  EXPECT_EQ(BacklogMessages(), 3'001u);
  EXPECT_EQ(Erased(), 3'000);
  // Each is told of, without its payload.
  std::set<std::string> events;
  for (const auto& emitted : ctx().emitted()) {
    const auto report = dlq::DecodeRefusalReport(emitted.record.value);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->reason, dlq::RefusalReason::kErased);
    events.insert(report->event_id);
  }
  EXPECT_EQ(events.size(), 3'000u);
  // What comes later is another matter.
  DeliverOf("t2", 7'001, 7'010);
  Advance(seconds(1));
  settings_.pause.by_customer = false;
  Publish(12);
  DeliverOf("t2", 8'001, 8'010);
  SendAll();
  EXPECT_GT(sink_->size(), 0u);
}

TEST_F(EndpointErasingTest, ForgetsOneEvent) {
  BeginPaused();
  DeliverOf("t1", 1, 100);
  Settle();
  Erase(absl::nullopt, "e57");
  Publish(11);
  Keep();
  EXPECT_EQ(BacklogMessages(), 100u);
  ASSERT_EQ(ctx().emitted().size(), 1u);
  EXPECT_EQ(dlq::DecodeRefusalReport(ctx().emitted()[0].record.value)->event_id, "e57");
}

// Whoever takes over looks through what it was left.
TEST_F(EndpointErasingTest, ASuccessorForgetsWhatItsPredecessorHadNot) {
  BeginPaused();
  DeliverOf("t2", 1, 50);
  Settle();
  ASSERT_EQ(BacklogMessages(), 51u);
  BeginNextLife();
  function_->OnResume(ctx());
  Erase("t2", absl::nullopt);
  Publish(11);
  RestoreBacklog();
  Keep();
  EXPECT_EQ(BacklogMessages(), 1u);
  EXPECT_EQ(Erased(), 50);
}

TEST_F(EndpointErasingTest, SendsNothingThatIsInMemoryAndToBeForgotten) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.wait_max = seconds(2);
  Publish();
  Start();
  DeliverOf("t1", 1, 2);
  DeliverOf("t2", 3, 4);
  Erase("t2", absl::nullopt);
  Publish(11);
  Advance(seconds(2));
  ASSERT_EQ(sink_->size(), 1u);
  EXPECT_EQ(sink_->at(0).Header("webhook-batch-size"), "2");
  EXPECT_EQ(Erased(), 2);
}

// What has failed before is in durable state, and waits in memory: it is met at its turn.
TEST_F(EndpointErasingTest, ARetryOfWhatIsToBeForgottenIsNotMade) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  Publish();
  Start();
  DeliverOf("t1", 1, 1);
  DeliverOf("t2", 2, 4);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 500);
  Settle();
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  for (int i = 0; i < 20 && sink_->size() == 1; ++i) Advance(seconds(5));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-batch-size"), "1");
  EXPECT_EQ(Erased(), 3);
}

// Of a paused endpoint no turn comes before its bound does.
TEST_F(EndpointErasingTest, WhatWasTriedAndIsToBeForgottenBecomesNoLetterAtABound) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  settings_.retry.first_delay = hours(1);
  settings_.retry.cap = hours(1);
  settings_.backlog.age_max = hours(2);
  Publish();
  Start();
  DeliverOf("t1", 1, 1);
  DeliverOf("t2", 2, 4);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  sink_->AnswerStatus(0, 500);
  Settle();
  settings_.pause.by_customer = true;
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  Advance(hours(3));
  for (int i = 0; i < 4; ++i) Keep();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(Erased(), 3);
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kBacklogAge).value(), 1);
}

// One turn reads about a megabyte, however few messages that is.
TEST_F(EndpointErasingTest, ATurnIsBoundedByTheBytesThatItReads) {
  BeginPaused();
  const std::string large(100'000, 'x');
  for (int64_t n = 1; n <= 40; ++n) {
    subscriptions::DispatchRecord record = MakeRecord(n);
    record.tenant = "t2";
    record.data = absl::StrCat("\"", large, "\"");
    Deliver(record);
    Settle();
  }
  ASSERT_EQ(BacklogMessages(), 41u);
  Erase("t2", absl::nullopt);
  Publish(11);
  ctx().FireTimers(*function_);
  EXPECT_EQ(Erased(), 11);
  KeepFor(1);
  EXPECT_EQ(Erased(), 22);
  KeepFor(2);
  EXPECT_EQ(BacklogMessages(), 1u);
}

// A turn looks at several small backlogs, and their shard's functions have it one after the other.
TEST_F(EndpointErasingTest, ATurnLooksAtManySmallBacklogs) {
  for (uint8_t i = 0; i < 60; ++i) {
    settings_.pause.by_customer = true;
    others_.emplace_back(subscriptions::EndpointId(Bytes(static_cast<uint8_t>(100 + i))),
                         settings_);
  }
  BeginPaused();
  for (int round = 0; round < 2; ++round) {
    for (const auto& [id, settings] : others_) {
      subscriptions::DispatchRecord record = MakeRecord(round + 1);
      record.identity.endpoint = id;
      record.tenant = "t2";
      Deliver(record);
    }
    Settle();
  }
  Advance(seconds(10));
  Settle();
  ASSERT_EQ(BacklogMessages(), 121u);
  Erase("t2", absl::nullopt);
  Publish(11);
  KeepFor(2);
  EXPECT_EQ(BacklogMessages(), 1u);
}

// Each goes on where the last one was.
TEST_F(EndpointErasingTest, AStreamOfWishesDoesNotKeepTheFirstFromItsEnd) {
  BeginPaused();
  DeliverOf("t1", 1, 5'000);
  DeliverOf("t2", 5'001, 5'100);
  Settle();
  ASSERT_EQ(BacklogMessages(), 5'101u);
  Erase("t2", absl::nullopt);
  uint64_t xid = 11;
  for (int i = 0; i < 12; ++i) {
    // The last one wished for stands at the head.
    Erase(absl::nullopt, absl::StrCat("e", 12 - i));
    Publish(xid++);
    KeepFor(1);
  }
  EXPECT_GE(Erased(), 100) << "all of the tenant's";
  Keep();
  EXPECT_EQ(Erased(), 100 + 12) << "and the events as well";
  EXPECT_EQ(BacklogMessages(), 5'001u - 12);
}

TEST_F(EndpointErasingTest, AWishThatEndsBringsNoNewRound) {
  BeginPaused();
  DeliverOf("t2", 1, 10);
  Settle();
  Erase("t1", absl::nullopt);
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  ASSERT_EQ(Erased(), 11);
  erasures_.pop_back();
  Publish(12);
  EXPECT_EQ(ctx().Timer("", kEraseTimer), absl::nullopt);
}

// Of a paused endpoint no turn would come: a batch that was tried loses what is to be forgotten,
// and what is left is a new batch that waits as long.
TEST_F(EndpointErasingTest, ABatchThatWaitsForItsRetryLosesWhatIsToBeForgotten) {
  FailABatch();
  const std::string first_id = sink_->at(0).Header("webhook-id");
  settings_.pause.by_customer = true;
  Publish(11);
  Erase("t2", absl::nullopt);
  Publish(12);
  Keep();
  EXPECT_EQ(BacklogMessages(), 1u);
  EXPECT_EQ(Erased(), 3);
  settings_.pause.by_customer = false;
  Publish(13);
  Advance(minutes(59));
  EXPECT_EQ(sink_->size(), 1u) << "not before its time";
  Advance(minutes(10));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-batch-size"), "1");
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  EXPECT_NE(sink_->at(1).Header("webhook-id"), first_id);
  EXPECT_EQ(EventIds(sink_->at(1)), std::vector<std::string>{"e1"});
  sink_->AnswerStatus(1, 200);
  Settle();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(ctx().store(kBacklogChangelog).figures().keys, 0u) << "nor a record of a batch";
}

// The same over a take-over: the next owner finds the new composition.
TEST_F(EndpointErasingTest, WhatIsLeftOfABatchKeepsItsHistoryOverATakeOver) {
  FailABatch();
  settings_.pause.by_customer = true;
  Publish(11);
  Erase("t2", "e3");
  Publish(12);
  Keep();
  EXPECT_EQ(BacklogMessages(), 3u);
  NextLife();
  settings_.pause.by_customer = false;
  Publish(13);
  Advance(minutes(70));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(sink_->at(1).Header("webhook-attempt"), "2");
  EXPECT_EQ(EventIds(sink_->at(1)), (std::vector<std::string>{"e1", "e2", "e4"}));
}

TEST_F(EndpointErasingTest, ABatchOfWhichNothingIsLeftIsGone) {
  FailABatch();
  settings_.pause.by_customer = true;
  Publish(11);
  Erase("t1", absl::nullopt);
  Erase("t2", absl::nullopt);
  Publish(12);
  Keep();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(Erased(), 4);
  EXPECT_EQ(ctx().store(kBacklogChangelog).figures().keys, 0u);
  settings_.pause.by_customer = false;
  Publish(13);
  Advance(minutes(70));
  EXPECT_EQ(sink_->size(), 1u);
}

// Its members stand in its record only, for want of memory.
TEST_F(EndpointErasingTest, ABatchThatWaitsWithoutItsMembersLosesThemToo) {
  options_.waiting_bytes_max = 0;
  MakeProgram();
  FailABatch();
  settings_.pause.by_customer = true;
  Publish(11);
  Erase("t2", absl::nullopt);
  Publish(12);
  Keep();
  EXPECT_EQ(BacklogMessages(), 1u);
  settings_.pause.by_customer = false;
  Publish(13);
  Advance(minutes(70));
  ASSERT_EQ(sink_->size(), 2u);
  EXPECT_EQ(EventIds(sink_->at(1)), std::vector<std::string>{"e1"});
}

// What was in memory when the wish came, and in flight, is parked behind the place of the look.
TEST_F(EndpointErasingTest, WhatIsParkedAfterTheLookIsForgottenToo) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  settings_.batch.wait_max = seconds(3);
  settings_.retry.first_delay = hours(1);
  settings_.retry.cap = hours(1);
  Publish();
  Start();
  DeliverOf("t2", 1, 4);  // sent
  SendAll();
  DeliverOf("t2", 5, 6);  // gathered
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  EXPECT_EQ(Erased(), 0) << "nothing is in the backlog";
  settings_.pause.by_customer = true;
  Publish(12);
  Settle();
  sink_->AnswerStatus(0, 500);
  Settle();
  // One that the matcher sent before the wish and that is read now.
  subscriptions::DispatchRecord late = MakeRecord(7);
  late.tenant = "t2";
  late.dispatch_time = erasures_.front().requested_at;
  Deliver(late);
  Settle();
  Keep();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(Erased(), 7);
}

// Of what may be in flight at a predecessor nothing is taken before that is over.
TEST_F(EndpointErasingTest, WhatMayBeInFlightAtAPredecessorIsForgottenWhenThatIsOver) {
  FailABatch();
  Advance(minutes(70));
  ASSERT_EQ(sink_->size(), 2u);
  MoveWithARequestInFlight();
  settings_.pause.by_customer = true;
  Erase("t2", absl::nullopt);
  Publish(11);
  function_->OnResume(ctx());
  RestoreBacklog();
  Keep();
  EXPECT_EQ(Erased(), 0);
  function_->OnPartitionEnd(ctx(), next_offset_);
  Advance(minutes(5));
  Keep();
  EXPECT_EQ(Erased(), 3);
  EXPECT_EQ(BacklogMessages(), 1u);
}

// What was sent by a predecessor and is held for its answer belongs to no batch that waits.
TEST_F(EndpointErasingTest, WhatIsHeldForAPredecessorsAnswerIsForgottenWhenThatIsOver) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 4;
  Publish();
  Start();
  DeliverOf("t1", 1, 1);
  DeliverOf("t2", 2, 4);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  MoveWithARequestInFlight();
  function_->OnResume(ctx());
  RestoreBacklog();
  next_offset_ = 0;
  DeliverOf("t1", 1, 1);
  DeliverOf("t2", 2, 4);
  function_->OnPartitionEnd(ctx(), next_offset_);
  for (int i = 0; i < 6; ++i) {
    Advance(seconds(1));
    Settle();
  }
  ASSERT_EQ(BacklogMessages(), 4u) << "parked, for the watermark";
  settings_.pause.by_customer = true;
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  EXPECT_EQ(Erased(), 0) << "they may be in flight";
  Advance(minutes(5));
  Keep();
  EXPECT_EQ(Erased(), 3);
  EXPECT_EQ(BacklogMessages(), 1u);
}

// One that was parked in the generation before a rescale comes when the look is over.
TEST_F(EndpointErasingTest, WhatIsMovedHereAfterTheLookIsForgottenToo) {
  BeginPaused();
  Erase("t2", absl::nullopt);
  Publish(11);
  Keep();
  ASSERT_EQ(Erased(), 0);
  subscriptions::DispatchRecord moved = MakeRecord(1);
  moved.tenant = "t2";
  moved.dispatch_time = erasures_.front().requested_at;
  OwnedRecord owned;
  owned.topic = "dispatch";
  owned.offset = next_offset_++;
  owned.key = subscriptions::EncodeDispatchKey({moved.identity.endpoint, moved.part});
  owned.value = subscriptions::EncodeDispatchRecord(moved);
  owned.headers = {{std::string(kParkedHeader), EncodeParkedHeader(ParkedHeader())}};
  function_->OnElement(ctx(), owned.View());
  Settle();
  Keep();
  EXPECT_EQ(Erased(), 1);
  EXPECT_EQ(BacklogMessages(), 1u);
}

TEST_F(EndpointErasingTest, ADeletedEndpointsBacklogIsDiscarded) {
  BeginPaused();
  DeliverOf("t1", 1, 10);
  Settle();
  endpoint_exists_ = false;
  Publish(11);
  SendAll();
  Keep();
  SendAll();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(metrics_.CountRefusal(dlq::RefusalReason::kEndpointDeleted).value(), 11);
}

TEST_F(EndpointErasingTest, ADeletedEndpointsBacklogBecomesDeadLettersWhenThatIsAskedFor) {
  BeginPaused();
  DeliverOf("t1", 1, 10);
  Settle();
  endpoint_exists_ = false;
  dead_lettered_ = true;
  Publish(11);
  SendAll();
  Keep();
  SendAll();
  EXPECT_EQ(sink_->size(), 0u);
  EXPECT_EQ(BacklogMessages(), 0u);
  ASSERT_EQ(ctx().emitted().size(), 11u);
  std::set<std::string> events;
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(Letter(i).reason, dlq::DeadReason::kEndpointDeleted);
    events.insert(Letter(i).event_id);
  }
  EXPECT_EQ(events.size(), 11u);
}

// Forgetting goes before keeping.
TEST_F(EndpointErasingTest, NoLetterIsMadeOfWhatIsToBeForgotten) {
  BeginPaused();
  DeliverOf("t2", 1, 10);
  Settle();
  endpoint_exists_ = false;
  dead_lettered_ = true;
  Erase("t2", absl::nullopt);
  Publish(11);
  SendAll();
  Keep();
  SendAll();
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(Erased(), 10);
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kEndpointDeleted).value(), 1);
}

}  // namespace
}  // namespace postrider::delivery
