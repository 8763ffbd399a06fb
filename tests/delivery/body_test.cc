#include "delivery/body.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/json/json.h"
#include "core/json/members.h"
#include "core/json/reader.h"
#include "core/json/time_text.h"
#include "core/json/writer.h"
#include "gtest/gtest.h"

namespace postrider::delivery {
namespace {

using subscriptions::BodyFormat;

MessageView Message() {
  MessageView message;
  message.message_id = "msg_1";
  message.event_id = "evt-1";
  message.type = "order.created";
  message.tenant = "t1";
  message.time = WallTimeFromMillis(1'893'553'445'678);
  message.data = "{ \"n\" : 1.0 }";
  return message;
}

constexpr BodyFormat kFormats[] = {BodyFormat::kEnvelope, BodyFormat::kRaw,
                                   BodyFormat::kCloudEvents, BodyFormat::kCloudEventsBinary,
                                   BodyFormat::kNdjson};

Body Alone(BodyFormat format, const MessageView& message) {
  return MakeBody(format, Composition::kAlone, absl::MakeConstSpan(&message, 1));
}
std::string Envelope(const MessageView& message) {
  return Alone(BodyFormat::kEnvelope, message).bytes;
}

TEST(BodyTest, AnEnvelopeHoldsTheDataUntouched) {
  MessageView message = Message();
  EXPECT_EQ(Envelope(message),
            "{\"id\":\"msg_1\",\"event_id\":\"evt-1\",\"type\":\"order.created\","
            "\"timestamp\":\"2030-01-02T03:04:05.678Z\",\"tenant\":\"t1\",\"department\":null,"
            "\"data\":{ \"n\" : 1.0 }}");
  EXPECT_EQ(Alone(BodyFormat::kEnvelope, message).content_type, "application/json");
  message.department = "d\"1";
  EXPECT_NE(Envelope(message).find("\"department\":\"d\\\"1\",\"data\""), std::string::npos);
}

TEST(BodyTest, AListIsAnArrayInOrder) {
  MessageView second = Message();
  second.message_id = "msg_2";
  const std::vector<MessageView> both = {Message(), second};
  const Body list = MakeBody(BodyFormat::kEnvelope, Composition::kList, both);
  EXPECT_EQ(list.bytes, "[" + Envelope(Message()) + "," + Envelope(second) + "]");
  EXPECT_EQ(list.content_type, "application/json");
  const std::vector<MessageView> one = {Message()};
  EXPECT_EQ(MakeBody(BodyFormat::kEnvelope, Composition::kList, one).bytes,
            "[" + Envelope(Message()) + "]");
}

TEST(BodyTest, RawIsTheEventItself) {
  const Body body = Alone(BodyFormat::kRaw, Message());
  EXPECT_EQ(body.bytes, "{ \"n\" : 1.0 }");
  EXPECT_EQ(body.content_type, "application/json");
  EXPECT_TRUE(body.headers.empty());
}

// CloudEvents 1.0.2, JSON event format, sections 3 and 4.
TEST(BodyTest, AStructuredCloudEventHoldsTheDataUntouched) {
  MessageView message = Message();
  message.tenant = "t 1/\u00e9";
  const Body body = Alone(BodyFormat::kCloudEvents, message);
  EXPECT_EQ(body.bytes,
            "{\"specversion\":\"1.0\",\"id\":\"msg_1\",\"source\":\"/tenants/t%201%2F%C3%A9\","
            "\"type\":\"order.created\",\"time\":\"2030-01-02T03:04:05.678Z\","
            "\"datacontenttype\":\"application/json\",\"eventid\":\"evt-1\","
            "\"tenant\":\"t 1/\u00e9\",\"data\":{ \"n\" : 1.0 }}");
  EXPECT_EQ(body.content_type, "application/cloudevents+json");
  message.department = "d1";
  const std::vector<MessageView> both = {Message(), message};
  const Body list = MakeBody(BodyFormat::kCloudEvents, Composition::kList, both);
  EXPECT_EQ(list.bytes, "[" + Alone(BodyFormat::kCloudEvents, Message()).bytes + "," +
                            Alone(BodyFormat::kCloudEvents, message).bytes + "]");
  EXPECT_EQ(list.content_type, "application/cloudevents-batch+json");
}

// CloudEvents 1.0.2, HTTP protocol binding, section 3.1.3.2, with its own example.
TEST(BodyTest, ABinaryCloudEventSaysTheRestInHeaders) {
  MessageView message = Message();
  message.tenant = "Euro \u20ac \U0001f600";
  message.department = "a\"b%c\x7f";
  message.event_id = "";
  const Body body = Alone(BodyFormat::kCloudEventsBinary, message);
  EXPECT_EQ(body.bytes, "{ \"n\" : 1.0 }");
  EXPECT_EQ(body.content_type, "application/json");
  // The percent signs of the source are text of it, and encoded once more.
  const HttpHeaders expected = {
      {"ce-specversion", "1.0"},
      {"ce-id", "msg_1"},
      {"ce-source", "/tenants/Euro%2520%25E2%2582%25AC%2520%25F0%259F%2598%2580"},
      {"ce-type", "order.created"},
      {"ce-time", "2030-01-02T03:04:05.678Z"},
      {"ce-tenant", "Euro%20%E2%82%AC%20%F0%9F%98%80"},
      {"ce-department", "a%22b%25c%7F"}};
  EXPECT_EQ(body.headers, expected);
}

TEST(BodyTest, ALineOfNdjsonHasNoNewlineInIt) {
  MessageView message = Message();
  message.data = "{\n \"a\"\r\n:\"x\\ny\u2028\",\t\"b\":[1,\n2]\n}\n";
  MessageView second = Message();
  second.event_id = "line\nbreak";
  const std::vector<MessageView> both = {message, second};
  const Body body = MakeBody(BodyFormat::kNdjson, Composition::kList, both);
  EXPECT_EQ(body.content_type, "application/x-ndjson");
  const std::vector<std::string> lines = absl::StrSplit(body.bytes, '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(
      absl::StrContains(lines[0], "\"data\":{  \"a\"  :\"x\\ny\u2028\",\t\"b\":[1, 2] } }"));
  EXPECT_EQ(lines[1], Envelope(second));
  EXPECT_EQ(lines[2], "");
  EXPECT_EQ(Alone(BodyFormat::kNdjson, second).bytes, lines[1] + "\n");
}

// What was composed before its endpoint chose a format without a list.
TEST(BodyTest, WhereThereIsNoListItIsOneOfEnvelopes) {
  const std::vector<MessageView> both = {Message(), Message()};
  for (const BodyFormat format : {BodyFormat::kRaw, BodyFormat::kCloudEventsBinary}) {
    const Body body = MakeBody(format, Composition::kList, both);
    EXPECT_EQ(body.bytes, "[" + Envelope(Message()) + "," + Envelope(Message()) + "]");
    EXPECT_TRUE(body.headers.empty());
  }
}

// BATCH: whatever an event says, a receiver reads one message for each, and its data as they are.
TEST(BodyTest, NoEventForgesASibling) {
  const std::string forged =
      "\"},{\"id\":\"msg_forged\",\"data\":1}\n{\"id\":\"msg_forged\"}\r\nce-id: msg_forged";
  std::string data = "{\"note\":";
  AppendJsonString(forged, &data);
  data += ",\n\"id\":\"msg_forged\"}";
  ASSERT_EQ(ProveJson(data), JsonProof::kProven);
  MessageView message;
  message.message_id = "msg_1";
  message.event_id = message.type = message.tenant = forged;
  message.department = forged;
  message.data = data;
  const std::vector<MessageView> three = {message, message, message};
  for (const BodyFormat format : kFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    if (!IsForStreamingOnly(format)) {
      const std::string list = MakeBody(format, Composition::kList, three).bytes;
      std::vector<std::string> parts;
      if (format == BodyFormat::kNdjson) {
        parts = absl::StrSplit(list, '\n', absl::SkipEmpty());
      } else {
        ASSERT_EQ(ProveJson(list), JsonProof::kProven);
        const auto elements = RawElements(list);
        ASSERT_TRUE(elements.has_value());
        for (const absl::string_view element : *elements) parts.emplace_back(element);
      }
      ASSERT_EQ(parts.size(), 3u);
      for (const std::string& part : parts) {
        ASSERT_EQ(ProveJson(part), JsonProof::kProven);
        const auto value = JsonValue::Parse(part);
        ASSERT_TRUE(value.ok()) << value.status();
        EXPECT_EQ(*value->Find("id")->string(), "msg_1");
        EXPECT_EQ(*value->Find("tenant")->string(), forged);
        EXPECT_EQ(*value->Find("data")->Find("note")->string(), forged);
      }
    }
    const Body alone = Alone(format, message);
    const std::string& whole = alone.bytes;
    EXPECT_EQ(ProveJson(whole), JsonProof::kProven);
    for (const auto& [name, value] : alone.headers) EXPECT_TRUE(IsHeaderValue(value)) << name;
  }
}

std::string Json(absl::string_view text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

TEST(BodyTest, NoTextBreaksOutOfItsString) {
  EXPECT_EQ(Json("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Json(absl::string_view("\0\n\x1f", 3)), "\"\\u0000\\n\\u001f\"");
  EXPECT_EQ(Json("\x7f/\u00e9\u20ac\U0001f600"), "\"\x7f/\u00e9\u20ac\U0001f600\"");
}

TEST(BodyTest, BytesThatAreNoUtf8AreReplaced) {
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(Json("a\xff"), "\"a" + replacement + "\"");
  EXPECT_EQ(Json("\xc0\xaf"), "\"" + replacement + replacement + "\"");  // overlong
  EXPECT_EQ(Json("\xed\xa0\x80"), "\"" + replacement + replacement + replacement + "\"");
  EXPECT_EQ(Json("\xe2\x82"), "\"" + replacement + replacement + "\"");    // cut short
  EXPECT_EQ(Json("\xf4\x90\x80\x80").size(), 2 + 4 * replacement.size());  // past U+10FFFF
}

TEST(BodyTest, TheBoundHoldsInEveryFormat) {
  const std::string worst(100, '\x01');
  const std::string plain(100, 'x');
  for (const BodyFormat format : kFormats) {
    for (const std::string& text : {std::string(), plain, worst, std::string("\xff\xff")}) {
      for (const bool department : {false, true}) {
        MessageView message = Message();
        message.message_id = message.event_id = message.type = message.tenant = text;
        if (department) message.department = text;
        SCOPED_TRACE(absl::StrCat(static_cast<int>(format), " ", text.size(), " ", department));
        EXPECT_LE(Alone(format, message).bytes.size(), BodyBytesMax(format, message));
        if (IsForStreamingOnly(format)) continue;
        for (const size_t count : {1, 2, 10}) {
          const std::vector<MessageView> messages(count, message);
          EXPECT_LE(MakeBody(format, Composition::kList, messages).bytes.size(),
                    count * BodyBytesMax(format, message));
        }
      }
    }
  }
}

TEST(BodyTest, ABoundOfPlainTextIsCloseToIt) {
  MessageView message = Message();
  const std::string text(100, 'x');
  message.message_id = message.event_id = message.type = message.tenant = text;
  for (const BodyFormat format : {BodyFormat::kEnvelope, BodyFormat::kNdjson}) {
    EXPECT_LE(BodyBytesMax(format, message) - Alone(format, message).bytes.size(), 4u);
    message.department = text;
    EXPECT_LE(BodyBytesMax(format, message) - Alone(format, message).bytes.size(), 4u);
  }
}

// Texts as long as the matcher lets them be.
TEST(BodyTest, FormatsDifferByNoMoreThanIsSaid) {
  for (const char c : {'x', '\x01', '"'}) {
    const std::string text(256, c);
    MessageView message = Message();
    message.event_id = message.type = message.tenant = text;
    message.department = text;
    EXPECT_LE(BodyBytesMax(BodyFormat::kCloudEvents, message),
              BodyBytesMax(BodyFormat::kNdjson, message) + kBodyBytesBetweenFormats);
    EXPECT_LE(BodyBytesMax(BodyFormat::kEnvelope, message),
              BodyBytesMax(BodyFormat::kNdjson, message) + 1);
    EXPECT_LE(BodyBytesMax(BodyFormat::kNdjson, message),
              BodyBytesMax(BodyFormat::kCloudEvents, message));
  }
}

TEST(BodyTest, TimesAreWrittenInFull) {
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(0)), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(-1)), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(951'782'400'009)), "2000-02-29T00:00:00.009Z");
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(INT64_MAX)).size(), 24u);
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(INT64_MIN)).size(), 24u);
}

TEST(BodyTest, ABatchIdIsThatOfItsMessagesInOrder) {
  MessageView second = Message();
  second.message_id = "msg_2";
  const std::vector<MessageView> both = {Message(), second};
  const std::vector<MessageView> turned = {second, Message()};
  EXPECT_EQ(BatchId(both).size(), 30u);
  EXPECT_EQ(BatchId(both).substr(0, 4), "bat_");
  EXPECT_EQ(BatchId(both), BatchId(both));
  EXPECT_NE(BatchId(both), BatchId(turned));
  EXPECT_NE(BatchId(both), BatchId(absl::MakeConstSpan(both).first(1)));
}

}  // namespace
}  // namespace postrider::delivery
