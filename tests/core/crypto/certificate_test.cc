#include "core/crypto/certificate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using tests::kCertificateOne;
using tests::kCertificateTwo;
using tests::kKeyOne;
using tests::kKeyTwo;
using tests::StatusIs;

TEST(CertificateTest, TakesOneCertificateAndAChain) {
  EXPECT_OK(CheckCertificates(kCertificateOne));
  EXPECT_OK(CheckCertificates(absl::StrCat(kCertificateOne, kCertificateTwo)));
  EXPECT_OK(CheckCertificates(absl::StrCat("subject=CN = one.example\n", kCertificateOne)));
}

TEST(CertificateTest, RefusesWhatIsNoCertificateOrMoreThanThat) {
  std::string damaged = kCertificateOne;
  damaged[100] = damaged[100] == 'A' ? 'B' : 'A';
  const std::string cut = std::string(kCertificateOne).substr(0, 200);
  for (const std::string& text :
       {std::string(), std::string("hello"), std::string(kKeyOne), damaged, cut,
        absl::StrCat(kCertificateOne, cut), absl::StrCat(kCertificateOne, kKeyOne),
        // Not well-formed, and yet a key in the clear.
        absl::StrCat(kCertificateOne, "PRIVATE KEY: abc\n"), absl::StrCat(kCertificateOne, "\x01"),
        absl::StrCat(kCertificateOne, "\xc3\xa9")}) {
    EXPECT_THAT(CheckCertificates(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(CertificateTest, HoldsItsBoundOnBothSides) {
  std::string text = kCertificateOne;
  text.append(kPemBytesMax - text.size(), '\n');
  EXPECT_OK(CheckCertificates(text));
  text.push_back('\n');
  EXPECT_THAT(CheckCertificates(text), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CertificateTest, TellsWhetherAKeyBelongsToTheFirstCertificate) {
  EXPECT_OK(CheckKeyOfCertificate(kCertificateOne, kKeyOne));
  EXPECT_OK(CheckKeyOfCertificate(absl::StrCat(kCertificateTwo, kCertificateOne), kKeyTwo));
  EXPECT_THAT(CheckKeyOfCertificate(absl::StrCat(kCertificateTwo, kCertificateOne), kKeyOne),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("belong")));
  for (const std::string& key :
       {std::string(), std::string("hello"), std::string(kCertificateOne),
        absl::StrCat(kKeyOne, kKeyTwo), std::string(kKeyOne).substr(0, 60)}) {
    EXPECT_THAT(CheckKeyOfCertificate(kCertificateOne, key),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace postrider
