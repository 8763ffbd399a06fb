#include "core/crypto/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using ::postrider::tests::IsOkAndHolds;
using ::postrider::tests::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string Line(absl::string_view id, char byte) {
  return absl::StrCat(id, ":", absl::Base64Escape(std::string(32, byte)));
}

const SealContext kPlace = {"endpoints", "secret", "ep_1", "cus_1"};

class KeyFileTest : public testing::Test {
 protected:
  KeyFileTest() {
    char name[] = "/tmp/key-file-test-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/keys";
    Write(absl::StrCat("# ours\n", Line("k1", 'a'), "\n\n", Line("k2", 'b'), "\n"));
  }
  ~KeyFileTest() override {
    unlink(path_.c_str());
    unlink((path_ + ".new").c_str());
    unlink((folder_ + "/link").c_str());
    rmdir(folder_.c_str());
  }

  void Write(const std::string& text, mode_t mode = 0600) {
    unlink(path_.c_str());
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  std::string Read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = absl::StrSplit(Read(), '\n');
    return lines;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(KeyFileTest, ANewKeyStandsAtTheEndAndSealsNothing) {
  const std::string before = Read();
  ASSERT_OK_AND_ASSIGN(const std::string id, AddMasterKey(path_));
  EXPECT_THAT(Read(), StartsWith(before + id + ":"));
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Load(path_));
  EXPECT_EQ(ring.active_key_id(), "k1");
  ASSERT_OK_AND_ASSIGN(const std::string other, AddMasterKey(path_));
  EXPECT_NE(id, other);
}

TEST_F(KeyFileTest, AKeyThatIsToSealBecomesTheFirstOne) {
  ASSERT_OK(UseMasterKey(path_, "k2"));
  EXPECT_EQ(Read(), absl::StrCat("# ours\n", Line("k2", 'b'), "\n", Line("k1", 'a'), "\n\n"));
  EXPECT_OK(UseMasterKey(path_, "k2")) << "it is already";
  EXPECT_THAT(UseMasterKey(path_, "k3"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("k3")));
  EXPECT_THAT(UseMasterKey(path_, "# ours"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(KeyFileTest, StaysReadableByItsOwnerOnlyAndWhereItsNameLeads) {
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  ASSERT_OK(UseMasterKey(link, "k2"));
  struct stat status = {};
  ASSERT_EQ(lstat(link.c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(Read(), StartsWith("# ours\nk2:"));
}

TEST_F(KeyFileTest, ChangesNothingOfAFileThatIsFaultyOrAboutToBeChangedByAnother) {
  Write("nonsense\n");
  EXPECT_THAT(AddMasterKey(path_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Read(), "nonsense\n");
  Write(Line("k1", 'a'), 0640);
  EXPECT_THAT(AddMasterKey(path_), StatusIs(absl::StatusCode::kFailedPrecondition));
  Write(Line("k1", 'a'));
  std::ofstream(path_ + ".new") << "another's";
  EXPECT_THAT(AddMasterKey(path_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Read(), Line("k1", 'a'));
  EXPECT_EQ(access((path_ + ".new").c_str(), F_OK), 0) << "it is not ours to remove";
}

TEST_F(KeyFileTest, TakesNoMoreThan64Keys) {
  std::string text;
  for (int i = 0; i < 64; ++i) absl::StrAppend(&text, Line(absl::StrCat("k", i), 'a'), "\n");
  Write(text);
  EXPECT_THAT(AddMasterKey(path_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Read(), text);
}

TEST_F(KeyFileTest, ARunningRingFollowsItsFile) {
  ASSERT_OK_AND_ASSIGN(KeyRing ring, KeyRing::Load(path_));
  KeyFileWatch watch(path_, ring);
  EXPECT_FALSE(watch.Look());
  const std::string sealed = ring.Seal("secret", kPlace);
  const std::string& before = ring.active_key_id();
  ASSERT_OK_AND_ASSIGN(const std::string id, AddMasterKey(path_));
  EXPECT_TRUE(watch.Look());
  EXPECT_FALSE(watch.Look()) << "nothing has changed since";
  EXPECT_TRUE(ring.IsCurrent(sealed));
  ASSERT_OK(UseMasterKey(path_, id));
  EXPECT_TRUE(watch.Look());
  EXPECT_EQ(ring.active_key_id(), id);
  EXPECT_EQ(before, "k1") << "whoever has read it may hold it";
  EXPECT_FALSE(ring.IsCurrent(sealed));
  EXPECT_TRUE(ring.IsCurrent(ring.Seal("secret", kPlace)));
  EXPECT_THAT(ring.Open(sealed, kPlace), IsOkAndHolds("secret"));
}

TEST_F(KeyFileTest, AFileThatIsNoneLeavesTheRingAsItWas) {
  ASSERT_OK_AND_ASSIGN(KeyRing ring, KeyRing::Load(path_));
  KeyFileWatch watch(path_, ring);
  const std::string sealed = ring.Seal("secret", kPlace);
  for (const std::string& text : {std::string(), std::string("k1:AAAA\n")}) {
    Write(text);
    EXPECT_FALSE(watch.Look());
    EXPECT_THAT(ring.Open(sealed, kPlace), IsOkAndHolds("secret"));
  }
  unlink(path_.c_str());
  EXPECT_FALSE(watch.Look());
  // Other users may read it at first.
  Write(Line("k9", 'z'), 0644);
  EXPECT_FALSE(watch.Look());
  chmod(path_.c_str(), 0600);
  EXPECT_TRUE(watch.Look());
  EXPECT_THAT(ring.Open(sealed, kPlace), StatusIs(absl::StatusCode::kNotFound, HasSubstr("k1")));
}

}  // namespace
}  // namespace postrider
