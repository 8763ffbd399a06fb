#include "core/json/reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/random.h"

namespace postrider {
namespace {

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// The three ways to ask give one answer.
JsonProof Proof(absl::string_view text) {
  JsonProver prover;
  const JsonProof proof = ProveJson(text);
  EXPECT_EQ(prover.Prove(text), proof) << text;
  EXPECT_EQ(ProveOneJsonValue(text).ok(), proof == JsonProof::kProven) << text;
  return proof;
}

TEST(ProveJsonTest, TakesEveryKindOfValueWithSpaceAroundIt) {
  for (const char* text :
       {"{}", "[]", "null", "true", "false", "0", "-0", "12.5e+3", "\"\"", " [1 , 2]\r\n\t",
        R"({"a":{"b":[1,"x",null,{}]},"c":[]})", R"("\"\\\/\b\f\n\r\tA")", "[[],{}]",
        "\"\xf0\x9f\x98\x80 \xe2\x80\xa8\""}) {
    EXPECT_EQ(Proof(text), JsonProof::kProven) << text;
  }
}

TEST(ProveJsonTest, RefusesWhatIsNotExactlyOneValue) {
  for (const char* text : {"",
                           " ",
                           "1 2",
                           "{} {}",
                           R"(1},{"id":"forged")",
                           R"({"a":1}},{"id":"forged"})",
                           "[1,]",
                           "{,}",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({a:1})",
                           "{1:2}",
                           "[1 2]",
                           "]",
                           "}",
                           "[}",
                           "{]",
                           "nul",
                           "True",
                           "nullx",
                           "+1",
                           "01",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "-",
                           "--1",
                           "0x1",
                           "NaN",
                           "'a'",
                           "\"",
                           "\"\\",
                           R"("\x")",
                           R"("\u12")",
                           R"("\u12g4")",
                           "\"a\nb\"",
                           "\"\t\"",
                           "//c\n1",
                           "[1]x",
                           "[",
                           "[[",
                           R"({"a":[})",
                           "\xef\xbb\xbf{}"}) {
    EXPECT_EQ(Proof(text), JsonProof::kNotJson) << text;
  }
  EXPECT_EQ(Proof(absl::string_view("1\0", 2)), JsonProof::kNotJson);
  EXPECT_EQ(Proof(absl::string_view("\"a\0b\"", 5)), JsonProof::kNotJson);
}

TEST(ProveJsonTest, RefusesBytesThatAreNoUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                           "\"\xe2\x82\"", "\"\x80\""}) {
    EXPECT_EQ(Proof(text), JsonProof::kNotUtf8) << text;
  }
}

TEST(ProveJsonTest, DATA_05_LetsTheGrammarAloneRuleEscapesNumbersAndNames) {
  for (const char* text :
       {R"("\u0000")", R"("\ud800")", R"("\udc00\ud800")", R"({"a\u0000b":1,"\ud800":2})",
        R"({"a":1,"a":2})", "1e999", "-1e999", "170141183460469231731687303715884105727",
        "18446744073709551616", "0.1000000000000000055", "123456789012345678901234567890e-400"}) {
    EXPECT_EQ(Proof(text), JsonProof::kProven) << text;
  }
}

TEST(ProveJsonTest, DATA_07_HoldsItsDepthAndNeedsNoStackForIt) {
  EXPECT_EQ(Proof(Nested(127)), JsonProof::kProven);
  EXPECT_EQ(Proof(Nested(kJsonDepthMax)), JsonProof::kProven);
  EXPECT_EQ(Proof(Nested(kJsonDepthMax + 1)), JsonProof::kTooDeep);
  EXPECT_EQ(Proof(Nested(1'000'000)), JsonProof::kTooDeep);
  EXPECT_EQ(Proof(std::string(1'000'000, '[')), JsonProof::kTooDeep);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(Proof(objects), JsonProof::kTooDeep);
}

TEST(ProveJsonTest, SaysWhereAProofFailed) {
  size_t offset = 0;
  EXPECT_EQ(ProveJson("{\"a\":1,}", &offset), JsonProof::kNotJson);
  EXPECT_EQ(offset, 7u);
  EXPECT_EQ(ProveJson("\"ab\xff\"", &offset), JsonProof::kNotUtf8);
  EXPECT_EQ(offset, 3u);
  EXPECT_EQ(ProveOneJsonValue("1},{").message(), "byte 1: not part of one JSON value");
  EXPECT_EQ(ProveOneJsonValue("[1").message(), "byte 2: the JSON value ends too early");
}

// Mutations of a valid document: whatever simdjson takes our grammar must take (the fast way proves
// nothing more), and what is proven can be spliced into an array without changing what stands
// beside it.
TEST(ProveJsonTest, ThePlainAndTheFastWayAgreeOnMutatedTexts) {
  const std::string seed_text =
      R"({"id":"e-1","n":-12.5e3,"t":true,"x":null,"l":[1,"aé\ud83d\ude00",{"k":[]}],"z":"\\\""})";
  const absl::string_view alphabet = "{}[]\",:\\u0189ae.+-tfn \n\x01\x80\xff";
  Random random(20261130);
  int proven = 0;
  JsonProver prover;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = seed_text;
    const uint64_t edits = 1 + random.Below(3);
    for (uint64_t i = 0; i < edits; ++i) {
      const size_t at = random.Below(text.size());
      const char with = alphabet[random.Below(alphabet.size())];
      switch (random.Below(3)) {
        case 0:
          text[at] = with;
          break;
        case 1:
          text.insert(at, 1, with);
          break;
        default:
          text.erase(at, 1);
          break;
      }
    }
    const JsonProof proof = ProveJson(text);
    ASSERT_EQ(prover.Prove(text), proof) << "seed 20261130, round " << round << ": " << text;
    if (proof != JsonProof::kProven) continue;
    ++proven;
    PointerReader reader;
    const std::string array = "[\"before\"," + text + ",\"after\"]";
    ASSERT_EQ(ProveJson(array), JsonProof::kProven);
    reader.Reset(array);
    ASSERT_EQ(reader.Find(*JsonPointer::Parse("/2")).text, "after") << text;
    ASSERT_EQ(reader.Find(*JsonPointer::Parse("/3")).kind, JsonKind::kAbsent) << text;
  }
  EXPECT_GT(proven, 10'000);
}

class PointerReaderTest : public testing::Test {
 protected:
  JsonScalar Find(absl::string_view pointer) {
    auto parsed = JsonPointer::Parse(pointer);
    EXPECT_TRUE(parsed.ok()) << pointer;
    return reader_.Find(*parsed);
  }
  PointerReader reader_;
};

TEST_F(PointerReaderTest, TellsEveryKindApart) {
  const std::string text =
      R"( { "s" : "v" , "n" : -1.50e2, "big":170141183460469231731687303715884105727,)"
      R"( "t":true,"f":false,)"
      R"("z":null,"a":[10,[20],{"b":"c"}],"o":{"p":{"q":1}},"e":""} )";
  ASSERT_EQ(ProveJson(text), JsonProof::kProven);
  reader_.Reset(text);
  EXPECT_EQ(Find("/s").kind, JsonKind::kString);
  EXPECT_EQ(Find("/s").text, "v");
  EXPECT_EQ(Find("/n").kind, JsonKind::kNumber);
  EXPECT_EQ(Find("/n").text, "-1.50e2");
  EXPECT_EQ(Find("/big").text, "170141183460469231731687303715884105727");
  EXPECT_EQ(Find("/t").kind, JsonKind::kBool);
  EXPECT_EQ(Find("/t").text, "true");
  EXPECT_EQ(Find("/f").text, "false");
  EXPECT_EQ(Find("/z").kind, JsonKind::kNull);
  EXPECT_EQ(Find("/a").kind, JsonKind::kArray);
  EXPECT_EQ(Find("/o").kind, JsonKind::kObject);
  EXPECT_EQ(Find("").kind, JsonKind::kObject);
  EXPECT_EQ(Find("/e").kind, JsonKind::kString);
  EXPECT_EQ(Find("/e").text, "");
  EXPECT_EQ(Find("/a/0").text, "10");
  EXPECT_EQ(Find("/a/1/0").text, "20");
  EXPECT_EQ(Find("/a/2/b").text, "c");
  EXPECT_EQ(Find("/o/p/q").text, "1");
  for (const char* absent :
       {"/x", "/a/3", "/a/00", "/a/-", "/a/x", "/s/0", "/o/p/q/r", "/", "/z/a", "/a/99999999999"}) {
    EXPECT_EQ(Find(absent).kind, JsonKind::kAbsent) << absent;
  }
}

TEST_F(PointerReaderTest, ResolvesEscapesInNamesStringsAndPointers) {
  const std::string text = R"({"a/b":1,"m~n":2,"ten\u0061nt":"t\u00e9\ud83d\ude00\n",)"
                           R"("lone":"x\ud800y","\ud800":3,"":4})";
  ASSERT_EQ(ProveJson(text), JsonProof::kProven);
  reader_.Reset(text);
  EXPECT_EQ(Find("/a~1b").text, "1");
  EXPECT_EQ(Find("/m~0n").text, "2");
  EXPECT_EQ(Find("/").text, "4");
  const JsonScalar lone = Find("/lone");
  const JsonScalar tenant = Find("/tenant");
  EXPECT_EQ(tenant.text, "t\xc3\xa9\xf0\x9f\x98\x80\n");
  EXPECT_FALSE(tenant.has_lone_surrogate);
  EXPECT_TRUE(lone.has_lone_surrogate);
  EXPECT_EQ(lone.text, "x\xef\xbf\xbdy");  // an earlier answer outlives a later one
  EXPECT_EQ(Find("/\xef\xbf\xbd").kind, JsonKind::kAbsent);
}

TEST_F(PointerReaderTest, TheFirstOfARepeatedNameCounts) {
  reader_.Reset(R"({"tenant":"t1","tenant":"t2"})");
  EXPECT_EQ(Find("/tenant").text, "t1");
}

TEST_F(PointerReaderTest, FindsAScalarThatIsTheWholeText) {
  reader_.Reset(" 12 ");
  EXPECT_EQ(Find("").text, "12");
  reader_.Reset("\"x\"");
  EXPECT_EQ(Find("").text, "x");
  EXPECT_EQ(Find("/a").kind, JsonKind::kAbsent);
}

TEST(JsonPointerTest, RefusesWhatRfc6901DoesNotKnow) {
  EXPECT_FALSE(JsonPointer::Parse("a").ok());
  EXPECT_FALSE(JsonPointer::Parse("/a~").ok());
  EXPECT_FALSE(JsonPointer::Parse("/a~2").ok());
  EXPECT_EQ(JsonPointer::Parse("/a//b")->steps(), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE(JsonPointer::Parse("")->steps().empty());
}

}  // namespace
}  // namespace postrider
