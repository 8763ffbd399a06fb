#include "core/crypto/mac.h"

#include <string>

#include "absl/strings/escaping.h"
#include "core/crypto/constant_time.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

std::string Hex(const HmacTag& tag) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(tag.data()), tag.size()));
}

// RFC 4231, cases 1, 2 and 6.
TEST(MacTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Hex(HmacSha256Key(std::string(20, '\x0b')).Mac({"Hi There"})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256Key("Jefe").Mac({"what do ya want for nothing?"})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256Key(std::string(131, '\xaa'))
                    .Mac({"Test Using Larger Than Block-Size Key - Hash Key First"})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(MacTest, AKeyServesManyTexts) {
  HmacSha256Key key("Jefe");
  const HmacTag first = key.Mac({"what do ya want ", "for nothing?"});
  EXPECT_NE(key.Mac({"other"}), first);
  EXPECT_EQ(key.Mac({"what do ya want for nothing?"}), first);
}

TEST(ConstantTimeTest, ComparesTexts) {
  EXPECT_TRUE(ConstantTimeEqual("", ""));
  EXPECT_TRUE(ConstantTimeEqual("abc", "abc"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "ab"));
}

}  // namespace
}  // namespace postrider
