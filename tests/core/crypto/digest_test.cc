#include "core/crypto/digest.h"

#include "gtest/gtest.h"

namespace postrider {
namespace {

// FIPS 180-2, appendix B.
TEST(DigestTest, MatchesThePublishedVectors) {
  EXPECT_EQ(HexDigest(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexDigest(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(DigestTest, HashesPartsAsOneText) {
  EXPECT_EQ(Sha256({"a", "", "bc"}), Sha256("abc"));
  Sha256Hasher hasher;
  hasher.Add("a");
  hasher.Add("bc");
  EXPECT_EQ(hasher.Finish(), Sha256("abc"));
  hasher.Add("abc");
  EXPECT_EQ(hasher.Finish(), Sha256("abc"));
}

}  // namespace
}  // namespace postrider
