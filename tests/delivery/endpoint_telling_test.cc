// What a customer is told of an endpoint by operational events.
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/json/json.h"
#include "gmock/gmock.h"
#include "subscriptions/registry/own_events.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EndpointTellingTest : public DeliveryFixture {
 protected:
  void Begin() {
    options_.operational.emplace();
    options_.operational->dead_letters = 3;
    options_.key_groups = 1;
    MakeProgram();
    settings_.mode = subscriptions::EndpointMode::kStreaming;
    settings_.retry.attempts = 50;
    settings_.retry.cap = milliseconds(100);
    Publish();
    Start();
  }
  // Everything that is appended or written is durable at once.
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
  // Every request is answered so until `done`.
  template <typename Done>
  void Go(int status, Done done) {
    for (int i = 0; i < 400 && !done(); ++i) {
      Step();
      AnswerAll(status);
    }
    ASSERT_TRUE(done());
  }
  static std::string HeaderOf(const AppendRecord& record, absl::string_view name) {
    for (const auto& [key, value] : record.headers) {
      if (key == name) return value;
    }
    return "";
  }
  std::vector<AppendRecord> Events() {
    std::vector<AppendRecord> events;
    for (const auto& emitted : ctx().emitted()) {
      if (emitted.record.topic != "postrider.operational-events") continue;
      EXPECT_EQ(HeaderOf(emitted.record, "tenant"), subscriptions::ReservedTenantOf(customer_));
      EXPECT_EQ(HeaderOf(emitted.record, "endpoint"), endpoint_.ToString());
      events.push_back(emitted.record);
    }
    return events;
  }
  std::vector<std::string> Types() {
    std::vector<std::string> types;
    for (const AppendRecord& event : Events()) types.push_back(HeaderOf(event, "type"));
    return types;
  }
  bool Opened() const { return metrics_.breakers_opened.value() > 0; }
};

TEST_F(EndpointTellingTest, TellsWhenTheBreakerOpensAndWhenTheEndpointIsWellAgain) {
  Begin();
  Deliver(1, 100);
  Go(500, [this] { return Opened(); });
  Step();
  EXPECT_THAT(Types(), ElementsAre("endpoint.degraded"));
  Go(500, [this] { return metrics_.breakers_opened.value() >= 3; });
  EXPECT_THAT(Types(), ElementsAre("endpoint.degraded")) << "once, however often it is probed";
  Go(200, [this] { return metrics_.delivered.value() == 100; });
  Step(seconds(1));
  EXPECT_THAT(Types(), ElementsAre("endpoint.degraded", "endpoint.recovered"));
  EXPECT_EQ(metrics_.operational.told.value(), 2);
}

TEST_F(EndpointTellingTest, ASuccessorDoesNotTellItAgain) {
  Begin();
  Deliver(1, 100);
  Go(500, [this] { return Opened(); });
  Step();
  EXPECT_THAT(Types(), ElementsAre("endpoint.degraded"));
  Settle();
  NextLife();
  Deliver(101, 101);
  for (int i = 0; i < 100; ++i) {
    Step();
    AnswerAll(500);
  }
  EXPECT_THAT(Types(), IsEmpty());
  Go(200, [this] { return !Types().empty(); });
  EXPECT_THAT(Types(), ElementsAre("endpoint.recovered"));
}

TEST_F(EndpointTellingTest, ASuccessorTellsWhatWasNotAcknowledgedWithTheSameId) {
  Begin();
  Deliver(1, 100);
  for (int i = 0; i < 400 && !Opened(); ++i) {
    Advance(milliseconds(50));
    Settle();
    SendAll();
    AnswerAll(500);
  }
  ASSERT_THAT(Types(), ElementsAre("endpoint.degraded"));
  const std::string id = HeaderOf(Events()[0], "id");
  Settle();
  NextLife();
  Deliver(101, 101);
  Step();
  ASSERT_THAT(Types(), ElementsAre("endpoint.degraded"));
  EXPECT_EQ(HeaderOf(Events()[0], "id"), id);
}

TEST_F(EndpointTellingTest, WithoutRoomItIsToldLater) {
  Begin();
  Deliver(1, 100);
  ctx().set_emit_room(0);
  Go(500, [this] { return Opened(); });
  EXPECT_THAT(Types(), IsEmpty());
  ctx().set_emit_room(100);
  Step(seconds(1));
  EXPECT_THAT(Types(), ElementsAre("endpoint.degraded"));
}

TEST_F(EndpointTellingTest, HTTP_04_TellsOnceThatTheEndpointIsGone) {
  Begin();
  Deliver(1, 10);
  Step();
  AnswerAll(410);
  Step(seconds(1));
  ASSERT_THAT(Types(), ElementsAre("endpoint.disabled"));
  const JsonValue data = *JsonValue::Parse(Events()[0].value);
  EXPECT_EQ(*data.Find("reason")->string(), "gone");
  EXPECT_EQ(data.Find("last_status")->integer(), 410);
  Step(minutes(5));
  EXPECT_THAT(Types(), ElementsAre("endpoint.disabled"));
}

TEST_F(EndpointTellingTest, TellsOfManyDeadLettersButNotOfThoseOfItsOwnEvents) {
  granted_.push_back(subscriptions::ReservedTenantOf(customer_));
  Begin();
  for (int n = 1; n <= 6; ++n) {
    subscriptions::DispatchRecord record = MakeRecord(n);
    record.tenant = subscriptions::ReservedTenantOf(customer_);
    Deliver(record);
  }
  Step();
  AnswerAll(422);
  Step(seconds(1));
  EXPECT_THAT(Types(), IsEmpty()) << "an operational event makes no other";
  Deliver(7, 8);
  Step();
  AnswerAll(422);
  Step(seconds(1));
  EXPECT_THAT(Types(), IsEmpty());
  Deliver(9, 9);
  Step();
  AnswerAll(422);
  Step(seconds(1));
  EXPECT_THAT(Types(), ElementsAre("dead_letters.threshold"));
}

TEST_F(EndpointTellingTest, TellsOfABacklogThatGrows) {
  settings_.backlog.bytes_max = subscriptions::BacklogSettings::kBytesLeast;
  settings_.pause.by_customer = true;
  Begin();
  for (int n = 1; n <= 10; ++n) {
    subscriptions::DispatchRecord record = MakeRecord(n);
    record.data = absl::StrCat("\"", std::string(60'000, 'x'), "\"");
    Deliver(record);
    Step(seconds(2));
  }
  ASSERT_THAT(Types(), ElementsAre("backlog.threshold"));
  const JsonValue data = *JsonValue::Parse(Events()[0].value);
  EXPECT_EQ(data.Find("percent")->integer(), 50);
  EXPECT_EQ(data.Find("bytes_max")->integer(), 1'048'576);
}

// The customer's bound, or the disk's, comes and goes as room is made and taken.
TEST_F(EndpointTellingTest, TellsOnceThatABacklogIsCutByABoundThatItHasWithOthers) {
  Begin();
  settings_.pause.by_customer = true;
  Publish();
  Deliver(1, 100);
  const auto wait = [this](int turns) {
    for (int i = 0; i < turns; ++i) Step(seconds(1));
  };
  const auto told = [this] {
    std::vector<JsonValue> data;
    for (const AppendRecord& event : Events()) {
      if (HeaderOf(event, "type") != "backlog.threshold") continue;
      data.push_back(*JsonValue::Parse(event.value));
    }
    return data;
  };
  wait(3);
  ASSERT_EQ(told().size(), 0u) << "far from its own bound";
  const auto bytes = static_cast<uint64_t>(metrics_.backlog_bytes.value());
  BacklogLevels& levels = program_->common().backlog_levels;
  levels.SetBytesMax(bytes / 2);
  wait(5);
  ASSERT_LE(metrics_.backlog_bytes.value(), static_cast<double>(bytes / 2));
  ASSERT_EQ(told().size(), 1u);
  EXPECT_EQ(told()[0].Find("percent")->integer(), 100);
  EXPECT_EQ(told()[0].Find("bytes_max")->integer(), static_cast<int64_t>(bytes / 2));
  for (int i = 0; i < 4; ++i) {
    Deliver(101 + 10 * i, 110 + 10 * i);
    wait(5);
  }
  levels.SetBytesMax(UINT64_MAX);
  wait(60);
  levels.SetBytesMax(bytes / 2);
  Deliver(201, 210);
  wait(5);
  EXPECT_EQ(told().size(), 1u) << "it is no news";
  levels.SetBytesMax(UINT64_MAX);
  wait(602);
  levels.SetBytesMax(bytes / 4);
  wait(5);
  EXPECT_EQ(told().size(), 2u) << "ten minutes without it have passed";
}

TEST_F(EndpointTellingTest, TellsWhichSecretEndsSoonWithoutAnyMessage) {
  Begin();
  Step(minutes(1));
  EXPECT_THAT(Types(), IsEmpty());
  const WallTime now = ctx().clock().Wall();
  subscriptions::Endpoint endpoint = MakeEndpoint(endpoint_, settings_);
  endpoint.secrets_sealed = *subscriptions::SealEndpointSecrets(
      keys_, customer_, endpoint_,
      {{"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", now, {}, kPrivateKey},
       {"whsec_MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", now, now + hours(7), kPrivateKey}});
  subscriptions::SnapshotBuilder builder(snapshot_);
  builder.PutEndpoint(endpoint);
  program_->SetSnapshot(builder.Build(*subscriptions::PgSnapshot::Parse("20:20:"), now, "origin"));
  Step(minutes(10));
  EXPECT_THAT(Types(), IsEmpty()) << "there is time";
  for (int i = 0; i < 12; ++i) Step(minutes(10));
  ASSERT_THAT(Types(), ElementsAre("secret.expiring"));
  const JsonValue data = *JsonValue::Parse(Events()[0].value);
  EXPECT_EQ(*data.Find("endpoint_id")->string(), endpoint_.ToString());
  NextLife();
  Step(minutes(10));
  EXPECT_THAT(Types(), IsEmpty()) << "a successor knows of it";
}

}  // namespace
}  // namespace postrider::delivery
