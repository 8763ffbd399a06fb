#include "loadtest/account.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/event_source.h"
#include "loadtest/gaps.h"
#include "loadtest/latency.h"
#include "loadtest/ledger.h"
#include "loadtest/state.h"

namespace postrider::loadtest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LedgerTest, GivesBackWhatWasWritten) {
  const std::string path = ::testing::TempDir() + "ledger_" + std::to_string(getpid());
  auto writer = LedgerWriter<ReceivedRecord>::Create(path, 77);
  ASSERT_TRUE(writer.ok());
  ReceivedRecord record;
  record.number = 1ULL << 40;
  record.arrived_us = 1700000000123456;
  record.run = 0xfedcba98;
  record.endpoint = 9999;
  record.message = 0x12345678;
  record.attempt = 5;
  record.flags = ReceivedRecord::kAccepted | ReceivedRecord::kBatch;
  record.batch_size = 65535;
  (*writer)->Add(ReceivedRecord());
  (*writer)->Add(record);
  ASSERT_TRUE((*writer)->Flush().ok());
  const auto ledger = ReadLedger<ReceivedRecord>(path);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_EQ(ledger->run, 77U);
  EXPECT_EQ(ledger->torn_bytes, 0U);
  ASSERT_EQ(ledger->records.size(), 2U);
  const ReceivedRecord& read = ledger->records[1];
  EXPECT_EQ(read.number, record.number);
  EXPECT_EQ(read.arrived_us, record.arrived_us);
  EXPECT_EQ(read.run, record.run);
  EXPECT_EQ(read.endpoint, record.endpoint);
  EXPECT_EQ(read.message, record.message);
  EXPECT_EQ(read.attempt, 5);
  EXPECT_EQ(read.flags, record.flags);
  EXPECT_EQ(read.batch_size, 65535);
  EXPECT_EQ(ReadLedger<ProducedRecord>(path).status().code(), absl::StatusCode::kDataLoss);
  std::remove(path.c_str());
}

TEST(LedgerTest, LeavesOutATornRecordAndRefusesAForeignHead) {
  ProducedRecord record;
  record.number = 3;
  record.sent_us = -1;
  record.event = {511, 29999, kNoDepartment};
  record.acknowledged = true;
  std::string bytes = EncodeLedgerHead<ProducedRecord>(5);
  EXPECT_EQ(bytes.size(), 16U);
  EncodeRecord(record, &bytes);
  EXPECT_EQ(bytes.size(), 16U + ProducedRecord::kSize);
  const std::string whole = bytes;
  EncodeRecord(record, &bytes);
  bytes.pop_back();
  const auto ledger = DecodeLedger<ProducedRecord>(bytes);
  ASSERT_TRUE(ledger.ok());
  ASSERT_EQ(ledger->records.size(), 1U);
  EXPECT_EQ(ledger->torn_bytes, 23U);
  EXPECT_EQ(ledger->records[0].number, 3U);
  EXPECT_EQ(ledger->records[0].sent_us, -1);
  EXPECT_EQ(ledger->records[0].event.type, 511);
  EXPECT_EQ(ledger->records[0].event.tenant, 29999U);
  EXPECT_EQ(ledger->records[0].event.department, kNoDepartment);
  EXPECT_TRUE(ledger->records[0].acknowledged);
  EXPECT_FALSE(DecodeLedger<ProducedRecord>(whole.substr(0, 15)).ok());
  EXPECT_FALSE(DecodeLedger<ProducedRecord>("X" + whole.substr(1)).ok());
  EXPECT_FALSE(DecodeLedger<ReceivedRecord>(whole).ok());
}

class AccountTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRun = 42;

  AccountTest() : plan_(MakePlan()) {
    const EventSource source(plan_, 1, 300, 300);
    for (uint64_t n = 0; n < 500; ++n) {
      ProducedRecord record;
      record.number = n;
      record.event = source.At(n);
      record.sent_us = 1000000 + static_cast<int64_t>(n) * 1000;
      record.acknowledged = true;
      input_.produced.push_back(record);
      std::vector<uint32_t> matched;
      plan_.Match(record.event, &matched);
      for (uint32_t endpoint : matched) Deliver({n, endpoint}, record.sent_us + 2000);
    }
    input_.run = kRun;
  }
  static Plan MakePlan() {
    PlanOptions options;
    options.topics = 20;
    options.tenants = 300;
    options.customers = 20;
    options.large_customers = 5;
    options.endpoints = 60;
    options.subscriptions = 200;
    options.addresses = 10;
    return *Plan::Build(options);
  }
  void Deliver(MessageKey key, int64_t arrived_us) {
    ReceivedRecord record;
    record.number = key.event;
    record.endpoint = key.endpoint;
    record.arrived_us = arrived_us;
    record.run = kRun;
    record.message = 7;
    record.flags = ReceivedRecord::kAccepted;
    input_.received.push_back(record);
  }
  MessageKey KeyOf(const ReceivedRecord& record) { return {record.number, record.endpoint}; }

  Plan plan_;
  AccountInput input_;
};

// Endpoints that ask for order, and messages of one of them by hand.
class OrderAccountTest : public AccountTest {
 protected:
  OrderAccountTest() {
    PlanOptions options = plan_.options();
    options.ordered = options.endpoints;
    plan_ = *Plan::Build(options);
    input_.received.clear();
    input_.produced.resize(4);
    for (ProducedRecord& record : input_.produced) record.event = {3, 0, kNoDepartment};
    input_.produced[3].event.tenant = 1;
  }
  uint64_t Reordered() { return Account(plan_, input_).reordered; }
};

TEST_F(OrderAccountTest, TheFirstArrivalsOfAnEndpointComeInOrder) {
  ASSERT_EQ(plan_.endpoints()[0].order, PlannedOrder::kEndpoint);
  Deliver({0, 0}, 10);
  Deliver({2, 0}, 20);
  input_.received.back().flags = 0;  // answered with a failure: it has arrived
  Deliver({0, 0}, 30);               // a repeat
  Deliver({2, 0}, 40);
  Deliver({3, 0}, 50);
  EXPECT_EQ(Reordered(), 0U);
  Deliver({1, 0}, 60);
  const AccountResult result = Account(plan_, input_);
  EXPECT_EQ(result.ordered, 4U);
  EXPECT_EQ(result.reordered, 1U);
  EXPECT_FALSE(result.good());
  EXPECT_THAT(result.reordered_examples, ElementsAre(MessageKey{1, 0}));
  EXPECT_THAT(result.ToJson(), HasSubstr(R"("reordered":1,)"));
  input_.dead_letters = {{1, 0}};
  EXPECT_EQ(Reordered(), 0U);
}

TEST_F(OrderAccountTest, TheTimeOfArrivalCountsNotTheLedgersOrder) {
  Deliver({1, 0}, 20);
  Deliver({0, 0}, 10);
  EXPECT_EQ(Reordered(), 0U);
}

TEST_F(OrderAccountTest, OrderIsThatOfATopicAndWhereAskedOfATenant) {
  ASSERT_EQ(plan_.endpoints()[1].order, PlannedOrder::kTenant);
  Deliver({3, 1}, 10);  // of another tenant than the rest
  Deliver({0, 1}, 20);
  EXPECT_EQ(Reordered(), 0U);
  Deliver({3, 0}, 10);
  Deliver({0, 0}, 20);
  EXPECT_EQ(Reordered(), 1U);
  input_.produced[3].event.type = 4;
  EXPECT_EQ(Reordered(), 0U);
}

TEST_F(AccountTest, IsGoodWhenEachMessageCameOnce) {
  const size_t messages = input_.received.size();
  ASSERT_GT(messages, 500U);
  EXPECT_EQ(CountExpected(plan_, input_.produced), messages);
  const AccountResult result = Account(plan_, input_);
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.events, 500U);
  EXPECT_EQ(result.expected, messages);
  EXPECT_EQ(result.delivered, messages);
  EXPECT_EQ(result.repeats, 0U);
  EXPECT_DOUBLE_EQ(result.p50_ms, 2.0);
  EXPECT_DOUBLE_EQ(result.p99_ms, 2.0);
}

TEST_F(AccountTest, FindsALostMessage) {
  const MessageKey lost = KeyOf(input_.received[100]);
  input_.received.erase(input_.received.begin() + 100);
  const AccountResult result = Account(plan_, input_);
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.lost, 1U);
  EXPECT_THAT(result.lost_examples, ElementsAre(lost));
  EXPECT_THAT(result.ToJson(), HasSubstr("\"lost\":1"));
}

TEST_F(AccountTest, CountsOnlyAcceptedDeliveries) {
  input_.received[100].flags = 0;
  EXPECT_EQ(Account(plan_, input_).lost, 1U);
}

TEST_F(AccountTest, FindsARepeatAndAnIdThatChangedOnIt) {
  const ReceivedRecord first = input_.received[7];
  Deliver(KeyOf(first), first.arrived_us + 1);
  Deliver(KeyOf(first), first.arrived_us + 2);
  AccountResult result = Account(plan_, input_);
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.repeats, 2U);
  EXPECT_THAT(result.repeated_examples, ElementsAre(KeyOf(first)));
  input_.received.back().message = 8;
  result = Account(plan_, input_);
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.ids_changed, 1U);
}

TEST_F(AccountTest, FindsWhatShouldNotHaveBeenDelivered) {
  std::vector<uint32_t> matched;
  plan_.Match(input_.produced[3].event, &matched);
  uint32_t wrong = 0;
  while (std::find(matched.begin(), matched.end(), wrong) != matched.end()) ++wrong;
  Deliver({3, wrong}, 5000000);
  Deliver({500, 0}, 5000000);  // never produced
  Deliver({0, 0}, 5000000);
  input_.received.back().run = kRun + 1;
  const AccountResult result = Account(plan_, input_);
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.foreign, 3U);
  EXPECT_EQ(result.lost, 0U);
  EXPECT_THAT(
      result.foreign_examples,
      ::testing::UnorderedElementsAre(MessageKey{3, wrong}, MessageKey{500, 0}, MessageKey{0, 0}));
}

TEST_F(AccountTest, TakesDeadLettersAndWithheldOnesAsAccountedFor) {
  const MessageKey dead = KeyOf(input_.received[0]);
  const MessageKey withheld = KeyOf(input_.received[1]);
  const MessageKey both = KeyOf(input_.received[2]);
  input_.received.erase(input_.received.begin(), input_.received.begin() + 2);
  input_.dead_letters = {dead, both, dead};
  input_.withheld = {withheld};
  const AccountResult result = Account(plan_, input_);
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.dead_lettered, 1U);
  EXPECT_EQ(result.withheld, 1U);
  EXPECT_EQ(result.delivered_and_dead, 1U);
  EXPECT_EQ(result.delivered + 2, result.expected);
}

TEST_F(AccountTest, DoesNotExpectAnEventThatKafkaDidNotAcknowledge) {
  const uint64_t event = input_.received[0].number;
  input_.produced[event].acknowledged = false;
  AccountResult result = Account(plan_, input_);
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.unknown, 1U);
  EXPECT_EQ(result.events, 499U);
  input_.received.erase(input_.received.begin());
  EXPECT_EQ(Account(plan_, input_).lost, 0U);
}

TEST_F(AccountTest, FailsOnABadSignatureEvenWhenRefused) {
  ReceivedRecord record = input_.received[0];
  record.flags = ReceivedRecord::kBadSignature;
  input_.received.push_back(record);
  const AccountResult result = Account(plan_, input_);
  EXPECT_EQ(result.signatures_bad, 1U);
  EXPECT_FALSE(result.good());
}

TEST_F(AccountTest, LeavesTheStartOutOfTheLatencies) {
  for (ReceivedRecord& record : input_.received) {
    if (record.number < 100) record.arrived_us += 10000000;
  }
  EXPECT_GT(Account(plan_, input_).p99_ms, 10000);
  input_.skip_us = 100 * 1000;
  EXPECT_DOUBLE_EQ(Account(plan_, input_).max_ms, 2.0);
}

TEST(MessageListTest, ReadsLinesAndCountsForeignOnes) {
  State state;
  state.endpoints = {{"ep_a", "whsec_x"}, {"", ""}, {"ep_c", "whsec_y"}};
  const MessageList list = ParseMessageList(
      "ev-0000002a-17 ep_c attempts open\n\nev-0000002a-18\tep_a\r\n"
      "ev-0000002b-17 ep_a\nev-0000002a-17 ep_b\nnonsense\n",
      42, state);
  EXPECT_THAT(list.messages, ElementsAre(MessageKey{17, 2}, MessageKey{18, 0}));
  EXPECT_EQ(list.foreign, 3U);
}

TEST(StateTest, ComesBackFromItsFile) {
  const std::string path = ::testing::TempDir() + "state_" + std::to_string(getpid());
  State state;
  state.fingerprint = ~0ULL;
  state.receiver_port = 65535;
  state.api = "http://127.0.0.1:1";
  state.publisher_key = "pr_p";
  state.customers = {{"cus_0", "pr_0"}, {"cus_1", "pr_1"}};
  state.endpoints = {{"ep_0", "whsec_0"}, {"", ""}, {"ep_2", "whsec_2"}};
  state.subscriptions = 12;
  ASSERT_TRUE(state.Save(path).ok());
  const auto read = State::Load(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->fingerprint, ~0ULL);
  EXPECT_EQ(read->receiver_port, 65535);
  EXPECT_EQ(read->publisher_key, "pr_p");
  EXPECT_EQ(read->customers[1].key, "pr_1");
  ASSERT_EQ(read->endpoints.size(), 3U);
  EXPECT_EQ(read->endpoints[1].id, "");
  EXPECT_EQ(read->endpoints[2].secret, "whsec_2");
  EXPECT_EQ(read->EndpointsById().at("ep_2"), 2U);
  EXPECT_EQ(read->subscriptions, 12U);
  std::remove(path.c_str());
  EXPECT_FALSE(State::Load(path).ok());
}

TEST(GapsTest, FindsTheLongestSilenceOfEachKeyGroup) {
  State state;
  state.endpoints = {
      {"ep_00000000000000000000000000", "s"}, {"ep_00000000000000000000000001", "s"}, {"", ""}};
  std::vector<ReceivedRecord> received;
  const auto arrive = [&](uint32_t endpoint, int64_t us, uint8_t flags) {
    ReceivedRecord record;
    record.endpoint = endpoint;
    record.arrived_us = us;
    record.flags = flags;
    received.push_back(record);
  };
  for (int64_t us : {9000, 1000, 3000, 500000}) arrive(0, us, ReceivedRecord::kAccepted);
  arrive(0, 6000, 0);  // refused: no arrival
  arrive(2, 2000, ReceivedRecord::kAccepted);
  const Gaps gaps = FindGaps(state, received, 1, 1000, 10000);
  ASSERT_EQ(gaps.longest_ms.size(), 1U);
  EXPECT_DOUBLE_EQ(gaps.longest_ms[0], 6.0);
  EXPECT_DOUBLE_EQ(gaps.max_ms, 6.0);
  EXPECT_EQ(gaps.heard, 1U);
  // In many groups the two endpoints part; one of them heard nothing.
  arrive(1, 2000, ReceivedRecord::kAccepted);
  arrive(1, 4500, ReceivedRecord::kAccepted);
  const Gaps many = FindGaps(state, received, 4096, 1000, 10000);
  EXPECT_EQ(many.heard, 2U);
  EXPECT_DOUBLE_EQ(many.max_ms, 6.0);
}

TEST(LatencyHistogramTest, IsRightWithinThreePercent) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.QuantileMs(0.5), 0);
  for (int64_t us = 1; us <= 100000; ++us) histogram.Add(us);
  EXPECT_EQ(histogram.count(), 100000U);
  EXPECT_NEAR(histogram.QuantileMs(0.5), 50, 1.6);
  EXPECT_NEAR(histogram.QuantileMs(0.99), 99, 3.2);
  EXPECT_NEAR(histogram.QuantileMs(0.00001), 0.001, 0.0001);
  LatencyHistogram one;
  one.Add(-5);
  EXPECT_DOUBLE_EQ(one.QuantileMs(1), 0.001);
  one.Add(int64_t{1} << 50);
  EXPECT_GT(one.QuantileMs(1), 3600000);
}

}  // namespace
}  // namespace postrider::loadtest
