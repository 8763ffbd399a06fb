#include "delivery/body.h"

#include <string>
#include <vector>

#include "core/json/time_text.h"
#include "core/json/writer.h"
#include "gtest/gtest.h"

namespace postrider::delivery {
namespace {

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

TEST(BodyTest, AnEnvelopeHoldsTheDataUntouched) {
  MessageView message = Message();
  EXPECT_EQ(EnvelopeBody(message),
            "{\"id\":\"msg_1\",\"event_id\":\"evt-1\",\"type\":\"order.created\","
            "\"timestamp\":\"2030-01-02T03:04:05.678Z\",\"tenant\":\"t1\",\"department\":null,"
            "\"data\":{ \"n\" : 1.0 }}");
  message.department = "d\"1";
  EXPECT_NE(EnvelopeBody(message).find("\"department\":\"d\\\"1\",\"data\""), std::string::npos);
}

TEST(BodyTest, ABatchIsAnArrayInOrder) {
  MessageView second = Message();
  second.message_id = "msg_2";
  const std::vector<MessageView> both = {Message(), second};
  EXPECT_EQ(BatchBody(both), "[" + EnvelopeBody(Message()) + "," + EnvelopeBody(second) + "]");
  EXPECT_EQ(BatchBody({}), "[]");
  const std::vector<MessageView> one = {Message()};
  EXPECT_EQ(BatchBody(one), "[" + EnvelopeBody(Message()) + "]");
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

TEST(BodyTest, TheBoundHoldsForTheWorstText) {
  MessageView message = Message();
  const std::string worst(100, '\x01');
  message.message_id = message.event_id = message.type = message.tenant = worst;
  message.department = worst;
  EXPECT_LE(EnvelopeBody(message).size(), EnvelopeBytesMax(message));
  EXPECT_LE(EnvelopeBody(Message()).size(), EnvelopeBytesMax(Message()));
}

TEST(BodyTest, ABoundOfAPlainEnvelopeIsCloseToIt) {
  MessageView message;
  const std::string text(100, 'x');
  message.message_id = message.event_id = message.type = message.tenant = text;
  message.data = "{}";
  EXPECT_LE(EnvelopeBytesMax(message) - EnvelopeBody(message).size(), 4u);
  message.department = text;
  EXPECT_LE(EnvelopeBytesMax(message) - EnvelopeBody(message).size(), 4u);
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
