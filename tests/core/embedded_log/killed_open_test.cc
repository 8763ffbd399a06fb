#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "tests/core/embedded_log/log_fixture.h"

namespace postrider::tests {
namespace {

namespace fs = std::filesystem;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr int kRecords = 200;

// Kills the process when it is about to change the directory for the so-many-th time: a file made,
// renamed or deleted. Threads: any.
class KillingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit KillingFileSystem(int steps)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), left_(steps) {}
  const char* Name() const override { return "PostriderKillingFileSystem"; }

  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    Step();
    return FileSystemWrapper::NewWritableFile(name, options, file, dbg);
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    Step();
    return FileSystemWrapper::RenameFile(from, to, options, dbg);
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& options,
                      IODebugContext* dbg) override {
    Step();
    return FileSystemWrapper::DeleteFile(name, options, dbg);
  }

 private:
  void Step() {
    if (left_.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
  }
  std::atomic<int> left_;
};

// Opens a log that a crash or damage has left, killed at each step of it, and then once more.
class KilledOpenTest : public EmbeddedLogTest {
 protected:
  void SetUp() override {
    Open();
    MakeTopic("a", 1);
    AppendMany({"a", 0}, kRecords / 2, 100);
    Reopen();
    AppendMany({"a", 0}, kRecords / 2, 100, kRecords / 2);
    // Of a process that was killed: what was appended last is in the write-ahead log.
    fs::copy(options_.directory, left_, fs::copy_options::recursive);
    Close();
  }
  std::string FileLike(const std::string& part) const {
    for (const auto& entry : fs::directory_iterator(left_ + "/db")) {
      if (absl::StrContains(entry.path().filename().string(), part)) return entry.path().string();
    }
    ADD_FAILURE() << "no file like " << part;
    return "";
  }
  // False: it came to its end.
  bool OpenAndBeKilled(int steps) {
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      const std::unique_ptr<rocksdb::Env> env =
          rocksdb::NewCompositeEnv(std::make_shared<KillingFileSystem>(steps));
      options_.env = env.get();
      _exit(TryOpen().ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "it could not be opened";
    return WIFSIGNALED(status);
  }
  // Returns how many steps there were.
  int KillAtEachStep(int records_least) {
    int steps = 0;
    for (bool killed = true; killed && !HasFailure();) {
      fs::remove_all(options_.directory);
      fs::copy(left_, options_.directory, fs::copy_options::recursive);
      killed = OpenAndBeKilled(++steps);
      const absl::Status opened = TryOpen();
      EXPECT_TRUE(opened.ok()) << "killed at step " << steps << ": " << opened;
      if (!opened.ok()) break;
      EXPECT_GE(static_cast<int>(ReadAll({"a", 0}).records.size()), records_least)
          << "killed at step " << steps;
      Close();
    }
    return steps;
  }

  const std::string left_ = directory_.path() + "/left";
};

TEST_F(KilledOpenTest, LosesNothingWhileATornListOfTablesIsCut) {
  std::ofstream(FileLike("MANIFEST"), std::ios::app | std::ios::binary)
      << std::string("\x01\x02\x03\x04\x04\x00\x01torn", 11);
  EXPECT_GT(KillAtEachStep(kRecords), 5);
  EXPECT_EQ(Metric("postrider_embedded_log_damage_total"), 0);
}

TEST_F(KilledOpenTest, LosesNothingWhileADamagedListOfTablesIsMadeAnew) {
  const std::string name = FileLike("MANIFEST");
  std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(name) / 2));
  file.put('\xa5');
  file.close();
  EXPECT_GT(KillAtEachStep(kRecords), 10);
  EXPECT_GT(Metric("postrider_embedded_log_damage_total"), 0);
}

TEST_F(KilledOpenTest, LosesNoMoreWhileADamagedTableIsPutAside) {
  std::string largest;
  for (const auto& entry : fs::directory_iterator(left_ + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    if (largest.empty() || fs::file_size(entry.path()) > fs::file_size(largest)) {
      largest = entry.path().string();
    }
  }
  // Its footer.
  fs::resize_file(largest, fs::file_size(largest) - 20);
  EXPECT_GT(KillAtEachStep(kRecords / 2), 10);
}

}  // namespace
}  // namespace postrider::tests
