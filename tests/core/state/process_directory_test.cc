#include "core/state/process_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using Contents = ProcessDirectory::Contents;

class ProcessDirectoryTest : public testing::Test {
 protected:
  ProcessDirectoryTest() {
    std::string path = (std::filesystem::temp_directory_path() / "postrider-owned-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~ProcessDirectoryTest() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name) const { std::ofstream(path_ + "/" + name) << "dear"; }
  bool Has(const std::string& name) const { return std::filesystem::exists(path_ + "/" + name); }

  std::string path_;
};

TEST_F(ProcessDirectoryTest, KeepsWhatIsThere) {
  Write("snapshot");
  const auto owned = ProcessDirectory::Acquire(path_, Contents::kKept);
  ASSERT_THAT(owned, tests::IsOk());
  EXPECT_EQ((*owned)->path(), path_);
  EXPECT_TRUE(Has("snapshot"));
}

TEST_F(ProcessDirectoryTest, RefusesWhatSomebodyElseOwnsUntilItIsLetGo) {
  for (const Contents contents : {Contents::kKept, Contents::kWiped}) {
    const std::string path = path_ + (contents == Contents::kKept ? "/kept" : "/wiped");
    auto first = ProcessDirectory::Acquire(path, contents);
    ASSERT_THAT(first, tests::IsOk());
    EXPECT_THAT(ProcessDirectory::Acquire(path, contents),
                tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                testing::HasSubstr("another running process")));
    first->reset();
    EXPECT_THAT(ProcessDirectory::Acquire(path, contents), tests::IsOk());
  }
}

TEST_F(ProcessDirectoryTest, IsFreeWhenItsOwnerWasKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const auto owned = ProcessDirectory::Acquire(path_, Contents::kKept);
    const char answer = owned.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) == 1) pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_FALSE(ProcessDirectory::Acquire(path_, Contents::kKept).ok());
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_THAT(ProcessDirectory::Acquire(path_, Contents::kKept), tests::IsOk());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(ProcessDirectoryTest, WipesWhatAnEarlierProcessLeft) {
  ASSERT_THAT(ProcessDirectory::Acquire(path_, Contents::kWiped), tests::IsOk());
  std::filesystem::create_directory(path_ + "/backlog-7");
  Write("backlog-7/file");
  ASSERT_THAT(ProcessDirectory::Acquire(path_, Contents::kWiped), tests::IsOk());
  EXPECT_FALSE(Has("backlog-7"));
}

TEST_F(ProcessDirectoryTest, NeverWipesFilesThatAreNotOurs) {
  Write("thesis.txt");
  EXPECT_THAT(
      ProcessDirectory::Acquire(path_, Contents::kWiped),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("not ours")));
  // Nor those of a directory that was owned with its contents kept.
  ASSERT_THAT(ProcessDirectory::Acquire(path_, Contents::kKept), tests::IsOk());
  EXPECT_THAT(
      ProcessDirectory::Acquire(path_, Contents::kWiped),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("not ours")));
  EXPECT_TRUE(Has("thesis.txt"));
}

TEST_F(ProcessDirectoryTest, SaysWhyItCannotBeMade) {
  EXPECT_THAT(ProcessDirectory::Acquire(path_ + "/no/such", Contents::kKept),
              tests::StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("No such file")));
}

}  // namespace
}  // namespace postrider
