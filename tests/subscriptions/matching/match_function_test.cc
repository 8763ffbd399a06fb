#include "subscriptions/matching/match_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/metrics.h"
#include "core/base/random.h"
#include "core/stream/key_groups.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/matching/match_program.h"
#include "subscriptions/registry/own_events.h"
#include "tests/fakes/fake_task_context.h"
#include "tests/subscriptions/matching/snapshot_fixture.h"

namespace postrider::subscriptions {
namespace {

constexpr int32_t kKeyGroups = 16;

class MatchFunctionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto decoder = JsonDecoder::Create({});
    ASSERT_TRUE(decoder.ok());
    MatchProgramOptions options;
    options.dispatch_topic = "postrider.dispatch.default";
    options.key_groups = kKeyGroups;
    options.rejected_topic = "postrider.rejected";
    options.operational_topic = kOwnTopic;
    program_ = std::make_unique<MatchProgram>(options, *std::move(decoder), match_metrics_);
    function_ = program_->CreateFunction({kTopic, 2});
    ASSERT_TRUE(function_->Open(ctx_).ok());
  }
  void TearDown() override {
    (own_ctx_ != nullptr ? *own_ctx_ : ctx_).Close(*function_);
    function_.reset();
  }

  void Use(SnapshotFixture& fixture) { Use(fixture.Build(ctx_.clock().Wall())); }
  void Use(std::shared_ptr<const Snapshot> snapshot) {
    program_->SetSnapshot(snapshot, MatchIndex::Build(snapshot));
  }
  // Endpoints 1 and 2 get t1's orders.
  void UseTwoEndpoints() {
    SnapshotFixture fixture;
    fixture.Customer(1, {"t1"}).Endpoint(1, 1).Endpoint(2, 1);
    fixture.Granted(1, {"order.*"}).Tenants(2, {"order.created"}, {"t1"});
    Use(fixture);
  }
  // The next record of the partition.
  int64_t Read(absl::optional<std::string> value,
               std::vector<std::pair<std::string, std::string>> headers = {}) {
    OwnedRecord record;
    record.topic = kTopic;
    record.partition = 2;
    record.offset = next_offset_++;
    record.timestamp = WallTimeFromMillis(1'700'000'000'000);
    record.value = std::move(value);
    record.headers = std::move(headers);
    function_->OnElement(ctx_, record.View());
    return record.offset;
  }
  int64_t ReadT1() { return Read(R"({"tenant":"t1"})"); }

  DispatchRecord Message(size_t index) {
    auto decoded = DecodeDispatchRecord(ctx_.emitted()[index].record.value);
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return decoded.ok() ? *decoded : DispatchRecord();
  }
  // Of every append, in their order.
  std::vector<int64_t> EmittedOffsets() {
    std::vector<int64_t> offsets;
    for (size_t i = 0; i < ctx_.emitted().size(); ++i) {
      offsets.push_back(Message(i).identity.source_offset);
    }
    return offsets;
  }
  double Rejected(RejectReason reason) { return match_metrics_.rejected(reason).value(); }
  double Unmatched(UnmatchedReason reason) { return match_metrics_.unmatched(reason).value(); }

  // Goes on with the partition of our own events.
  void ReadOwnEvents() {
    ctx_.Close(*function_);
    own_ctx_ = std::make_unique<FakeTaskContext>(TopicPartition{kOwnTopic, 0});
    function_ = program_->CreateFunction({kOwnTopic, 0});
    ASSERT_TRUE(function_->Open(*own_ctx_).ok());
  }
  int64_t ReadOwn(absl::string_view type, std::string tenant, absl::optional<uint32_t> endpoint) {
    OwnedRecord record;
    record.topic = kOwnTopic;
    record.partition = 0;
    record.offset = next_offset_++;
    record.timestamp = WallTimeFromMillis(1'700'000'000'000);
    record.value = R"({"tenant":"t1","id":"none of these"})";
    record.headers = {{"type", std::string(type)},
                      {"tenant", std::move(tenant)},
                      {"id", "evt_1"},
                      {"time", "1600000000000"}};
    if (endpoint) {
      record.headers.emplace_back("endpoint", EndpointNumber(*endpoint).ToString());
    }
    function_->OnElement(*own_ctx_, record.View());
    return record.offset;
  }
  // The endpoints that the own events were emitted to, in order.
  std::vector<EndpointId> OwnReceivers() {
    std::vector<EndpointId> receivers;
    for (const auto& emitted : own_ctx_->emitted()) {
      auto decoded = DecodeDispatchRecord(emitted.record.value);
      EXPECT_TRUE(decoded.ok()) << decoded.status();
      if (decoded.ok()) receivers.push_back(decoded->identity.endpoint);
    }
    return receivers;
  }

  static constexpr char kTopic[] = "events.order.created";
  static constexpr char kOwnTopic[] = "postrider.operational-events";
  Metrics metrics_;
  MatchMetrics match_metrics_{metrics_};
  FakeTaskContext ctx_{{kTopic, 2}};
  std::unique_ptr<MatchProgram> program_;
  std::unique_ptr<KeyedProcessFunction> function_;
  std::unique_ptr<FakeTaskContext> own_ctx_;
  int64_t next_offset_ = 100;
};

TEST_F(MatchFunctionTest, EmitsOneRecordPerEndpointAndCompletesWhenAllAreAcknowledged) {
  UseTwoEndpoints();
  const std::string value =
      R"({ "tenant" : "t1", "department":"d1", "id":"e-1", "time":1600000000000 })";
  const int64_t offset = Read(value);
  ASSERT_EQ(ctx_.emitted().size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    const AppendRecord& append = ctx_.emitted()[i].record;
    const EndpointId endpoint = EndpointNumber(i + 1);
    EXPECT_EQ(append.topic, "postrider.dispatch.default");
    EXPECT_EQ(append.key, std::string(endpoint.view()));
    EXPECT_EQ(append.partition, KeyGroupOf(endpoint.view(), 0, kKeyGroups));
    const DispatchRecord message = Message(i);
    EXPECT_EQ(message.identity.source_topic, kTopic);
    EXPECT_EQ(message.identity.source_partition, 2);
    EXPECT_EQ(message.identity.source_offset, offset);
    EXPECT_EQ(message.identity.incarnation_ms, ctx_.incarnation_ms());
    EXPECT_EQ(message.identity.endpoint, endpoint);
    EXPECT_EQ(message.customer, CustomerNumber(1));
    EXPECT_EQ(message.message_id, MakeMessageId(message.identity, "e-1"));
    EXPECT_EQ(message.event_id, "e-1");
    EXPECT_EQ(message.type, "order.created");
    EXPECT_EQ(message.tenant, "t1");
    EXPECT_EQ(message.department, "d1");
    EXPECT_EQ(MillisSinceEpoch(message.event_time), 1'600'000'000'000);
    EXPECT_EQ(message.dispatch_time, ctx_.clock().Wall());
    EXPECT_EQ(message.endpoint_xid, 1'001u + i);
    EXPECT_EQ(message.grants_xid, 101u);
    EXPECT_EQ(message.data, value);  // byte for byte
  }
  EXPECT_FALSE(ctx_.IsCompleted(offset));
  ctx_.Acknowledge(1);
  EXPECT_FALSE(ctx_.IsCompleted(offset));
  ctx_.Acknowledge(0);
  EXPECT_TRUE(ctx_.IsCompleted(offset));
  EXPECT_EQ(match_metrics_.messages.value(), 2);
}

TEST_F(MatchFunctionTest, SpreadsAnEndpointWithParallelismOverItsPartsByTheMessagesId) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"}).Endpoint(1, 1, 3).Granted(1, {"order.created"});
  Use(fixture);
  const EndpointId endpoint = EndpointNumber(1);
  std::set<uint32_t> parts;
  for (int i = 0; i < 60; ++i) {
    ReadT1();
    const AppendRecord& append = ctx_.emitted().back().record;
    const DispatchRecord message = Message(ctx_.emitted().size() - 1);
    EXPECT_EQ(message.part, PartOf(message.message_id, 3));
    EXPECT_EQ(append.key, EncodeDispatchKey({endpoint, message.part}));
    EXPECT_EQ(append.partition, KeyGroupOf(endpoint.view(), message.part, kKeyGroups));
    parts.insert(message.part);
  }
  EXPECT_EQ(parts, (std::set<uint32_t>{0, 1, 2}));
}

TEST_F(MatchFunctionTest, AnOwnEventGoesToItsCustomersOtherEndpointsThatNameItsType) {
  const std::string mine = ReservedTenantOf(CustomerNumber(1));
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1", mine}).Customer(2, {"t1", ReservedTenantOf(CustomerNumber(2))});
  fixture.Endpoint(1, 1).Granted(1, {"endpoint.disabled"});
  fixture.Endpoint(2, 1).Granted(2, {"endpoint.*"});
  fixture.Endpoint(3, 1).Tenants(3, {"endpoint.disabled"}, {mine});
  fixture.Endpoint(4, 1).Granted(4, {"*"});
  fixture.Endpoint(5, 1).Granted(5, {"backlog.threshold"});
  fixture.Endpoint(6, 2).Granted(6, {"endpoint.disabled"});
  fixture.Endpoint(7, 2).Tenants(7, {"endpoint.disabled"}, {mine});
  Use(fixture);
  ReadOwnEvents();
  ReadOwn("endpoint.disabled", mine, 2);
  EXPECT_EQ(OwnReceivers(), (std::vector<EndpointId>{EndpointNumber(1), EndpointNumber(3)}))
      << "not the one that it is about, nor who asked for every type of events, nor another's";
  const auto message = DecodeDispatchRecord(own_ctx_->emitted()[0].record.value);
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->type, "endpoint.disabled");
  EXPECT_EQ(message->tenant, mine);
  EXPECT_EQ(message->event_id, "evt_1");
  EXPECT_EQ(MillisSinceEpoch(message->event_time), 1'600'000'000'000);
  EXPECT_EQ(message->customer, CustomerNumber(1));
  EXPECT_EQ(message->data, R"({"tenant":"t1","id":"none of these"})");
  ReadOwn("backlog.threshold", mine, absl::nullopt);
  EXPECT_EQ(OwnReceivers().back(), EndpointNumber(5)) << "each record has its own type";
}

TEST_F(MatchFunctionTest, AnOwnEventThatOnlyItsSubjectWantsIsCompleteAtOnce) {
  const std::string mine = ReservedTenantOf(CustomerNumber(1));
  SnapshotFixture fixture;
  fixture.Customer(1, {mine}).Endpoint(1, 1).Granted(1, {"endpoint.*"});
  Use(fixture);
  ReadOwnEvents();
  const int64_t offset = ReadOwn("endpoint.disabled", mine, 1);
  EXPECT_TRUE(own_ctx_->emitted().empty());
  EXPECT_EQ(own_ctx_->completed(), std::vector<int64_t>{offset});
}

TEST_F(MatchFunctionTest, NobodySpeaksToACustomerInOurName) {
  const std::string mine = ReservedTenantOf(CustomerNumber(1));
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1", mine}).Endpoint(1, 1).Granted(1, {"*", "endpoint.disabled"});
  Use(fixture);
  Read("{}", {{"tenant", mine}});
  EXPECT_TRUE(ctx_.emitted().empty());
  EXPECT_EQ(Unmatched(UnmatchedReason::kReservedTenant), 1);
  ReadOwnEvents();
  ReadOwn("endpoint.disabled", "t1", 2);
  EXPECT_TRUE(own_ctx_->emitted().empty()) << "nor do we in the name of others";
  EXPECT_EQ(Unmatched(UnmatchedReason::kReservedTenant), 2);
}

TEST_F(MatchFunctionTest, AnEventWithoutAnIdIsNamedByItsPlaceAndTimedByItsRecord) {
  UseTwoEndpoints();
  ReadT1();
  const DispatchRecord message = Message(0);
  EXPECT_EQ(message.event_id, "events.order.created/2/1700000000000/100");
  EXPECT_EQ(message.message_id, MakeMessageId(message.identity, ""));
  EXPECT_EQ(MillisSinceEpoch(message.event_time), 1'700'000'000'000);
  EXPECT_EQ(message.department, absl::nullopt);
}

TEST_F(MatchFunctionTest, EventsForNobodyAreCompleteAtOnceAndCounted) {
  UseTwoEndpoints();
  Read(R"({"tenant":"t2"})");
  Read(R"({"tenant":"T1"})");
  EXPECT_EQ(Unmatched(UnmatchedReason::kNoSubscription), 2);
  Read("{}");
  Read(R"({"tenant":"","department":"d1"})");
  Read(R"({"tenant":null})");
  EXPECT_EQ(Unmatched(UnmatchedReason::kNoTenant), 3);
  Read(absl::nullopt);
  EXPECT_EQ(Unmatched(UnmatchedReason::kTombstone), 1);
  EXPECT_EQ(ctx_.completed().size(), 6u);
  EXPECT_TRUE(ctx_.emitted().empty());
}

TEST_F(MatchFunctionTest, DATA_08_AnEmptyValueIsNoTombstone) {
  UseTwoEndpoints();
  Read("");
  EXPECT_EQ(Rejected(RejectReason::kNotJson), 1);
  Read("null");
  EXPECT_EQ(Unmatched(UnmatchedReason::kNoTenant), 1);
}

TEST_F(MatchFunctionTest, WhatNobodyGetsIsNotParsedWhenItsHeadersSayEnough) {
  UseTwoEndpoints();
  const int64_t offset = Read("no JSON", {{"tenant", "t2"}});
  EXPECT_TRUE(ctx_.IsCompleted(offset));
  EXPECT_EQ(Rejected(RejectReason::kNotJson), 0);
  Read("no JSON", {{"tenant", "t1"}});
  EXPECT_EQ(Rejected(RejectReason::kNotJson), 1);
}

TEST_F(MatchFunctionTest, APayloadThatWouldBreakOutGoesToTheRejectedTopicWithItsReason) {
  UseTwoEndpoints();
  const std::string forged = R"(1},{"id":"forged")";
  const int64_t offset = Read(forged, {{"tenant", "t1"}});
  ASSERT_EQ(ctx_.emitted().size(), 1u);
  const AppendRecord& append = ctx_.emitted()[0].record;
  EXPECT_EQ(append.topic, "postrider.rejected");
  EXPECT_EQ(append.partition, 0);
  using testing::Pair;
  EXPECT_EQ(append.value, forged);
  EXPECT_THAT(append.headers,
              testing::ElementsAre(
                  Pair("reason", "not_json"), Pair("source", absl::StrCat(kTopic, "/2")),
                  Pair("offset", absl::StrCat(offset)), Pair("incarnation_ms", testing::_),
                  Pair("timestamp_ms", "1700000000000"), Pair("rejected_at_ms", testing::_),
                  Pair("value_bytes", absl::StrCat(forged.size()))));
  EXPECT_FALSE(ctx_.IsCompleted(offset));
  ctx_.Acknowledge(0);
  EXPECT_TRUE(ctx_.IsCompleted(offset));
}

TEST_F(MatchFunctionTest, AnEventOverTheSizeLimitIsRejectedWithTheBeginningOfItsValue) {
  UseTwoEndpoints();
  std::string value = R"({"tenant":"t1","x":")";
  value.append((512 << 10) - value.size() - 2, 'x');
  value += "\"}";
  Read(value);
  EXPECT_EQ(Rejected(RejectReason::kTooLarge), 0);
  ASSERT_EQ(ctx_.emitted().size(), 2u);
  Read(value + " ");
  EXPECT_EQ(Rejected(RejectReason::kTooLarge), 1);
  ASSERT_EQ(ctx_.emitted().size(), 3u);
  const AppendRecord& rejected = ctx_.emitted()[2].record;
  EXPECT_EQ(rejected.value, value.substr(0, 1'024));
  EXPECT_THAT(rejected.headers,
              testing::Contains(testing::Pair("value_bytes", absl::StrCat(value.size() + 1))));
}

TEST_F(MatchFunctionTest, SSRF_11_AnEventThatCameBackTooOftenIsRejectedAsALoop) {
  UseTwoEndpoints();
  const std::string value = R"({"tenant":"t1"})";
  const std::vector<std::pair<std::string, uint32_t>> fine = {{"", 0},  {"0", 0},    {"1", 1},
                                                              {"2", 2}, {"many", 0}, {"-1", 0}};
  for (const auto& [hops, read] : fine) {
    const size_t before = ctx_.emitted().size();
    Read(value, {{"Webhook-Hops", hops}});
    ASSERT_EQ(ctx_.emitted().size(), before + 2) << hops;
    EXPECT_EQ(Message(before).hops, read) << hops;
    EXPECT_EQ(Message(before + 1).hops, read) << hops;
  }
  EXPECT_EQ(Rejected(RejectReason::kLoop), 0);
  for (const char* hops : {"3", "4", "4294967295", "20000000000000000000"}) {
    const size_t before = ctx_.emitted().size();
    const int64_t offset = Read(value, {{"webhook-hops", hops}});
    ASSERT_EQ(ctx_.emitted().size(), before + 1) << hops;
    const AppendRecord& rejected = ctx_.emitted()[before].record;
    EXPECT_EQ(rejected.topic, "postrider.rejected");
    EXPECT_THAT(rejected.headers, testing::Contains(testing::Pair("reason", "loop")));
    ctx_.Acknowledge(before);
    EXPECT_TRUE(ctx_.IsCompleted(offset));
  }
  EXPECT_EQ(Rejected(RejectReason::kLoop), 4);
  // What nobody gets is not looked at.
  Read(R"({"tenant":"stranger"})", {{"webhook-hops", "9"}});
  EXPECT_EQ(Rejected(RejectReason::kLoop), 4);
  // The next event has none.
  Read(value);
  EXPECT_EQ(Message(ctx_.emitted().size() - 1).hops, 0U);
}

TEST_F(MatchFunctionTest, KeepsTheOrderOfThePartitionWhenAppendsAreRefused) {
  UseTwoEndpoints();
  ctx_.set_emit_room(3);
  for (int i = 0; i < 5; ++i) ReadT1();
  // The second event is half out; what follows waits, though it would be refused anyway.
  EXPECT_EQ(EmittedOffsets(), (std::vector<int64_t>{100, 100, 101}));
  EXPECT_EQ(ctx_.refused(), 1u);
  EXPECT_EQ(match_metrics_.waiting_events.value(), 3);

  // Room without OnRoom(): a new event must not overtake those that wait.
  ctx_.set_emit_room(100);
  const int64_t unmatched = Read("{}");
  EXPECT_EQ(ctx_.emitted().size(), 3u);
  EXPECT_FALSE(ctx_.IsCompleted(unmatched));

  ctx_.set_emit_room(2);
  function_->OnRoom(ctx_);
  EXPECT_EQ(EmittedOffsets(), (std::vector<int64_t>{100, 100, 101, 101, 102}));
  ctx_.set_emit_room(100);
  function_->OnRoom(ctx_);
  EXPECT_EQ(EmittedOffsets(),
            (std::vector<int64_t>{100, 100, 101, 101, 102, 102, 103, 103, 104, 104}));
  EXPECT_TRUE(ctx_.IsCompleted(unmatched));
  ctx_.AcknowledgeAll();
  EXPECT_EQ(ctx_.completed().size(), 6u);
  EXPECT_EQ(match_metrics_.waiting_events.value(), 0);
}

TEST_F(MatchFunctionTest, ARefusedRejectionGoesOutInItsTurn) {
  UseTwoEndpoints();
  ctx_.set_emit_room(0);
  Read("x", {{"tenant", "t1"}});
  ReadT1();
  EXPECT_TRUE(ctx_.emitted().empty());
  ctx_.set_emit_room(3);
  function_->OnRoom(ctx_);
  ASSERT_EQ(ctx_.emitted().size(), 3u);
  EXPECT_EQ(ctx_.emitted()[0].record.topic, "postrider.rejected");
  EXPECT_EQ(Message(1).identity.source_offset, 101);
  EXPECT_EQ(Rejected(RejectReason::kNotJson), 1);
}

TEST_F(MatchFunctionTest, EventsWaitForTheFirstSnapshot) {
  const int64_t first = Read(R"({"tenant":"t1"})", {{"department", "d9"}});
  const int64_t tombstone = Read(absl::nullopt);
  EXPECT_TRUE(ctx_.emitted().empty());
  EXPECT_TRUE(ctx_.completed().empty());
  UseTwoEndpoints();
  ASSERT_EQ(ctx_.emitted().size(), 2u);
  EXPECT_EQ(Message(0).identity.source_offset, first);
  EXPECT_EQ(Message(0).department, "d9");
  EXPECT_EQ(Message(0).type, "order.created");
  EXPECT_TRUE(ctx_.IsCompleted(tombstone));
  EXPECT_EQ(Unmatched(UnmatchedReason::kTombstone), 1);
}

TEST_F(MatchFunctionTest, ManyThatWaitedAreMatchedAPieceATurn) {
  for (int i = 0; i < 2'500; ++i) ReadT1();
  UseTwoEndpoints();
  EXPECT_EQ(ctx_.emitted().size(), 2'000u);
  EXPECT_EQ(ctx_.FireTimers(*function_), 2u);
  EXPECT_EQ(ctx_.emitted().size(), 5'000u);
  EXPECT_EQ(ctx_.timers(), 0u);
}

TEST_F(MatchFunctionTest, ASnapshotPastItsAgeMatchesNothingUntilItIsConfirmedAgain) {
  SnapshotFixture fixture;
  fixture.Customer(1, {"t1"}).Endpoint(1, 1).Granted(1, {"*"});
  const std::shared_ptr<const Snapshot> snapshot = fixture.Build(ctx_.clock().Wall());
  Use(snapshot);
  ctx_.manual_clock().Advance(std::chrono::hours(24));
  ReadT1();
  EXPECT_EQ(ctx_.emitted().size(), 1u);
  ctx_.manual_clock().Advance(std::chrono::milliseconds(1));
  ReadT1();
  EXPECT_EQ(ctx_.emitted().size(), 1u);
  // The same contents, confirmed now; the index is the old one.
  const auto confirmed =
      SnapshotBuilder(snapshot).Build(snapshot->pg_snapshot(), ctx_.clock().Wall(), "test");
  ASSERT_EQ(confirmed->contents_version(), snapshot->contents_version());
  program_->SetSnapshot(confirmed, MatchIndex::Build(snapshot));
  EXPECT_EQ(ctx_.emitted().size(), 2u);
}

TEST_F(MatchFunctionTest, ANewSnapshotCountsFromTheNextEvent) {
  UseTwoEndpoints();
  ReadT1();
  EXPECT_EQ(ctx_.emitted().size(), 2u);
  SnapshotFixture without;  // the grant is gone
  without.Customer(1, {}).Endpoint(1, 1).Endpoint(2, 1);
  without.Granted(1, {"order.*"}).Tenants(2, {"order.created"}, {"t1"});
  Use(without);
  ReadT1();
  EXPECT_EQ(ctx_.emitted().size(), 2u);
  EXPECT_EQ(Unmatched(UnmatchedReason::kNoSubscription), 1);
}

TEST_F(MatchFunctionTest, ADrainEndsTheEventInHandAndBeginsNoOther) {
  UseTwoEndpoints();
  ctx_.set_emit_room(1);
  ReadT1();
  ReadT1();
  function_->OnDrain(ctx_, KeyedProcessFunction::Drain::kHandover);
  ctx_.set_emit_room(100);
  function_->OnRoom(ctx_);
  EXPECT_EQ(EmittedOffsets(), (std::vector<int64_t>{100, 100}));
  function_->OnResume(ctx_);  // the partition stayed after all
  EXPECT_EQ(EmittedOffsets(), (std::vector<int64_t>{100, 100, 101, 101}));
}

TEST_F(MatchFunctionTest, AnAppendThatCanNeverBeWrittenFailsTheTask) {
  UseTwoEndpoints();
  const int64_t offset = ReadT1();
  ctx_.Answer(0, absl::NotFoundError("the topic is gone"));
  ASSERT_TRUE(ctx_.failure().has_value());
  EXPECT_EQ(ctx_.failure()->code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ctx_.IsCompleted(offset));
}

TEST_F(MatchFunctionTest, TheSameEventReadAgainGivesTheSameMessages) {
  UseTwoEndpoints();
  ReadT1();
  next_offset_ = 100;
  ctx_.manual_clock().Advance(std::chrono::seconds(5));
  ReadT1();
  EXPECT_EQ(Message(0).identity.Digest(), Message(2).identity.Digest());
  EXPECT_EQ(Message(1).message_id, Message(3).message_id);
  ctx_.emitted().clear();  // its offset is completed twice otherwise: no shard gives one twice
}

TEST_F(MatchFunctionTest, TENANT_01_NoEventLeavesForAnotherTenantThanItsOwn) {
  // Each endpoint is of a customer that is granted exactly the tenants that `allowed` says.
  SnapshotFixture fixture;
  std::map<EndpointId, std::set<std::string>> allowed;
  Random random(2026);
  for (uint32_t i = 0; i < 100; ++i) {
    const std::string own = "t" + std::to_string(i);
    const std::string other = "t" + std::to_string(random.Below(100));
    fixture.Customer(i, {own, other}).Endpoint(i, i);
    allowed[EndpointNumber(i)] = {own, other};
    fixture.Granted(i, {"*"}).Tenants(i, {"order.created"}, {own, "t5"});
    fixture.Departments(i, {"order.*"}, own, {"d1"});
  }
  Use(fixture);
  const std::vector<std::string> odd = {R"("")",     "null", R"("T1")",     R"("t1 ")",
                                        R"("t100")", "1",    R"("t\u0031")"};
  size_t messages = 0;
  for (int round = 0; round < 20'000; ++round) {
    const bool is_odd = random.Below(8) == 0;
    const std::string plain = "\"t" + std::to_string(random.Below(100)) + "\"";
    const std::string tenant = is_odd ? odd[random.Below(odd.size())] : plain;
    const std::string rest = random.Below(2) == 0 ? R"(,"department":"d1")" : "";
    const size_t before = ctx_.emitted().size();
    Read("{\"tenant\":" + tenant + rest + "}");
    for (size_t i = before; i < ctx_.emitted().size(); ++i) {
      if (ctx_.emitted()[i].record.topic == "postrider.rejected") {
        ASSERT_EQ(tenant, "1");
        continue;
      }
      const DispatchRecord message = Message(i);
      ASSERT_TRUE(allowed[message.identity.endpoint].contains(message.tenant))
          << "seed 2026, round " << round;
      const std::string said = tenant == R"("t\u0031")" ? "\"t1\"" : tenant;
      ASSERT_EQ("\"" + message.tenant + "\"", said);
      ++messages;
    }
    ctx_.AcknowledgeAll();
    ctx_.emitted().clear();
  }
  EXPECT_GT(messages, 20'000u);
  EXPECT_EQ(ctx_.completed().size(), 20'000u);
}

}  // namespace
}  // namespace postrider::subscriptions
