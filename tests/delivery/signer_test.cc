#include "delivery/signer.h"

#include <chrono>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret1[] = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
constexpr char kSecret2[] = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";
constexpr char kBody[] = "{\"b\":1,\"a\":[1.0,2],\"n\":\"\u00e9\"}";
constexpr char kSignature1[] = "v1,wGhDvneXPOgxOLI9+Nl2Atyu7CukZmfMoObzScX1cjM=";
constexpr char kSignature2[] = "v1,+tTXtmo9jlwf/yaq0fFz9wdPwPrmFp40yCDWv9iTSWw=";
constexpr int64_t kTime = 1'700'000'000;
const WallTime kNow = WallTimeFromMillis(kTime * 1'000);

std::string Key(absl::string_view text) { return DecodeSecret(text).value(); }

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

TEST(SignerTest, TakesSecretsOfTheRightFormAlone) {
  const auto secret = [](size_t bytes) {
    return absl::StrCat("whsec_", absl::Base64Escape(std::string(bytes, 's')));
  };
  EXPECT_FALSE(DecodeSecret(secret(23)).ok());
  EXPECT_OK(DecodeSecret(secret(24)));
  EXPECT_OK(DecodeSecret(secret(64)));
  EXPECT_FALSE(DecodeSecret(secret(65)).ok());
  EXPECT_FALSE(DecodeSecret(absl::Base64Escape(std::string(32, 's'))).ok());
  EXPECT_THAT(DecodeSecret("whsec_not*base64"),
              tests::StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("not*base64"))));
}

}  // namespace
}  // namespace postrider::delivery
