#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/random.h"
#include "core/embedded_log/inspect.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "tests/core/embedded_log/log_fixture.h"

namespace postrider::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kPartitions = 2;
constexpr int kRecords = 1'500;

std::string ValueOf(int64_t offset) {
  std::string value = absl::StrCat(offset, ":");
  uint64_t random = static_cast<uint64_t>(offset) + 1;
  while (value.size() < 700) {  // does not compress
    random = random * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
    value.push_back(static_cast<char>(random >> 56));
  }
  return value;
}

class DamageTest : public EmbeddedLogTest {
 protected:
  // Some records in tables and some in the write-ahead log of a process that was killed, of which
  // a copy is damaged again and again.
  void SetUp() override {
    Open();
    MakeTopic("a", kPartitions);
    Fill(0, kRecords / 3);
    Reopen();
    Fill(kRecords / 3, kRecords * 2 / 3);
    Reopen();
    Fill(kRecords * 2 / 3, kRecords);
    ASSERT_TRUE(log_->ResetGroup("g", {{{"a", 0}, {kRecords, ""}}}, kTimeout).ok());
    fs::copy(options_.directory, directory_.path() + "/whole", fs::copy_options::recursive);
    Close();
  }
  void Fill(int from, int to) {
    int acknowledged = 0;
    for (int i = from; i < to; ++i) {
      for (int32_t partition = 0; partition < kPartitions; ++partition) {
        ASSERT_TRUE(producer().Append(
            Record({"a", partition}, "k", ValueOf(i)),
            [&](const absl::StatusOr<int64_t>& at) { acknowledged += at.ok() ? 1 : 0; }));
      }
      // Several groups, not one.
      if (i % 100 == 99) {
        ASSERT_TRUE(Until([&] { return producer().pending() == 0; }));
      }
    }
    ASSERT_TRUE(Until([&] { return acknowledged == (to - from) * kPartitions; }));
  }
  std::vector<std::string> FilesLike(absl::string_view part) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/whole/db")) {
      if (absl::StrContains(entry.path().filename().string(), std::string(part)) &&
          fs::file_size(entry.path()) > 0) {
        files.push_back(entry.path().filename().string());
      }
    }
    return files;
  }
  void Restore() {
    fs::remove_all(options_.directory);
    fs::copy(directory_.path() + "/whole", options_.directory, fs::copy_options::recursive);
  }
  void Flip(const std::string& name, uint64_t at) {
    Restore();
    std::fstream file(absl::StrCat(options_.directory, "/db/", name),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(file.good());
  }
  // What is read is right, and what is missing was told of. Returns how many records there are.
  size_t Serve(const std::string& where) {
    const double before = Metric("postrider_embedded_log_damage_total");
    const absl::Status opened = TryOpen();
    if (!opened.ok()) {
      ++refused_;
      EXPECT_EQ(opened.code(), absl::StatusCode::kDataLoss) << where << ": " << opened;
      EXPECT_TRUE(absl::StrContains(std::string(opened.message()), "put a sound copy of "));
      return 0;
    }
    size_t found = 0;
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      const WholeReader reader = ReadAll({"a", partition});
      for (const KeptRecord& record : reader.records) {
        EXPECT_EQ(record.value, ValueOf(record.offset)) << where;
      }
      found += reader.records.size();
      const absl::StatusOr<int64_t> at = Append(Record({"a", partition}, "k", "after"));
      EXPECT_GE(at.value_or(-1), reader.end.value_or(0)) << where;
    }
    const double told = Metric("postrider_embedded_log_damage_total") - before;
    if (found < kPartitions * kRecords) {
      ++lossy_;
      EXPECT_GT(told, 0) << where << ": " << found << " records and nothing was said";
    }
    Close();
    return found;
  }

  int refused_ = 0;
  int lossy_ = 0;
  Random random_{17};
};

// Whoever looks at a table from the thread that made this waits a little, if armed, for the
// database to delete a table meanwhile.
class PatientFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  PatientFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "PostriderPatientFileSystem"; }
  void Arm() { armed_ = true; }

  rocksdb::IOStatus GetFileSize(const std::string& name, const rocksdb::IOOptions& options,
                                uint64_t* size, rocksdb::IODebugContext* dbg) override {
    if (armed_ && std::this_thread::get_id() == thread_ && absl::EndsWith(name, ".sst")) {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&deleted_), absl::Milliseconds(200));
    }
    return FileSystemWrapper::GetFileSize(name, options, size, dbg);
  }
  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    const rocksdb::IOStatus status = FileSystemWrapper::DeleteFile(name, options, dbg);
    absl::MutexLock lock(&mutex_);
    deleted_ = deleted_ || (armed_ && absl::EndsWith(name, ".sst"));
    return status;
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<bool> armed_{false};
  absl::Mutex mutex_;
  bool deleted_ ABSL_GUARDED_BY(mutex_) = false;
};

// From the fourth table on a start compacts at once, and what was compacted goes.
TEST_F(EmbeddedLogTest, TakesATableThatIsCompactedAwayWhileItStartsForNoDamage) {
  const auto files = std::make_shared<PatientFileSystem>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
  options_.env = env.get();
  for (int table = 0; table < 4; ++table) {
    Open();
    const TopicPartition tp{absl::StrCat("topic-", table), 0};
    MakeTopic(tp.topic, 1);
    ASSERT_TRUE(Append(Record(tp, "k", "v")).ok());
    if (table < 3) Close();
  }
  // The fourth is made of the write-ahead log of a process that was killed.
  const std::string killed = directory_.path() + "/killed";
  fs::copy(options_.directory, killed, fs::copy_options::recursive);
  Close();
  options_.directory = killed;
  files->Arm();
  Open();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 0);
  Close();
}

TEST_F(DamageTest, ServesTheRestOfADamagedTable) {
  const std::vector<std::string> tables = FilesLike(".sst");
  ASSERT_GE(tables.size(), 2u);
  for (const std::string& name : tables) {
    const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + name);
    for (int round = 0; round < 4; ++round) {
      // The footer and the indexes too.
      const uint64_t at = round < 2 ? random_.Below(size) : size - 1 - random_.Below(1'000) % size;
      Flip(name, at);
      const size_t found = Serve(absl::StrCat(name, " at ", at, " of ", size));
      EXPECT_GE(found, kPartitions * kRecords * 2u / 3u) << name << " at " << at;
    }
  }
  EXPECT_GT(lossy_, 0);
  EXPECT_EQ(refused_, 0);
}

// Those of topics and positions are small.
TEST_F(DamageTest, ServesEverythingWhenTheTableOfTopicsIsDamagedAnywhere) {
  int tables = 0;
  for (const std::string& name : FilesLike(".sst")) {
    const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + name);
    if (size > 50'000) continue;
    ++tables;
    for (uint64_t at = 1; at < size; at += 97) {
      const double before = Metric("postrider_embedded_log_damage_total");
      Flip(name, at);
      {
        const auto beside = LogInspector::Open(options_.directory);
        ASSERT_TRUE(beside.ok()) << beside.status();
        ASSERT_EQ((*beside)->Topics().size(), 1u) << name << " at " << at << " of " << size;
      }
      const size_t found = Serve(absl::StrCat(name, " at ", at, " of ", size));
      ASSERT_EQ(found, kPartitions * kRecords) << name << " at " << at << " of " << size;
      if (Metric("postrider_embedded_log_damage_total") > before) ++lossy_;
      // It is whole again.
      ASSERT_TRUE(TryOpen().ok());
      ASSERT_EQ(log_->Partitions("a", kTimeout).value_or(0), kPartitions);
      Close();
    }
  }
  EXPECT_GE(tables, 1);
  EXPECT_EQ(refused_, 0);
  EXPECT_GT(lossy_, 5);
}

TEST_F(DamageTest, SaysSoWhenTheCopyOfTheEntriesIsDamagedToo) {
  for (const std::string& name : FilesLike(".sst")) {
    const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + name);
    if (size > 50'000) continue;
    // Alone it does no harm, and is made anew.
    Restore();
    std::ofstream(options_.directory + "/entries", std::ios::binary) << "not these";
    EXPECT_EQ(Serve("the copy alone"), static_cast<size_t>(kPartitions * kRecords));
    EXPECT_EQ(refused_, 0);
    Flip(name, size / 2);
    std::ofstream(options_.directory + "/entries", std::ios::binary) << "not these";
    EXPECT_EQ(Serve("both"), 0u);
    EXPECT_EQ(refused_, 1);
  }
}

TEST_F(DamageTest, ServesTheRestOfADamagedWriteAheadLog) {
  const std::vector<std::string> logs = FilesLike(".log");
  ASSERT_EQ(logs.size(), 1u);
  const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + logs[0]);
  ASSERT_GT(size, 500'000u);
  for (int round = 0; round < 6; ++round) {
    const uint64_t at = random_.Below(size);
    Flip(logs[0], at);
    const size_t found = Serve(absl::StrCat(logs[0], " at ", at, " of ", size));
    EXPECT_GE(found, kPartitions * kRecords * 2u / 3u);
  }
  EXPECT_GT(lossy_, 3);
  EXPECT_EQ(refused_, 0);
}

TEST_F(DamageTest, TellsOfDamageInWhatWasAcknowledgedLast) {
  const std::vector<std::string> logs = FilesLike(".log");
  ASSERT_EQ(logs.size(), 1u);
  const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + logs[0]);
  for (const uint64_t back : {1, 5, 40, 20'000}) {
    const int lossy = lossy_;
    Flip(logs[0], size - back);
    Serve(absl::StrCat(logs[0], " ", back, " bytes before its end"));
    EXPECT_EQ(refused_, 0);
    // The last entry of all is the group's position.
    if (back > 1'000) {
      EXPECT_GT(lossy_, lossy);
    }
    EXPECT_GT(Metric("postrider_embedded_log_damage_total"), 0);
  }
}

TEST_F(DamageTest, TellsOnceOfAnEndThatIsMissing) {
  const std::vector<std::string> logs = FilesLike(".log");
  const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + logs[0]);
  Restore();
  fs::resize_file(options_.directory + "/db/" + logs[0], size / 2);
  const double before = Metric("postrider_embedded_log_damage_total");
  Open();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), before + 1);
  Reopen();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), before + 1);
}

TEST_F(DamageTest, TakesWhatACrashHasTornForNoDamage) {
  const std::vector<std::string> logs = FilesLike(".log");
  Restore();
  // An entry that was begun and not ended, and so not acknowledged.
  std::ofstream(options_.directory + "/db/" + logs[0], std::ios::app | std::ios::binary)
      << std::string("\x01\x02\x03\x04\xff\x7f\x01half of it", 17);
  const double before = Metric("postrider_embedded_log_damage_total");
  Open();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), before);
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), static_cast<size_t>(kRecords));
}

TEST_F(DamageTest, TakesATornListOfTablesForNoDamage) {
  const std::vector<std::string> lists = FilesLike("MANIFEST");
  ASSERT_EQ(lists.size(), 1u);
  Restore();
  // An entry that was not synced: it is all there, but for its bytes.
  std::ofstream(options_.directory + "/db/" + lists[0], std::ios::app | std::ios::binary)
      << std::string("\x01\x02\x03\x04\x04\x00\x01torn", 11);
  const double before = Metric("postrider_embedded_log_damage_total");
  Open();
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), before);
  EXPECT_EQ(ReadAll({"a", 0}).records.size(), static_cast<size_t>(kRecords));
  EXPECT_EQ(ReadAll({"a", 1}).records.size(), static_cast<size_t>(kRecords));
}

TEST_F(DamageTest, ServesEverythingWhenTheListOfTablesIsDamagedAtItsEnd) {
  for (const std::string& name : FilesLike("MANIFEST")) {
    const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + name);
    for (const uint64_t back : {1, 12, 60, 150}) {
      Flip(name, size - std::min<uint64_t>(back, size));
      const size_t found = Serve(absl::StrCat(name, " ", back, " bytes before its end"));
      EXPECT_EQ(found, kPartitions * kRecords);
    }
  }
  EXPECT_EQ(refused_, 0);
}

TEST_F(DamageTest, DoesWithoutAMarkThatIsDamagedOrMissing) {
  const double before = Metric("postrider_embedded_log_damage_total");
  for (const bool missing : {false, true}) {
    Restore();
    const std::string mark = options_.directory + "/acknowledged";
    if (missing) {
      ASSERT_TRUE(fs::remove(mark));
    } else {
      std::ofstream(mark, std::ios::binary) << "acknowledged all";
    }
    Open();
    EXPECT_EQ(ReadAll({"a", 0}).records.size(), static_cast<size_t>(kRecords));
    Close();
  }
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), before);
}

TEST_F(DamageTest, GivesNoOffsetTwiceWhenTheEndIsLost) {
  const std::vector<std::string> logs = FilesLike(".log");
  ASSERT_EQ(logs.size(), 1u);
  const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + logs[0]);
  Flip(logs[0], size * 3 / 4);
  Open();
  // It is remembered: no later start has met the damage.
  Reopen();
  Reopen();
  EXPECT_GE(Append(Record({"a", 0}, "k", "after")).value_or(-1), kRecords)
      << "the group has committed so far";
}

TEST_F(DamageTest, BeginsALostTopicAnewWithoutWhatWasOfIt) {
  Restore();
  Open();
  MakeTopic("lost", 1);
  AppendMany({"lost", 0}, 10, 10);
  ASSERT_TRUE(log_->ResetGroup("g", {{{"lost", 0}, {7, ""}}}, kTimeout).ok());
  const std::string killed = directory_.path() + "/killed";
  fs::copy(options_.directory, killed, fs::copy_options::recursive);
  Close();
  options_.directory = killed;
  bool flipped = false;
  for (const auto& entry : fs::directory_iterator(killed + "/db")) {
    if (entry.path().extension() != ".log") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    const size_t at = bytes.find("tlost");
    if (at == std::string::npos) continue;
    file.seekp(static_cast<std::streamoff>(at));
    file.put('T');
    flipped = file.good();
  }
  ASSERT_TRUE(flipped);
  Open();
  ASSERT_EQ(log_->Topics().size(), 1u) << "its entry is lost, its records are not";
  MakeTopic("lost", 1);
  ASSERT_EQ(Append(Record({"lost", 0}, "k", "new")).value_or(-1), 0);
  for (int start = 0; start < 2; ++start) {
    const WholeReader reader = ReadAll({"lost", 0});
    ASSERT_EQ(reader.records.size(), 1u);
    EXPECT_EQ(reader.records[0].value, "new");
    const auto group = log_->DescribeGroup("g", {{"lost", 0}}, kTimeout);
    ASSERT_TRUE(group.ok());
    EXPECT_FALSE(group->partitions[0].committed.has_value()) << "a position of the lost one";
    Reopen();
  }
}

TEST_F(DamageTest, SaysWhatIsWrongWithTheFilesOfTheDatabase) {
  for (const char* kind : {"MANIFEST", "CURRENT", "IDENTITY", "OPTIONS"}) {
    for (const std::string& name : FilesLike(kind)) {
      const uint64_t size = fs::file_size(directory_.path() + "/whole/db/" + name);
      for (int round = 0; round < 2; ++round) {
        const uint64_t at = random_.Below(size);
        Flip(name, at);
        const size_t found = Serve(absl::StrCat(name, " at ", at, " of ", size));
        EXPECT_EQ(found, kPartitions * kRecords) << name << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace postrider::tests
