#include "delivery/signer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/crypto/ed25519.h"
#include "gtest/gtest.h"
#include "subscriptions/registry/signing_keys.h"

namespace postrider::delivery {
namespace {

using subscriptions::DecodePrivateKey;
using subscriptions::DecodeSigningSecret;
using subscriptions::SignatureScheme;

constexpr char kSecret1[] = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
constexpr char kSecret2[] = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";
constexpr char kBody[] = "{\"b\":1,\"a\":[1.0,2],\"n\":\"\u00e9\"}";
constexpr char kSignature1[] = "v1,wGhDvneXPOgxOLI9+Nl2Atyu7CukZmfMoObzScX1cjM=";
constexpr char kSignature2[] = "v1,+tTXtmo9jlwf/yaq0fFz9wdPwPrmFp40yCDWv9iTSWw=";
constexpr int64_t kTime = 1'700'000'000;
const WallTime kNow = WallTimeFromMillis(kTime * 1'000);

std::string Key(absl::string_view text) { return DecodeSigningSecret(text).value(); }

// SIGN-01
TEST(SignerTest, SignsExactlyTheBytesThatAreSent) {
  SecretSet secrets;
  ASSERT_TRUE(secrets.Add(Key(kSecret1)));
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), kSignature1);
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, "", kNow),
            "v1,4JyEkV3dQICD87BJKImF6f+2TBEBs85MJIz6QgGfvU8=");
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), kSignature1);
}

// SIGN-02: a retry has a new time and so a new signature, under the same id.
TEST(SignerTest, AnotherTimeIsAnotherSignature) {
  SecretSet secrets;
  ASSERT_TRUE(secrets.Add(Key(kSecret1)));
  EXPECT_NE(secrets.Sign("msg_t1", kTime + 1, kBody, kNow), kSignature1);
  EXPECT_NE(secrets.Sign("msg_t2", kTime, kBody, kNow), kSignature1);
}

// SIGN-03
TEST(SignerTest, SignsWithBothSecretsUntilTheOldOneEnds) {
  SecretSet secrets;
  ASSERT_TRUE(secrets.Add(Key(kSecret2)));
  const WallTime end = kNow + std::chrono::seconds(60);
  ASSERT_TRUE(secrets.Add(Key(kSecret1), end));
  const std::string both = absl::StrCat(kSignature2, " ", kSignature1);
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), both);
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, end - std::chrono::milliseconds(1)), both);
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, end), kSignature2);
}

TEST(SignerTest, WithoutAValidSecretThereIsNoSignature) {
  SecretSet secrets;
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), "");
  ASSERT_TRUE(secrets.Add(Key(kSecret1), kNow));
  EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), "");
}

TEST(SignerTest, HoldsSoManySecrets) {
  SecretSet secrets;
  for (size_t i = 0; i < SecretSet::kSecretsMax; ++i) EXPECT_TRUE(secrets.Add(Key(kSecret1)));
  EXPECT_FALSE(secrets.Add(Key(kSecret1)));
}

// The signature of the specification's example of its headers, whose key and text are those of
// test_asymmetric_key_signing in the server of svix-webhooks, which its authors wrote too.
constexpr char kPair[] =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
constexpr char kPairBody[] = "{\"test\": 2432232314}";
constexpr char kPairId[] = "msg_p5jXN8AQM9LWM0D4loKWxJek";
constexpr int64_t kPairTime = 1'614'265'330;
constexpr char kPairSignature[] =
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

Ed25519Seed Seed(absl::string_view text) { return DecodePrivateKey(text).value(); }

TEST(SignerTest, SignsWithAKeyPairAsTheSpecificationDoes) {
  SecretSet secrets(SignatureScheme::kEd25519);
  ASSERT_TRUE(secrets.Add(Key(kSecret1), {}, Seed(kPair)));
  EXPECT_EQ(secrets.Sign(kPairId, kPairTime, kPairBody, kNow), kPairSignature);
  EXPECT_NE(secrets.Sign(kPairId, kPairTime + 1, kPairBody, kNow), kPairSignature);
}

TEST(SignerTest, SignsByBothSchemesWithEverySecretThatIsValid) {
  const Ed25519Seed other{7};
  SecretSet secrets(SignatureScheme::kBoth);
  ASSERT_TRUE(secrets.Add(Key(kSecret2), {}, Seed(kPair)));
  ASSERT_TRUE(secrets.Add(Key(kSecret1), kNow, other));
  const auto parts = [&secrets](WallTime now) -> std::vector<std::string> {
    return absl::StrSplit(secrets.Sign("msg_t1", kTime, kBody, now), ' ');
  };
  const std::vector<std::string> both = parts(kNow - std::chrono::milliseconds(1));
  ASSERT_EQ(both.size(), 4u);
  EXPECT_EQ(both[0], kSignature2);
  EXPECT_EQ(both[2], kSignature1);
  const std::string text = absl::StrCat("msg_t1.", kTime, ".", kBody);
  const auto verifies = [&text](const Ed25519Seed& seed, absl::string_view part) {
    std::string bytes;
    Ed25519Signature signature{};
    if (!absl::ConsumePrefix(&part, "v1a,") || !absl::Base64Unescape(part, &bytes) ||
        bytes.size() != signature.size()) {
      return false;
    }
    std::copy(bytes.begin(), bytes.end(), signature.begin());
    return VerifyEd25519(Ed25519Key(seed).public_key(), text, signature);
  };
  EXPECT_TRUE(verifies(Seed(kPair), both[1]));
  EXPECT_TRUE(verifies(other, both[3]));
  EXPECT_FALSE(verifies(other, both[1]));
  EXPECT_EQ(parts(kNow), std::vector<std::string>(both.begin(), both.begin() + 2));
}

TEST(SignerTest, WithoutAKeyPairNothingIsSignedThatNeedsOne) {
  for (const SignatureScheme scheme : {SignatureScheme::kEd25519, SignatureScheme::kBoth}) {
    SecretSet secrets(scheme);
    ASSERT_TRUE(secrets.Add(Key(kSecret1)));
    EXPECT_EQ(secrets.Sign("msg_t1", kTime, kBody, kNow), "");
    // An old secret without one signs by HMAC alone.
    ASSERT_TRUE(secrets.Add(Key(kSecret2), {}, Seed(kPair)));
    EXPECT_NE(secrets.Sign("msg_t1", kTime, kBody, kNow), "");
  }
}

}  // namespace
}  // namespace postrider::delivery
