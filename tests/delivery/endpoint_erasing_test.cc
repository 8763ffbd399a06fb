// What is to be forgotten, and what a deleted endpoint's backlog becomes.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dlq/reports/report_record.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
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
  void BeginPaused() {
    settings_.pause.by_customer = true;
    Publish();
    Start();
    // So that the first entry finds has_backlog set.
    Deliver(MakeRecord(1'000'000));
    Settle();
    ASSERT_EQ(BacklogMessages(), 1u);
  }
  void DeliverOf(const std::string& tenant, int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      subscriptions::DispatchRecord record = MakeRecord(n);
      record.tenant = tenant;
      Deliver(record);
      if (n % 500 == 0) Settle();  // so that what is written has room
    }
  }
  void Keep() {
    for (int i = 0; i < 100; ++i) {
      Advance(milliseconds(20));
      ctx().AcknowledgeAll();
      Settle();
    }
  }
  void Erase(absl::optional<std::string> tenant, absl::optional<std::string> event) {
    subscriptions::Erasure wish;
    wish.id = subscriptions::ErasureId(Bytes(static_cast<uint8_t>(erasures_.size() + 1)));
    wish.tenant = std::move(tenant);
    wish.event_id = std::move(event);
    wish.requested_at = ctx().clock().Wall();
    erasures_.push_back(std::move(wish));
  }
  uint64_t BacklogMessages() const {
    return static_cast<uint64_t>(metrics_.backlog_messages.value());
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
