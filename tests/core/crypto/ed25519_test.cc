#include "core/crypto/ed25519.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

template <typename Bytes>
Bytes FromHex(absl::string_view hex) {
  const std::string text = absl::HexStringToBytes(hex);
  Bytes bytes{};
  EXPECT_EQ(text.size(), bytes.size());
  std::copy_n(text.begin(), std::min(text.size(), bytes.size()), bytes.begin());
  return bytes;
}
template <typename Bytes>
std::string Hex(const Bytes& bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// RFC 8032, section 7.1, tests 1 to 3.
TEST(Ed25519Test, MatchesThePublishedVectors) {
  struct Vector {
    const char* seed;
    const char* public_key;
    const char* text;
    const char* signature;
  };
  const Vector vectors[] = {
      {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
       "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
       "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf"
       "9"
       "b46bd25bf5f0595bbe24655141438e7a100b"},
      {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
       "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
       "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f"
       "1"
       "1d8c387b2eaeb4302aeeb00d291612bb0c00"},
      {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
       "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
       "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984"
       "d"
       "c6594a7c15e9716ed28dc027beceea1ec40a"}};
  for (const Vector& vector : vectors) {
    Ed25519Key key(FromHex<Ed25519Seed>(vector.seed));
    EXPECT_EQ(Hex(key.public_key()), vector.public_key);
    const std::string text = absl::HexStringToBytes(vector.text);
    const Ed25519Signature signature = key.Sign(text);
    EXPECT_EQ(Hex(signature), vector.signature);
    EXPECT_EQ(key.Sign(text), signature);
    EXPECT_TRUE(VerifyEd25519(key.public_key(), text, signature));
  }
}

TEST(Ed25519Test, RefusesWhatWasNotSigned) {
  Ed25519Key key(Ed25519Seed{1});
  Ed25519Key other(Ed25519Seed{2});
  Ed25519Signature signature = key.Sign("text");
  EXPECT_TRUE(VerifyEd25519(key.public_key(), "text", signature));
  EXPECT_FALSE(VerifyEd25519(key.public_key(), "texT", signature));
  EXPECT_FALSE(VerifyEd25519(other.public_key(), "text", signature));
  signature[63] = static_cast<uint8_t>(signature[63] ^ 1);
  EXPECT_FALSE(VerifyEd25519(key.public_key(), "text", signature));
}

TEST(Ed25519Test, AKeyThatWasMovedSignsTheSame) {
  Ed25519Key key(Ed25519Seed{1});
  const Ed25519Signature signature = key.Sign("text");
  Ed25519Key moved = std::move(key);
  EXPECT_EQ(moved.Sign("text"), signature);
}

}  // namespace
}  // namespace postrider
