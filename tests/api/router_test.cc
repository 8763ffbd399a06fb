#include "api/router.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Route MakeRoute(HttpMethod method, std::string path, std::string id) {
  return Route{.method = method, .path = std::move(path), .operation_id = std::move(id)};
}

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    router_.Add(MakeRoute(HttpMethod::kGet, "/v1/things", "list"));
    router_.Add(MakeRoute(HttpMethod::kPost, "/v1/things", "create"));
    router_.Add(MakeRoute(HttpMethod::kGet, "/v1/things/{id}", "get"));
    router_.Add(MakeRoute(HttpMethod::kPost, "/v1/things/poll", "poll"));
    router_.Add(MakeRoute(HttpMethod::kPost, "/v1/things/{id}/{part}", "part"));
  }
  Router::Match Find(absl::optional<HttpMethod> method, absl::string_view target) {
    return router_.Find(method, ParseTarget(target)->segments);
  }
  Router router_;
};

TEST_F(RouterTest, FindsARouteAndItsParameters) {
  const Router::Match match = Find(HttpMethod::kPost, "/v1/things/a%20b/c");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.route->operation_id, "part");
  EXPECT_THAT(match.params, ElementsAre("a b", "c"));
}

TEST_F(RouterTest, PutsFixedSegmentsBeforeParameters) {
  EXPECT_EQ(Find(HttpMethod::kPost, "/v1/things/poll").route->operation_id, "poll");
  EXPECT_EQ(Find(HttpMethod::kGet, "/v1/things/poll").route->operation_id, "get");
}

TEST_F(RouterTest, AnswersHeadWithGet) {
  EXPECT_EQ(Find(HttpMethod::kHead, "/v1/things").route->operation_id, "list");
}

TEST_F(RouterTest, NamesTheMethodsOfAPathThatHasAnother) {
  const Router::Match match = Find(HttpMethod::kDelete, "/v1/things");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allow, "GET, HEAD, POST");
  EXPECT_EQ(Find(absl::nullopt, "/v1/things").allow, "GET, HEAD, POST");
}

TEST_F(RouterTest, KnowsNoOtherPaths) {
  for (const char* target : {"/", "/v1", "/v1/things/", "/v1/things//x", "/V1/things",
                             "//v1/things", "/v1/things/a/b/c", "/v1%2Fthings"}) {
    const Router::Match match = Find(HttpMethod::kGet, target);
    EXPECT_EQ(match.route, nullptr) << target;
    EXPECT_EQ(match.allow, "") << target;
  }
}

TEST(TargetTest, TakesQueriesApart) {
  const auto target = ParseTarget("/a?limit=10&x=a+b%26&empty=&alone&&limit=2");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/a");
  EXPECT_THAT(target->query, ElementsAre(Pair("limit", "10"), Pair("x", "a b&"), Pair("empty", ""),
                                         Pair("alone", ""), Pair("limit", "2")));
}

TEST(TargetTest, RefusesWhatIsNoPath) {
  for (const char* text : {"", "*", "a", "http://h/a", "/%", "/%2", "/%zz", "/a%00b", "/a?b=%q"}) {
    EXPECT_FALSE(ParseTarget(text).has_value()) << text;
  }
  EXPECT_THAT(ParseTarget("/")->segments, ElementsAre(""));
  EXPECT_THAT(ParseTarget("/a")->query, IsEmpty());
}

}  // namespace
}  // namespace postrider::api
