// Requests with an Idempotency-Key, on a real database.
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "api/idempotency_key.h"
#include "api/reseal_answers.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::HttpClient;
using tests::HttpReply;

class IdempotencyTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    const DatabaseOptions& options = suite()->database->options();
    ASSERT_OK_AND_ASSIGN(operator_, BlockingSession::Open(options.api_url));
    ASSERT_OK(operator_->Script("SET postrider.operator = 'on'"));
    ASSERT_OK_AND_ASSIGN(watcher_, BlockingSession::Open(options.api_url));
  }

  static HttpClient::Headers Headers(const std::string& key, const std::string& idempotency) {
    return {{"authorization", absl::StrCat("Bearer ", key)},
            {"idempotency-key", idempotency},
            {"content-type", "application/json"}};
  }
  HttpReply Send(const std::string& method, const std::string& path, const std::string& key,
                 const std::string& idempotency, const std::string& body = "") {
    return client_->Send(method, path, Headers(key, idempotency), body);
  }
  HttpReply Create(const Customer& customer, const std::string& idempotency,
                   const std::string& body = kBody) {
    return Send("POST", "/v1/endpoints", customer.key, idempotency, body);
  }
  size_t Endpoints(const Customer& customer) {
    return Call("GET", "/v1/endpoints?limit=1000", customer.key)["data"].array()->size();
  }
  // As the operator's session, which sees all of them.
  std::string Ask(const std::string& sql) { return AskOn(*operator_, sql); }
  static std::string AskOn(BlockingSession& session, const std::string& sql) {
    auto result = session.Query(sql);
    EXPECT_OK(result);
    return result.ok() && result->rows() > 0 ? std::string(result->text(0, 0)) : "";
  }
  static std::string Uuid(const Customer& customer) {
    return subscriptions::CustomerId::Parse(customer.id)->ToUuid();
  }
  static std::string Of(const Customer& customer) {
    return absl::StrCat("FROM postrider.idempotency_keys WHERE owner = '", Uuid(customer), "'");
  }
  void Age(const Customer& customer, const std::string& interval) {
    ASSERT_OK(operator_->Script(
        absl::StrCat("UPDATE postrider.idempotency_keys SET created_at = now() - interval '",
                     interval, "' WHERE owner = '", Uuid(customer), "'")));
  }
  // Waits until a session of the database waits for a lock.
  void AwaitBlocked() {
    const auto blocked = [this] {
      return AskOn(*watcher_, absl::StrCat("SELECT count(*) ", kBlocked));
    };
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    while (blocked() != "1" && std::chrono::steady_clock::now() < patience) {
      std::this_thread::yield();
    }
    ASSERT_EQ(blocked(), "1");
  }

  static constexpr char kBody[] = R"({"url":"https://example.com/hook"})";
  static constexpr char kBlocked[] =
      "FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = "
      "current_database()";
  std::unique_ptr<BlockingSession> operator_;
  std::unique_ptr<BlockingSession> watcher_;
};

TEST_F(IdempotencyTest, ARepeatGetsTheFirstAnswerAndIsDoneOnce) {
  const Customer customer = MakeCustomer();
  const HttpReply first = Create(customer, "order 1");
  ASSERT_EQ(first.status, 201) << first.body;
  EXPECT_EQ(first.Header("idempotency-replayed"), "");
  EXPECT_THAT(first.body, HasSubstr("whsec_"));
  for (int i = 0; i < 3; ++i) {
    const HttpReply again = Create(customer, "order 1");
    EXPECT_EQ(again.status, 201);
    EXPECT_EQ(again.body, first.body) << "with the secret that is shown once";
    EXPECT_EQ(again.Header("etag"), first.Header("etag"));
    EXPECT_EQ(again.Header("content-type"), first.Header("content-type"));
    EXPECT_EQ(again.Header("idempotency-replayed"), "true");
  }
  EXPECT_EQ(Endpoints(customer), 1u);
  EXPECT_NE(Create(customer, "order 2").body, first.body);
  EXPECT_EQ(Endpoints(customer), 2u);
}

TEST_F(IdempotencyTest, AnotherRequestWithTheKeyIsRefused) {
  const Customer customer = MakeCustomer();
  ASSERT_EQ(Create(customer, "k").status, 201);
  const HttpReply other = Create(customer, "k", R"({"url":"https://example.com/other"})");
  EXPECT_EQ(other.status, 422) << other.body;
  EXPECT_EQ(other.Header("content-type"), "application/problem+json");
  EXPECT_EQ(Endpoints(customer), 1u);
}

TEST_F(IdempotencyTest, CustomersAndRoutesDoNotMeet) {
  const Customer one = MakeCustomer();
  const Customer two = MakeCustomer();
  const HttpReply first = Create(one, "same");
  const HttpReply second = Create(two, "same");
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(second.status, 201);
  EXPECT_NE(first.body, second.body);
  EXPECT_EQ(Endpoints(two), 1u);
  const std::string path = absl::StrCat(
      "/v1/endpoints/", *JsonValue::Parse(first.body)->Find("id")->string(), "/rotate-secret");
  const HttpReply rotated = Send("POST", path, one.key, "same");
  EXPECT_EQ(rotated.status, 200) << rotated.body;
  EXPECT_EQ(Send("POST", path, one.key, "same").body, rotated.body);
  // The other customer's endpoint is none, with that key too.
  EXPECT_EQ(Send("POST", path, two.key, "same").status, 404);
  // Two operators' keys, too.
  const std::string other_operator = MakeKey(R"({"scope":"operator"})");
  const HttpReply made =
      Send("POST", "/v1/customers", operator_key(), "same", R"({"name":"Anna"})");
  const HttpReply other =
      Send("POST", "/v1/customers", other_operator, "same", R"({"name":"Berta"})");
  EXPECT_EQ(made.status, 201);
  EXPECT_EQ(other.status, 201) << other.body;
}

TEST_F(IdempotencyTest, TENANT_06_ManyAtOnceMakeOneRowForEachCustomer) {
  constexpr size_t kCustomers = 4;
  constexpr size_t kAtOnce = 12;
  std::vector<Customer> customers;
  for (size_t i = 0; i < kCustomers; ++i) customers.push_back(MakeCustomer());
  std::vector<std::string> bodies(kCustomers * kAtOnce);
  std::vector<std::set<int>> statuses(kCustomers * kAtOnce);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      HttpClient client(suite()->role->port());
      for (int tries = 0; tries < 1'000; ++tries) {
        const HttpReply reply = client.Send("POST", "/v1/endpoints",
                                            Headers(customers[i % kCustomers].key, "once"), kBody);
        statuses[i].insert(reply.status);
        if (reply.status != 201) continue;
        bodies[i] = reply.body;
        return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_NE(bodies[i], "");
    EXPECT_EQ(bodies[i], bodies[i % kCustomers]);
    for (const int status : statuses[i]) {
      EXPECT_TRUE(status == 201 || status == 409 || status == 503) << status;
    }
  }
  for (const Customer& customer : customers) {
    EXPECT_EQ(Endpoints(customer), 1u);
    EXPECT_EQ(Ask(absl::StrCat("SELECT count(*) ", Of(customer))), "1");
  }
  // Nor does another process know less.
  ASSERT_OK_AND_ASSIGN(const auto role, suite()->StartRole(suite()->database->options().api_url));
  HttpClient client(role->port());
  for (size_t i = 0; i < kCustomers; ++i) {
    EXPECT_EQ(client.Send("POST", "/v1/endpoints", Headers(customers[i].key, "once"), kBody).body,
              bodies[i]);
  }
}

TEST_F(IdempotencyTest, WhileItIsUnderWayARepeatIsToldSo) {
  const Customer customer = MakeCustomer();
  const std::string id = MakeEndpoint(customer).Text("id");
  const std::string path = absl::StrCat("/v1/endpoints/", id, "/disable");
  // Holds the request up in its transaction.
  ASSERT_OK(operator_->Script(absl::StrCat("BEGIN; SELECT 1 FROM postrider.endpoints WHERE id = '",
                                           subscriptions::EndpointId::Parse(id)->ToUuid(),
                                           "' FOR UPDATE")));
  HttpReply first;
  std::thread thread([&] {
    HttpClient client(suite()->role->port());
    first = client.Send("POST", path, Headers(customer.key, "k"));
  });
  AwaitBlocked();
  const HttpReply second = Send("POST", path, customer.key, "k");
  EXPECT_EQ(second.status, 409) << second.body;
  EXPECT_EQ(second.Header("retry-after"), "1");
  ASSERT_OK(operator_->Script("COMMIT"));
  thread.join();
  EXPECT_EQ(first.status, 200) << first.body;
  const HttpReply third = Send("POST", path, customer.key, "k");
  EXPECT_EQ(third.body, first.body);
  EXPECT_EQ(third.Header("idempotency-replayed"), "true");
}

TEST_F(IdempotencyTest, ACrashBetweenTheWorkAndItsEndLeavesNeither) {
  const Customer customer = MakeCustomer();
  // The row that the answer would be kept in is another one's for a while: the endpoint is made,
  // and its transaction waits there.
  ASSERT_OK(operator_->Script(absl::StrCat(
      "BEGIN; INSERT INTO postrider.idempotency_keys (owner, route, key_sha256) VALUES ('",
      Uuid(customer), "', 'createEndpoint', sha256('k'))")));
  HttpReply first;
  std::thread thread([&] {
    HttpClient client(suite()->role->port());
    first = client.Send("POST", "/v1/endpoints", Headers(customer.key, "k"), kBody);
  });
  AwaitBlocked();
  EXPECT_EQ(AskOn(*watcher_, absl::StrCat("SELECT pg_terminate_backend(pid) ", kBlocked)), "t");
  thread.join();
  EXPECT_EQ(first.status, 503) << first.body;
  ASSERT_OK(operator_->Script("ROLLBACK"));
  EXPECT_EQ(Endpoints(customer), 0u);
  const HttpReply again = Create(customer, "k");
  EXPECT_EQ(again.status, 201) << again.body;
  EXPECT_EQ(again.Header("idempotency-replayed"), "");
  EXPECT_EQ(Endpoints(customer), 1u);
}

TEST_F(IdempotencyTest, OneThatWasQuickerLeavesNothingOfTheOther) {
  const Customer customer = MakeCustomer();
  ASSERT_OK(operator_->Script(absl::StrCat(
      "BEGIN; INSERT INTO postrider.idempotency_keys (owner, route, key_sha256) VALUES ('",
      Uuid(customer), "', 'createEndpoint', sha256('k'))")));
  HttpReply late;
  std::thread thread([&] {
    HttpClient client(suite()->role->port());
    late = client.Send("POST", "/v1/endpoints", Headers(customer.key, "k"), kBody);
  });
  AwaitBlocked();
  ASSERT_OK(operator_->Script("COMMIT"));
  thread.join();
  EXPECT_EQ(late.status, 503) << late.body;
  EXPECT_EQ(Endpoints(customer), 0u);
}

// It looked before the first one was done, and began when that had changed what it stands on.
TEST_F(IdempotencyTest, ARepeatThatIsRefusedForWhatTheFirstOneDidGetsItsAnswer) {
  const Customer customer = MakeCustomer();
  const std::string id = MakeEndpoint(customer).Text("id");
  const std::string path = absl::StrCat("/v1/endpoints/", id);
  HttpClient::Headers headers = Headers(customer.key, "k");
  headers.emplace_back("if-match", "\"g1\"");
  const std::string body = R"({"description":"new"})";
  const HttpReply first = client_->Send("PATCH", path, headers, body);
  ASSERT_EQ(first.status, 200) << first.body;
  // As before it was committed.
  Age(customer, "2 days");
  ASSERT_OK(operator_->Script(absl::StrCat("BEGIN; SELECT 1 FROM postrider.endpoints WHERE id = '",
                                           subscriptions::EndpointId::Parse(id)->ToUuid(),
                                           "' FOR UPDATE")));
  HttpReply repeat;
  std::thread thread([&] {
    HttpClient client(suite()->role->port());
    repeat = client.Send("PATCH", path, headers, body);
  });
  AwaitBlocked();
  Age(customer, "0 seconds");
  ASSERT_OK(operator_->Script("COMMIT"));
  thread.join();
  EXPECT_EQ(repeat.status, 200) << repeat.body;
  EXPECT_EQ(repeat.body, first.body);
  EXPECT_EQ(repeat.Header("idempotency-replayed"), "true");
  // A refusal of its own stays one.
  headers[1].second = "k2";
  EXPECT_EQ(client_->Send("PATCH", path, headers, body).status, 412);
}

TEST_F(IdempotencyTest, WhatRefusesIsNotKept) {
  const Customer customer = MakeCustomer();
  const std::string endpoint = MakeEndpoint(customer).Text("id");
  const std::string body = absl::StrCat(R"({"endpoint_id":")", endpoint,
                                        R"(","event_types":["a"],"scope":{"kind":"tenants",)"
                                        R"("tenants":["later"]}})");
  const auto subscribe = [&](const std::string& text) {
    return Send("POST", "/v1/subscriptions", customer.key, "k", text);
  };
  EXPECT_EQ(subscribe(body).status, 422);
  EXPECT_EQ(Call("POST", absl::StrCat("/v1/customers/", customer.id, "/grants"), operator_key(),
                 R"({"tenants":["later"]})")
                .status,
            200);
  // At once, with the same key.
  EXPECT_EQ(subscribe(body).status, 201);
  const std::string path = absl::StrCat("/v1/endpoints/", endpoint);
  for (int i = 0; i < 20; ++i) {
    HttpClient::Headers headers = Headers(customer.key, "k2");
    headers.emplace_back("if-match", "\"g77\"");
    EXPECT_EQ(client_->Send("DELETE", path, headers).status, 412) << "never 409";
  }
  EXPECT_EQ(Send("DELETE", path, customer.key, "k2").status, 204);
  const HttpReply again = Send("DELETE", path, customer.key, "k2");
  EXPECT_EQ(again.status, 204);
  EXPECT_EQ(again.Header("idempotency-replayed"), "true");
  EXPECT_EQ(Send("DELETE", path, customer.key, "k3").status, 404);
}

TEST_F(IdempotencyTest, IsKeptForADay) {
  const Customer customer = MakeCustomer();
  const HttpReply first = Create(customer, "k");
  Age(customer, "23 hours 59 minutes 50 seconds");
  EXPECT_EQ(Create(customer, "k").body, first.body);
  EXPECT_EQ(Endpoints(customer), 1u);
  Age(customer, "24 hours");
  const HttpReply fresh = Create(customer, "k");
  EXPECT_EQ(fresh.status, 201);
  EXPECT_NE(fresh.body, first.body);
  EXPECT_EQ(Endpoints(customer), 2u);
  EXPECT_EQ(Create(customer, "k").body, fresh.body);
}

TEST_F(IdempotencyTest, RefusesNewKeysOfOneWhoHasTooMany) {
  const Customer customer = MakeCustomer();
  const HttpReply first = Create(customer, "k");
  ASSERT_OK(operator_->Script(
      absl::StrCat("INSERT INTO postrider.idempotency_keys (owner, route, key_sha256, customer_id, "
                   "answer_sealed) SELECT '",
                   Uuid(customer), "', 'r', sha256(i::text::bytea), '", Uuid(customer),
                   "', '\\x01' FROM generate_series(1, 99998) AS i")));
  EXPECT_EQ(Create(customer, "the last").status, 201);
  const HttpReply refused = Create(customer, "one more");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.Header("retry-after"), "600");
  EXPECT_EQ(Create(customer, "k").body, first.body) << "what is kept is told all the same";
  EXPECT_EQ(Endpoints(customer), 2u);
  MakeEndpoint(customer);  // without a key
  EXPECT_EQ(Create(MakeCustomer(), "k").status, 201) << "others are not hurt";
  // Not for the tests that count them.
  Age(customer, "25 hours");
}

TEST_F(IdempotencyTest, LiesSealedAndBehindTheWall) {
  const Customer customer = MakeCustomer();
  const Customer other = MakeCustomer();
  const HttpReply made = Create(customer, "a-clear-key");
  const JsonValue answer = *JsonValue::Parse(made.body);
  ASSERT_OK_AND_ASSIGN(const QueryResult rows,
                       operator_->Query(absl::StrCat("SELECT answer_sealed, row_to_json(k)::text "
                                                     "AS all ",
                                                     "FROM postrider.idempotency_keys k WHERE ",
                                                     "owner = '", Uuid(customer), "'")));
  ASSERT_EQ(rows.rows(), 1u);
  RowReader row(rows, 0);
  const std::string sealed = row.Bytes("answer_sealed");
  const std::string everything = row.Text("all");
  ASSERT_GT(sealed.size(), made.body.size());
  for (const std::string& clear :
       {std::string("whsec_"), *answer.Find("secret")->string(), *answer.Find("id")->string(),
        std::string("example.com"), std::string("a-clear-key")}) {
    EXPECT_THAT(sealed, Not(HasSubstr(clear)));
    EXPECT_THAT(everything, Not(HasSubstr(clear)));
    EXPECT_THAT(everything, Not(HasSubstr(absl::BytesToHexString(clear))));
  }
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(suite()->database->options().api_url));
  const auto seen = [&](const std::string& id) {
    EXPECT_OK(session->Script(absl::StrCat("SET postrider.customer_id = '", id, "'")));
    auto count = session->Query(absl::StrCat("SELECT count(*) ", Of(customer)));
    return count.ok() ? std::string(count->text(0, 0)) : count.status().ToString();
  };
  EXPECT_EQ(seen(Uuid(customer)), "1");
  EXPECT_EQ(seen(Uuid(other)), "0");
  EXPECT_EQ(seen(""), "0");
}

TEST_F(IdempotencyTest, AnOperatorsAnswerTellsWhomItIsErasedWith) {
  const auto about = [this](const std::string& route, const std::string& key) {
    return Ask(
        absl::StrCat("SELECT coalesce(customer_id::text, 'nobody') FROM "
                     "postrider.idempotency_keys WHERE route = '",
                     route, "' AND key_sha256 = sha256('", key, "')"));
  };
  const HttpReply made =
      Send("POST", "/v1/customers", operator_key(), "about-1", R"({"name":"Clara"})");
  Customer customer;
  customer.id = *JsonValue::Parse(made.body)->Find("id")->string();
  EXPECT_EQ(about("createCustomer", "about-1"), Uuid(customer));
  EXPECT_EQ(Send("POST", "/v1/keys", operator_key(), "about-1",
                 absl::StrCat(R"({"scope":"customer","customer_id":")", customer.id, "\"}"))
                .status,
            201);
  EXPECT_EQ(about("createKey", "about-1"), Uuid(customer));
  const std::string path = absl::StrCat("/v1/customers/", customer.id);
  EXPECT_EQ(
      Send("POST", path + "/grants", operator_key(), "about-1", R"({"tenants":["t"]})").status,
      200);
  EXPECT_EQ(about("addGrants", "about-1"), Uuid(customer));
  EXPECT_EQ(Send("PUT", "/v1/event-types/idempotent", operator_key(), "about-1").status, 201);
  EXPECT_EQ(about("putEventType", "about-1"), "nobody");
  // What tells nothing stays, so that this can be asked for again when the customer is erased.
  EXPECT_EQ(Send("DELETE", path, operator_key(), "about-1").status, 204);
  EXPECT_EQ(about("deleteCustomer", "about-1"), "nobody");
  EXPECT_EQ(Send("DELETE", path, operator_key(), "about-1").status, 204);
}

TEST_F(IdempotencyTest, AnotherMasterKeyLeavesItReadableAsLongAsTheFormerOneIsThere) {
  const std::string former = KeyRing::NewKeyLine("former");
  const std::string fresh = KeyRing::NewKeyLine("fresh");
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(former)));
  const Customer customer = MakeCustomer();
  const HttpReply first = Create(customer, "k");
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(fresh + "\n" + former)));
  EXPECT_EQ(Create(customer, "k").body, first.body);
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(fresh)));
  const HttpReply lost = Create(customer, "k");
  EXPECT_EQ(lost.status, 409) << lost.body;
  EXPECT_EQ(lost.Header("retry-after"), "") << "nothing will come of it";
  EXPECT_EQ(Endpoints(customer), 1u) << "it was done, and is not done again";
}

TEST_F(IdempotencyTest, WhatIsSealedAnewNeedsTheFormerMasterKeyNoMore) {
  // Those of other tests are none of this one.
  ASSERT_OK(operator_->Script("UPDATE postrider.idempotency_keys SET created_at = 'epoch'"));
  const std::string lost = KeyRing::NewKeyLine("lost");
  const std::string former = KeyRing::NewKeyLine("before");
  const std::string fresh = KeyRing::NewKeyLine("after");
  const Customer customer = MakeCustomer();
  const Customer other = MakeCustomer();
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(lost)));
  EXPECT_EQ(Create(other, "lost").status, 201);
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(former)));
  // More than are read at once.
  std::vector<std::string> bodies;
  for (int i = 0; i < 41; ++i) {
    bodies.push_back(Create(i % 2 == 0 ? customer : other, absl::StrCat("k", i)).body);
  }
  const KeyRing both = *KeyRing::Parse(fresh + "\n" + former);
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(fresh + "\n" + former)));
  EXPECT_EQ(Create(customer, "current").status, 201);
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(suite()->database->options().api_url));
  ASSERT_OK_AND_ASSIGN(ResealAnswersReport report, ResealAnswers(*session, both));
  EXPECT_EQ(report.answers, 43);
  EXPECT_EQ(report.resealed, 41);
  EXPECT_EQ(report.unreadable, 1);
  ASSERT_OK_AND_ASSIGN(report, ResealAnswers(*session, both));
  EXPECT_EQ(report.resealed, 0);
  ASSERT_TRUE(suite()->keys.Replace(*KeyRing::Parse(fresh)));
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_EQ(Create(i % 2 == 0 ? customer : other, absl::StrCat("k", i)).body, bodies[i]);
  }
  EXPECT_EQ(Create(other, "lost").status, 409);
}

TEST_F(IdempotencyTest, EveryRouteThatChangesSomethingTakesOneOrRefusesIt) {
  const Customer customer = MakeCustomer();
  const std::string publisher =
      MakeKey(R"({"scope":"publisher","event_types":["*"],"tenants":["*"]})");
  const JsonReply document = Call("GET", "/openapi.json", "");
  std::vector<std::string> without;
  int with = 0;
  for (const Route& route : suite()->role->router().routes()) {
    const std::string method(HttpMethodName(route.method));
    const std::string operation =
        document["paths"].Find(route.path)->Find(absl::AsciiStrToLower(method))->Serialize();
    if (TakesIdempotencyKey(route)) {
      EXPECT_THAT(operation, HasSubstr("#/components/parameters/IdempotencyKey"));
      EXPECT_THAT(operation, HasSubstr("Idempotency-Replayed"));
      ++with;
    } else {
      EXPECT_THAT(operation, Not(HasSubstr("#/components/parameters/IdempotencyKey")));
    }
    if (route.scope == RequiredScope::kNone) continue;
    const std::string& key = route.scope == RequiredScope::kOperator   ? operator_key()
                             : route.scope == RequiredScope::kCustomer ? customer.key
                                                                       : publisher;
    // Not of ASCII: refused by all that look at it.
    const std::string path = absl::StrReplaceAll(route.path, {{"{", ""}, {"}", ""}});
    const HttpReply refused = Send(method, path, key, "\xc3\xa9");
    EXPECT_EQ(refused.status == 400, route.method != HttpMethod::kGet) << route.operation_id;
    if (TakesIdempotencyKey(route) || route.method == HttpMethod::kGet) continue;
    without.push_back(route.operation_id);
    EXPECT_EQ(Send(method, path, key, "good", "{}").status, 400);
    EXPECT_EQ(client_
                  ->Send(method, path,
                         {{"authorization", absl::StrCat("Bearer ", key)},
                          {"idempotency-key", "good"},
                          {"content-type", "application/x-ndjson"}},
                         route.takes_lines ? "{}\n" : "")
                  .status,
              400);
  }
  EXPECT_THAT(without, ::testing::UnorderedElementsAre("publishEvents", "pollDeadLetters"));
  EXPECT_GT(with, 20);
  EXPECT_NE(document["components"].Find("parameters")->Find("IdempotencyKey"), nullptr);
  EXPECT_NE(document["components"].Find("headers")->Find("IdempotencyReplayed"), nullptr);
}

}  // namespace
}  // namespace postrider::api
