#include "core/json/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace postrider {
namespace {

JsonValue Parsed(absl::string_view text) {
  absl::StatusOr<JsonValue> value = JsonValue::Parse(text);
  EXPECT_TRUE(value.ok()) << text << ": " << value.status();
  return value.ok() ? *value : JsonValue();
}

TEST(JsonValueTest, KeepsWhatItParsedInItsOrder) {
  for (const char* text :
       {"null", "true", "false", "0", "-7", "9223372036854775807", "-9223372036854775808", "1.5",
        "1e+300", "\"\"", "[]", "{}", R"({"z":1,"a":[1,"x",null,{"b":{}}],"m":"\u0001\"\\\n"})"}) {
    EXPECT_EQ(Parsed(text).Serialize(), text);
  }
}

TEST(JsonValueTest, TellsIntegersFromDoubles) {
  EXPECT_EQ(Parsed("5").integer(), 5);
  EXPECT_EQ(Parsed("5").number(), 5.0);
  EXPECT_EQ(Parsed("5.0").integer(), absl::nullopt);
  EXPECT_EQ(Parsed("5.0").number(), 5.0);
  EXPECT_EQ(Parsed("9223372036854775808").integer(), absl::nullopt);
  EXPECT_EQ(Parsed("\"5\"").number(), absl::nullopt);
  EXPECT_EQ(Parsed("true").integer(), absl::nullopt);
  EXPECT_EQ(JsonValue(uint64_t{1} << 63).kind(), JsonValue::Kind::kDouble);
  EXPECT_EQ(JsonValue(std::numeric_limits<double>::infinity()).Serialize(), "null");
}

TEST(JsonValueTest, RefusesWhatAnApiShouldNotGuessAt) {
  EXPECT_EQ(JsonValue::Parse(R"({"a":1,"a":2})").status().message(),
            "byte 7: a name that this object has already");
  EXPECT_FALSE(JsonValue::Parse(R"({"a":1,"\u0061":2})").ok());
  EXPECT_FALSE(JsonValue::Parse("1e999").ok());
  EXPECT_FALSE(JsonValue::Parse(R"("\ud800")").ok());
  EXPECT_FALSE(JsonValue::Parse("[1] x").ok());
  EXPECT_FALSE(JsonValue::Parse("").ok());
}

TEST(JsonValueTest, HoldsItsLimitsOnBothSides) {
  const JsonLimits limits{.bytes_max = 6, .depth_max = 2};
  EXPECT_TRUE(JsonValue::Parse("[[1]] ", limits).ok());
  EXPECT_FALSE(JsonValue::Parse("[[1]]  ", limits).ok());
  EXPECT_FALSE(JsonValue::Parse("[[[]]]", limits).ok());
  const std::string deep(2'000, '[');
  EXPECT_FALSE(JsonValue::Parse(deep, JsonLimits{.depth_max = 100'000}).ok());
  const std::string closed = std::string(257, '[') + std::string(257, ']');
  EXPECT_FALSE(JsonValue::Parse(closed, JsonLimits{.depth_max = 100'000}).ok());
}

TEST(JsonValueTest, BuildsObjectsAndArrays) {
  JsonValue value;
  value.Set("a", 1).Set("b", "x").Set("c", JsonValue::MakeArray());
  value.Find("c")->Append(true).Append(nullptr).Append(2.5);
  value.Set("a", int64_t{7});
  value.Set("data", JsonValue::Raw("{ \"kept\" : 1 }"));
  EXPECT_EQ(value.Serialize(), R"({"a":7,"b":"x","c":[true,null,2.5],"data":{ "kept" : 1 }})");
  EXPECT_TRUE(value.Remove("b"));
  EXPECT_FALSE(value.Remove("b"));
  EXPECT_EQ(value.Find("b"), nullptr);
  EXPECT_EQ(JsonValue::MakeObject({{"k", 1}, {"l", "m"}}).Serialize(), R"({"k":1,"l":"m"})");
}

TEST(JsonValueTest, MergesAsManyMembersAsABodyHolds) {
  // By a search from the front for each name this took minutes.
  JsonValue::Object many;
  for (int i = 0; i < 100'000; ++i) many.push_back({std::to_string(i), i});
  JsonValue target = JsonValue::MakeObject({{"first", true}});
  MergePatch(target, JsonValue(many));
  ASSERT_EQ(target.object()->size(), 100'001u);
  EXPECT_EQ(target.object()->back().value.integer(), 99'999);
  for (JsonMember& member : many) member.value = JsonValue();
  MergePatch(target, JsonValue(many));
  EXPECT_EQ(target.Serialize(), R"({"first":true})");
}

TEST(JsonValueTest, MergePatchFollowsRfc7396) {
  const struct {
    const char* target;
    const char* patch;
    const char* result;
  } cases[] = {
      {R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
      {R"({"a":"b"})", R"({"a":null})", "{}"},
      {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
      {R"(["a"])", R"({"a":1})", R"({"a":1})"},
      {"{}", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
  };
  for (const auto& each : cases) {
    JsonValue target = Parsed(each.target);
    MergePatch(target, Parsed(each.patch));
    EXPECT_EQ(target.Serialize(), each.result) << each.target << " " << each.patch;
  }
}

}  // namespace
}  // namespace postrider
