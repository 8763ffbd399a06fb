#include "subscriptions/dispatch/dispatch_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/random.h"
#include "core/stream/key_groups.h"

namespace postrider::subscriptions {
namespace {

IdBytes BytesOf(uint8_t first) {
  IdBytes bytes{};
  bytes[0] = first;
  bytes[15] = 7;
  return bytes;
}

DispatchRecord Example() {
  DispatchRecord record;
  record.identity.source_topic = "events.order.created";
  record.identity.source_partition = 3;
  record.identity.incarnation_ms = 1'700'000'000'123;
  record.identity.source_offset = 98'765'432'100;
  record.identity.endpoint = EndpointId(BytesOf(1));
  record.identity.projection = 0;
  record.identity.replay = 2;
  record.customer = CustomerId(BytesOf(2));
  record.message_id = MakeMessageId(record.identity, "e-1");
  record.event_id = "e-1";
  record.type = "order.created";
  record.tenant = "t1";
  record.department = "d1";
  record.event_time = WallTimeFromMillis(-5);
  record.dispatch_time = WallTimeFromMillis(1'800'000'000'000);
  record.endpoint_xid = UINT64_MAX;
  record.grants_xid = 12;
  record.data = R"({"a":1})";
  return record;
}

void ExpectEqual(const DispatchRecord& a, const DispatchRecord& b) {
  EXPECT_EQ(a.identity, b.identity);
  EXPECT_EQ(a.part, b.part);
  EXPECT_EQ(a.customer, b.customer);
  EXPECT_EQ(a.message_id, b.message_id);
  EXPECT_EQ(a.event_id, b.event_id);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.tenant, b.tenant);
  EXPECT_EQ(a.department, b.department);
  EXPECT_EQ(a.event_time, b.event_time);
  EXPECT_EQ(a.dispatch_time, b.dispatch_time);
  EXPECT_EQ(a.endpoint_xid, b.endpoint_xid);
  EXPECT_EQ(a.grants_xid, b.grants_xid);
  EXPECT_EQ(a.hops, b.hops);
  EXPECT_EQ(a.data, b.data);
}

TEST(DispatchRecordTest, DecodesWhatItEncodes) {
  DispatchRecord record = Example();
  auto decoded = DecodeDispatchRecord(EncodeDispatchRecord(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectEqual(*decoded, record);

  record.department = absl::nullopt;
  record.data = std::string("\"\0\"", 3);
  record.identity.source_offset = 0;
  record.event_id.clear();
  decoded = DecodeDispatchRecord(EncodeDispatchRecord(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectEqual(*decoded, record);

  record.department = "";  // not the same as none
  decoded = DecodeDispatchRecord(EncodeDispatchRecord(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectEqual(*decoded, record);
}

TEST(DispatchRecordTest, IsOfTheFirstVersionInItsFirstPartOnly) {
  DispatchRecord record = Example();
  const std::string first = EncodeDispatchRecord(record);
  EXPECT_EQ(first[0], 1);
  for (const uint32_t part : {1U, 63U, UINT32_MAX}) {
    record.part = part;
    const std::string bytes = EncodeDispatchRecord(record);
    EXPECT_EQ(bytes[0], 2);
    const auto decoded = DecodeDispatchRecord(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectEqual(*decoded, record);
    EXPECT_EQ(decoded->identity.Digest(), Example().identity.Digest());
  }
  // No second text for the first part.
  record.part = 1;
  std::string bytes = EncodeDispatchRecord(record);
  bytes[2] = 0;
  EXPECT_EQ(DecodeDispatchRecord(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(DispatchRecordTest, IsOfTheThirdVersionOnlyWithHops) {
  DispatchRecord record = Example();
  for (const uint32_t part : {0U, 7U}) {
    for (const uint32_t hops : {1U, 3U, UINT32_MAX}) {
      record.part = part;
      record.hops = hops;
      std::string bytes = EncodeDispatchRecord(record);
      EXPECT_EQ(bytes[0], 3);
      const auto decoded = DecodeDispatchRecord(bytes);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ExpectEqual(*decoded, record);
      EXPECT_EQ(decoded->identity.Digest(), Example().identity.Digest());
    }
  }
  // No second text for none.
  record.hops = 1;
  std::string bytes = EncodeDispatchRecord(record);
  bytes[3] = 0;
  EXPECT_EQ(DecodeDispatchRecord(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(DispatchKeyTest, IsTheEndpointAloneInItsFirstPart) {
  const EndpointId endpoint(BytesOf(1));
  EXPECT_EQ(EncodeDispatchKey({endpoint, 0}), endpoint.view());
  EXPECT_EQ(EncodeDispatchKey({endpoint, 0x102}),
            absl::StrCat(endpoint.view(), absl::string_view("\x02\x01\0\0", 4)));
  for (const uint32_t part : {0U, 1U, 63U, UINT32_MAX}) {
    const auto key = DecodeDispatchKey(EncodeDispatchKey({endpoint, part}));
    ASSERT_TRUE(key);
    EXPECT_EQ(*key, (DispatchKey{endpoint, part}));
  }
}

TEST(DispatchKeyTest, RefusesWhatItDoesNotWrite) {
  const std::string key = EncodeDispatchKey({EndpointId(BytesOf(1)), 7});
  EXPECT_FALSE(DecodeDispatchKey(""));
  EXPECT_FALSE(DecodeDispatchKey(absl::string_view(key).substr(0, 15)));
  EXPECT_FALSE(DecodeDispatchKey(absl::string_view(key).substr(0, 19)));
  EXPECT_FALSE(DecodeDispatchKey(absl::StrCat(key, "x")));
  EXPECT_FALSE(DecodeDispatchKey(absl::StrCat(key.substr(0, 16), std::string(4, '\0'))));
}

TEST(DispatchKeyTest, LiesInTheKeyGroupOfItsPart) {
  const EndpointId endpoint(BytesOf(1));
  for (const uint32_t part : {0U, 1U, 2U, 63U}) {
    EXPECT_EQ(KeyGroupOf(EncodeDispatchKey({endpoint, part}), 0, 64),
              KeyGroupOf(endpoint.view(), part, 64));
  }
}

TEST(PartOfTest, SpreadsMessagesEvenly) {
  DispatchRecord record = Example();
  std::vector<int> counts(4);
  for (int i = 0; i < 4'000; ++i) {
    const IdBytes id = MakeMessageId(record.identity, absl::StrCat("e-", i));
    EXPECT_EQ(PartOf(id, 1), 0U);
    const uint32_t part = PartOf(id, 4);
    EXPECT_EQ(part, PartOf(id, 4));
    ++counts.at(part);
  }
  for (const int count : counts) EXPECT_NEAR(count, 1'000, 150);
}

TEST(DispatchRecordTest, EndsWithTheDataAlone) {
  const DispatchRecord record = Example();
  const std::string bytes = EncodeDispatchRecord(record);
  EXPECT_EQ(bytes.substr(bytes.size() - record.data.size()), record.data);
}

TEST(DispatchRecordTest, ShowsItsTextsWhereTheyStand) {
  const DispatchRecord record = Example();
  const std::string bytes = EncodeDispatchRecord(record);
  const absl::StatusOr<DispatchRecordView> view = ViewDispatchRecord(bytes);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->data, record.data);
  EXPECT_EQ(view->data.data() + view->data.size(), bytes.data() + bytes.size());
  EXPECT_EQ(view->identity.Digest(), record.identity.Digest());
  for (const auto& [shown, text] :
       {std::pair(view->identity.source_topic, &record.identity.source_topic),
        std::pair(view->event_id, &record.event_id), std::pair(view->type, &record.type),
        std::pair(view->tenant, &record.tenant)}) {
    EXPECT_EQ(shown, *text);
    EXPECT_GE(shown.data(), bytes.data());
    EXPECT_LE(shown.data() + shown.size(), bytes.data() + bytes.size());
  }
}

TEST(DispatchRecordTest, RefusesEveryCutShortOfItsData) {
  const DispatchRecord record = Example();
  const std::string bytes = EncodeDispatchRecord(record);
  for (size_t size = 0; size <= bytes.size() - record.data.size(); ++size) {
    const auto decoded = DecodeDispatchRecord(absl::string_view(bytes).substr(0, size));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST(DispatchRecordTest, RefusesANewerVersionAndUnknownFlags) {
  std::string bytes = EncodeDispatchRecord(Example());
  bytes[0] = 4;
  EXPECT_EQ(DecodeDispatchRecord(bytes).status(),
            absl::UnimplementedError("dispatch record: version 4, this program reads 3"));
  bytes[0] = 12;
  EXPECT_EQ(DecodeDispatchRecord(bytes).status().code(), absl::StatusCode::kDataLoss);
  bytes[0] = 1;
  bytes[1] = 2;
  EXPECT_EQ(DecodeDispatchRecord(bytes).status().code(), absl::StatusCode::kDataLoss);
}

// Total over any bytes, and one text per record: what decodes encodes to the same bytes again.
TEST(DispatchRecordTest, MutatedBytesAreRefusedOrRoundTrip) {
  DispatchRecord record = Example();
  const std::string first_part = EncodeDispatchRecord(record);
  record.part = 300;
  const std::string other_part = EncodeDispatchRecord(record);
  record.hops = 200;
  const std::string with_hops = EncodeDispatchRecord(record);
  Random random(41);
  int decoded_count = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = round % 3 == 0 ? first_part : round % 3 == 1 ? other_part : with_hops;
    for (uint64_t edits = 1 + random.Below(4); edits-- > 0;) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(3)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes.insert(at, 1, static_cast<char>(random.Next()));
          break;
        default:
          bytes.erase(at, 1 + random.Below(3));
          break;
      }
    }
    const auto decoded = DecodeDispatchRecord(bytes);
    if (!decoded.ok()) {
      const bool newer = bytes[0] > 3 && bytes[0] < 12;
      ASSERT_EQ(decoded.status().code(),
                newer ? absl::StatusCode::kUnimplemented : absl::StatusCode::kDataLoss);
      continue;
    }
    ++decoded_count;
    ASSERT_EQ(EncodeDispatchRecord(*decoded), bytes) << "seed 41, round " << round;
  }
  EXPECT_GT(decoded_count, 1'000);
}

TEST(MessageIdentityTest, EveryFieldTellsApart) {
  const MessageIdentity base = Example().identity;
  std::vector<MessageIdentity> all(8, base);
  all[1].source_topic += "x";
  all[2].source_partition = 4;
  all[3].incarnation_ms += 1;
  all[4].source_offset += 1;
  all[5].endpoint = EndpointId(BytesOf(9));
  all[6].projection = 1;
  all[7].replay = 3;
  std::set<IdBytes> digests;
  for (const MessageIdentity& identity : all) digests.insert(identity.Digest());
  EXPECT_EQ(digests.size(), all.size());
  EXPECT_EQ(base.Digest(), Example().identity.Digest());
}

TEST(MessageIdTest, IsThatOfTheGivenIdOrOfThePlaceInTheLog) {
  const MessageIdentity base = Example().identity;
  MessageIdentity elsewhere = base;
  elsewhere.source_offset = 5;
  elsewhere.source_partition = 0;
  elsewhere.incarnation_ms = 1;
  elsewhere.replay = 9;
  // A given id is the same message wherever and however often it is published or replayed.
  EXPECT_EQ(MakeMessageId(base, "e-1"), MakeMessageId(elsewhere, "e-1"));
  EXPECT_NE(MakeMessageId(base, "e-1"), MakeMessageId(base, "e-2"));
  EXPECT_NE(MakeMessageId(base, ""), MakeMessageId(elsewhere, ""));
  MessageIdentity replayed = base;
  replayed.replay = 77;
  EXPECT_EQ(MakeMessageId(base, ""), MakeMessageId(replayed, ""));
  MessageIdentity other = base;
  other.endpoint = EndpointId(BytesOf(9));
  EXPECT_NE(MakeMessageId(base, "e-1"), MakeMessageId(other, "e-1"));
  other = base;
  other.source_topic = "events.order.deleted";
  EXPECT_NE(MakeMessageId(base, "e-1"), MakeMessageId(other, "e-1"));
}

TEST(MessageIdTest, IsStableForEver) {
  // Receivers drop repeats by it, over upgrades too.
  const std::string id = FormatMessageId(MakeMessageId(Example().identity, "e-1"));
  EXPECT_EQ(id.size(), 30u);
  EXPECT_EQ(id, "msg_7hcy2a35kvpsgnw7fwh8gvsdvd");
  EXPECT_EQ(FormatMessageId(MakeMessageId(Example().identity, "")),
            "msg_1k71t22a2hs61rp7bez5q0r2ke");
}

TEST(DispatchTopicTest, HasAPartitionPerKeyGroupAndNoTimeLimit) {
  const TopicSpec spec = DispatchTopic("postrider.", "default", 64, 3);
  EXPECT_EQ(spec.name, "postrider.dispatch.default");
  EXPECT_EQ(spec.partitions, 64);
  EXPECT_EQ(spec.replication, 3);
  const auto has = [&spec](const char* name, const char* value) {
    return std::find(spec.settings.begin(), spec.settings.end(),
                     std::pair<std::string, std::string>(name, value)) != spec.settings.end();
  };
  EXPECT_TRUE(has("retention.ms", "-1"));
  EXPECT_TRUE(has("cleanup.policy", "delete"));
  EXPECT_TRUE(has("min.insync.replicas", "2"));
}

}  // namespace
}  // namespace postrider::subscriptions
