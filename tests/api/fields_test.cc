#include "api/internal/fields.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using subscriptions::FieldFaults;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Pointers(const FieldFaults& faults) {
  std::vector<std::string> pointers;
  for (const auto& fault : faults) pointers.push_back(fault.pointer);
  return pointers;
}

JsonValue Json(absl::string_view text) { return *JsonValue::Parse(text); }

TEST(FieldReaderTest, CollectsEveryFault) {
  const JsonValue body =
      Json(R"({"text":1,"count":1.0,"list":["a",2,"b",null],"inner":[],"x/y~z":1,"ratio":"2"})");
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  std::string text = "kept";
  int64_t count = 7;
  double ratio = 0;
  std::vector<std::string> list = {"kept"};
  fields.String("text", &text);
  fields.Int("count", &count);
  fields.StringList("list", &list);
  FieldReader inner(fields.Take("inner"), "/inner", faults);
  fields.Number("ratio", &ratio);
  fields.Required("missing");
  fields.Finish();
  EXPECT_THAT(Pointers(faults), ElementsAre("/text", "/count", "/list/1", "/list/3", "/inner",
                                            "/ratio", "/missing", "/x~1y~0z"));
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(count, 7);
  EXPECT_THAT(list, ElementsAre("kept"));
}

TEST(FieldReaderTest, TakesNullForAbsent) {
  const JsonValue body = Json(R"({"text":null,"count":null})");
  FieldFaults faults;
  FieldReader fields(&body, "", faults);
  std::string text = "kept";
  int64_t count = 7;
  EXPECT_FALSE(fields.String("text", &text));
  EXPECT_FALSE(fields.Int("count", &count));
  fields.Finish();
  EXPECT_THAT(faults, IsEmpty());
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(count, 7);
}

TEST(ParseBodyTest, TellsMalformedFromMisshapen) {
  Request request;
  EXPECT_EQ(ParseBody(request).refusal->status, 400);
  EXPECT_FALSE(ParseBody(request, BodyNeed::kOptional).refusal.has_value());
  for (const char* body : {"{", "{}x", "{\"a\":1,\"a\":2}", "\xff", "nul"}) {
    request.body = body;
    EXPECT_EQ(ParseBody(request).refusal->status, 400) << body;
  }
  for (const char* body : {"[]", "null", "1", "\"a\""}) {
    request.body = body;
    EXPECT_EQ(ParseBody(request).refusal->status, 422) << body;
  }
  request.body = " {\"a\":1} ";
  EXPECT_FALSE(ParseBody(request).refusal.has_value());
}

TEST(UnknownMembersTest, FindsThemAtAnyDepthButNotInOpenObjects) {
  const JsonValue shape = Json(R"({"a":1,"b":{"c":1},"headers":{}})");
  FieldFaults faults;
  FindUnknownMembers(Json(R"({"a":null,"b":{"c":2,"d":null},"headers":{"x":"1"},"e":null})"), shape,
                     {"/headers"}, "", &faults);
  EXPECT_THAT(Pointers(faults), ElementsAre("/b/d", "/e"));
}

TEST(KeepFirstFaultsTest, KeepsOneFaultOfEachPointer) {
  FieldFaults faults = {{"/a", "1"}, {"/b", "2"}, {"/a", "3"}};
  KeepFirstFaults(&faults);
  EXPECT_THAT(faults, ElementsAre(subscriptions::FieldFault{"/a", "1"},
                                  subscriptions::FieldFault{"/b", "2"}));
}

}  // namespace
}  // namespace postrider::api
