#include "core/embedded_log/inspect.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"
#include "tests/core/embedded_log/nobody.h"
#include "tests/support/status_matchers.h"

namespace postrider::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class InspectTest : public EmbeddedLogTest {
 protected:
  void SetUp() override {
    Open();
    MakeTopic("a", 2, {{"retention.ms", "-1"}});
    MakeTopic("b", 1, {{"cleanup.policy", "compact"}});
  }
  // Every file with what is in it.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(options_.directory)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::stringstream text;
      text << in.rdbuf();
      files[entry.path().string()] = text.str();
    }
    return files;
  }
  std::string FileLike(const std::string& end) const {
    for (const auto& entry : fs::directory_iterator(options_.directory + "/db")) {
      if (entry.path().extension() == end && fs::file_size(entry.path()) > 2'000) {
        return entry.path().string();
      }
    }
    ADD_FAILURE() << "no file " << end;
    return "";
  }
  static void Flip(const std::string& name, uint64_t at) {
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(file.good());
  }
  static std::vector<int64_t> OffsetsOf(LogInspector& log, const TopicPartition& tp, int64_t from,
                                        size_t most) {
    std::vector<int64_t> offsets;
    EXPECT_OK(log.Read(tp, from, [&](const LogRecord& record) {
      offsets.push_back(record.offset);
      return offsets.size() < most;
    }));
    return offsets;
  }
};

TEST_F(InspectTest, TellsWhatThereIsAndChangesNothing) {
  AppendMany({"a", 0}, 10, 100);
  AppendMany({"a", 1}, 3, 100);
  ASSERT_OK(Trim({"a", 0}, 4));
  ASSERT_OK(log_->ResetGroup("g", {{{"a", 0}, {7, "note"}}}, kTimeout));
  Reopen();
  AppendMany({"a", 1}, 2, 100);
  Close();
  const auto before = Files();
  {
    ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(options_.directory));
    const auto topics = log->Topics();
    ASSERT_EQ(topics.size(), 2u);
    EXPECT_EQ(topics[0].name, "a");
    EXPECT_FALSE(topics[0].compacted);
    EXPECT_TRUE(topics[1].compacted);
    EXPECT_EQ(topics[0].settings.size(), 1u);
    ASSERT_EQ(topics[0].partitions.size(), 2u);
    EXPECT_EQ(topics[0].partitions[0].begin, 4);
    EXPECT_EQ(topics[0].partitions[0].end, 10);
    EXPECT_EQ(topics[0].partitions[1].end, 5);
    EXPECT_GT(topics[0].partitions[1].bytes, 500u);
    EXPECT_EQ(topics[1].partitions[0].end, 0);
    const auto positions = log->Positions();
    ASSERT_EQ(positions.size(), 1u);
    EXPECT_EQ(positions[0].group, "g");
    EXPECT_EQ(positions[0].tp, (TopicPartition{"a", 0}));
    EXPECT_EQ(positions[0].position, (CommittedPosition{7, "note"}));
    EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 0, 2), ElementsAre(4, 5));
    EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 8, 9), ElementsAre(8, 9));
    EXPECT_THAT(OffsetsOf(*log, {"a", 0}, 10, 9), IsEmpty());
    EXPECT_FALSE(log->Read({"a", 2}, 0, [](const LogRecord&) { return true; }).ok());
    ASSERT_OK_AND_ASSIGN(const auto report, log->Verify());
    EXPECT_THAT(report.damages, IsEmpty());
    EXPECT_EQ(report.records, 11u);
    EXPECT_EQ(report.partitions, 3u);
  }
  EXPECT_EQ(Files(), before);
}

TEST_F(InspectTest, LooksIntoADirectoryThatItMayNotWrite) {
  AppendMany({"a", 0}, 10, 100);
  Reopen();
  AppendMany({"a", 0}, 5, 100);
  Close();
  std::vector<fs::path> all{options_.directory};
  for (const auto& entry : fs::recursive_directory_iterator(options_.directory)) {
    all.push_back(entry.path());
  }
  fs::permissions(directory_.path(), fs::perms::all);
  for (const fs::path& path : all) {
    fs::perms read = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
    if (fs::is_directory(path)) {
      read |= fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
    }
    fs::permissions(path, read);
  }
  {
    const Nobody nobody;
    ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(options_.directory));
    EXPECT_EQ(log->Topics().size(), 2u);
    EXPECT_EQ(OffsetsOf(*log, {"a", 0}, 0, 100).size(), 15u);
    ASSERT_OK_AND_ASSIGN(const auto report, log->Verify());
    EXPECT_THAT(report.damages, IsEmpty());
    EXPECT_EQ(report.records, 15u);
  }
  for (const fs::path& path : all) fs::permissions(path, fs::perms::owner_all);
}

TEST_F(InspectTest, KeepsAServiceOutWhileItLooksAndIsKeptOutByOne) {
  const auto refused = LogInspector::Open(options_.directory);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("stop the service first"));
  Close();
  ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(options_.directory));
  ASSERT_OK_AND_ASSIGN(const auto another, LogInspector::Open(options_.directory));
  EXPECT_EQ(TryOpen().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(InspectTest, MakesNoLogWhereThereIsNone) {
  const std::string none = directory_.path() + "/none";
  EXPECT_EQ(LogInspector::Open(none).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(none));
}

TEST_F(InspectTest, SaysWhichRecordsADamagedTableHasLost) {
  Random random(3);
  int acknowledged = 0;
  for (int i = 0; i < 500; ++i) {
    std::string value;  // does not compress
    while (value.size() < 700) value.push_back(static_cast<char>(random.Below(256)));
    ASSERT_TRUE(producer().Append(Record({"a", 0}, "k", value),
                                  [&](const absl::StatusOr<int64_t>&) { ++acknowledged; }));
    if (i % 20 == 19) {
      ASSERT_TRUE(Until([&] { return acknowledged > i; }));
    }
  }
  Close();
  const std::string table = FileLike(".sst");
  Flip(table, 20'000);
  const auto before = Files();
  {
    ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(options_.directory));
    ASSERT_OK_AND_ASSIGN(const auto report, log->Verify());
    ASSERT_EQ(report.damages.size(), 2u);
    EXPECT_THAT(report.damages[0].place,
                HasSubstr(absl::StrCat("table ", fs::path(table).filename().string())));
    EXPECT_THAT(report.damages[0].meaning, HasSubstr("some records between a/0 offset 0 and"));
    EXPECT_THAT(report.damages[1].place, HasSubstr("a/0 offsets "));
    EXPECT_THAT(report.damages[1].meaning, HasSubstr("lost"));
    EXPECT_LT(report.records, 500u);
    EXPECT_GT(report.records, 100u);
  }
  EXPECT_EQ(Files(), before);
}

TEST_F(InspectTest, SaysThatAWriteAheadLogIsDamagedAndAGroupBehindTheEnd) {
  AppendMany({"a", 0}, 50, 700);
  // One, so that all that came after the damage is lost however the writer gathers.
  AppendMany({"a", 0}, 1, 50 * 700, 50);
  ASSERT_OK(log_->ResetGroup("g", {{{"a", 0}, {51, ""}}}, kTimeout));
  // As a crash leaves it.
  const std::string copy = directory_.path() + "/copy";
  fs::copy(options_.directory, copy, fs::copy_options::recursive);
  Close();
  options_.directory = copy;
  const std::string wal = FileLike(".log");
  Flip(wal, fs::file_size(wal) * 3 / 4);
  const auto before = Files();
  {
    ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(options_.directory));
    ASSERT_OK_AND_ASSIGN(const auto report, log->Verify());
    std::vector<std::string> told;
    for (const auto& damage : report.damages) {
      told.push_back(absl::StrCat(damage.place, ": ", damage.meaning));
    }
    EXPECT_THAT(told, ::testing::Contains(HasSubstr("write-ahead log")));
    EXPECT_THAT(told, ::testing::Contains(HasSubstr("group g is at 51, behind the last record")));
  }
  EXPECT_EQ(Files(), before);
}

TEST_F(InspectTest, TellsWhenTheListOfTablesIsDamaged) {
  AppendMany({"a", 0}, 5, 10);
  Close();
  std::ofstream(options_.directory + "/db/CURRENT") << "nothing";
  const auto before = Files();
  const auto opened = LogInspector::Open(options_.directory);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(opened.status().message(), HasSubstr("a start of the service puts it together"));
  EXPECT_EQ(Files(), before);
}

TEST_F(InspectTest, OutlinesTellLogsApart) {
  Close();
  const auto print = [this] {
    const auto log = LogInspector::Open(options_.directory);
    return log.ok() ? (*log)->Outline() : "";
  };
  const std::string empty = print();
  EXPECT_FALSE(empty.empty());
  EXPECT_EQ(print(), empty);
  Open();
  AppendMany({"a", 0}, 1, 10);
  Close();
  const std::string one = print();
  EXPECT_NE(one, empty);
  Open();
  ASSERT_OK(log_->ResetGroup("g", {{{"a", 0}, {1, ""}}}, kTimeout));
  Close();
  EXPECT_NE(print(), one);
}

TEST_F(InspectTest, TellsOfAcknowledgedChangesThatTheWriteAheadLogHasNoMore) {
  AppendMany({"a", 0}, 50, 200);
  // As a kill leaves it.
  const std::string copy = directory_.path() + "/copy";
  fs::copy(options_.directory, copy, fs::copy_options::recursive);
  Close();
  options_.directory = copy;
  const std::string wal = FileLike(".log");
  fs::resize_file(wal, fs::file_size(wal) / 2);
  const std::map<std::string, std::string> before = Files();
  ASSERT_OK_AND_ASSIGN(const auto inspector, LogInspector::Open(copy));
  ASSERT_OK_AND_ASSIGN(const LogInspector::VerifyReport report, inspector->Verify());
  ASSERT_EQ(report.damages.size(), 1u);
  EXPECT_THAT(report.damages[0].meaning, HasSubstr("changes that were acknowledged are not on"));
  EXPECT_EQ(Files(), before) << "it only looks";
}

}  // namespace
}  // namespace postrider::tests
