#include <array>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using ResourcesTest = ApiFixture;

TEST_F(ResourcesTest, OperatorsKeepCustomers) {
  const JsonReply made = Call("POST", "/v1/customers", operator_key(), R"({"name":"Anna & Co"})");
  ASSERT_EQ(made.status, 201) << made.text;
  EXPECT_THAT(made.Text("id"), StartsWith("cus_"));
  EXPECT_EQ(made.Text("name"), "Anna & Co");
  EXPECT_EQ(made["generation"].integer(), 1);
  EXPECT_EQ(made.etag, "\"g1\"");
  const std::string path = absl::StrCat("/v1/customers/", made.Text("id"));
  EXPECT_EQ(Call("GET", path, operator_key()).body, made.body);

  JsonReply patched = Call("PATCH", path, operator_key(), R"({"name":"Berta"})");
  EXPECT_EQ(patched.status, 200);
  EXPECT_EQ(patched.Text("name"), "Berta");
  EXPECT_EQ(patched.etag, "\"g2\"");
  EXPECT_EQ(Call("PATCH", path, operator_key(), "{}").body, patched.body);
  EXPECT_EQ(Call("PATCH", path, operator_key(), R"({"name":null})").Faults(), "/name");
  EXPECT_EQ(Call("PATCH", path, operator_key(), R"({"nam":null})").Faults(), "/nam");
  EXPECT_EQ(Call("PATCH", path, operator_key(), R"({"name":"C"})", {{"if-match", "\"g1\""}}).status,
            412);
  EXPECT_EQ(Call("DELETE", path, operator_key(), "", {{"if-match", "\"g1\""}}).status, 412);
  EXPECT_EQ(Call("DELETE", path, operator_key(), "", {{"if-match", "\"g7\", \"g2\""}}).status, 204);
  EXPECT_EQ(Call("GET", path, operator_key()).status, 404);
  EXPECT_EQ(Call("DELETE", path, operator_key()).status, 404);
}

TEST_F(ResourcesTest, RefusesCustomersWithoutAGoodName) {
  for (const std::string& body :
       {std::string("{}"), std::string(R"({"name":""})"), std::string(R"({"name":7})"),
        std::string(R"({"name":"a\nb"})"), std::string(R"({"name":"\u0000"})"),
        absl::StrCat(R"({"name":")", std::string(201, 'x'), "\"}")}) {
    const JsonReply reply = Call("POST", "/v1/customers", operator_key(), body);
    EXPECT_EQ(reply.status, 422) << body;
    EXPECT_EQ(reply.Faults(), "/name") << body;
  }
  EXPECT_EQ(Call("POST", "/v1/customers", operator_key(), R"({"name":"x","id":"y"})").Faults(),
            "/id");
  EXPECT_EQ(Call("POST", "/v1/customers", operator_key(), R"({"name":)").status, 400);
  EXPECT_EQ(Call("POST", "/v1/customers", operator_key(), "[]").status, 422);
}

TEST_F(ResourcesTest, ListsGoOverPagesWithoutLossOrRepeat) {
  const Customer customer = MakeCustomer();
  std::vector<std::string> made;
  for (int i = 0; i < 5; ++i) made.push_back(MakeEndpoint(customer).Text("id"));
  std::vector<std::string> seen;
  std::string cursor;
  int pages = 0;
  do {
    const JsonReply page =
        Call("GET",
             absl::StrCat("/v1/endpoints?limit=2",
                          cursor.empty() ? "" : absl::StrCat("&cursor=", cursor)),
             customer.key);
    ASSERT_EQ(page.status, 200) << page.text;
    for (const JsonValue& row : *page["data"].array()) seen.push_back(*row.Find("id")->string());
    cursor = page.Text("next_cursor");
  } while (!cursor.empty() && ++pages < 10);
  EXPECT_EQ(seen, std::vector<std::string>(made.rbegin(), made.rend()));
}

TEST_F(ResourcesTest, RefusesQueriesThatItDoesNotKnow) {
  const Customer one = MakeCustomer();
  const Customer two = MakeCustomer();
  for (int i = 0; i < 2; ++i) MakeEndpoint(one);
  const std::string cursor = Call("GET", "/v1/endpoints?limit=1", one.key).Text("next_cursor");
  ASSERT_NE(cursor, "");
  EXPECT_EQ(Call("GET", absl::StrCat("/v1/endpoints?cursor=", cursor), one.key).status, 200);
  // Another customer, another list, another filter.
  EXPECT_EQ(Call("GET", absl::StrCat("/v1/endpoints?cursor=", cursor), two.key).Faults(), "cursor");
  EXPECT_EQ(Call("GET", absl::StrCat("/v1/subscriptions?cursor=", cursor), one.key).Faults(),
            "cursor");
  EXPECT_EQ(Call("GET", "/v1/endpoints?limit=0", one.key).Faults(), "limit");
  EXPECT_EQ(Call("GET", "/v1/endpoints?limit=1000", one.key).status, 200);
  EXPECT_EQ(Call("GET", "/v1/endpoints?limit=1001", one.key).Faults(), "limit");
  EXPECT_EQ(Call("GET", "/v1/endpoints?limit=x", one.key).Faults(), "limit");
  EXPECT_EQ(Call("GET", "/v1/endpoints?state=open", one.key).Faults(), "state");
  EXPECT_EQ(Call("GET", "/v1/endpoints?limit=1&limit=2", one.key).Faults(), "limit");
  EXPECT_EQ(Call("GET", "/v1/dead-letters?state=lost", one.key).Faults(), "state");
  EXPECT_EQ(Call("GET", "/v1/dead-letters?endpoint_id=x", one.key).Faults(), "endpoint_id");
  EXPECT_EQ(Call("DELETE", "/v1/endpoints/ep_1?force=1", one.key).Faults(), "force");
}

TEST_F(ResourcesTest, OperatorsGrantTenants) {
  const std::string id =
      Call("POST", "/v1/customers", operator_key(), R"({"name":"G"})").Text("id");
  const std::string path = absl::StrCat("/v1/customers/", id, "/grants");
  EXPECT_EQ(
      Call("POST", path, operator_key(), R"({"tenants":["a","b c/d","a"]})")["granted"].integer(),
      2);
  EXPECT_EQ(Call("POST", path, operator_key(), R"({"tenants":["a"]})")["granted"].integer(), 0);
  EXPECT_EQ(Call("POST", path, operator_key(), R"({"tenants":[]})").Faults(), "/tenants");
  EXPECT_EQ(Call("POST", path, operator_key(), R"({"tenants":["a","",1]})").Faults(), "/tenants/2");
  EXPECT_EQ(Call("POST", path, operator_key(), R"({"tenants":["a",""]})").Faults(), "/tenants/1");
  EXPECT_EQ(
      Call("POST", path, operator_key(), absl::StrCat(R"({"tenants":["a","customer:)", id, "\"]}"))
          .Faults(),
      "/tenants/1")
      << "a reserved tenant is granted by nobody";
  EXPECT_EQ(Call("GET", path, operator_key())["data"].array()->size(), 2u);
  EXPECT_EQ(Call("GET", path + "/b%20c%2Fd", operator_key()).Text("tenant"), "b c/d");
  EXPECT_EQ(Call("DELETE", path + "/a", operator_key()).status, 204);
  EXPECT_EQ(Call("DELETE", path + "/a", operator_key()).status, 404);
  EXPECT_EQ(Call("GET", path + "/a", operator_key()).status, 404);
  EXPECT_EQ(
      Call("GET", "/v1/customers/cus_00000000000000000000000000/grants", operator_key()).status,
      404);
  EXPECT_EQ(Call("POST", "/v1/customers/cus_00000000000000000000000000/grants", operator_key(),
                 R"({"tenants":["a"]})")
                .status,
            404);
}

TEST_F(ResourcesTest, OperatorsAskForErasures) {
  const Customer customer = MakeCustomer();
  const JsonReply made = Call(
      "POST", "/v1/erasures", operator_key(),
      absl::StrCat(R"({"customer_id":")", customer.id, R"(","tenant":"t1","event_id":"e/1"})"));
  ASSERT_EQ(made.status, 202) << made.text;
  EXPECT_THAT(made.Text("id"), StartsWith("era_"));
  EXPECT_EQ(made.Text("customer_id"), customer.id);
  EXPECT_EQ(made.Text("tenant"), "t1");
  EXPECT_EQ(made.Text("event_id"), "e/1");
  EXPECT_EQ(made.Text("state"), "erasing");
  const std::string path = absl::StrCat("/v1/erasures/", made.Text("id"));
  EXPECT_EQ(Call("GET", path, operator_key()).body, made.body);
  EXPECT_EQ(Call("GET", path, customer.key).status, 403);
  EXPECT_EQ(Call("GET", "/v1/erasures/era_00000000000000000000000000", operator_key()).status, 404);
  EXPECT_EQ(Call("GET", "/v1/erasures?limit=1", operator_key())["data"].array()->size(), 1u);

  const auto faults = [this](absl::string_view body) {
    const JsonReply reply = Call("POST", "/v1/erasures", operator_key(), body);
    return absl::StrCat(reply.status, " ", reply.Faults());
  };
  EXPECT_EQ(faults("{}"), "422 ") << "about nothing";
  EXPECT_EQ(faults(R"({"tenant":""})"), "422 /tenant");
  EXPECT_EQ(faults(R"({"event_id":"a\u0000"})"), "422 /event_id");
  EXPECT_EQ(faults(absl::StrCat(R"({"tenant":")", std::string(201, 'x'), "\"}")), "422 /tenant");
  EXPECT_EQ(faults(R"({"customer_id":"cus_1","type":"x"})"), "422 /customer_id /type");
  EXPECT_EQ(faults(R"({"customer_id":"cus_00000000000000000000000000"})").substr(0, 1), "4");
}

TEST_F(ResourcesTest, ADeletedCustomersRestIsErased) {
  const Customer customer = MakeCustomer();
  ASSERT_EQ(Call("DELETE", absl::StrCat("/v1/customers/", customer.id), operator_key()).status,
            204);
  const JsonReply erasures = Call("GET", "/v1/erasures?limit=1", operator_key());
  ASSERT_EQ(erasures["data"].array()->size(), 1u);
  const JsonValue& erasure = (*erasures["data"].array())[0];
  EXPECT_EQ(*erasure.Find("customer_id")->string(), customer.id);
  EXPECT_TRUE(erasure.Find("tenant")->is_null());
}

TEST_F(ResourcesTest, WhoDeletesAnEndpointSaysWhatBecomesOfItsBacklog) {
  const Customer customer = MakeCustomer();
  for (const absl::string_view wish : {"", "?backlog=discard", "?backlog=dead_letter"}) {
    const std::string path = absl::StrCat(
        "/v1/endpoints/",
        Call("POST", "/v1/endpoints", customer.key, R"({"url":"https://acme.example/hook"})")
            .Text("id"));
    const JsonReply refused = Call("DELETE", path + "?backlog=keep", customer.key);
    EXPECT_EQ(refused.status, 422) << refused.text;
    EXPECT_EQ(refused.Faults(), "backlog");
    EXPECT_EQ(Call("DELETE", absl::StrCat(path, wish), customer.key).status, 204) << wish;
    EXPECT_EQ(Call("GET", path, customer.key).status, 404);
  }
}

TEST_F(ResourcesTest, KeysAreShownOnceAndRevokedAtOnceForNewRequests) {
  const Customer customer = MakeCustomer();
  const JsonReply made = Call(
      "POST", "/v1/keys", operator_key(),
      absl::StrCat(R"({"scope":"customer","customer_id":")", customer.id, R"(","name":"second"})"));
  ASSERT_EQ(made.status, 201) << made.text;
  const std::string path = absl::StrCat("/v1/keys/", made.Text("id"));
  const JsonReply got = Call("GET", path, operator_key());
  EXPECT_EQ(got.status, 200);
  EXPECT_THAT(got.text, Not(HasSubstr(made.Text("key"))));
  EXPECT_EQ(got.Text("name"), "second");
  EXPECT_EQ(Call("PATCH", path, operator_key(), R"({"name":"third"})").Text("name"), "third");
  EXPECT_EQ(Call("PATCH", path, operator_key(), R"({"scope":"operator"})").Faults(), "/scope");
  EXPECT_EQ(Call("DELETE", path, operator_key()).status, 204);
  EXPECT_EQ(Call("GET", path, operator_key()).status, 404);
  // Never used before, so not in the cache either.
  EXPECT_EQ(Call("GET", "/v1/endpoints", made.Text("key")).status, 401);
}

TEST_F(ResourcesTest, RefusesKeysThatMakeNoSense) {
  const auto faults = [this](const std::string& body) {
    const JsonReply reply = Call("POST", "/v1/keys", operator_key(), body);
    EXPECT_EQ(reply.status, 422) << reply.text;
    return reply.Faults();
  };
  EXPECT_EQ(faults(R"({"scope":"admin"})"), "/scope");
  EXPECT_EQ(faults(R"({"scope":"customer"})"), "/customer_id");
  EXPECT_EQ(faults(R"({"scope":"customer","customer_id":"cus_00000000000000000000000000"})"),
            "/customer_id");
  EXPECT_EQ(faults(R"({"scope":"operator","customer_id":"cus_00000000000000000000000000"})"),
            "/customer_id");
  EXPECT_EQ(faults(R"({"scope":"publisher"})"), "/event_types /tenants");
  EXPECT_EQ(faults(R"({"scope":"publisher","event_types":["a*"],"tenants":["*","t"]})"),
            "/event_types/0 /tenants/0");
  EXPECT_EQ(faults(R"({"scope":"publisher","event_types":["*"],"tenants":["t","customer:cus_x"]})"),
            "/tenants/1");
}

TEST_F(ResourcesTest, EventTypesAreRegisteredOnceHoweverManyAsk) {
  const std::string path = "/v1/event-types/race.created";
  std::vector<int> statuses(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([&, i] {
      tests::HttpClient client(suite()->role->port());
      do {  // a busy machine may say 503: try again
        statuses[i] = CallOn(client, "PUT", path, operator_key(), R"({"description":"d"})").status;
      } while (statuses[i] == 503);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int created = 0;
  for (const int status : statuses) {
    EXPECT_TRUE(status == 200 || status == 201) << status;
    created += status == 201 ? 1 : 0;
  }
  EXPECT_EQ(created, 1);
  EXPECT_EQ(Call("GET", path, operator_key()).Text("description"), "d");
  EXPECT_EQ(Call("PUT", "/v1/event-types/a%20b", operator_key(), "{}").status, 422);
  EXPECT_EQ(Call("PUT", "/v1/event-types/endpoint.disabled", operator_key(), "{}").status, 422)
      << "a type of our own";
  EXPECT_EQ(Call("DELETE", path, operator_key()).status, 204);
  EXPECT_EQ(Call("GET", path, operator_key()).status, 404);
}

TEST_F(ResourcesTest, EndpointsHaveDefaultsAndASecretShownOnce) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer, R"({"url":"HTTPS://Example.COM:443/a?b=c"})");
  EXPECT_EQ(made.Text("url"), "https://example.com/a?b=c");
  EXPECT_EQ(made.Text("mode"), "batch");
  EXPECT_EQ(made["batch"].Serialize(),
            R"({"events_max":1000,"bytes_max":1048576,"wait_max_ms":1000})");
  EXPECT_EQ(made["retry"].Find("attempts")->integer(), 10);
  EXPECT_EQ(made["window_max"].integer(), 32);
  const std::string secret = made.Text("secret");
  EXPECT_THAT(secret, StartsWith("whsec_"));
  EXPECT_EQ(secret.size(), 6u + 44u);
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  const JsonReply got = Call("GET", path, customer.key);
  EXPECT_EQ(got.status, 200);
  EXPECT_TRUE(got["last_outcome"].is_null());
  EXPECT_THAT(got.text, Not(HasSubstr("whsec_")));
  EXPECT_THAT(Call("GET", "/v1/endpoints", customer.key).text, Not(HasSubstr("whsec_")));

  const JsonReply rotated =
      Call("POST", path + "/rotate-secret", customer.key, R"({"overlap_s":0})");
  EXPECT_EQ(rotated.status, 200) << rotated.text;
  EXPECT_THAT(rotated.Text("secret"), StartsWith("whsec_"));
  EXPECT_NE(rotated.Text("secret"), secret);
  EXPECT_EQ(Call("POST", path + "/rotate-secret", customer.key).status, 200);
  EXPECT_EQ(Call("POST", path + "/rotate-secret", customer.key, R"({"overlap_s":604801})").Faults(),
            "/overlap_s");

  EXPECT_EQ(Call("DELETE", path, customer.key).status, 204);
  EXPECT_EQ(Call("GET", path, customer.key).status, 404);
  EXPECT_EQ(Call("POST", path + "/rotate-secret", customer.key).status, 404);
}

TEST_F(ResourcesTest, NoRotationEndsASecretBeforeTheTimeThatWasPromisedForIt) {
  const Customer customer = MakeCustomer();
  const std::string path =
      absl::StrCat("/v1/endpoints/", MakeEndpoint(customer).Text("id"), "/rotate-secret");
  for (int i = 0; i < 7; ++i) ASSERT_EQ(Call("POST", path, customer.key).status, 200) << i;
  const JsonReply ninth = Call("POST", path, customer.key);
  EXPECT_EQ(ninth.status, 409) << ninth.text;
  EXPECT_THAT(ninth.text, HasSubstr("overlap_s 0"));
  // A secret that is known to others can be ended at any time.
  EXPECT_EQ(Call("POST", path, customer.key, R"({"overlap_s":0})").status, 200);
  EXPECT_EQ(Call("POST", path, customer.key).status, 200);
}

TEST_F(ResourcesTest, SealsSecretsForTheWorker) {
  const Customer customer = MakeCustomer();
  const JsonReply made = MakeEndpoint(customer);
  const std::string path = absl::StrCat("/v1/endpoints/", made.Text("id"));
  const std::string second = Call("POST", path + "/rotate-secret", customer.key).Text("secret");
  auto session = BlockingSession::Open(suite()->database->options().reader_url);
  ASSERT_OK(session);
  const auto id = *subscriptions::EndpointId::Parse(made.Text("id"));
  ASSERT_OK_AND_ASSIGN(const QueryResult rows,
                       (*session)->Query(Statement{
                           "SELECT secrets_sealed FROM postrider.endpoints WHERE id = $1::uuid",
                           {SqlParam::Uuid(id.bytes())}}));
  RowReader row(rows, 0);
  const std::string sealed = row.Bytes("secrets_sealed");
  EXPECT_THAT(sealed, Not(HasSubstr("whsec_")));
  ASSERT_OK_AND_ASSIGN(
      const auto secrets,
      subscriptions::OpenEndpointSecrets(
          suite()->keys, *subscriptions::CustomerId::Parse(customer.id), id, sealed));
  ASSERT_EQ(secrets.size(), 2u);
  EXPECT_EQ(secrets[0].secret, second);
  EXPECT_FALSE(secrets[0].expires_at.has_value());
  EXPECT_EQ(secrets[1].secret, made.Text("secret"));
  EXPECT_TRUE(secrets[1].expires_at.has_value());
}

TEST_F(ResourcesTest, RefusesBadEndpointsWithAPointerToEachFault) {
  const Customer customer = MakeCustomer();
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "/url"},
      {R"({"url":null})", "/url"},
      {R"({"url":"ftp://example.com/"})", "/url"},
      {R"({"url":"file:///etc/passwd"})", "/url"},
      {R"({"url":"example.com"})", "/url"},
      {R"({"url":"https://u:p4ss@example.com/"})", "/url"},
      {R"({"url":"https://@example.com/"})", "/url"},
      {R"({"url":"http://127.0.0.1/"})", "/url"},
      {R"({"url":"http://10.0.0.1:8080/"})", "/url"},
      {R"({"url":"http://169.254.169.254/latest"})", "/url"},
      {R"({"url":"http://[::1]/"})", "/url"},
      {R"({"url":"http://[::ffff:10.0.0.1]/"})", "/url"},
      {R"({"url":"http://2130706433/"})", "/url"},
      {R"({"url":"http://0x7f.1/"})", "/url"},
      {R"({"url":"http://8.8.8.8:22/"})", "/url"},
      {R"({"url":"https://example.com/","mode":"both"})", "/mode"},
      {R"({"url":"https://example.com/","batch":{"wait_max_ms":60001}})", "/batch/wait_max_ms"},
      {R"({"url":"https://example.com/","batch":{"events_max":0,"bytes_max":1023,"size":1}})",
       "/batch/size /batch/events_max /batch/bytes_max"},
      {R"({"url":"https://example.com/","retry":{"attempts":51}})", "/retry/attempts"},
      {R"({"url":"https://example.com/","retry":{"horizon_ms":604800001}})", "/retry/horizon_ms"},
      {R"({"url":"https://example.com/","retry":{"attempts":9007199254740993}})",
       "/retry/attempts"},
      {R"({"url":"https://example.com/","window_max":257,"timeout_ms":999})",
       "/window_max /timeout_ms"},
      {R"({"url":"https://example.com/","window_max":"32"})", "/window_max"},
      {R"({"url":"https://example.com/","headers":["a"]})", "/headers"},
      {R"({"url":"https://example.com/","headers":{"x":1}})", "/headers"},
      {R"({"url":"https://example.com/","headers":{"x":"a\r\nX-Evil: 1"}})", "/headers/x"},
      {R"({"url":"https://example.com/","headers":{"x":"a\nb"}})", "/headers/x"},
      {R"({"url":"https://example.com/","headers":{"x":"a\u0000b"}})", "/headers/x"},
      {R"({"url":"https://example.com/","headers":{"X Y":"a"}})", "/headers/X Y"},
      {R"({"url":"https://example.com/","headers":{"X:Y":"a"}})", "/headers/X:Y"},
      {R"({"url":"https://example.com/","headers":{"":"a"}})", "/headers/"},
      {R"({"url":"https://example.com/","headers":{"X-\u00e9":"a"}})", "/headers/X-\u00e9"},
      {R"({"url":"https://example.com/","headers":{"WEBHOOK-ID":"a"}})", "/headers/WEBHOOK-ID"},
      {R"({"url":"https://example.com/","headers":{"Transfer-Encoding":"chunked"}})",
       "/headers/Transfer-Encoding"},
      {R"({"url":"https://example.com/","headers":{"X-A":"1","x-a":"2"}})", "/headers/x-a"},
      {R"({"url":"https://example.com/","secret":"whsec_x","enabled":false})", "/secret /enabled"},
  };
  for (const auto& [body, pointers] : table) {
    const JsonReply reply = Call("POST", "/v1/endpoints", customer.key, body);
    EXPECT_EQ(reply.status, 422) << body << "\n" << reply.text;
    EXPECT_EQ(reply.Faults(), pointers) << body;
    EXPECT_THAT(reply.text, Not(HasSubstr("p4ss")));
  }
  EXPECT_EQ(Call("GET", "/v1/endpoints", customer.key)["data"].array()->size(), 0u);
  // One text for every address that is refused.
  EXPECT_EQ(Call("POST", "/v1/endpoints", customer.key, R"({"url":"http://127.0.0.1/"})").text,
            Call("POST", "/v1/endpoints", customer.key, R"({"url":"http://8.8.8.8:25/"})").text);
  std::string many = R"({"url":"https://example.com/","headers":{)";
  for (int i = 0; i < 33; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", "\"x", i, "\":\"1\"");
  EXPECT_EQ(Call("POST", "/v1/endpoints", customer.key, many + "}}").Faults(), "/headers");
  EXPECT_EQ(Call("POST", "/v1/endpoints", customer.key,
                 absl::StrCat(R"({"url":"https://example.com/","description":")",
                              std::string(900'000, 'x'), "\"}"))
                .status,
            422);
}

// Each field that is absent, null, empty and of a wrong type (API-05).
TEST_F(ResourcesTest, PatchesEndpointsByTheRulesOfMergePatch) {
  const Customer customer = MakeCustomer();
  const std::string full =
      R"({"url":"https://example.com/a","description":"d","mode":"streaming",)"
      R"("batch":{"events_max":5,"bytes_max":2048,"wait_max_ms":7},"headers":{"X-A":"1","X-B":"2"},)"
      R"("retry":{"attempts":3,"horizon_ms":2000,"first_delay_ms":20,"factor":1.5,"cap_ms":30},)"
      R"("window_max":4,"timeout_ms":1500})";
  const std::string path = absl::StrCat("/v1/endpoints/", MakeEndpoint(customer, full).Text("id"));
  const JsonReply before = Call("GET", path, customer.key);
  const auto field = [](const JsonReply& reply, const std::string& pointer) {
    const JsonValue* value = &reply.body;
    const std::vector<std::string> steps = absl::StrSplit(pointer.substr(1), '/');
    for (const std::string& step : steps) {
      if (value != nullptr) value = value->Find(step);
    }
    return value == nullptr ? "none" : value->Serialize();
  };
  const auto patch = [](const std::string& pointer, const std::string& value) {
    std::string body = value;
    const std::vector<std::string> steps = absl::StrSplit(pointer.substr(1), '/');
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      body = absl::StrCat("{\"", *step, "\":", body, "}");
    }
    return body;
  };
  // Field, a new value, what null makes of it ("": it is required), a wrong type.
  const std::vector<std::array<std::string, 4>> table = {
      {"/url", R"("https://example.com/b")", "", "7"},
      {"/description", R"("")", R"("")", "[]"},
      {"/mode", R"("batch")", R"("batch")", R"("")"},
      {"/batch/events_max", "6", "1000", R"("6")"},
      {"/batch/bytes_max", "4096", "1048576", "1.5"},
      {"/batch/wait_max_ms", "0", "1000", "{}"},
      {"/batch", R"({"events_max":9})",
       R"({"events_max":1000,"bytes_max":1048576,"wait_max_ms":1000})", "[]"},
      {"/headers/X-A", R"("9")", "none", "[]"},
      {"/headers", R"({"X-C":"3"})", "{}", R"("")"},
      {"/retry/attempts", "1", "10", "[]"},
      {"/retry/horizon_ms", "3000", "86400000", R"("")"},
      {"/retry/first_delay_ms", "30", "5000", "true"},
      {"/retry/factor", "3", "2", "{}"},
      {"/retry/cap_ms", "40", "3600000", "[]"},
      {"/window_max", "5", "32", R"("")"},
      {"/timeout_ms", "2000", "15000", "{}"},
  };
  for (const auto& [pointer, value, cleared, wrong] : table) {
    const JsonReply refused = Call("PATCH", path, customer.key, patch(pointer, wrong));
    EXPECT_EQ(refused.status, 422) << pointer << refused.text;
    const JsonReply nulled = Call("PATCH", path, customer.key, patch(pointer, "null"));
    if (cleared.empty()) {
      EXPECT_EQ(nulled.Faults(), pointer);
    } else {
      EXPECT_EQ(nulled.status, 200) << pointer << nulled.text;
      EXPECT_EQ(field(nulled, pointer), cleared) << pointer;
    }
    const JsonReply changed = Call("PATCH", path, customer.key, patch(pointer, value));
    EXPECT_EQ(changed.status, 200) << pointer << changed.text;
    if (pointer != "/batch" && pointer != "/headers") {
      EXPECT_EQ(field(changed, pointer), value) << pointer;
    }
    // Everything back as it was.
    std::string restore = full;
    if (pointer == "/headers") {
      restore = absl::StrReplaceAll(full, {{R"("X-B":"2")", R"("X-B":"2","X-C":null)"}});
    }
    JsonReply restored = Call("PATCH", path, customer.key, restore);
    ASSERT_EQ(restored.status, 200) << restored.text;
    for (const auto& [other, unused_value, unused_cleared, unused_wrong] : table) {
      if (other == "/headers") continue;  // a header that went and came back stands last
      EXPECT_EQ(field(restored, other), field(before, other)) << pointer << " changed " << other;
    }
  }
  const JsonReply now = Call("GET", path, customer.key);
  for (const char* body : {"{}", R"({"url":"https://example.com/a"})", R"({"batch":{}})"}) {
    const JsonReply same = Call("PATCH", path, customer.key, body);
    EXPECT_EQ(same.status, 200) << body;
    EXPECT_EQ(same.etag, now.etag) << body;
    EXPECT_EQ(same.Text("updated_at"), now.Text("updated_at")) << body;
  }
  for (const auto& [body, pointer] : {std::pair<const char*, const char*>{R"({"x":null})", "/x"},
                                      {R"({"batch":{"x":null}})", "/batch/x"},
                                      {R"({"secret":null})", "/secret"},
                                      {R"({"id":"ep_1"})", "/id"}}) {
    EXPECT_EQ(Call("PATCH", path, customer.key, body).Faults(), pointer);
  }
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"url":"http://10.0.0.1/"})").Faults(), "/url");
  EXPECT_EQ(Call("PATCH", path, customer.key, "[]").status, 422);
  EXPECT_EQ(
      Call("PATCH", path, customer.key, R"({"window_max":9})", {{"if-match", "\"g1\""}}).status,
      412);
  EXPECT_EQ(
      Call("PATCH", path, customer.key, R"({"window_max":9})", {{"if-match", now.etag}}).status,
      200);
}

TEST_F(ResourcesTest, SubscriptionsNeedTheCustomersEndpointAndGrants) {
  const Customer customer = MakeCustomer();
  const Customer other = MakeCustomer();
  const std::string endpoint = MakeEndpoint(customer).Text("id");
  const std::string foreign = MakeEndpoint(other).Text("id");
  const auto body = [](const std::string& id, const std::string& scope) {
    return absl::StrCat(R"({"endpoint_id":")", id,
                        R"(","event_types":["order.created","pay.*"],"scope":)", scope, "}");
  };
  for (const char* scope : {R"({"kind":"granted"})", R"({"kind":"tenants","tenants":["t1","t2"]})",
                            R"({"kind":"departments","tenant":"t2","departments":["a","b"]})"}) {
    const JsonReply made = Call("POST", "/v1/subscriptions", customer.key, body(endpoint, scope));
    ASSERT_EQ(made.status, 201) << made.text;
    EXPECT_EQ(made["scope"].Serialize(), scope);
    EXPECT_EQ(made.etag, "\"g1\"");
    EXPECT_EQ(Call("GET", absl::StrCat("/v1/subscriptions/", made.Text("id")), customer.key).body,
              made.body);
  }
  const auto reserved = [&body, &endpoint](const Customer& of) {
    return body(endpoint,
                absl::StrCat(R"({"kind":"tenants","tenants":["customer:)", of.id, "\"]}"));
  };
  EXPECT_EQ(Call("POST", "/v1/subscriptions", customer.key, reserved(customer)).status, 201)
      << "what it is told of its own endpoints";
  EXPECT_EQ(Call("POST", "/v1/subscriptions", customer.key, reserved(other)).Faults(),
            "/scope/tenants/0");
  const std::pair<std::string, const char*> table[] = {
      {body(foreign, R"({"kind":"granted"})"), "/endpoint_id"},
      {body("ep_00000000000000000000000000", R"({"kind":"granted"})"), "/endpoint_id"},
      {body("x", R"({"kind":"granted"})"), "/endpoint_id"},
      {body(endpoint, R"({"kind":"tenants","tenants":["t1","t3"]})"), "/scope/tenants/1"},
      {body(endpoint, R"({"kind":"departments","tenant":"t3","departments":["a"]})"),
       "/scope/tenant"},
      {body(foreign, R"({"kind":"tenants","tenants":["t3"]})"), "/endpoint_id /scope/tenants/0"},
      {body(endpoint, R"({"kind":"tenants","tenants":[]})"), "/scope/tenants"},
      {body(endpoint, R"({"kind":"tenants"})"), "/scope/tenants"},
      {body(endpoint, R"({"kind":"tenants","tenants":["t1",7]})"), "/scope/tenants/1"},
      {body(endpoint, R"({"kind":"granted","tenants":["t1"]})"), "/scope/tenants"},
      {body(endpoint, R"({"kind":"departments","tenant":"t1"})"), "/scope/departments"},
      {body(endpoint, R"({"kind":"all"})"), "/scope/kind"},
      {body(endpoint, R"([])"), "/scope"},
      {R"({})", "/endpoint_id /event_types /scope"},
      {absl::StrCat(R"({"endpoint_id":")", endpoint,
                    R"(","event_types":["a b","*.x"],"scope":{"kind":"granted"},"filter":1})"),
       "/filter /event_types/0 /event_types/1"},
  };
  for (const auto& [text, pointers] : table) {
    const JsonReply reply = Call("POST", "/v1/subscriptions", customer.key, text);
    EXPECT_EQ(reply.status, 422) << text;
    EXPECT_EQ(reply.Faults(), pointers) << text << reply.text;
  }
  EXPECT_EQ(Call("GET", "/v1/subscriptions", customer.key)["data"].array()->size(), 4u);
  EXPECT_EQ(
      Call("GET", absl::StrCat("/v1/subscriptions?endpoint_id=", endpoint), customer.key)["data"]
          .array()
          ->size(),
      4u);
}

TEST_F(ResourcesTest, PatchesASubscriptionsScopeWhole) {
  const Customer customer = MakeCustomer();
  const std::string endpoint = MakeEndpoint(customer).Text("id");
  const JsonReply made = Call(
      "POST", "/v1/subscriptions", customer.key,
      absl::StrCat(
          R"({"endpoint_id":")", endpoint,
          R"(","event_types":["a"],"scope":{"kind":"departments","tenant":"t1","departments":["d"]}})"));
  ASSERT_EQ(made.status, 201) << made.text;
  const std::string path = absl::StrCat("/v1/subscriptions/", made.Text("id"));
  const JsonReply patched =
      Call("PATCH", path, customer.key, R"({"scope":{"kind":"tenants","tenants":["t2"]}})");
  EXPECT_EQ(patched.status, 200) << patched.text;
  EXPECT_EQ(patched["scope"].Serialize(), R"({"kind":"tenants","tenants":["t2"]})");
  EXPECT_EQ(patched.etag, "\"g2\"");
  EXPECT_EQ(Call("PATCH", path, customer.key, "{}").body, patched.body);
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"scope":null})").Faults(), "/scope");
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"event_types":null})").Faults(), "/event_types");
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"scope":{"kind":"tenants","tenants":["t9"]}})")
                .Faults(),
            "/scope/tenants/0");
  EXPECT_EQ(Call("PATCH", path, customer.key, R"({"event_types":["a","b.*"]})")["event_types"]
                .Serialize(),
            R"(["a","b.*"])");
  EXPECT_EQ(Call("DELETE", path, customer.key).status, 204);
  EXPECT_EQ(Call("GET", path, customer.key).status, 404);
}

TEST_F(ResourcesTest, LettersArePolledAckedAndNacked) {
  const Customer customer = MakeCustomer();
  const std::string endpoint = MakeEndpoint(customer).Text("id");
  const std::string first = AddLetter(customer, endpoint, "t1", R"({"n": 1.0, "n":2})");
  const std::string second = AddLetter(customer, endpoint);
  AddLetter(customer, endpoint, "t9");  // not granted: withheld

  const JsonReply list = Call("GET", "/v1/dead-letters?limit=1", customer.key);
  ASSERT_EQ(list.status, 200) << list.text;
  EXPECT_EQ(*(*list["data"].array())[0].Find("id")->string(), second);
  const tests::HttpReply raw =
      client_->Send("GET", absl::StrCat("/v1/dead-letters/", first),
                    {{"authorization", absl::StrCat("Bearer ", customer.key)}});
  EXPECT_THAT(raw.body, HasSubstr(R"("data":{"n": 1.0, "n":2}})"));
  EXPECT_THAT(raw.body, HasSubstr(R"("department":null,)"));

  const auto poll = [&](const std::string& body) {
    return client_->Send("POST", "/v1/dead-letters/poll",
                         {{"authorization", absl::StrCat("Bearer ", customer.key)},
                          {"content-type", "application/json"}},
                         body);
  };
  const tests::HttpReply one = poll(R"({"limit":1})");
  EXPECT_THAT(one.body, HasSubstr(first));
  const size_t at = one.body.find("\"receipt\":\"") + 11;
  const std::string receipt = one.body.substr(at, 32);
  const std::string path = absl::StrCat("/v1/dead-letters/", first);
  const std::string give = absl::StrCat(R"({"receipt":")", receipt, "\"");
  EXPECT_EQ(Call("POST", path + "/extend", customer.key, give + R"(,"lease_s":30})").status, 200);
  EXPECT_EQ(Call("POST", path + "/extend", customer.key, give + "}").Faults(), "/lease_s");
  EXPECT_EQ(Call("POST", path + "/extend", customer.key, give + R"(,"lease_s":29})").Faults(),
            "/lease_s");
  EXPECT_EQ(
      Call("POST", path + "/ack", customer.key, R"({"receipt":"00000000000000000000000000000000"})")
          .status,
      409);
  EXPECT_EQ(Call("POST", path + "/ack", customer.key, R"({})").Faults(), "/receipt");
  EXPECT_EQ(Call("POST", path + "/ack", customer.key, give + "}").status, 204);
  EXPECT_EQ(Call("POST", path + "/ack", customer.key, give + "}").status, 409);
  EXPECT_EQ(Call("GET", "/v1/dead-letters?state=open", customer.key)["data"].array()->size(), 1u);

  const JsonReply leased =
      Call("POST", "/v1/dead-letters/poll", customer.key,
           absl::StrCat(R"({"endpoint_id":")", endpoint, R"(","lease_s":3600})"));
  ASSERT_EQ(leased["data"].array()->size(), 1u) << leased.text;
  const JsonValue& letter = (*leased["data"].array())[0];
  EXPECT_EQ(*letter.Find("id")->string(), second);
  EXPECT_EQ(*letter.Find("state")->string(), "leased");
  EXPECT_EQ(
      Call("POST", absl::StrCat("/v1/dead-letters/", second, "/nack"), customer.key,
           absl::StrCat(R"({"receipt":")", *letter.Find("receipt")->string(), R"(","delay_s":0})"))
          .status,
      204);
  EXPECT_EQ(Call("POST", "/v1/dead-letters/poll", customer.key)["data"].array()->size(), 1u);
  EXPECT_EQ(Call("POST", "/v1/dead-letters/poll", customer.key,
                 R"({"limit":101,"lease_s":29,"wait_s":21})")
                .Faults(),
            "/limit /lease_s /wait_s");
}

TEST_F(ResourcesTest, APollWaitsForALetter) {
  const Customer customer = MakeCustomer();
  const std::string endpoint = MakeEndpoint(customer).Text("id");
  JsonReply polled;
  std::thread poller([&] {
    tests::HttpClient client(suite()->role->port());
    polled = CallOn(client, "POST", "/v1/dead-letters/poll", customer.key, R"({"wait_s":20})");
  });
  const std::string id = AddLetter(customer, endpoint);
  poller.join();
  ASSERT_EQ(polled.status, 200) << polled.text;
  ASSERT_EQ(polled["data"].array()->size(), 1u);
  EXPECT_EQ(*(*polled["data"].array())[0].Find("id")->string(), id);
}

}  // namespace
}  // namespace postrider::api
