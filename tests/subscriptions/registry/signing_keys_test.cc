#include "subscriptions/registry/signing_keys.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider::subscriptions {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// From the documentation of svix-webhooks, whose authors wrote Standard Webhooks too.
constexpr char kPrivate[] =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
constexpr char kPublic[] = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
constexpr char kSeedAlone[] = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";

TEST(SigningKeysTest, TakesSecretsOfTheRightFormAlone) {
  const auto secret = [](size_t bytes) {
    return absl::StrCat("whsec_", absl::Base64Escape(std::string(bytes, 's')));
  };
  EXPECT_FALSE(DecodeSigningSecret(secret(23)).ok());
  EXPECT_OK(DecodeSigningSecret(secret(24)));
  EXPECT_OK(DecodeSigningSecret(secret(64)));
  EXPECT_FALSE(DecodeSigningSecret(secret(65)).ok());
  EXPECT_FALSE(DecodeSigningSecret(absl::Base64Escape(std::string(32, 's'))).ok());
  EXPECT_THAT(DecodeSigningSecret("whsec_not*base64"),
              tests::StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("not*base64"))));
}

TEST(SigningKeysTest, APrivateKeyTellsItsPublicKey) {
  EXPECT_EQ(PublicKeyOf(kPrivate).value(), kPublic);
  EXPECT_EQ(PublicKeyOf(kSeedAlone).value(), kPublic);
  EXPECT_EQ(DecodePrivateKey(kPrivate).value(), DecodePrivateKey(kSeedAlone).value());
}

TEST(SigningKeysTest, RefusesPrivateKeysOfAnotherForm) {
  std::string other = kPrivate;
  other[70] = other[70] == 'a' ? 'b' : 'a';  // in the public part
  for (const std::string& text :
       {other, std::string(kPublic), std::string("whsk_"), std::string("whsk_AAAA"),
        std::string(kPrivate).substr(0, 60), std::string("whsk_*")}) {
    EXPECT_THAT(DecodePrivateKey(text),
                tests::StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("6Xb"))))
        << text;
  }
}

TEST(SigningKeysTest, NewOnesAreOfTheRightFormAndNeverTheSame) {
  const std::string secret = NewSigningSecret();
  EXPECT_EQ(DecodeSigningSecret(secret).value().size(), 32u);
  EXPECT_NE(NewSigningSecret(), secret);
  const std::string key = NewPrivateKey();
  EXPECT_OK(DecodePrivateKey(key));
  EXPECT_EQ(PublicKeyOf(key).value().substr(0, 5), "whpk_");
  EXPECT_NE(NewPrivateKey(), key);
}

}  // namespace
}  // namespace postrider::subscriptions
