#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "api/api_key.h"
#include "api/api_role.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/crypto/key_ring.h"
#include "core/crypto/random.h"
#include "core/json/json.h"
#include "core/postgres/blocking.h"
#include "dlq/letters/dead_letter_record.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "migrations/runner.h"
#include "subscriptions/registry/repository.h"
#include "tests/fakes/memory_log.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_database.h"

namespace postrider::api {

struct JsonReply {
  int status = 0;
  JsonValue body;
  std::string etag;
  std::string text;

  const JsonValue& operator[](absl::string_view name) const {
    static const JsonValue none;
    const JsonValue* found = body.Find(name);
    return found == nullptr ? none : *found;
  }
  std::string Text(absl::string_view name) const {
    const JsonValue& value = (*this)[name];
    return value.is_string() ? *value.string() : "";
  }
  // The pointers (or parameters) of its faults, separated by spaces.
  std::string Faults() const {
    std::vector<std::string> pointers;
    const JsonValue& errors = (*this)["errors"];
    if (!errors.is_array()) return "";
    for (const JsonValue& error : *errors.array()) {
      const JsonValue* where = error.Find("pointer");
      if (where == nullptr) where = error.Find("parameter");
      pointers.push_back(*where->string());
    }
    return absl::StrJoin(pointers, " ");
  }
};

// The API on a migrated database of the suite's own and the log in memory. Tests keep apart by
// customers of their own.
class ApiFixture : public ::testing::Test {
 protected:
  // An operator's key, one customer's key with the grants t1 and t2, and its id.
  struct Customer {
    std::string id;
    std::string key;
  };

  static void SetUpTestSuite() { suite() = Suite::Make(); }
  static void TearDownTestSuite() { suite().reset(); }

  void SetUp() override {
    ASSERT_OK(suite()->fault);
    client_ = std::make_unique<tests::HttpClient>(suite()->role->port());
  }

  JsonReply Call(absl::string_view method, absl::string_view path, absl::string_view key,
                 absl::string_view body = "", tests::HttpClient::Headers headers = {}) {
    return CallOn(*client_, method, path, key, body, std::move(headers));
  }
  static JsonReply CallOn(tests::HttpClient& client, absl::string_view method,
                          absl::string_view path, absl::string_view key,
                          absl::string_view body = "", tests::HttpClient::Headers headers = {}) {
    if (!key.empty()) headers.emplace_back("authorization", absl::StrCat("Bearer ", key));
    if (!body.empty()) headers.emplace_back("content-type", "application/json");
    const tests::HttpReply reply = client.Send(method, path, headers, body);
    JsonReply json;
    json.status = reply.status;
    json.text = reply.body;
    json.etag = reply.Header("etag");
    if (!reply.body.empty()) {
      auto parsed = JsonValue::Parse(reply.body, JsonLimits{.bytes_max = 64 << 20});
      EXPECT_OK(parsed);
      if (parsed.ok()) json.body = *std::move(parsed);
    }
    return json;
  }

  static const std::string& operator_key() { return suite()->operator_key; }
  std::string MakeKey(const std::string& body) {
    const JsonReply made = Call("POST", "/v1/keys", operator_key(), body);
    EXPECT_EQ(made.status, 201) << made.text;
    return made.Text("key");
  }
  Customer MakeCustomer() {
    Customer customer;
    customer.id = Call("POST", "/v1/customers", operator_key(), R"({"name":"Test"})").Text("id");
    EXPECT_EQ(Call("POST", absl::StrCat("/v1/customers/", customer.id, "/grants"), operator_key(),
                   R"({"tenants":["t1","t2"]})")
                  .status,
              200);
    customer.key =
        MakeKey(absl::StrCat(R"({"scope":"customer","customer_id":")", customer.id, "\"}"));
    return customer;
  }
  JsonReply MakeEndpoint(const Customer& customer,
                         const std::string& body = R"({"url":"https://example.com/hook"})") {
    const JsonReply made = Call("POST", "/v1/endpoints", customer.key, body);
    EXPECT_EQ(made.status, 201) << made.text;
    return made;
  }
  // Puts a letter into the database as the indexer does.
  std::string AddLetter(const Customer& customer, const std::string& endpoint,
                        const std::string& tenant = "t1", const std::string& data = "{}") {
    const auto letter = NewId<subscriptions::LetterId>(suite()->clock);
    const auto owner = *subscriptions::CustomerId::Parse(customer.id);
    auto session = BlockingSession::Open(suite()->database->options().indexer_url);
    EXPECT_OK(session);
    EXPECT_OK((*session)->Query(Statement{
        "INSERT INTO postrider.dead_letters (day, id, customer_id, endpoint_id, message_id, "
        "event_id, type, tenant, department, event_time, reason, attempts, last_status, "
        "last_outcome, data, created_at, available_at) SELECT postrider.letter_day($1::uuid), "
        "$1::uuid, $2::uuid, $3::uuid, 'msg_1', $4::bytea, 'order.created', $5, NULL, now(), "
        "'gone', 5, 410, 'gone', $6::bytea, now(), now() - interval '1 s'",
        {SqlParam::Uuid(letter.bytes()), SqlParam::Uuid(owner.bytes()),
         SqlParam::Uuid(subscriptions::EndpointId::Parse(endpoint)->bytes()), SqlParam::Bytes("e1"),
         tenant, SqlParam::Bytes(data)}}));
    return letter.ToString();
  }

  struct Suite {
    static std::unique_ptr<Suite> Make() {
      auto made = std::make_unique<Suite>();
      made->fault = made->Start();
      return made;
    }
    absl::Status Start() {
      ASSIGN_OR_RETURN(database, tests::TestDatabase::Create());
      RETURN_IF_ERROR(Migrate(database->options()).status());
      ASSIGN_OR_RETURN(role, StartRole(database->options().api_url));
      const NewKey key = api::MakeKey();
      operator_key = key.text;
      ASSIGN_OR_RETURN(auto session, BlockingSession::Open(database->options().api_url));
      subscriptions::ApiKey stored;
      stored.key_id = key.key_id;
      stored.secret_sha256 = key.secret_sha256;
      stored.scope = subscriptions::KeyScope::kOperator;
      return subscriptions::InsertKeyBlocking(*session, stored).status();
    }
    absl::StatusOr<std::unique_ptr<ApiRole>> StartRole(const std::string& url,
                                                       PublishOptions publish = {}) {
      ApiOptions options;
      options.listen = "127.0.0.1:0";
      ConnectionOptions connection;
      connection.url = url;
      connection.check_sql = ApiRoleCheckSql();
      connection.reconnect_first = std::chrono::milliseconds(5);
      connection.reconnect_last = std::chrono::milliseconds(20);
      publish.replication = 1;
      ApiRoleParts parts{log, clock, metrics, keys};
      parts.make_tester = make_tester;
      return ApiRole::Start(parts, options, connection, publish, AddressRules::Default());
    }

    absl::Status fault;
    SystemClock clock;
    Metrics metrics;
    MemoryLog log{clock};
    // Of the next role that is started.
    std::function<absl::StatusOr<std::unique_ptr<EndpointTester>>(EventLoop&)> make_tester;
    KeyRing keys = *KeyRing::Parse(KeyRing::NewKeyLine("k1"));
    std::unique_ptr<tests::TestDatabase> database;
    std::unique_ptr<ApiRole> role;
    std::string operator_key;
  };
  static std::unique_ptr<Suite>& suite() {
    static std::unique_ptr<Suite> instance;
    return instance;
  }

  std::unique_ptr<tests::HttpClient> client_;
};

}  // namespace postrider::api
