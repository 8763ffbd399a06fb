#include "subscriptions/matching/decoder/json_decoder.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/fake_task_context.h"

namespace postrider::subscriptions {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

class JsonDecoderTest : public testing::Test {
 protected:
  void SetUp() override { Make({}); }
  void Make(const JsonDecoderOptions& options) {
    auto made = JsonDecoder::Create(options);
    ASSERT_TRUE(made.ok()) << made.status();
    decoder_ = *std::move(made);
  }
  // Both steps.
  absl::optional<RejectReason> Decode(std::string value, Headers headers = {}) {
    record_.topic = "events.order.created";
    record_.value = std::move(value);
    record_.headers = std::move(headers);
    record_.timestamp = WallTimeFromMillis(1000);
    if (const auto reason = decoder_->Begin(record_.View())) return reason;
    return decoder_->Finish();
  }
  const DecodedEvent& event() const { return decoder_->event(); }

  OwnedRecord record_;
  std::unique_ptr<JsonDecoder> decoder_;
};

TEST_F(JsonDecoderTest, TakesFieldsFromThePayload) {
  ASSERT_EQ(
      Decode(R"({"tenant":"t1","department":"d1","id":"e-1","time":"2030-03-31T01:30:00+01:00"})"),
      absl::nullopt);
  EXPECT_EQ(event().tenant, "t1");
  EXPECT_EQ(event().department, "d1");
  EXPECT_EQ(event().id, "e-1");
  EXPECT_EQ(MillisSinceEpoch(event().time), 1901147400000);
}

TEST_F(JsonDecoderTest, HeadersComeFirstAndEmptyOnesDoNotCount) {
  ASSERT_EQ(
      Decode(R"({"tenant":"in","department":"in","id":"in","time":5})",
             {{"tenant", "t1"}, {"department", ""}, {"id", "e-2"}, {"time", "1700000000000"}}),
      absl::nullopt);
  EXPECT_EQ(event().tenant, "t1");
  EXPECT_EQ(event().department, "in");
  EXPECT_EQ(event().id, "e-2");
  EXPECT_EQ(MillisSinceEpoch(event().time), 1700000000000);
}

TEST_F(JsonDecoderTest, NullEmptyAndAbsentFieldsAreNone) {
  for (const char* value :
       {"{}", R"({"tenant":null,"department":null,"id":null,"time":null})",
        R"({"tenant":"","department":"","id":"","time":""})", "[]", "1", "null", R"("tenant")"}) {
    ASSERT_EQ(Decode(value), absl::nullopt) << value;
    EXPECT_EQ(event().tenant, "") << value;
    EXPECT_EQ(event().department, absl::nullopt) << value;
    EXPECT_EQ(event().id, "") << value;
    EXPECT_EQ(MillisSinceEpoch(event().time), 1000) << value;
  }
}

TEST_F(JsonDecoderTest, NumbersAreIdsByTheirTextAndTimesInMilliseconds) {
  ASSERT_EQ(Decode(R"({"tenant":"t","id":170141183460469231731687303715884105727,"time":-1})"),
            absl::nullopt);
  EXPECT_EQ(event().id, "170141183460469231731687303715884105727");
  EXPECT_EQ(MillisSinceEpoch(event().time), -1);
}

TEST_F(JsonDecoderTest, SaysWhyItRefuses) {
  using enum RejectReason;
  const std::pair<const char*, RejectReason> cases[] = {
      {R"({"tenant":1})", kTenantWrongType},
      {R"({"tenant":true})", kTenantWrongType},
      {R"({"tenant":{"a":1}})", kTenantWrongType},
      {R"({"tenant":["t1"]})", kTenantWrongType},
      {R"({"tenant":"t","department":1})", kDepartmentWrongType},
      {R"({"tenant":"t","department":[]})", kDepartmentWrongType},
      {R"({"tenant":"t","id":true})", kIdWrongType},
      {R"({"tenant":"t","id":{}})", kIdWrongType},
      {R"({"tenant":"t","time":"yesterday"})", kBadTime},
      {R"({"tenant":"t","time":"2030-02-30T00:00:00Z"})", kBadTime},
      {R"({"tenant":"t","time":"2030-03-30T00:00:00"})", kBadTime},
      {R"({"tenant":"t","time":1.5})", kBadTime},
      {R"({"tenant":"t","time":1e12})", kBadTime},
      {R"({"tenant":"t","time":253402300800000})", kBadTime},
      {R"({"tenant":"t","time":true})", kBadTime},
      {R"({"tenant":"t\u0000"})", kBadText},
      {R"({"tenant":"t\ud800"})", kBadText},
      {R"({"tenant":"t","id":"a\nb"})", kBadText},
      {R"(1},{"id":"forged")", kNotJson},
      {"", kNotJson},
      {R"({"tenant":"t1"}})", kNotJson},
      {R"({"tenant":"t1"} {"tenant":"t2"})", kNotJson},
      {"\xef\xbb\xbf{}", kNotJson},
      {"{\"tenant\":\"\xff\"}", kNotUtf8},
  };
  for (const auto& [value, reason] : cases) {
    const auto said = Decode(value);
    ASSERT_TRUE(said.has_value()) << value;
    EXPECT_EQ(RejectReasonName(*said), RejectReasonName(reason)) << value;
  }
  EXPECT_EQ(Decode(std::string(2'000, '[')), kTooDeep);
}

TEST_F(JsonDecoderTest, HoldsTheLengthOfAFieldOnBothSides) {
  EXPECT_EQ(Decode("{}", {{"tenant", std::string(256, 't')}}), absl::nullopt);
  EXPECT_EQ(Decode("{}", {{"tenant", std::string(257, 't')}}), RejectReason::kBadText);
  EXPECT_EQ(Decode("{}", {{"tenant", "t"}, {"id", "\xff"}}), RejectReason::kBadText);
  EXPECT_EQ(Decode("{}", {{"tenant", "t"}, {"id", std::string("a\0", 2)}}), RejectReason::kBadText);
}

TEST_F(JsonDecoderTest, HoldsTheSizeOfAnEventOnBothSides) {
  JsonDecoderOptions options;
  options.bytes_max = 20;
  Make(options);
  EXPECT_EQ(Decode("\"" + std::string(18, 'x') + "\""), absl::nullopt);
  EXPECT_EQ(Decode("\"" + std::string(19, 'x') + "\""), RejectReason::kTooLarge);
}

TEST_F(JsonDecoderTest, ATenantFromAHeaderIsKnownWithoutParsing) {
  record_.value = "this is no JSON";
  record_.headers = {{"tenant", "t1"}};
  EXPECT_EQ(decoder_->Begin(record_.View()), absl::nullopt);
  EXPECT_EQ(event().tenant, "t1");
  EXPECT_EQ(decoder_->Finish(), RejectReason::kNotJson);
}

TEST_F(JsonDecoderTest, FollowsThePlacesInTheirOrder) {
  JsonDecoderOptions options;
  options.tenant = {"/meta/org", "header:org", "/org"};
  options.id = {};
  Make(options);
  ASSERT_EQ(Decode(R"({"meta":{"org":"a"},"org":"c","id":"x"})", {{"org", "b"}}), absl::nullopt);
  EXPECT_EQ(event().tenant, "a");
  EXPECT_EQ(event().id, "");
  ASSERT_EQ(Decode(R"({"meta":{},"org":"c"})", {{"org", "b"}}), absl::nullopt);
  EXPECT_EQ(event().tenant, "b");
  ASSERT_EQ(Decode(R"({"org":"c"})"), absl::nullopt);
  EXPECT_EQ(event().tenant, "c");
}

TEST_F(JsonDecoderTest, NamesTheOptionThatIsWrong) {
  JsonDecoderOptions options;
  options.department = {"department"};
  const auto made = JsonDecoder::Create(options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("source.department: \"department\""),
            absl::string_view::npos);
  options.department = {"header:"};
  EXPECT_FALSE(JsonDecoder::Create(options).ok());
}

TEST_F(JsonDecoderTest, TheTypeIsTheTopicWithoutItsPrefix) {
  EXPECT_EQ(decoder_->TypeOf("events.order.created"), "order.created");
  EXPECT_EQ(decoder_->TypeOf("orders"), "orders");
  EXPECT_EQ(decoder_->TypeOf("events."), "events.");
}

TEST_F(JsonDecoderTest, SurvivesAThousandHeaders) {
  Headers headers;
  for (int i = 0; i < 1'000; ++i) headers.emplace_back("", "x");
  headers.emplace_back("tenant", "t1");
  headers.emplace_back("tenant", "t2");
  ASSERT_EQ(Decode("null", headers), absl::nullopt);
  EXPECT_EQ(event().tenant, "t1");
}

}  // namespace
}  // namespace postrider::subscriptions
