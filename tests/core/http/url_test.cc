#include "core/http/url.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/http/address_guard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using ::postrider::tests::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

void ExpectRefused(const std::string& text) {
  EXPECT_THAT(ParseHttpUrl(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
}

TEST(UrlTest, TakesAUrlApart) {
  ASSERT_OK_AND_ASSIGN(const HttpUrl url, ParseHttpUrl("HTTPS://Hooks.Example.COM/a_b/~c?q=1&q=2"));
  EXPECT_EQ(url.scheme, HttpUrl::Scheme::kHttps);
  EXPECT_EQ(url.host, "hooks.example.com");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.target, "/a_b/~c?q=1&q=2");
  EXPECT_EQ(url.authority(), "hooks.example.com:443");
  EXPECT_EQ(url.ToString(), "https://hooks.example.com/a_b/~c?q=1&q=2");
}

TEST(UrlTest, FillsInTargetAndPort) {
  ASSERT_OK_AND_ASSIGN(const HttpUrl plain, ParseHttpUrl("http://h"));
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.target, "/");
  ASSERT_OK_AND_ASSIGN(const HttpUrl query, ParseHttpUrl("http://h:8080?a=b"));
  EXPECT_EQ(query.ToString(), "http://h:8080/?a=b");
}

// URL-01
TEST(UrlTest, RefusesUserInfoWithoutRepeatingIt) {
  for (const std::string text : {"https://u:hunter2@h/x", "https://hunter2@h/x",
                                 "https://u%40d:hunter2@h/", "https://@h/"}) {
    EXPECT_THAT(ParseHttpUrl(text),
                StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("hunter2"))))
        << text;
  }
}

// URL-01
TEST(UrlTest, AcceptsOddButLegalUrls) {
  for (const std::string text :
       {"https://h.example:65535/a_b/~c?q=1&q=2", "https://xn--bcher-kva.example/",
        "https://h.technology/", "https://a_b.example/", "http://h.example/x@y",
        "https://h/a%20b?x=%C3%BC"}) {
    EXPECT_OK(ParseHttpUrl(text)) << text;
  }
}

TEST(UrlTest, RefusesWhatIsNoHttpUrl) {
  for (const std::string text : {"",
                                 "h.example",
                                 "ftp://h/",
                                 "file:///etc/passwd",
                                 "//h/",
                                 "https:/h/",
                                 "https://",
                                 "https:///x",
                                 "https://:80/",
                                 "https://h:0/",
                                 "https://h:65536/",
                                 "https://h:/",
                                 "https://h:+80/",
                                 "https://h:8a/",
                                 "https://h:099/",
                                 "https://h/#part",
                                 "https://h/a b",
                                 "https://h/\x01",
                                 "https://h/%zz",
                                 "https://h/%2",
                                 "https://h\\@x/",
                                 "https://h/<x>",
                                 "https://h/a\r\nX-Evil: 1",
                                 "https://[::1/",
                                 "https://[::1]x/",
                                 "https://[1.2.3.4]/",
                                 "https://[fe80::1%25eth0]/",
                                 "https://h_.-/",
                                 "https://-h/",
                                 "https://a..b/",
                                 "https://./"}) {
    ExpectRefused(text);
  }
  ExpectRefused(std::string("https://h/\0x", 12));
}

// URL-03
TEST(UrlTest, GivesAHostOneForm) {
  for (const std::string text :
       {"https://XN--Bcher-KVA.example/", "https://xn--bcher-kva.example./"}) {
    ASSERT_OK_AND_ASSIGN(const HttpUrl url, ParseHttpUrl(text));
    EXPECT_EQ(url.host, "xn--bcher-kva.example");
  }
  ASSERT_OK_AND_ASSIGN(const HttpUrl v6, ParseHttpUrl("http://[2001:DB8:0:0::1]:8080/"));
  EXPECT_EQ(v6.host, "2001:db8::1");
  EXPECT_EQ(v6.authority(), "[2001:db8::1]:8080");
  EXPECT_EQ(v6.ToString(), "http://[2001:db8::1]:8080/");
}

// URL-03
TEST(UrlTest, RefusesUnicodeAndPercentSignsInAHost) {
  for (const std::string text :
       {"https://b\u00fccher.example/", "https://B\u00dcCHER.example/",
        "https://b%C3%BCcher.example/", "https://127%2e0%2e0%2e1/", "https://%31%32%37.0.0.1/",
        "https://\u2460\u2461\u2466.0.0.1/", "https://127\u30020\u30020\u30021/"}) {
    ExpectRefused(text);
  }
}

// URL-03
TEST(UrlTest, BoundsLabelsHostAndUrl) {
  const std::string label63(63, 'a');
  EXPECT_OK(ParseHttpUrl(absl::StrCat("https://", label63, ".example/")));
  ExpectRefused(absl::StrCat("https://a", label63, ".example/"));
  const std::string host253 =
      absl::StrCat(label63, ".", label63, ".", label63, ".", std::string(61, 'b'));
  ASSERT_EQ(host253.size(), 253u);
  EXPECT_OK(ParseHttpUrl(absl::StrCat("https://", host253, "/")));
  ExpectRefused(absl::StrCat("https://", host253, "b/"));
  const std::string url = absl::StrCat("https://h/", std::string(1'990, 'x'));
  ASSERT_EQ(url.size(), 2'000u);
  EXPECT_OK(ParseHttpUrl(url));
  ExpectRefused(url + "x");
}

// SSRF-07
TEST(UrlTest, OldNumericSpellingsNeverReachLoopbackOrMetadata) {
  const auto rules = AddressRules::Default();
  for (const std::string host :
       {"2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "127.1",    "127.0.1", "0x7f.1",
        "2852039166", "0xa9fea9fe", "025177524776", "127.0.0.1.", "0",        "0.0.0.0", "+1.2.3.4",
        "1.2.3.256",  "1.2.3.4.5",  "0x",           "x.0x1",      "1.2.3.04", "0X7F.1"}) {
    const absl::StatusOr<HttpUrl> url = ParseHttpUrl(absl::StrCat("http://", host, "/"));
    if (!url.ok()) continue;
    ASSERT_TRUE(url->address) << host;
    EXPECT_NE(rules->Check(*url->address, url->port), AddressRules::Verdict::kAllowed) << host;
  }
  ASSERT_OK_AND_ASSIGN(const HttpUrl plain, ParseHttpUrl("http://192.0.2.1/"));
  EXPECT_TRUE(plain.address);
}

}  // namespace
}  // namespace postrider
