#include "core/http/header_rules.h"

#include <string>

#include "gtest/gtest.h"

namespace postrider {
namespace {

bool Refused(const std::string& name, const std::string& value) {
  return FindHeaderFault({{name, value}}).has_value();
}

// URL-05
TEST(HeaderRulesTest, RefusesWhatCouldMakeAnotherLine) {
  EXPECT_TRUE(Refused("X-A", "a\r\nX-Evil: 1"));
  EXPECT_TRUE(Refused("X-A", "a\nb"));
  EXPECT_TRUE(Refused("X-A", std::string("a\0b", 3)));
  EXPECT_TRUE(Refused("X-A", "a\x7f"));
  EXPECT_TRUE(Refused("X-A", "\u00e9"));
  EXPECT_TRUE(Refused("X-A", " a"));
  EXPECT_TRUE(Refused("X-A", "a\t"));
  EXPECT_TRUE(Refused("X Y", "a"));
  EXPECT_TRUE(Refused("X:Y", "a"));
  EXPECT_TRUE(Refused("", "a"));
  EXPECT_TRUE(Refused("X-\u00e9", "a"));
  EXPECT_TRUE(Refused(std::string(300, 'x'), "a"));
  EXPECT_TRUE(Refused("X-A", std::string(4'097, 'x')));
  EXPECT_FALSE(Refused(std::string(128, 'x'), std::string(4'096, 'x')));
  EXPECT_FALSE(Refused("X-A", "a\tb c"));
  EXPECT_FALSE(Refused("X-A", ""));
}

// URL-07
TEST(HeaderRulesTest, RefusesReservedAndDoubledNamesInAnyCase) {
  for (const std::string name :
       {"webhook-signature", "WEBHOOK-ID", "Transfer-Encoding", "Content-Length", "content-type",
        "Host", "Connection", "Expect", "User-Agent", "Proxy-Authorization"}) {
    EXPECT_TRUE(Refused(name, "x")) << name;
  }
  EXPECT_FALSE(Refused("Authorization", "Bearer x"));
  const absl::optional<HeaderFault> fault =
      FindHeaderFault({{"X-B", "1"}, {"X-A", "1"}, {"x-a", "secret"}});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->index, 2u);
  EXPECT_EQ(fault->detail.find("secret"), std::string::npos);
}

TEST(HeaderRulesTest, BoundsTheNumberOfHeaders) {
  HttpHeaders headers;
  for (size_t i = 0; i < kCustomHeadersMax; ++i)
    headers.emplace_back("X-" + std::to_string(i), "v");
  EXPECT_FALSE(FindHeaderFault(headers));
  headers.emplace_back("X-more", "v");
  EXPECT_TRUE(FindHeaderFault(headers));
}

TEST(HeaderRulesTest, PercentEncodesAllButUnreserved) {
  EXPECT_EQ(PercentEncode("aZ0-._~"), "aZ0-._~");
  EXPECT_EQ(PercentEncode("a b\r\n%\u00fc"), "a%20b%0D%0A%25%C3%BC");
}

}  // namespace
}  // namespace postrider
