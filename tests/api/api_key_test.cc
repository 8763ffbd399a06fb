#include "api/api_key.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/crypto/digest.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::api {
namespace {

using namespace std::chrono_literals;

TEST(ApiKeyTest, ReadsWhatItMakes) {
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) {
    const NewKey key = MakeKey();
    ASSERT_EQ(key.key_id.size(), 12u);
    ASSERT_EQ(key.text.size(), 3u + 12u + 1u + 52u + 7u);
    const auto parsed = ParseKeyText(key.text);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->key_id, key.key_id);
    EXPECT_EQ(std::string(DigestView(Sha256(parsed->secret))), key.secret_sha256);
    texts.insert(key.text);
  }
  EXPECT_EQ(texts.size(), 100u);
}

TEST(ApiKeyTest, RefusesAKeyWithOneWrongCharacter) {
  const std::string text = MakeKey().text;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string wrong = text;
    wrong[i] = wrong[i] == 'a' ? 'b' : 'a';
    EXPECT_FALSE(ParseKeyText(wrong).has_value()) << i;
  }
  EXPECT_FALSE(ParseKeyText("").has_value());
  EXPECT_FALSE(ParseKeyText(text.substr(1)).has_value());
  EXPECT_FALSE(ParseKeyText(absl::StrCat(text, "a")).has_value());
}

TEST(FailureLimiterTest, BlocksAnAddressAfterTenFailuresInASecond) {
  ManualClock clock;
  FailureLimiter limiter;
  for (int i = 0; i < 9; ++i) limiter.Failed("10.0.0.1", clock.Now());
  EXPECT_FALSE(limiter.Blocked("10.0.0.1", clock.Now()));
  limiter.Failed("10.0.0.1", clock.Now());
  EXPECT_TRUE(limiter.Blocked("10.0.0.1", clock.Now()));
  EXPECT_FALSE(limiter.Blocked("10.0.0.2", clock.Now()));
  clock.Advance(999ms);
  EXPECT_TRUE(limiter.Blocked("10.0.0.1", clock.Now()));
  clock.Advance(1ms);
  EXPECT_FALSE(limiter.Blocked("10.0.0.1", clock.Now()));
  limiter.Failed("10.0.0.1", clock.Now());
  EXPECT_FALSE(limiter.Blocked("10.0.0.1", clock.Now()));
}

TEST(FailureLimiterTest, CountsAnIpv6NetworkAsOne) {
  ManualClock clock;
  FailureLimiter limiter;
  for (int i = 0; i < 10; ++i) limiter.Failed(absl::StrCat("2001:db8:1:2::", i), clock.Now());
  EXPECT_TRUE(limiter.Blocked("2001:db8:1:2:ffff::1", clock.Now()));
  EXPECT_FALSE(limiter.Blocked("2001:db8:1:3::1", clock.Now()));
}

}  // namespace
}  // namespace postrider::api
