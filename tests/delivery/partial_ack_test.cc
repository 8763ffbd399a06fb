#include "delivery/partial_ack.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

using subscriptions::OrderKind;

IdBytes Id(uint8_t last) {
  IdBytes id{};
  id[15] = last;
  return id;
}

std::string Text(uint8_t last) { return subscriptions::FormatMessageId(Id(last)); }

PartialAck Read(absl::string_view body, bool cut = false) {
  return ReadPartialAck(body, cut, {Id(10), Id(11), Id(12), Id(13)});
}

using Places = std::vector<size_t>;

TEST(PartialAckTest, ReadsIdsAndPlacesAndEachOnce) {
  const PartialAck ack = Read(absl::StrCat("{\"failed\":[\"", Text(13), "\",1,\"", Text(11),
                                           "\",1],\"note\":{\"failed\":[0]}}"));
  EXPECT_EQ(ack.reading, AckReading::kReadable);
  EXPECT_EQ(ack.failed, (Places{1, 3}));
  EXPECT_EQ(ack.foreign, 0u);
}

TEST(PartialAckTest, AnEmptyListSaysThatNoneHasFailed) {
  const PartialAck ack = Read(" {\"failed\": []} ");
  EXPECT_EQ(ack.reading, AckReading::kReadable);
  EXPECT_TRUE(ack.failed.empty());
}

TEST(PartialAckTest, IgnoresAndCountsWhatIsNotOfThisBatch) {
  const std::string longer = Text(10) + "0";
  const PartialAck ack = Read(absl::StrCat(
      "{\"failed\":[\"", Text(99), "\",4,-1,1.0,1e0,\"2\",null,true,[0],{\"id\":\"", Text(10),
      "\"},\"", longer, "\",\"bat_", Text(10).substr(4), "\",9223372036854775808,3]}"));
  EXPECT_EQ(ack.reading, AckReading::kReadable);
  EXPECT_EQ(ack.failed, (Places{3}));
  EXPECT_EQ(ack.foreign, 13u);
}

TEST(PartialAckTest, WhatCannotBeReadSaysNothing) {
  for (const absl::string_view body :
       {"", " ", "ok", "<html>", "[]", "[0]", "null", "{}", "{\"failed\":null}",
        "{\"failed\":\"0\"}", "{\"failed\":{\"0\":true}}", "{\"Failed\":[0]}", "{\"failed\":[0]",
        "{\"failed\":[0]}x", "{\"failed\":[0],\"failed\":[]}", "{\"failed\":[\"\xff\"]}",
        "\xef\xbb\xbf{\"failed\":[]}"}) {
    const PartialAck ack = Read(body);
    EXPECT_EQ(ack.reading, AckReading::kUnreadable) << body;
    EXPECT_TRUE(ack.failed.empty()) << body;
  }
  EXPECT_EQ(Read("{\"failed\":[0]}", true).reading, AckReading::kUnreadable);
}

TEST(PartialAckTest, HasABoundOnItsBytesAndReadsAListOfTheLargestBatch) {
  std::vector<IdBytes> ids(5'000);
  std::string body = "{\"failed\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i][0] = static_cast<uint8_t>(i >> 8);
    ids[i][1] = static_cast<uint8_t>(i);
    absl::StrAppend(&body, i == 0 ? "\"" : ",\"", subscriptions::FormatMessageId(ids[i]), "\"");
  }
  body += "]}";
  EXPECT_EQ(ReadPartialAck(body, false, ids).failed.size(), 5'000u);
  body.append(kPartialAckBytesMax - body.size(), ' ');
  EXPECT_EQ(ReadPartialAck(body, false, ids).failed.size(), 5'000u);
  body.push_back(' ');
  EXPECT_EQ(ReadPartialAck(body, false, ids).reading, AckReading::kUnreadable);
}

TEST(UnacknowledgedTest, OfOrderedEndpointsOnlyWhatCameBeforeTheFirstFailureCounts) {
  // Two keys: even and odd places.
  const auto key = [](size_t place) { return uint64_t{place % 2}; };
  EXPECT_EQ(Unacknowledged({1, 4}, 6, OrderKind::kNone, key), (Places{1, 4}));
  EXPECT_EQ(Unacknowledged({1, 4}, 6, OrderKind::kEndpoint, key), (Places{1, 2, 3, 4, 5}));
  EXPECT_EQ(Unacknowledged({1, 4}, 6, OrderKind::kKey, key), (Places{1, 3, 4, 5}));
  EXPECT_EQ(Unacknowledged({5}, 6, OrderKind::kKey, key), (Places{5}));
  EXPECT_EQ(Unacknowledged({0}, 3, OrderKind::kKey, key), (Places{0, 2}));
  for (const OrderKind order : {OrderKind::kNone, OrderKind::kKey, OrderKind::kEndpoint}) {
    EXPECT_TRUE(Unacknowledged({}, 3, order, key).empty());
  }
}

}  // namespace
}  // namespace postrider::delivery
