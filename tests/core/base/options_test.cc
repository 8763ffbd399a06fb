#include "core/base/options.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using tests::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    options_.Add("api.title", &title_, "A title.");
    options_.Add("api.password", &password_, "A password.", Options::Secret::kYes);
    options_.AddChoice("log.level", &level_, {"debug", "info"}, "The least level | that is said.");
    options_.Add("worker.enabled", &enabled_, "On or off.");
    options_.Add("worker.shards", &shards_, 1, 64, "Threads.");
    options_.Add("worker.ratio", &ratio_, 0, 1, "A share.");
    options_.AddBytes("worker.memory_max", &memory_, 0, int64_t{1} << 40, "Memory.");
    options_.AddDuration("worker.wait_max", &wait_, milliseconds(0), hours(24), "Wait.");
    options_.AddList("kafka.brokers", &brokers_, "Brokers.");
    options_.AddMap("kafka.properties", &properties_, "Any.", Options::Secret::kYes);
  }

  Options options_;
  std::string title_ = "Postrider";
  std::string password_ = "hunter2";
  std::string level_ = "info";
  bool enabled_ = true;
  int64_t shards_ = 4;
  double ratio_ = 0.5;
  int64_t memory_ = 64 << 20;
  milliseconds wait_{1500};
  std::vector<std::string> brokers_ = {"a:1"};
  absl::flat_hash_map<std::string, std::string> properties_;
};

TEST_F(OptionsTest, KeepsDefaultsWhenNothingIsGiven) {
  EXPECT_OK(options_.LoadYaml("", "f"));
  EXPECT_OK(options_.LoadYaml("worker:\n# nothing\n", "f"));
  EXPECT_OK(options_.LoadEnvironment({"PATH=/bin", "POSTRIDER_CONFIG=x.yaml", "POSTRIDERX=1"}));
  EXPECT_OK(options_.LoadFlags({}));
  EXPECT_EQ(shards_, 4);
  EXPECT_EQ(title_, "Postrider");
}

TEST_F(OptionsTest, ReadsEveryTypeFromYaml) {
  EXPECT_OK(options_.LoadYaml(R"(
api: {title: "Our: title"}
log.level: debug
worker:
  enabled: false
  shards: 64
  ratio: 0.25
  memory_max: 2GB
  wait_max: 90s
kafka:
  brokers: [b:1, c:2]
  properties:
    ssl.ca.location: /ca.pem
    linger.ms: 5
)",
                              "f"));
  EXPECT_EQ(title_, "Our: title");
  EXPECT_EQ(level_, "debug");
  EXPECT_FALSE(enabled_);
  EXPECT_EQ(shards_, 64);
  EXPECT_EQ(ratio_, 0.25);
  EXPECT_EQ(memory_, int64_t{2} << 30);
  EXPECT_EQ(wait_, seconds(90));
  EXPECT_THAT(brokers_, ElementsAre("b:1", "c:2"));
  EXPECT_THAT(properties_,
              UnorderedElementsAre(Pair("ssl.ca.location", "/ca.pem"), Pair("linger.ms", "5")));
}

TEST_F(OptionsTest, LetsTheEnvironmentOverrideYamlAndFlagsBoth) {
  EXPECT_OK(options_.LoadYaml("worker: {shards: 5, wait_max: 5s}", "f"));
  EXPECT_OK(options_.LoadEnvironment(
      {"POSTRIDER_WORKER__SHARDS=6", "POSTRIDER_WORKER__WAIT_MAX=6s", "POSTRIDER_API__TITLE="}));
  EXPECT_OK(options_.LoadFlags({"--worker.shards=7"}));
  EXPECT_EQ(shards_, 7);
  EXPECT_EQ(wait_, seconds(6));
  EXPECT_EQ(title_, "");
}

TEST_F(OptionsTest, ReadsFlagsInBothForms) {
  EXPECT_OK(options_.LoadFlags({"--worker.shards", "8", "--worker.enabled=false",
                                "--api.title=", "--kafka.brokers", "x:1, y:2"}));
  EXPECT_EQ(shards_, 8);
  EXPECT_FALSE(enabled_);
  EXPECT_EQ(title_, "");
  EXPECT_THAT(brokers_, ElementsAre("x:1", "y:2"));
}

TEST_F(OptionsTest, LetsABoolStandAlone) {
  enabled_ = false;
  EXPECT_OK(options_.LoadFlags({"--worker.enabled", "--worker.shards=2"}));
  EXPECT_TRUE(enabled_);
  EXPECT_OK(options_.LoadFlags({"--worker.enabled", "false"}));
  EXPECT_FALSE(enabled_);
  EXPECT_OK(options_.LoadFlags({"--worker.enabled"}));
  EXPECT_TRUE(enabled_);
}

TEST_F(OptionsTest, NamesTheOptionTheValueItsOriginAndTheRange) {
  EXPECT_THAT(
      options_.LoadFlags({"--worker.shards=0"}),
      StatusIs(kInvalid, "option worker.shards: 0 (from --worker.shards) is out of range 1..64"));
  EXPECT_THAT(options_.LoadEnvironment({"POSTRIDER_WORKER__SHARDS=65"}),
              StatusIs(kInvalid,
                       "option worker.shards: 65 (from POSTRIDER_WORKER__SHARDS) is out "
                       "of range 1..64"));
  EXPECT_THAT(options_.LoadYaml("a:\n", "f.yaml"), Not(tests::IsOk()));
  EXPECT_THAT(
      options_.LoadYaml("worker:\n  shards: many\n", "f.yaml"),
      StatusIs(kInvalid,
               "option worker.shards: many (from f.yaml:2) is not a whole number in 1..64"));
  EXPECT_EQ(shards_, 4);
}

TEST_F(OptionsTest, AcceptsBothEndsOfARangeAndNothingPastThem) {
  EXPECT_OK(options_.LoadFlags({"--worker.shards=1"}));
  EXPECT_OK(options_.LoadFlags({"--worker.shards=64"}));
  for (const char* bad : {"0", "65", "-1", "", "1.5", "0x10", "99999999999999999999"}) {
    EXPECT_THAT(options_.LoadFlags({std::string("--worker.shards=") + bad}), StatusIs(kInvalid))
        << bad;
  }
  EXPECT_OK(options_.LoadFlags({"--worker.ratio=0"}));
  EXPECT_OK(options_.LoadFlags({"--worker.ratio=1"}));
  for (const char* bad : {"1.001", "-0.001", "nan", "inf", "x", ""}) {
    EXPECT_THAT(options_.LoadFlags({std::string("--worker.ratio=") + bad}), StatusIs(kInvalid))
        << bad;
  }
}

TEST_F(OptionsTest, TakesSizesWithAUnitOnly) {
  const std::vector<std::pair<std::string, int64_t>> good = {
      {"0", 0},         {"1B", 1}, {"1KB", 1024}, {"3MB", 3 << 20}, {"1024GB", int64_t{1} << 40},
      {"5 MB", 5 << 20}};
  for (const auto& [text, value] : good) {
    EXPECT_OK(options_.LoadFlags({"--worker.memory_max=" + text})) << text;
    EXPECT_EQ(memory_, value) << text;
  }
  for (const char* bad : {"1", "1025GB", "-1B", "MB", "1.5MB", "1mb", "1KiB", "99999999999999GB"}) {
    EXPECT_THAT(options_.LoadFlags({std::string("--worker.memory_max=") + bad}), StatusIs(kInvalid))
        << bad;
  }
}

TEST_F(OptionsTest, TakesDurationsWithAUnitOnly) {
  const std::vector<std::pair<std::string, milliseconds>> good = {
      {"0", milliseconds(0)}, {"1ms", milliseconds(1)}, {"2s", seconds(2)},
      {"3m", seconds(180)},   {"24h", hours(24)},       {"1d", hours(24)}};
  for (const auto& [text, value] : good) {
    EXPECT_OK(options_.LoadFlags({"--worker.wait_max=" + text})) << text;
    EXPECT_EQ(wait_, value) << text;
  }
  for (const char* bad : {"1", "86400001ms", "2d", "-1s", "s", "1us", "9999999999999999d"}) {
    EXPECT_THAT(options_.LoadFlags({std::string("--worker.wait_max=") + bad}), StatusIs(kInvalid))
        << bad;
  }
  EXPECT_THAT(options_.LoadFlags({"--worker.wait_max=2d"}),
              StatusIs(kInvalid, HasSubstr("2d (from --worker.wait_max) is out of range 0..1d")));
}

TEST_F(OptionsTest, TakesAChoiceOfItsWordsOnly) {
  EXPECT_THAT(options_.LoadFlags({"--log.level=loud"}),
              StatusIs(kInvalid, HasSubstr("is not one of debug, info")));
  EXPECT_THAT(options_.LoadFlags({"--worker.enabled=1"}),
              StatusIs(kInvalid, HasSubstr("is not one of true, false")));
}

TEST_F(OptionsTest, SuggestsTheNearestNameForAnUnknownOne) {
  EXPECT_THAT(options_.LoadFlags({"--worker.shard=1"}),
              StatusIs(kInvalid,
                       "option worker.shard (from --worker.shard) is unknown; did you "
                       "mean worker.shards?"));
  EXPECT_THAT(options_.LoadEnvironment({"POSTRIDER_WORKER__SHRADS=1"}),
              StatusIs(kInvalid,
                       "option worker.shrads (from POSTRIDER_WORKER__SHRADS) is unknown; did "
                       "you mean worker.shards?"));
  EXPECT_THAT(options_.LoadYaml("worker:\n  shards: 1\n  wait: 1s\n", "f"),
              StatusIs(kInvalid, HasSubstr("option worker.wait (from f:3) is unknown")));
}

TEST_F(OptionsTest, RefusesAnOptionThatStandsTwiceInYaml) {
  EXPECT_THAT(options_.LoadYaml("worker:\n  shards: 1\n  shards: 2\n", "f"),
              StatusIs(kInvalid, "options f:3: key shards stands twice"));
  EXPECT_THAT(options_.LoadYaml("worker: {shards: 1}\nworker.shards: 2\n", "f"),
              StatusIs(kInvalid, HasSubstr("(from f:2) stands twice")));
}

TEST_F(OptionsTest, RefusesYamlOfAnotherShape) {
  for (const char* bad :
       {"- 1", "text", "worker: 5", "worker: [1]", "worker: {shards: [1]}", "worker: {shards: }",
        "kafka: {brokers: a}", "kafka: {brokers: [[a]]}", "kafka: {properties: a}",
        "kafka: {properties: {a: [1]}}", "worker: {shards: 1", "a: 1\n---\nb: 2", "? [a]\n: 1",
        "&a [*a]", "kafka: {brokers: [\"\"]}"}) {
    EXPECT_THAT(options_.LoadYaml(bad, "f"), StatusIs(kInvalid)) << bad;
  }
}

TEST_F(OptionsTest, RefusesAliasesThatLoopOrExplode) {
  EXPECT_THAT(options_.LoadYaml("worker: &a {x: *a}", "f"), StatusIs(kInvalid));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j > 0 ? ", " : "") + last;
    bomb += "]\n";
  }
  EXPECT_THAT(options_.LoadYaml(bomb, "f"), StatusIs(kInvalid, HasSubstr("too many values")));
}

TEST_F(OptionsTest, RefusesFlagsOfAnotherForm) {
  EXPECT_THAT(options_.LoadFlags({"--worker.shards=2", "s3cret"}),
              StatusIs(kInvalid, "argument 2 is not of the form --name=value"));
  EXPECT_THAT(options_.LoadFlags({"--"}), StatusIs(kInvalid));
  EXPECT_THAT(options_.LoadFlags({"--worker.shards"}),
              StatusIs(kInvalid, HasSubstr("(from --worker.shards) is missing")));
  EXPECT_THAT(options_.LoadFlags({"--worker.shards", "--worker.enabled"}), StatusIs(kInvalid));
}

TEST_F(OptionsTest, NeverShowsASecretsValue) {
  for (const absl::Status& status :
       {options_.LoadYaml("api: {password: [s3cret]}", "f"),
        options_.LoadYaml("kafka: {properties: s3cret}", "f"),
        options_.LoadYaml("kafka: {properties: {a: [s3cret]}}", "f"),
        options_.LoadFlags({"--kafka.properties=s3cret"}), options_.LoadFlags({"--api=s3cret"}),
        options_.LoadFlags({"s3cret"})}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(), Not(HasSubstr("s3cret")));
  }
  EXPECT_THAT(options_.Reference(), Not(HasSubstr("hunter2")));
}

TEST_F(OptionsTest, CutsAndEscapesAValueInAnError) {
  const absl::Status status = options_.LoadFlags({"--log.level=a\nb" + std::string(100, 'x')});
  EXPECT_THAT(status, StatusIs(kInvalid, AllOf(HasSubstr("\"a\\nb"), HasSubstr("x...\""))));
}

class OptionsFileTest : public OptionsTest {
 protected:
  std::string WriteFile(const std::string& text) {
    std::string path = ::testing::TempDir() + "postrider_options_XXXXXX";
    const int fd = mkstemp(path.data());
    EXPECT_GE(fd, 0);
    close(fd);
    std::ofstream(path) << text;
    paths_.push_back(path);
    return path;
  }
  ~OptionsFileTest() override {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }

 private:
  std::vector<std::string> paths_;
};

TEST_F(OptionsFileTest, ReadsAYamlFile) {
  EXPECT_OK(options_.LoadYamlFile(WriteFile("worker: {shards: 9}\n")));
  EXPECT_EQ(shards_, 9);
}

TEST_F(OptionsFileTest, SaysWhichYamlFileIsMissing) {
  EXPECT_THAT(options_.LoadYamlFile("/nonexistent/p.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/p.yaml")));
}

TEST_F(OptionsFileTest, RefusesAYamlFileOverOneMegabyte) {
  EXPECT_OK(options_.LoadYamlFile(WriteFile(std::string(1 << 20, '\n'))));
  EXPECT_THAT(options_.LoadYamlFile(WriteFile(std::string((1 << 20) + 1, '\n'))),
              StatusIs(kInvalid, HasSubstr("larger than 1 MB")));
}

TEST_F(OptionsFileTest, ReadsAMapFromAFileOfLines) {
  const std::string path = WriteFile("# comment\n\nssl.ca.location = /ca.pem\na=b=c\n");
  EXPECT_OK(options_.LoadFlags({"--kafka.properties=" + path}));
  EXPECT_THAT(properties_,
              UnorderedElementsAre(Pair("ssl.ca.location", "/ca.pem"), Pair("a", "b=c")));
}

TEST_F(OptionsFileTest, RefusesAMapFileWithABadLineWithoutShowingIt) {
  for (const char* text : {"a=1\ns3cret\n", "a=1\n=s3cret\n", "a=1\na=s3cret\n"}) {
    const absl::Status status = options_.LoadFlags({"--kafka.properties=" + WriteFile(text)});
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("line 2")));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("s3cret")));
  }
  EXPECT_THAT(properties_, IsEmpty());
}

TEST_F(OptionsTest, ListsEveryOptionInItsReference) {
  const std::string text = options_.Reference();
  EXPECT_THAT(text, HasSubstr("| `worker.shards` | `4` | 1..64 | `POSTRIDER_WORKER__SHARDS` | "
                              "Threads. |\n"));
  EXPECT_THAT(text, HasSubstr("| `worker.memory_max` | `64MB` | 0..1024GB |"));
  EXPECT_THAT(text, HasSubstr("| `worker.wait_max` | `1500ms` | 0..1d |"));
  EXPECT_THAT(text, HasSubstr("| `api.password` | (secret) |"));
  EXPECT_THAT(text, HasSubstr("The least level \\| that is said."));
  EXPECT_THAT(text, HasSubstr("| `kafka.properties` |  | map |"));
}

TEST_F(OptionsTest, KeepsTheDefaultsInItsReferenceAfterLoading) {
  EXPECT_OK(options_.LoadFlags({"--worker.shards=9"}));
  EXPECT_THAT(options_.Reference(), HasSubstr("| `worker.shards` | `4` |"));
}

}  // namespace
}  // namespace postrider
