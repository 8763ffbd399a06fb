#include "dlq/letters/dead_letter_record.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "core/base/bytes.h"
#include "dlq/letters/dead_letter_log.h"
#include "tests/support/status_matchers.h"

namespace postrider::dlq {
namespace {

using tests::StatusIs;

IdBytes Filled(uint8_t with) {
  IdBytes bytes{};
  bytes.fill(with);
  return bytes;
}

DeadLetterRecord Sample() {
  DeadLetterRecord record;
  record.letter = subscriptions::LetterId(Filled(1));
  record.customer = subscriptions::CustomerId(Filled(2));
  record.endpoint = subscriptions::EndpointId(Filled(3));
  record.reason = DeadReason::kRejectedByReceiver;
  record.attempts = 300;
  record.last_status = 422;
  record.last_outcome = "refused";
  record.message_id = "msg_1";
  record.event_id = std::string("e\0v", 3);
  record.type = "order.created";
  record.tenant = "t1";
  record.department = std::string("\xff\0", 2);
  record.event_time = WallTimeFromMillis(1'700'000'000'123);
  record.given_up_at = WallTimeFromMillis(-1);
  record.data = "{\"a\":1}";
  return record;
}

void ExpectEqual(const DeadLetterRecord& a, const DeadLetterRecord& b) {
  EXPECT_EQ(a.letter, b.letter);
  EXPECT_EQ(a.customer, b.customer);
  EXPECT_EQ(a.endpoint, b.endpoint);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.attempts, b.attempts);
  EXPECT_EQ(a.last_status, b.last_status);
  EXPECT_EQ(a.last_outcome, b.last_outcome);
  EXPECT_EQ(a.message_id, b.message_id);
  EXPECT_EQ(a.event_id, b.event_id);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.tenant, b.tenant);
  EXPECT_EQ(a.department, b.department);
  EXPECT_EQ(a.event_time, b.event_time);
  EXPECT_EQ(a.given_up_at, b.given_up_at);
  EXPECT_EQ(a.data, b.data);
}

TEST(DeadLetterRecordTest, ComesBackAsItWas) {
  DeadLetterRecord record = Sample();
  ASSERT_OK_AND_ASSIGN(DeadLetterRecord back, DecodeDeadLetter(EncodeDeadLetter(record)));
  ExpectEqual(back, record);

  record.department.reset();
  record.attempts = std::numeric_limits<uint32_t>::max();
  record.last_status = std::numeric_limits<int32_t>::min();
  record.event_time = WallTimeFromMillis(std::numeric_limits<int64_t>::min());
  record.given_up_at = WallTimeFromMillis(std::numeric_limits<int64_t>::max());
  record.data = std::string(600'000, 'x');
  record.last_outcome.clear();
  ASSERT_OK_AND_ASSIGN(back, DecodeDeadLetter(EncodeDeadLetter(record)));
  ExpectEqual(back, record);

  record.department = "";  // an empty one is not none
  ASSERT_OK_AND_ASSIGN(back, DecodeDeadLetter(EncodeDeadLetter(record)));
  EXPECT_EQ(back.department, "");
}

TEST(DeadLetterRecordTest, HasTheseBytesForEver) {
  EXPECT_EQ(absl::BytesToHexString(EncodeDeadLetter(Sample())),
            "01"
            "01010101010101010101010101010101"
            "02020202020202020202020202020202"
            "03030303030303030303030303030303"
            "03"    // reason
            "ac02"  // attempts
            "cc06"  // status
            "0772656675736564"
            "056d73675f31"
            "03650076"
            "0d6f726465722e63726561746564"
            "027431"
            "0102ff00"
            "f6a1abfef962"  // event time
            "01"            // given up at
            "077b2261223a317d");
}

TEST(DeadLetterRecordTest, RefusesEveryPrefixAndAnythingBehindIt) {
  const std::string bytes = EncodeDeadLetter(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeDeadLetter(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  EXPECT_THAT(DecodeDeadLetter(bytes + std::string(1, '\0')),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(DeadLetterRecordTest, WhateverOneByteIsTurnedIntoItRefusesOrReadsExactly) {
  const std::string bytes = EncodeDeadLetter(Sample());
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string mutated = bytes;
      mutated[i] = static_cast<char>(value);
      const absl::StatusOr<DeadLetterRecord> decoded = DecodeDeadLetter(mutated);
      if (!decoded.ok()) {
        ++refused;
        EXPECT_THAT(decoded, StatusIs(absl::StatusCode::kDataLoss));
      } else {
        EXPECT_EQ(EncodeDeadLetter(*decoded), mutated) << i << " " << value;
      }
    }
  }
  EXPECT_GT(refused, 1'000u);
}

TEST(DeadLetterRecordTest, RefusesNumbersThatDoNotFitAndLongForms) {
  const auto with = [](uint64_t attempts, int64_t status, bool long_form) {
    ByteWriter writer;
    writer.U8(1);
    for (int i = 0; i < 3; ++i) writer.Raw(std::string(16, 'i'));
    writer.U8(1);
    if (long_form) {
      writer.U8(0x81);
      writer.U8(0x00);
    } else {
      writer.Varint(attempts);
    }
    writer.Zigzag(status);
    for (int i = 0; i < 5; ++i) writer.String("");
    writer.U8(0);
    writer.Zigzag(0);
    writer.Zigzag(0);
    writer.String("");
    return writer.Take();
  };
  EXPECT_OK(DecodeDeadLetter(with(1, 200, false)));
  EXPECT_OK(DecodeDeadLetter(with(0xffffffff, 200, false)));
  EXPECT_THAT(DecodeDeadLetter(with(0x100000001, 200, false)),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeDeadLetter(with(1, int64_t{1} << 32, false)),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeDeadLetter(with(1, 200, true)), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(DeadLetterRecordTest, NamesEachReasonDifferently) {
  std::set<std::string> names;
  uint64_t number = 1;
  for (; DeadReasonFromNumber(number); ++number) {
    names.insert(std::string(DeadReasonName(*DeadReasonFromNumber(number))));
  }
  EXPECT_EQ(number, 11u);
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_FALSE(DeadReasonFromNumber(0));
  EXPECT_FALSE(DeadReasonFromNumber(uint64_t{1} << 32 | 1));
}

TEST(LetterIdTest, BeginsWithTheDispatchTimeAndIsTheSameForTheSameMessage) {
  IdBytes digest{};
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(0xa0 + i);
  const WallTime time = WallTimeFromMillis(0x0123456789ab);
  const subscriptions::LetterId id = MakeLetterId(time, digest);
  EXPECT_EQ(id.ToUuid(), "01234567-89ab-a0a1-a2a3-a4a5a6a7a8a9");
  EXPECT_EQ(MakeLetterId(time, digest), id);
  EXPECT_LT(id, MakeLetterId(WallTimeFromMillis(0x0123456789ac), IdBytes{}));
}

TEST(DeadLetterLogTest, PutsACustomersLettersIntoOnePartitionThatNeverForgetsByTime) {
  const DeadLetterRecord record = Sample();
  const AppendRecord append = MakeDeadLetterAppend("p.", record);
  EXPECT_EQ(append.topic, "p.dead-letters");
  EXPECT_EQ(append.key, std::string(16, '\x02'));
  DeadLetterRecord other = record;
  other.letter = subscriptions::LetterId(Filled(9));
  EXPECT_EQ(MakeDeadLetterAppend("p.", other).partition, append.partition);
  std::set<int32_t> partitions;
  for (uint8_t i = 0; i < 200; ++i) {
    other.customer = subscriptions::CustomerId(Filled(i));
    partitions.insert(MakeDeadLetterAppend("p.", other).partition);
  }
  EXPECT_EQ(partitions.size(), static_cast<size_t>(kDeadLetterPartitions));
  EXPECT_EQ(*partitions.begin(), 0);

  const TopicSpec spec = DeadLetterTopic("p.", 3);
  EXPECT_EQ(spec.name, "p.dead-letters");
  EXPECT_EQ(spec.replication, 3);
  EXPECT_EQ(spec.settings[0].first, "retention.ms");
  EXPECT_EQ(spec.settings[0].second, "-1");
}

}  // namespace
}  // namespace postrider::dlq
