#include "delivery/token_cache.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/metrics.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_http_sink.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using State = TokenCache::State;

std::shared_ptr<const TokenSource> Source(const std::string& client = "client",
                                          uint8_t customer = 1) {
  IdBytes id{};
  id[15] = customer;
  return TokenSource::Make(subscriptions::CustomerId(id),
                           *ParseHttpUrl("https://login.example/token?tenant=a"), client,
                           "p@ss word", "read write");
}

class TokenCacheTest : public ::testing::Test {
 protected:
  ~TokenCacheTest() override {
    sink_.AbortAll();
    sink_.DeliverAborts();
  }
  void Answer(const std::string& body, int status = 200) {
    HttpResult result;
    result.status = status;
    result.body_excerpt = body;
    sink_.Answer(sink_.size() - 1, std::move(result));
  }
  void AnswerToken(const std::string& token, int expires_in) {
    Answer(absl::StrCat(R"({"access_token":")", token, R"(","token_type":"Bearer","expires_in":)",
                        expires_in, "}"));
  }
  State StateOf(const std::shared_ptr<const TokenSource>& source) {
    return cache_.Get(source).state;
  }

  Metrics metrics_;
  ManualClock clock_;
  FakeHttpSink sink_;
  std::vector<std::string> changed_;
  Counter& fetches_ = metrics_.AddCounter("fetches", "");
  Counter& failures_ = metrics_.AddCounter("failures", "");
  TokenCacheOptions options_ = [] {
    TokenCacheOptions options;
    options.tokens_max = 16;
    return options;
  }();
  TokenCache cache_{clock_,    sink_,
                    options_,  fetches_,
                    failures_, [this](const std::string& key) { changed_.push_back(key); }};
};

TEST_F(TokenCacheTest, FetchesOnceForAllWhoAskAndTellsThem) {
  const auto source = Source();
  EXPECT_EQ(StateOf(source), State::kFetching);
  EXPECT_EQ(StateOf(Source()), State::kFetching);
  ASSERT_EQ(sink_.size(), 1u);
  const HttpRequest& request = sink_.at(0).request;
  EXPECT_EQ(request.url.ToString(), "https://login.example/token?tenant=a");
  EXPECT_EQ(request.body, "grant_type=client_credentials&scope=read%20write");
  EXPECT_EQ(sink_.at(0).Header("content-type"), "application/x-www-form-urlencoded");
  EXPECT_EQ(sink_.at(0).Header("authorization"), "Basic Y2xpZW50OnAlNDBzcyUyMHdvcmQ=");
  EXPECT_EQ(request.tls, nullptr);
  AnswerToken("abc.def-1", 3600);
  EXPECT_EQ(changed_, (std::vector<std::string>{source->key}));
  const TokenCache::Token token = cache_.Get(source);
  EXPECT_EQ(token.state, State::kReady);
  EXPECT_EQ(token.value, "abc.def-1");
  EXPECT_GT(token.number, 0u);
  EXPECT_EQ(sink_.size(), 1u);
}

TEST_F(TokenCacheTest, SharesNoTokenBetweenCustomersClientsOrSecrets) {
  EXPECT_NE(Source("client", 1)->key, Source("client", 2)->key);
  EXPECT_NE(Source("client")->key, Source("other")->key);
  const auto with_secret = [](const std::string& secret, const std::string& scope) {
    return TokenSource::Make(subscriptions::CustomerId(), *ParseHttpUrl("https://a.example/"), "c",
                             secret, scope);
  };
  EXPECT_NE(with_secret("x", "")->key, with_secret("y", "")->key);
  EXPECT_NE(with_secret("x", "y")->key, with_secret("xy", "")->key);
  cache_.Get(Source("client", 1));
  cache_.Get(Source("client", 2));
  ASSERT_EQ(sink_.size(), 2u);
  EXPECT_NE(sink_.at(0).request.connection_group, sink_.at(1).request.connection_group);
}

TEST_F(TokenCacheTest, FetchesAnewAtFourFifthsOfALifeAndUsesTheOldOneMeanwhile) {
  const auto source = Source();
  cache_.Get(source);
  AnswerToken("first", 1000);
  clock_.Advance(milliseconds(799'999));
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 1u);
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 2u);
  AnswerToken("second", 1000);
  EXPECT_EQ(cache_.Get(source).value, "second");
}

TEST_F(TokenCacheTest, ATokenEndsFiveSecondsEarlyOrATenth) {
  const auto source = Source();
  cache_.Get(source);
  AnswerToken("long", 1000);
  clock_.Advance(seconds(995) - milliseconds(1));
  EXPECT_EQ(cache_.Get(source).value, "long");
  // The new fetch goes on.
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(StateOf(source), State::kFetching);
  AnswerToken("short", 10);
  clock_.Advance(milliseconds(8'999));
  EXPECT_EQ(cache_.Get(source).value, "short");
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(StateOf(source), State::kFetching);
}

TEST_F(TokenCacheTest, AfterAFailureTheProviderIsLeftAlone) {
  const auto source = Source();
  cache_.Get(source);
  Answer(R"({"error":"invalid_client"})", 401);
  EXPECT_EQ(changed_.size(), 1u);
  EXPECT_EQ(StateOf(source), State::kFailed);
  EXPECT_EQ(cache_.Get(source).retry_in, seconds(5));
  clock_.Advance(seconds(5) - milliseconds(1));
  EXPECT_EQ(StateOf(source), State::kFailed);
  EXPECT_EQ(sink_.size(), 1u);
  EXPECT_EQ(failures_.value(), 1);
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(StateOf(source), State::kFetching);
  EXPECT_EQ(fetches_.value(), 2);
}

TEST_F(TokenCacheTest, AFailedRenewalLeavesTheOldTokenToItsEnd) {
  const auto source = Source();
  cache_.Get(source);
  AnswerToken("first", 1000);
  clock_.Advance(seconds(800));
  cache_.Get(source);
  sink_.Fail(1, HttpFailure::kConnect);
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 2u);
  clock_.Advance(seconds(5));
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 3u);
}

TEST_F(TokenCacheTest, TakesNothingThatIsNoTokenForAHeader) {
  const std::string refused[] = {
      "",
      "[]",
      "not json",
      R"({"token_type":"Bearer"})",
      R"({"access_token":""})",
      R"({"access_token":7})",
      R"({"access_token":"a b"})",
      R"({"access_token":"a\r\nX-Evil: 1"})",
      R"({"access_token":"\u00e9"})",
      R"({"access_token":"a","token_type":"mac"})",
      R"({"access_token":"a","token_type":1})",
      R"({"access_token":"a","expires_in":0})",
      R"({"access_token":"a","expires_in":-1})",
      R"({"access_token":"a","expires_in":"soon"})",
      R"({"access_token":"a","expires_in":"nan"})",
      R"({"access_token":"a","expires_in":[]})",
      absl::StrCat(R"({"access_token":")", std::string(4'001, 'a'), R"("})"),
  };
  const auto source = Source();
  for (const std::string& body : refused) {
    ASSERT_EQ(StateOf(source), State::kFetching);
    Answer(body);
    EXPECT_EQ(StateOf(source), State::kFailed) << body;
    clock_.Advance(seconds(5));
  }
  for (const int status : {201, 204, 302, 400, 500}) {
    ASSERT_EQ(StateOf(source), State::kFetching);
    Answer(R"({"access_token":"a"})", status);
    EXPECT_EQ(StateOf(source), State::kFailed) << status;
    clock_.Advance(seconds(5));
  }
  cache_.Get(source);
  HttpResult cut;
  cut.status = 200;
  cut.body_excerpt = R"({"access_token":"a"})";
  cut.body_cut = true;
  sink_.Answer(sink_.size() - 1, cut);
  EXPECT_EQ(StateOf(source), State::kFailed);
}

TEST_F(TokenCacheTest, TakesWhatProvidersReallySend) {
  const std::string taken[] = {
      R"({"access_token":"a"})",
      R"({"access_token":"a","token_type":"bearer","expires_in":null})",
      R"({"access_token":"a","expires_in":"3600","scope":"x","more":{"x":[1]}})",
      R"({"access_token":"a","expires_in":1e300})",
      absl::StrCat(R"({"access_token":")", std::string(4'000, 'a'), R"("})"),
  };
  for (size_t i = 0; i < std::size(taken); ++i) {
    const auto source = Source(absl::StrCat("client", i));
    cache_.Get(source);
    Answer(taken[i]);
    EXPECT_EQ(StateOf(source), State::kReady) << taken[i];
  }
  // However long a life is said to be.
  clock_.Advance(hours(24));
  EXPECT_EQ(StateOf(Source("client3")), State::kFetching);
}

TEST_F(TokenCacheTest, ARejectedTokenIsDroppedOnceAMinute) {
  const auto source = Source();
  cache_.Get(source);
  AnswerToken("first", 3600);
  const uint64_t first = cache_.Get(source).number;
  cache_.Reject(*source, first + 1);
  EXPECT_EQ(cache_.Get(source).value, "first");
  cache_.Reject(*source, first);
  EXPECT_EQ(StateOf(source), State::kFetching);
  AnswerToken("second", 3600);
  const uint64_t second = cache_.Get(source).number;
  // An answer to a request that had the first one.
  cache_.Reject(*source, first);
  EXPECT_EQ(cache_.Get(source).value, "second");
  // A receiver that takes none costs the provider no fetch for each request.
  cache_.Reject(*source, second);
  EXPECT_EQ(cache_.Get(source).value, "second");
  clock_.Advance(minutes(1));
  cache_.Reject(*source, second);
  EXPECT_EQ(StateOf(source), State::kFetching);
}

TEST_F(TokenCacheTest, AProviderWithoutRoomInTheLineIsAFailure) {
  const auto source = Source();
  sink_.SetHostRoom("login.example:443", 0);
  EXPECT_EQ(StateOf(source), State::kFailed);
  EXPECT_EQ(sink_.size(), 0u);
  sink_.SetHostRoom("login.example:443", 1);
  clock_.Advance(seconds(5));
  EXPECT_EQ(StateOf(source), State::kFetching);
}

TEST_F(TokenCacheTest, ARenewalLeavesAPlaceInTheLineForWhoAsks) {
  const auto source = Source();
  cache_.Get(source);
  AnswerToken("first", 1000);
  clock_.Advance(seconds(900));
  sink_.SetHostRoom("login.example:443", 1);
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 1u);
  sink_.SetHostRoom("login.example:443", 2);
  EXPECT_EQ(cache_.Get(source).value, "first");
  EXPECT_EQ(sink_.size(), 2u);
}

TEST_F(TokenCacheTest, IsBoundedAndForgetsWhatWasUsedLongestAgo) {
  for (int i = 0; i < 100; ++i) {
    const auto source = Source(absl::StrCat("client", i));
    cache_.Get(source);
    AnswerToken("t", 3600);
    cache_.Get(Source("client0"));
    EXPECT_LE(cache_.size(), 16u);
    clock_.Advance(seconds(1));
  }
  const size_t fetched = sink_.size();
  EXPECT_EQ(StateOf(Source("client0")), State::kReady);
  EXPECT_EQ(StateOf(Source("client99")), State::kReady);
  EXPECT_EQ(sink_.size(), fetched);
  EXPECT_EQ(StateOf(Source("client50")), State::kFetching);
}

TEST_F(TokenCacheTest, SecretsTooLongForAHeaderGoIntoTheBody) {
  const auto source =
      TokenSource::Make(subscriptions::CustomerId(), *ParseHttpUrl("https://a.example/"), "c d",
                        std::string(4'000, 'x'), "");
  cache_.Get(source);
  ASSERT_EQ(sink_.size(), 1u);
  EXPECT_EQ(sink_.at(0).Header("authorization"), "");
  EXPECT_EQ(
      sink_.at(0).request.body,
      "grant_type=client_credentials&client_id=c%20d&client_secret=" + std::string(4'000, 'x'));
}

}  // namespace
}  // namespace postrider::delivery
