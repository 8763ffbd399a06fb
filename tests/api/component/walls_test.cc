#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "api/idempotency_key.h"
#include "api/openapi.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WallsTest : public ApiFixture {
 protected:
  // A body that the route takes.
  static std::string BodyFor(const Route& route) {
    if (route.request_schema.empty()) return "";
    if (absl::EndsWith(route.path, "/extend")) return R"({"receipt":"x","lease_s":60})";
    if (absl::EndsWith(route.path, "ack")) return R"({"receipt":"x"})";
    return "{}";
  }
};

TEST_F(WallsTest, TheDocumentAndTheRoutesAreTheSame) {
  const JsonReply reply = Call("GET", "/openapi.json", "");
  ASSERT_EQ(reply.status, 200);
  std::vector<std::string> documented;
  for (const JsonMember& path : *reply["paths"].object()) {
    for (const JsonMember& method : *path.value.object()) {
      documented.push_back(absl::StrCat(absl::AsciiStrToUpper(method.name), " ", path.name));
    }
  }
  std::vector<std::string> served;
  for (const Route& route : suite()->role->router().routes()) {
    served.push_back(absl::StrCat(HttpMethodName(route.method), " ", route.path));
  }
  EXPECT_THAT(documented, ::testing::UnorderedElementsAreArray(served));
  EXPECT_GT(served.size(), 30u);
  // Every reference leads somewhere.
  const std::string prefix = "\"#/components/schemas/";
  const JsonValue* schemas = reply["components"].Find("schemas");
  for (size_t at = reply.text.find(prefix); at != std::string::npos;
       at = reply.text.find(prefix, at + 1)) {
    const size_t begin = at + prefix.size();
    const std::string name = reply.text.substr(begin, reply.text.find('"', begin) - begin);
    EXPECT_NE(schemas->Find(name), nullptr) << name;
  }
}

TEST_F(WallsTest, EachRouteTakesItsOwnScopeOnly) {
  const Customer customer = MakeCustomer();
  const std::string publisher =
      MakeKey(R"({"scope":"publisher","event_types":["*"],"tenants":["*"]})");
  int refused = 0;
  for (const Route& route : suite()->role->router().routes()) {
    if (route.scope == RequiredScope::kNone) continue;
    const std::string path = absl::StrReplaceAll(route.path, {{"{", ""}, {"}", ""}});
    const std::pair<RequiredScope, std::string> keys[] = {
        {RequiredScope::kOperator, operator_key()},
        {RequiredScope::kCustomer, customer.key},
        {RequiredScope::kPublisher, publisher}};
    for (const auto& [scope, key] : keys) {
      const int status = Call(HttpMethodName(route.method), path, key, BodyFor(route)).status;
      if (scope == route.scope) {
        EXPECT_NE(status, 403) << route.operation_id;
      } else {
        EXPECT_EQ(status, 403) << route.operation_id;
        ++refused;
      }
      EXPECT_NE(status, 500) << route.operation_id;
    }
  }
  EXPECT_GT(refused, 60);
}

TEST_F(WallsTest, AnotherCustomersIdIsAsUnknownAsNone) {
  const Customer owner = MakeCustomer();
  const Customer other = MakeCustomer();
  const std::string endpoint = MakeEndpoint(owner).Text("id");
  const std::string subscription =
      Call("POST", "/v1/subscriptions", owner.key,
           absl::StrCat(R"({"endpoint_id":")", endpoint,
                        R"(","event_types":["a"],"scope":{"kind":"granted"}})"))
          .Text("id");
  const std::string letter = AddLetter(owner, endpoint);
  const std::string nobody = "00000000000000000000000000";
  const auto state = [&] {
    return absl::StrCat(
        Call("GET", absl::StrCat("/v1/endpoints/", endpoint), owner.key).text,
        Call("GET", absl::StrCat("/v1/subscriptions/", subscription), owner.key).text,
        Call("GET", absl::StrCat("/v1/dead-letters/", letter), owner.key).text);
  };
  const std::string before = state();
  ASSERT_THAT(before, HasSubstr(letter));
  int routes = 0;
  for (const Route& route : suite()->role->router().routes()) {
    if (route.scope != RequiredScope::kCustomer || !absl::StrContains(route.path, "{")) continue;
    ++routes;
    const std::string foreign = absl::StrReplaceAll(
        route.path,
        {{"{endpoint}", endpoint}, {"{subscription}", subscription}, {"{letter}", letter}});
    const std::string unknown =
        absl::StrReplaceAll(route.path, {{"{endpoint}", "ep_" + nobody},
                                         {"{subscription}", "sub_" + nobody},
                                         {"{letter}", "dl_" + nobody}});
    const absl::string_view method = HttpMethodName(route.method);
    const JsonReply theirs = Call(method, foreign, other.key, BodyFor(route));
    EXPECT_EQ(theirs.status, 404) << route.operation_id << theirs.text;
    EXPECT_EQ(theirs.text, Call(method, unknown, other.key, BodyFor(route)).text);
    EXPECT_EQ(theirs.text,
              Call(method, absl::StrReplaceAll(unknown, {{nobody, "x"}}), other.key, BodyFor(route))
                  .text);
    if (TakesIdempotencyKey(route)) {
      EXPECT_EQ(theirs.text, Call(method, foreign, other.key, BodyFor(route),
                                  {{"idempotency-key", route.operation_id}})
                                 .text);
    }
  }
  EXPECT_EQ(routes, 18);
  EXPECT_EQ(state(), before);
  for (const char* list : {"/v1/endpoints", "/v1/subscriptions", "/v1/dead-letters"}) {
    EXPECT_EQ(Call("GET", list, other.key)["data"].array()->size(), 0u) << list;
  }
  EXPECT_EQ(Call("GET", absl::StrCat("/v1/dead-letters?endpoint_id=", endpoint), other.key)["data"]
                .array()
                ->size(),
            0u);
  EXPECT_EQ(Call("POST", "/v1/dead-letters/poll", other.key,
                 absl::StrCat(R"({"endpoint_id":")", endpoint, "\"}"))["data"]
                .array()
                ->size(),
            0u);
}

TEST_F(WallsTest, ShowsNoSecretInAnyReply) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const std::string endpoint = made.Text("id");
  const JsonReply key =
      Call("POST", "/v1/keys", operator_key(), R"({"scope":"operator","name":"x"})");
  const std::vector<std::string> secrets = {
      made.Text("secret").substr(6), customer.key.substr(16), key.Text("key").substr(16),
      Call("POST", absl::StrCat("/v1/endpoints/", endpoint, "/rotate-secret"), customer.key)
          .Text("secret")
          .substr(6)};
  for (const Route& route : suite()->role->router().routes()) {
    if (route.method != HttpMethod::kGet) continue;
    const std::string path = absl::StrReplaceAll(route.path, {{"{customer}", customer.id},
                                                              {"{tenant}", "t1"},
                                                              {"{key}", key.Text("id")},
                                                              {"{endpoint}", endpoint}});
    for (const std::string& who : {operator_key(), customer.key}) {
      const JsonReply reply = Call("GET", path, who);
      for (const std::string& secret : secrets) {
        ASSERT_GT(secret.size(), 40u);
        EXPECT_THAT(reply.text, Not(HasSubstr(secret))) << path;
      }
      EXPECT_THAT(reply.text, Not(HasSubstr("sealed"))) << path;
      EXPECT_THAT(reply.text, Not(HasSubstr("sha256"))) << path;
    }
  }
  for (const std::string& secret : secrets) {
    EXPECT_THAT(suite()->metrics.Expose(), Not(HasSubstr(secret)));
  }
}

TEST_F(WallsTest, RefusesWrongKeysAndSlowsThoseWhoGuess) {
  // An address of its own, for it will be blocked.
  tests::HttpClient client(suite()->role->port(), "127.0.0.9");
  const std::string stranger = api::MakeKey().text;
  std::string wrong_secret = api::MakeKey().text;
  const JsonReply none = CallOn(client, "GET", "/v1/customers", "");
  EXPECT_EQ(none.status, 401);
  const JsonReply unknown = CallOn(client, "GET", "/v1/customers", stranger);
  EXPECT_EQ(unknown.status, 401);
  EXPECT_EQ(unknown.text, none.text);
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", "pr_x").text, none.text);
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", "", "", {{"authorization", "Basic eDp5"}}).text,
            none.text);
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 200);
  int blocked = 0;
  for (int i = 0; i < 40 && blocked == 0; ++i) {
    if (CallOn(client, "GET", "/v1/customers", "pr_x").status == 429) ++blocked;
  }
  EXPECT_EQ(blocked, 1);
  // Others are not hurt.
  EXPECT_EQ(Call("GET", "/v1/customers", operator_key()).status, 200);
}

TEST_F(WallsTest, KeysOfADeletedCustomerEnd) {
  const Customer customer = MakeCustomer();
  EXPECT_EQ(Call("DELETE", absl::StrCat("/v1/customers/", customer.id), operator_key()).status,
            204);
  EXPECT_EQ(Call("GET", "/v1/endpoints", customer.key).status, 401);
}

}  // namespace
}  // namespace postrider::api
