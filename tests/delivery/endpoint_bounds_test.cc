// The bounds of a backlog: bytes and age, and what becomes of what is beyond them.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "delivery/backlog_collapse.h"
#include "delivery/files_bound.h"
#include "dlq/reports/report_record.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using subscriptions::BacklogPolicy;
using subscriptions::EndpointMode;

class EndpointBoundsTest : public DeliveryFixture {
 protected:
  EndpointBoundsTest() {
    settings_.mode = EndpointMode::kStreaming;
    settings_.retry.attempts = 50;
    settings_.retry.horizon = hours(24 * 7);
  }
  // Turns of the timers until nothing more is given up.
  void Keep() {
    for (int i = 0; i < 200; ++i) {
      Advance(milliseconds(20));
      ctx().AcknowledgeAll();
      Settle();
    }
  }
  std::set<std::string> LetterEvents() {
    std::set<std::string> events;
    for (size_t i = 0; i < ctx().emitted().size(); ++i) events.insert(Letter(i).event_id);
    return events;
  }
};

TEST_F(EndpointBoundsTest, GivesUpTheOldestBeyondItsBytesAndNoMore) {
  BeginPaused();
  Deliver(1, 100);
  Keep();
  const uint64_t one = BacklogBytes() / BacklogMessages();
  ASSERT_EQ(ctx().emitted().size(), 0u);
  settings_.backlog.bytes_max = static_cast<int64_t>(one * 61);
  Publish(11);
  Keep();
  EXPECT_LE(BacklogBytes(), one * 61);
  EXPECT_GE(BacklogBytes(), one * 59);
  ASSERT_EQ(ctx().emitted().size() + BacklogMessages(), 101u) << "none is lost";
  EXPECT_EQ(Letter(0).event_id, "e1000000") << "the first to come";
  EXPECT_EQ(Letter(1).event_id, "e1");
  for (size_t i = 0; i < ctx().emitted().size(); ++i) {
    EXPECT_EQ(Letter(i).reason, dlq::DeadReason::kBacklogFull);
  }
  EXPECT_EQ(LetterEvents().size(), ctx().emitted().size()) << "each once";
}

TEST_F(EndpointBoundsTest, KeepsToItsBoundWhileMoreComes) {
  BeginPaused();
  Keep();
  settings_.backlog.bytes_max = static_cast<int64_t>(BacklogBytes() * 20);
  Publish(11);
  for (int i = 0; i < 20; ++i) {
    Deliver(i * 10 + 1, i * 10 + 10);
    Settle();
    Keep();
    EXPECT_LE(BacklogBytes(), static_cast<uint64_t>(settings_.backlog.bytes_max));
    EXPECT_GE(BacklogMessages(), i == 0 ? 11u : 19u);
  }
  EXPECT_EQ(ctx().emitted().size() + BacklogMessages(), 201u);
}

TEST_F(EndpointBoundsTest, GivesUpBatchesThatWaitForARetryInTheirOrder) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 10;
  settings_.retry.first_delay = hours(1);
  settings_.retry.cap = hours(1);
  Publish();
  Start();
  Deliver(1, 30);
  SendAll();
  ASSERT_EQ(sink_->size(), 3u);
  for (size_t i = 0; i < 3; ++i) sink_->AnswerStatus(i, 500);
  Settle();
  settings_.pause.by_customer = true;
  Publish(11);
  Deliver(31, 50);
  Settle();
  Advance(seconds(10));
  Settle();
  ASSERT_EQ(BacklogMessages(), 50u);
  const uint64_t one = BacklogBytes() / 50;
  settings_.backlog.bytes_max = static_cast<int64_t>(one * 35);
  Publish(12);
  Keep();
  EXPECT_EQ(BacklogMessages(), 30u) << "two whole batches";
  ASSERT_EQ(ctx().emitted().size(), 20u);
  EXPECT_TRUE(LetterEvents().contains("e1"));
  EXPECT_TRUE(LetterEvents().contains("e20"));
  EXPECT_FALSE(LetterEvents().contains("e21"));
  EXPECT_EQ(Letter(0).attempts, 1u);
}

TEST_F(EndpointBoundsTest, GivesUpWhatHasWaitedForLongerThanAllowedAndNotBefore) {
  settings_.backlog.age_max = hours(2);
  BeginPaused();
  Deliver(1, 10);
  Settle();
  Advance(hours(1));
  Publish(11);
  Deliver(11, 20);
  Settle();
  Keep();
  EXPECT_EQ(ctx().emitted().size(), 0u);
  Advance(minutes(59));
  Keep();
  EXPECT_EQ(ctx().emitted().size(), 0u);
  Advance(minutes(1));
  for (int i = 0; i < 4; ++i) Keep();
  EXPECT_EQ(ctx().emitted().size(), 11u);
  EXPECT_EQ(BacklogMessages(), 10u);
  for (size_t i = 0; i < ctx().emitted().size(); ++i) {
    EXPECT_EQ(Letter(i).reason, dlq::DeadReason::kBacklogAge);
  }
}

// Two endpoints of one customer on a shard: the larger one makes room.
TEST_F(EndpointBoundsTest, ACustomersLargestBacklogMakesRoomAtItsCustomersBound) {
  options_.customer_backlog_bytes_max = 20'000;
  MakeProgram();
  const subscriptions::EndpointId other{Bytes(3)};
  settings_.pause.by_customer = true;
  others_ = {{other, settings_}};
  BeginPaused();
  const auto deliver = [&](int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      subscriptions::DispatchRecord record = MakeRecord(n);
      record.identity.endpoint = other;
      record.message_id = subscriptions::MakeMessageId(record.identity, record.event_id);
      Deliver(record);
    }
  };
  deliver(2'000'000, 2'000'000);
  Settle();
  Deliver(1, 150);
  deliver(1'001, 1'020);
  Settle();
  const uint64_t one = BacklogBytes() / BacklogMessages();
  ASSERT_GT(BacklogBytes(), 20'000u);
  for (int i = 0; i < 10; ++i) {
    Advance(seconds(1));
    Keep();
  }
  EXPECT_LE(BacklogBytes(), 20'000u);
  EXPECT_GE(BacklogBytes(), 20'000 - 2 * one) << "and no more than that";
  EXPECT_EQ(ctx().emitted().size() + BacklogMessages(), 172u) << "none is lost";
  for (size_t i = 0; i < ctx().emitted().size(); ++i) {
    EXPECT_EQ(Letter(i).endpoint, endpoint_);
    EXPECT_EQ(Letter(i).reason, dlq::DeadReason::kBacklogFull);
  }
}

// At the store's bound nothing could be parked of anybody.
TEST_F(EndpointBoundsTest, MakesRoomBeforeTheStoreOfItsKeyGroupIsFull) {
  double fullness = 0.9;
  program_->common().backlog_fullness = [&](int32_t) { return StoreFullness{fullness, false}; };
  BeginPaused();
  Deliver(1, 199);
  Settle();
  ASSERT_EQ(BacklogMessages(), 200u);
  const uint64_t bytes = BacklogBytes();
  const auto wait = [&] {
    for (int i = 0; i < 5; ++i) {
      Advance(seconds(1));
      Keep();
    }
  };
  wait();
  EXPECT_EQ(BacklogMessages(), 200u) << "at nine tenths, not beyond";
  fullness = 0.96;
  wait();
  const auto cut =
      static_cast<uint64_t>(static_cast<double>(bytes) * 0.9 / 0.96 * FilesBound::kContents);
  EXPECT_LE(BacklogBytes(), cut);
  EXPECT_GE(BacklogBytes(), cut - bytes / 100) << "once, though the store is as full";
  EXPECT_EQ(ctx().emitted().size() + BacklogMessages(), 200u) << "none is lost";
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kBacklogFull);
  // What comes in takes the place of older ones until the store has room.
  Deliver(201, 220);
  wait();
  EXPECT_LE(BacklogBytes(), cut);
  EXPECT_GE(BacklogBytes(), cut - bytes / 100);
  const uint64_t left = BacklogMessages();
  fullness = 0.9;
  wait();
  Deliver(221, 240);
  wait();
  EXPECT_EQ(BacklogMessages(), left + 20);
}

// What was removed takes room until a compaction has ended: what lives is not cut for that.
TEST_F(EndpointBoundsTest, GivesUpNothingWhileTheStoreMayShrinkAndThereIsTime) {
  StoreFullness store{0.96, true};
  program_->common().backlog_fullness = [&](int32_t) { return store; };
  BeginPaused();
  Deliver(1, 199);
  Settle();
  const auto wait = [&] {
    for (int i = 0; i < 5; ++i) {
      Advance(seconds(1));
      Keep();
    }
  };
  wait();
  EXPECT_EQ(BacklogMessages(), 200u);
  store.ratio = 0.98;
  wait();
  EXPECT_LT(BacklogMessages(), 200u) << "too near to its bound";
  const uint64_t left = BacklogMessages();
  store = {0.96, true};
  wait();
  store = {0.96, false};
  wait();
  EXPECT_EQ(BacklogMessages(), left) << "and once only";
}

// What a deleted endpoint has left is in the store, and goes.
TEST_F(EndpointBoundsTest, GivesUpNothingWhileWhatADeletedEndpointHasLeftGoes) {
  program_->common().backlog_fullness = [](int32_t) { return StoreFullness{0.96, false}; };
  const subscriptions::EndpointId other{Bytes(3)};
  settings_.pause.by_customer = true;
  others_ = {{other, settings_}};
  BeginPaused();
  for (int64_t n = 1; n <= 2; ++n) {
    subscriptions::DispatchRecord record = MakeRecord(n);
    record.identity.endpoint = other;
    Deliver(record);
    Settle();
  }
  ASSERT_EQ(BacklogMessages(), 3u);
  others_.clear();
  Publish(11);
  // Its reports find no room.
  ctx().set_emit_room(0);
  SendAll();
  for (int i = 0; i < 5; ++i) Advance(seconds(1));
  EXPECT_EQ(BacklogMessages(), 3u);
  ctx().set_emit_room(1'000);
  ctx().GiveRoom(*function_);
  ctx().AcknowledgeAll();
  Settle();
  ASSERT_EQ(BacklogMessages(), 1u);
  for (int i = 0; i < 5; ++i) {
    Advance(seconds(1));
    Keep();
  }
  EXPECT_EQ(BacklogMessages(), 0u) << "the store is as full";
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kBacklogFull).value(), 1);
}

// A store that fills again while a backlog is restored says nothing of what lives in it.
TEST_F(EndpointBoundsTest, GivesUpNothingForAFullStoreBeforeItsBacklogIsKnown) {
  double fullness = 0.5;
  program_->common().backlog_fullness = [&](int32_t) { return StoreFullness{fullness, false}; };
  BeginPaused();
  Deliver(1, 99);
  Settle();
  ASSERT_EQ(BacklogMessages(), 100u);
  fullness = 0.96;
  BeginNextLife();
  function_->OnResume(ctx());
  EXPECT_FALSE(program_->common().backlogs_known());
  // So that there is an endpoint to look at.
  Deliver(101, 101);
  for (int i = 0; i < 5; ++i) {
    Advance(seconds(1));
    Keep();
  }
  EXPECT_EQ(ctx().emitted().size(), 0u);
  RestoreBacklog();
  EXPECT_TRUE(program_->common().backlogs_known());
  fullness = 0.5;
  for (int i = 0; i < 5; ++i) {
    Advance(seconds(1));
    Keep();
  }
  EXPECT_EQ(ctx().emitted().size(), 0u);
  EXPECT_EQ(BacklogMessages(), 101u);
}

// The look at its end comes before the next one at the sizes.
TEST_F(EndpointBoundsTest, AnEndpointThatIsForgottenHoldsNothingAnyMore) {
  BeginPaused();
  for (int i = 0; i < 59; ++i) Advance(seconds(1));
  EXPECT_EQ(program_->common().backlog_levels.held(), BacklogBytes());
  EXPECT_GT(program_->common().backlog_levels.held(), 0u);
  endpoint_exists_ = false;
  Publish(11);
  SendAll();
  ctx().AcknowledgeAll();
  Settle();
  ASSERT_EQ(BacklogMessages(), 0u);
  Advance(seconds(1));
  ASSERT_EQ(function().endpoints(), 0u);
  EXPECT_EQ(program_->common().backlog_levels.held(), 0u);
}

// Beyond its share of the disk a worker bounds what all its backlogs hold.
TEST_F(EndpointBoundsTest, MakesRoomWhenAllBacklogsOfTheProcessAreToHoldLess) {
  BeginPaused();
  Deliver(1, 99);
  Settle();
  Advance(seconds(1));
  const uint64_t bytes = BacklogBytes();
  EXPECT_EQ(program_->common().backlog_levels.held(), bytes);
  program_->common().backlog_levels.SetBytesMax(bytes / 2);
  for (int i = 0; i < 5; ++i) {
    Advance(seconds(1));
    Keep();
  }
  EXPECT_LE(BacklogBytes(), bytes / 2);
  EXPECT_GE(BacklogBytes(), bytes / 2 - bytes / 50) << "and no more than that";
  ASSERT_EQ(ctx().emitted().size() + BacklogMessages(), 100u) << "none is lost";
  EXPECT_EQ(Letter(0).reason, dlq::DeadReason::kBacklogFull);
}

TEST_F(EndpointBoundsTest, KeepsTheNewestOfEachKeyAndReportsTheOthers) {
  settings_.backlog.policy = BacklogPolicy::kCollapseByKey;
  settings_.backlog.collapse_pointer = "/k";
  BeginPaused();
  for (int n = 1; n <= 200; ++n) {
    subscriptions::DispatchRecord record = MakeRecord(n);
    record.data = absl::StrCat("{\"k\":", n % 10, ",\"n\":", n, "}");
    Deliver(record);
  }
  Settle();
  ASSERT_EQ(BacklogMessages(), 201u);
  settings_.backlog.bytes_max = static_cast<int64_t>(BacklogBytes() / 2);
  Publish(11);
  Keep();
  EXPECT_EQ(BacklogMessages(), 11u) << "ten keys, and one event without";
  EXPECT_EQ(metrics_.CountRefusal(dlq::RefusalReason::kCollapsed).value(), 190);
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kBacklogFull).value(), 0);
  settings_.pause.by_customer = false;
  Publish(12);
  for (int i = 0; i < 20; ++i) {
    Advance(milliseconds(10));
    for (size_t sent = 0; sent < sink_->size(); ++sent) {
      if (sink_->at(sent).open) sink_->AnswerStatus(sent, 200);
    }
    Settle();
  }
  EXPECT_EQ(sink_->size(), 11u);
  std::set<std::string> sent;
  for (size_t i = 0; i < sink_->size(); ++i) {
    const std::string& body = sink_->at(i).request.body;
    const size_t at = body.find("\"event_id\":\"");
    ASSERT_NE(at, std::string::npos);
    sent.insert(body.substr(at + 12, body.find('"', at + 12) - at - 12));
  }
  EXPECT_TRUE(sent.contains("e200"));
  EXPECT_TRUE(sent.contains("e191"));
  EXPECT_FALSE(sent.contains("e190"));
}

TEST_F(EndpointBoundsTest, WhatCannotBeCollapsedMakesRoomAsTheOldest) {
  settings_.backlog.policy = BacklogPolicy::kCollapseByKey;
  settings_.backlog.collapse_pointer = "/n";  // all differ
  BeginPaused();
  Deliver(1, 100);
  Settle();
  const uint64_t half = BacklogBytes() / 2;
  settings_.backlog.bytes_max = static_cast<int64_t>(half);
  Publish(11);
  Keep();
  EXPECT_LE(BacklogBytes(), half * 9 / 10);
  EXPECT_GT(metrics_.CountDeadLetter(dlq::DeadReason::kBacklogFull).value(), 0);
  EXPECT_EQ(metrics_.CountRefusal(dlq::RefusalReason::kCollapsed).value(), 0);
  EXPECT_EQ(ctx().emitted().size() + BacklogMessages(), 101u);
}

class ResumeTest : public EndpointBoundsTest {
 protected:
  void Resume(int answer = 200) {
    settings_.pause.by_customer = false;
    ++generation_;
    Publish(50);
    for (int i = 0; i < 100; ++i) {
      Advance(milliseconds(10));
      Settle();
      for (size_t sent = 0; sent < sink_->size(); ++sent) {
        if (sink_->at(sent).open) sink_->AnswerStatus(sent, answer);
      }
      ctx().AcknowledgeAll();
    }
  }
};

TEST_F(ResumeTest, NewestOnlySkipsWhatWasDispatchedBefore) {
  BeginPaused();
  Deliver(1, 50);
  Settle();
  Advance(minutes(5));
  settings_.pause.resume = subscriptions::ResumeKind::kNewest;
  settings_.pause.resumed_at = ctx().clock().Wall();
  Deliver(51, 55);
  Settle();
  Resume();
  EXPECT_EQ(metrics_.delivered.value(), 5);
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kSkippedOnResume).value(), 51);
  EXPECT_EQ(BacklogMessages(), 0u);
}

TEST_F(ResumeTest, FromATimeSkipsEventsBeforeItAndNoneThatComeLater) {
  BeginPaused();
  Deliver(1, 10);
  Settle();
  Advance(minutes(5));
  settings_.pause.resume = subscriptions::ResumeKind::kFrom;
  settings_.pause.resume_from = ctx().clock().Wall();
  Deliver(11, 20);
  Settle();
  Advance(minutes(5));
  settings_.pause.resumed_at = ctx().clock().Wall();
  Resume();
  EXPECT_EQ(metrics_.delivered.value(), 10);
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kSkippedOnResume).value(), 11);
  subscriptions::DispatchRecord late = MakeRecord(21);
  late.event_time = settings_.pause.resume_from - hours(1);
  Deliver(late);
  Resume();
  EXPECT_EQ(metrics_.delivered.value(), 11) << "it was not there when the pause ended";
}

TEST_F(ResumeTest, ABatchThatFailedBeforeIsSkippedAsAWhole) {
  settings_.mode = EndpointMode::kBatch;
  settings_.batch.events_max = 10;
  Publish();
  Start();
  Deliver(1, 10);
  SendAll();
  sink_->AnswerStatus(0, 500);
  Settle();
  settings_.pause.by_customer = true;
  Publish(11);
  Advance(minutes(1));
  settings_.pause.resume = subscriptions::ResumeKind::kNewest;
  settings_.pause.resumed_at = ctx().clock().Wall();
  Resume();
  EXPECT_EQ(metrics_.CountDeadLetter(dlq::DeadReason::kSkippedOnResume).value(), 10);
  EXPECT_EQ(BacklogMessages(), 0u);
  EXPECT_EQ(sink_->size(), 1u);
}

TEST(BacklogCollapseTest, TellsWhatANewerMessageOfTheSameKeyHasOvertaken) {
  const auto content = [](const std::string& tenant, const std::string& data) {
    subscriptions::DispatchRecord record;
    record.tenant = tenant;
    record.data = data;
    record.identity.source_topic = "events.a";
    return *MakeMessageContent(subscriptions::EncodeDispatchRecord(record));
  };
  subscriptions::BacklogSettings settings;
  BacklogCollapse by_tenant(settings);
  by_tenant.Show(1, *content("a", "{}"));
  by_tenant.Show(2, *content("b", "{}"));
  by_tenant.Show(3, *content("a", "{}"));
  EXPECT_EQ(by_tenant.from(), 4u);
  by_tenant.BeginTaking();
  EXPECT_EQ(by_tenant.from(), 0u);
  EXPECT_TRUE(by_tenant.Show(1, *content("a", "{}")));
  EXPECT_FALSE(by_tenant.Show(2, *content("b", "{}")));
  EXPECT_FALSE(by_tenant.Show(3, *content("a", "{}")));
  EXPECT_FALSE(by_tenant.Show(4, *content("a", "{}"))) << "newer than the first look";

  settings.collapse_pointer = "/k";
  BacklogCollapse by_value(settings);
  for (int phase = 0; phase < 2; ++phase) {
    EXPECT_EQ(by_value.Show(1, *content("a", "{\"k\":1}")), phase == 1);
    EXPECT_FALSE(by_value.Show(2, *content("a", "{\"k\":\"1\"}"))) << "text is no number";
    EXPECT_FALSE(by_value.Show(3, *content("a", "{}")));
    EXPECT_FALSE(by_value.Show(4, *content("a", "{}"))) << "without a key nothing is overtaken";
    EXPECT_FALSE(by_value.Show(6, *content("a", "{\"k\":{}}")));
    EXPECT_FALSE(by_value.Show(7, *content("b", "{\"k\":1}")));
    by_value.BeginTaking();
  }
}

}  // namespace
}  // namespace postrider::delivery
