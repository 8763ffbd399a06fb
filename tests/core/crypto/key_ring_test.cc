#include "core/crypto/key_ring.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using ::postrider::tests::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Line(absl::string_view id, char byte) {
  return absl::StrCat(id, ":", absl::Base64Escape(std::string(32, byte)), "\n");
}

const SealContext kPlace = {"endpoints", "secret", "ep_1", "cus_1"};

TEST(KeyRingTest, OpensWhatItSealed) {
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Parse(Line("k1", 'a')));
  for (const std::string& plain : {std::string(), std::string("x"), std::string(100'000, 'y')}) {
    const std::string sealed = ring.Seal(plain, kPlace);
    EXPECT_EQ(sealed.find("yyyy"), std::string::npos);
    EXPECT_THAT(ring.Open(sealed, kPlace), tests::IsOkAndHolds(plain));
  }
  EXPECT_NE(ring.Seal("same", kPlace), ring.Seal("same", kPlace));
}

TEST(KeyRingTest, RefusesAnotherPlace) {
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Parse(Line("k1", 'a')));
  const std::string sealed = ring.Seal("secret", kPlace);
  const SealContext others[] = {
      {"endpoint", "ssecret", "ep_1", "cus_1"}, {"endpoints", "secre", "tep_1", "cus_1"},
      {"endpoints", "secret", "ep_2", "cus_1"}, {"endpoints", "secret", "ep_1", "cus_2"},
      {"endpoints", "secret", "ep_1", ""},
  };
  for (const SealContext& other : others) {
    EXPECT_THAT(ring.Open(sealed, other),
                StatusIs(absl::StatusCode::kDataLoss, Not(HasSubstr("secret\""))));
  }
}

TEST(KeyRingTest, RefusesEveryChangedByte) {
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Parse(Line("k1", 'a')));
  const std::string sealed = ring.Seal("secret", kPlace);
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ring.Open(changed, kPlace).ok()) << i;
    EXPECT_FALSE(ring.Open(sealed.substr(0, i), kPlace).ok()) << i;
  }
  EXPECT_FALSE(ring.Open(sealed + "x", kPlace).ok());
}

TEST(KeyRingTest, AnOldKeyStillOpens) {
  ASSERT_OK_AND_ASSIGN(const KeyRing old_ring, KeyRing::Parse(Line("k1", 'a')));
  const std::string sealed = old_ring.Seal("secret", kPlace);
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Parse(Line("k2", 'b') + Line("k1", 'a')));
  EXPECT_EQ(ring.active_key_id(), "k2");
  EXPECT_THAT(ring.Open(sealed, kPlace), tests::IsOkAndHolds(std::string("secret")));
  EXPECT_THAT(old_ring.Open(ring.Seal("new", kPlace), kPlace),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("k2")));
}

TEST(KeyRingTest, NamesTheLineWithAFault) {
  EXPECT_THAT(KeyRing::Parse(""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(KeyRing::Parse("# only this\n\n"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(KeyRing::Parse("# c\nK 1:abc\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2")));
  EXPECT_THAT(KeyRing::Parse("k1:c2hvcnQ=\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("32 bytes"), Not(HasSubstr("c2hvcnQ")))));
  EXPECT_THAT(KeyRing::Parse(Line("k1", 'a') + Line("k1", 'b')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
}

TEST(KeyRingTest, RefusesAFileThatOthersMayRead) {
  std::string path = ::testing::TempDir() + "key_ring_test.XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  const std::string line = KeyRing::NewKeyLine("first");
  ASSERT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  close(fd);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(KeyRing::Load(path),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("chmod 600")));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_OK_AND_ASSIGN(const KeyRing ring, KeyRing::Load(path));
  EXPECT_EQ(ring.active_key_id(), "first");
  unlink(path.c_str());
  EXPECT_THAT(KeyRing::Load(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

}  // namespace
}  // namespace postrider
