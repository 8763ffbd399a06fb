// An endpoint that is spread over several parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/stream/key_groups.h"
#include "core/stream/operation.h"
#include "delivery/part_notice.h"
#include "dlq/reports/endpoint_status.h"
#include "dlq/reports/report_record.h"
#include "gmock/gmock.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EndpointPartsTest : public DeliveryFixture {
 protected:
  static constexpr int32_t kKeyGroups = 8;

  EndpointPartsTest() {
    settings_.mode = subscriptions::EndpointMode::kStreaming;
    settings_.retry.attempts = 50;
    settings_.retry.cap = milliseconds(100);
  }
  void Begin(int parallelism) {
    options_.key_groups = kKeyGroups;
    options_.operational.emplace();
    options_.operational->dead_letters = 8;
    options_.reports.emplace();
    options_.reports->success_sample = 0;
    MakeProgram();
    settings_.parallelism = parallelism;
    Publish();
    Start();
  }
  // Messages `first` to `last` of one part.
  void DeliverTo(uint32_t part, int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      subscriptions::DispatchRecord record = MakeRecord(n);
      record.part = part;
      part_of_[record.event_id] = part;
      Deliver(record);
    }
  }
  // New ones for each of so many parts.
  void DeliverToAll(uint32_t parts, int64_t each) {
    for (uint32_t part = 0; part < parts; ++part, next_number_ += each) {
      DeliverTo(part, next_number_, next_number_ + each - 1);
    }
  }
  void Step(Duration by = milliseconds(50)) {
    Advance(by);
    Settle();
    ctx().AcknowledgeAll();
    Settle();
    SendAll();
  }
  void AnswerAll(int status) {
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open) sink_->AnswerStatus(i, status);
    }
    Settle();
  }
  uint32_t PartOf(size_t sent) { return part_of_.at(EventIds(sink_->at(sent)).at(0)); }
  // How many requests of each part are in flight.
  std::map<uint32_t, size_t> Open() {
    std::map<uint32_t, size_t> open;
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open) ++open[PartOf(i)];
    }
    return open;
  }
  // Answers those of one part.
  void Answer(uint32_t part, int status) {
    for (size_t i = 0; i < sink_->size(); ++i) {
      if (sink_->at(i).open && PartOf(i) == part) sink_->AnswerStatus(i, status);
    }
    Settle();
  }
  static bool IsNotice(const AppendRecord& record) {
    return !record.headers.empty() && record.headers[0].first == kPartNoticeHeader;
  }
  std::vector<AppendRecord> Notices() {
    std::vector<AppendRecord> notices;
    for (const auto& emitted : ctx().emitted()) {
      if (IsNotice(emitted.record)) notices.push_back(emitted.record);
    }
    return notices;
  }
  // Reads a notice as the one of this key group. Returns its offset.
  int64_t ReadNotice(const AppendRecord& notice) {
    OwnedRecord owned;
    owned.topic = "dispatch";
    owned.offset = next_offset_++;
    owned.key = notice.key;
    owned.value = notice.value;
    owned.headers = notice.headers;
    function_->OnElement(ctx(), owned.View());
    return owned.offset;
  }
  std::vector<std::string> OperationalTypes() {
    std::vector<std::string> types;
    for (const auto& emitted : ctx().emitted()) {
      if (emitted.record.topic != "postrider.operational-events") continue;
      for (const auto& [name, value] : emitted.record.headers) {
        if (name == "type") types.push_back(value);
      }
    }
    return types;
  }
  // The last status that each part has told.
  std::map<uint32_t, dlq::EndpointStatus> Statuses() {
    std::map<uint32_t, dlq::EndpointStatus> statuses;
    for (const auto& emitted : ctx().emitted()) {
      if (dlq::ReportKindOf(emitted.record.value) != dlq::ReportKind::kEndpointStatus) continue;
      const auto status = *dlq::DecodeEndpointStatus(emitted.record.value);
      statuses[status.part] = status;
    }
    return statuses;
  }

  std::map<std::string, uint32_t> part_of_;  // by event id
  int64_t next_number_ = 10'001;
};

TEST_F(EndpointPartsTest, TheirWindowsAreTheEndpointsTogether) {
  settings_.window_max = 6;
  Begin(4);
  DeliverToAll(4, 10);
  SendAll();
  EXPECT_EQ(Open(), (std::map<uint32_t, size_t>{{0, 2}, {1, 2}, {2, 1}, {3, 1}}));
  for (int i = 0; i < 5; ++i) {
    AnswerAll(200);
    SendAll();
    EXPECT_LE(sink_->in_flight(), 6u);
  }
}

TEST_F(EndpointPartsTest, TheirRatesAreTheEndpointsTogether) {
  settings_.limits.requests_per_second = 8;
  Begin(4);
  DeliverToAll(4, 100);
  SendAll();
  for (int i = 0; i < 200; ++i) {
    AnswerAll(200);
    Step();
  }
  // Ten seconds, and the first of each part.
  EXPECT_GE(sink_->size(), 80u);
  EXPECT_LE(sink_->size(), 84u);
}

TEST_F(EndpointPartsTest, WhatTheReceiverAsksForHoldsForAllTogether) {
  Begin(2);
  DeliverToAll(2, 200);
  SendAll();
  HttpResult asks;
  asks.status = 200;
  asks.request_sent = true;
  asks.kept_headers = {{"webhook-rate", "10"}};
  for (size_t i = 0, sent = sink_->size(); i < sent; ++i) sink_->Answer(i, asks);
  Settle();
  Step();
  const size_t before = sink_->size();
  for (int i = 0; i < 200; ++i) {
    AnswerAll(200);
    Step();
  }
  EXPECT_NEAR(static_cast<double>(sink_->size() - before), 100, 4);
  for (int i = 0; i < 3; ++i) {
    Step(seconds(30));
    AnswerAll(200);
  }
  EXPECT_EQ(Statuses().at(1).learned_messages_per_1000_seconds, 5'000u);
}

TEST_F(EndpointPartsTest, WhoHasNeverAnsweredGetsOneRequestPerSecondFromAllTogether) {
  unproven_brake_ = true;
  options_.unproven_interval = seconds(1);
  Begin(4);
  DeliverToAll(4, 50);
  SendAll();
  EXPECT_EQ(sink_->size(), 4u) << "one of each";
  for (int i = 0; i < 160; ++i) {
    AnswerAll(429);
    Step();
  }
  EXPECT_GE(sink_->size(), 8u);
  EXPECT_LE(sink_->size(), 4u + 8u) << "eight seconds";
}

TEST_F(EndpointPartsTest, EachHasItsShareOfTheBacklog) {
  settings_.pause.by_customer = true;
  const int64_t bytes = static_cast<int64_t>(EncodeDispatchRecord(MakeRecord(10'001)).size()) + 1;
  settings_.backlog.bytes_max = 20 * bytes;
  Begin(2);
  DeliverToAll(2, 1);  // so that has_backlog is set
  Settle();
  DeliverTo(1, 12'001, 12'030);
  Settle();
  for (int i = 0; i < 200; ++i) Step(milliseconds(20));
  EXPECT_EQ(metrics_.backlog_messages.value(), 1 + 10) << "half of twenty, and part 0's one";
}

TEST_F(EndpointPartsTest, ADisableByOneStopsAllAndIsToldOnce) {
  settings_.window_max = 4;
  Begin(4);
  DeliverToAll(4, 5);
  SendAll();
  Answer(2, 410);
  Step();
  const std::vector<AppendRecord> notices = Notices();
  ASSERT_THAT(notices, SizeIs(3));
  std::set<uint32_t> told;
  for (const AppendRecord& notice : notices) {
    const auto key = subscriptions::DecodeDispatchKey(notice.key);
    ASSERT_TRUE(key);
    EXPECT_EQ(key->endpoint, endpoint_);
    told.insert(key->part);
    EXPECT_EQ(notice.topic, ctx().partition().topic);
    EXPECT_EQ(notice.partition, KeyGroupOf(endpoint_.view(), key->part, kKeyGroups));
  }
  EXPECT_EQ(told, (std::set<uint32_t>{0, 1, 3}));
  for (const AppendRecord& notice : notices) {
    const int64_t offset = ReadNotice(notice);
    EXPECT_FALSE(ctx().IsCompleted(offset)) << "not before it is durable";
    Settle();
    EXPECT_TRUE(ctx().IsCompleted(offset));
  }
  AnswerAll(200);  // what was in flight ends and counts
  const size_t before = sink_->size();
  DeliverToAll(4, 5);
  Step(hours(1));
  EXPECT_EQ(sink_->size(), before);
  Step();
  EXPECT_THAT(Notices(), SizeIs(3)) << "who was told does not tell on";
  EXPECT_THAT(OperationalTypes(), ElementsAre("endpoint.disabled"));
  const auto statuses = Statuses();
  for (uint32_t part = 0; part < 4; ++part) {
    EXPECT_EQ(statuses.at(part).state, dlq::EndpointHealthState::kDisabled) << part;
    EXPECT_EQ(statuses.at(part).reason, "gone") << part;
    EXPECT_EQ(statuses.at(part).auto_disabled_generation, generation_) << part;
  }

  ++generation_;  // a person has put it right
  Publish();
  Step();
  EXPECT_EQ(Open(), (std::map<uint32_t, size_t>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  for (const AppendRecord& notice : notices) {
    const int64_t offset = ReadNotice(notice);
    Settle();
    EXPECT_TRUE(ctx().IsCompleted(offset));
  }
  EXPECT_EQ(Statuses().at(0).state, dlq::EndpointHealthState::kHealthy)
      << "what was said of it before says nothing any more";
}

TEST_F(EndpointPartsTest, ADisableReachesAPartWithoutMessagesAndStays) {
  Begin(2);
  DeliverTo(0, 1, 1);
  SendAll();
  Answer(0, 410);
  Step();
  ASSERT_THAT(Notices(), SizeIs(1));
  ReadNotice(Notices()[0]);
  Settle();
  NextLife();
  DeliverTo(1, 2, 3);
  Step();
  EXPECT_THAT(Open(), IsEmpty());
  EXPECT_THAT(OperationalTypes(), IsEmpty()) << "by the one before";
}

TEST_F(EndpointPartsTest, WithoutRoomTheOthersAreToldLater) {
  Begin(4);
  DeliverTo(0, 1, 1);
  SendAll();
  ctx().set_emit_room(0);
  Answer(0, 410);
  Advance(seconds(2));
  EXPECT_THAT(Notices(), IsEmpty());
  ctx().set_emit_room(1'000);
  Step(seconds(2));
  EXPECT_THAT(Notices(), SizeIs(3));
  Step(seconds(2));
  EXPECT_THAT(Notices(), SizeIs(3));
}

TEST_F(EndpointPartsTest, ANoticeThatTheLogRefusedIsToldAgain) {
  Begin(2);
  DeliverTo(0, 1, 1);
  SendAll();
  Answer(0, 410);
  for (size_t i = 0; i < ctx().emitted().size(); ++i) {
    if (IsNotice(ctx().emitted()[i].record)) ctx().Answer(i, absl::UnavailableError("frozen"));
  }
  Step(seconds(2));
  EXPECT_THAT(Notices(), SizeIs(2));
  EXPECT_FALSE(ctx().failure());
}

TEST_F(EndpointPartsTest, WaitsForAWorkerThatCanReadANewerNotice) {
  Begin(2);
  AppendRecord notice;
  notice.key = subscriptions::EncodeDispatchKey({endpoint_, 1});
  notice.value = EncodePartNotice({DisableReason::kGone, 1, ctx().clock().Wall()});
  notice.value[1] = 2;
  notice.headers = {{std::string(kPartNoticeHeader), "disabled"}};
  const int64_t offset = ReadNotice(notice);
  ASSERT_TRUE(ctx().failure());
  EXPECT_TRUE(absl::IsUnimplemented(*ctx().failure()));
  EXPECT_FALSE(ctx().IsCompleted(offset));
}

TEST_F(EndpointPartsTest, KeepsADamagedNoticeForInspection) {
  Begin(2);
  AppendRecord notice;
  notice.key = subscriptions::EncodeDispatchKey({endpoint_, 1});
  notice.value = "x";
  notice.headers = {{std::string(kPartNoticeHeader), "disabled"}};
  const int64_t offset = ReadNotice(notice);
  ASSERT_THAT(ctx().emitted(), SizeIs(1));
  EXPECT_EQ(ctx().emitted()[0].record.topic, "postrider.rejected");
  ctx().AcknowledgeAll();
  EXPECT_TRUE(ctx().IsCompleted(offset));
}

TEST_F(EndpointPartsTest, TheirBacklogsGoOnWithTheNextOwner) {
  settings_.pause.by_customer = true;
  Begin(4);
  DeliverToAll(4, 3);
  Step(seconds(6));  // all of it is parked
  EXPECT_EQ(Backlogged(), 12);
  NextLife();
  settings_.pause.by_customer = false;
  Publish();
  std::set<std::string> delivered;
  for (int i = 0; i < 50; ++i) {
    Step();
    for (size_t sent = 0; sent < sink_->size(); ++sent) {
      if (!sink_->at(sent).open) continue;
      for (const std::string& id : EventIds(sink_->at(sent))) {
        EXPECT_TRUE(delivered.insert(id).second) << id;
      }
    }
    AnswerAll(200);
  }
  EXPECT_EQ(delivered.size(), 12u);
  EXPECT_EQ(Backlogged(), 0);
}

TEST_F(EndpointPartsTest, WhatIsInFlightWhenTheirKeyGroupMovesIsSettledByTheNextOwner) {
  Begin(4);
  subscriptions::DispatchRecord record = MakeRecord(1);
  record.part = 3;
  DeliverAt(0, record);
  SendAll();
  ASSERT_EQ(sink_->size(), 1u);
  function_->OnDrain(ctx(), KeyedProcessFunction::Drain::kHandover);
  ctx().set_may_act(false);
  const std::vector<Operation> operations = function_->Operations();
  Settle();
  function_->OnGivenBack(ctx());
  BeginNextLife(KeyedProcessFunction::CloseReason::kMoved);
  function_->OnInherited(ctx(), operations);
  function_->OnResume(ctx());
  RestoreBacklog();
  DeliverAt(0, record);
  SendAll();
  EXPECT_EQ(sink_->size(), 1u) << "it is held";
  sink_->AnswerStatus(0, 200);
  ASSERT_THAT(results_.appended, SizeIs(1));
  EXPECT_EQ(results_.appended[0].second.key, subscriptions::EncodeDispatchKey({endpoint_, 3}));
  function_->OnResult(ctx(), results_.appended[0].second);
  EXPECT_TRUE(ctx().IsCompleted(0));
  Step(seconds(60));
  EXPECT_EQ(sink_->size(), 1u);
}

TEST_F(EndpointPartsTest, EachHasItsOwnBreaker) {
  settings_.window_max = 8;
  Begin(2);
  DeliverTo(1, 1'001, 1'050);
  for (int i = 0; i < 100 && metrics_.breakers_opened.value() == 0; ++i) {
    Step();
    Answer(1, 500);
  }
  ASSERT_EQ(metrics_.breakers_opened.value(), 1);
  DeliverTo(0, 1, 3);
  SendAll();
  EXPECT_EQ(Open()[0], 3u);
  EXPECT_EQ(Statuses().at(1).state, dlq::EndpointHealthState::kDegraded);
  EXPECT_THAT(OperationalTypes(), IsEmpty()) << "the first part speaks for the endpoint";
}

TEST_F(EndpointPartsTest, TheFirstPartsDeadLettersStandForAll) {
  settings_.retry.attempts = 1;
  Begin(4);
  DeliverTo(1, 1'001, 1'008);
  DeliverTo(0, 1, 1);
  SendAll();
  for (int i = 0; i < 5; ++i) {
    AnswerAll(400);
    Step();
  }
  EXPECT_THAT(OperationalTypes(), IsEmpty()) << "of eight: four times one";
  DeliverTo(0, 2, 2);
  SendAll();
  AnswerAll(400);
  Step(seconds(2));
  EXPECT_THAT(OperationalTypes(), ElementsAre("dead_letters.threshold"));
}

TEST_F(EndpointPartsTest, PartsOfAGreaterParallelismDrainBesideThoseOfNow) {
  settings_.window_max = 8;
  settings_.pause.by_customer = true;
  Begin(4);
  DeliverToAll(4, 20);
  Step(seconds(6));
  settings_.pause.by_customer = false;
  settings_.parallelism = 1;
  ++generation_;
  Publish();
  std::map<uint32_t, size_t> most;
  for (int i = 0; i < 200 && metrics_.delivered.value() < 80; ++i) {
    Step();
    for (const auto& [part, open] : Open()) most[part] = std::max(most[part], open);
    AnswerAll(200);
  }
  EXPECT_EQ(metrics_.delivered.value(), 80);
  EXPECT_LE(most[0], 8u);
  EXPECT_LE(most[1], 4u);
  EXPECT_LE(most[3], 2u);
}

TEST_F(EndpointPartsTest, LoweredAndRaisedAtOnceEachHasItsShareAgain) {
  settings_.window_max = 8;
  settings_.limits.requests_per_second = 100;
  Begin(4);
  DeliverToAll(4, 40);
  SendAll();
  for (int i = 0; i < 5; ++i) {
    for (const int parallelism : {1, 4}) {
      settings_.parallelism = parallelism;
      ++generation_;
      Publish();
    }
    AnswerAll(200);
    Step();
    for (const auto& [part, open] : Open()) EXPECT_LE(open, 2u) << "part " << part;
  }
  // Lowered while they are in flight, and raised when some of them have come back.
  settings_.parallelism = 1;
  ++generation_;
  Publish();
  Answer(0, 200);
  Step();
  settings_.parallelism = 4;
  ++generation_;
  Publish();
  for (int i = 0; i < 400 && metrics_.delivered.value() < 160; ++i) {
    AnswerAll(200);
    Step();
    EXPECT_LE(sink_->in_flight(), 8u);
  }
  EXPECT_EQ(metrics_.delivered.value(), 160);
}

TEST_F(EndpointPartsTest, RejectsARecordWhoseKeyIsOfNoPart) {
  Begin(2);
  OwnedRecord owned;
  owned.topic = "dispatch";
  owned.offset = next_offset_++;
  owned.key = std::string(endpoint_.view()) + std::string(4, '\0');
  owned.value = subscriptions::EncodeDispatchRecord(MakeRecord(1));
  function_->OnElement(ctx(), owned.View());
  ASSERT_THAT(ctx().emitted(), SizeIs(1));
  EXPECT_EQ(ctx().emitted()[0].record.topic, "postrider.rejected");
}

}  // namespace
}  // namespace postrider::delivery
