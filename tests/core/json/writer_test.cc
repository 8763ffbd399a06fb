#include "core/json/writer.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/random.h"
#include "core/json/reader.h"

namespace postrider {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

TEST(JsonWriterTest, EscapesOnlyWhatMustBeEscaped) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("a/b\x7f\xe2\x80\xa8"), "\"a/b\x7f\xe2\x80\xa8\"");
  EXPECT_EQ(Quoted("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
  EXPECT_EQ(Quoted(absl::string_view("\0\x1f", 2)), R"("\u0000\u001f")");
}

TEST(JsonWriterTest, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(Quoted("a\xff"), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(Quoted("\xed\xa0\x80z"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
  EXPECT_EQ(Quoted("\xc3\""), "\"\xef\xbf\xbd\\\"\"");
}

TEST(JsonWriterTest, AnyBytesMakeOneValidString) {
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (uint64_t n = random.Below(24); n-- > 0;) bytes.push_back(static_cast<char>(random.Next()));
    ASSERT_EQ(ProveJson(Quoted(bytes)), JsonProof::kProven) << "seed 7, round " << round;
  }
}

TEST(JsonWriterTest, PointerStepsReadBack) {
  std::string pointer;
  AppendPointerStep("a/b", &pointer);
  AppendPointerStep("m~n", &pointer);
  AppendPointerStep("", &pointer);
  EXPECT_EQ(pointer, "/a~1b/m~0n/");
  EXPECT_EQ(JsonPointer::Parse(pointer)->steps(), (std::vector<std::string>{"a/b", "m~n", ""}));
}

}  // namespace
}  // namespace postrider
