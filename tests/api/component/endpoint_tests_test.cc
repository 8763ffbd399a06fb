// Testing an endpoint over HTTP.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "api/endpoint_tester.h"
#include "tests/api/component/api_fixture.h"

namespace postrider::api {
namespace {

using std::chrono::milliseconds;

// What the test and the role's thread share.
struct Script {
  absl::Mutex mutex;
  EndpointTester::Result result ABSL_GUARDED_BY(mutex);
  bool hold ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::string> tested ABSL_GUARDED_BY(mutex);
  std::function<void()> at_abort;  // set before the role ends
  std::function<void()> at_test;   // set before a test
};

class ScriptedTester final : public EndpointTester {
 public:
  explicit ScriptedTester(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  void Test(std::shared_ptr<const subscriptions::Endpoint> endpoint, Done done) override {
    if (script_->at_test != nullptr) script_->at_test();
    Result result;
    {
      absl::MutexLock lock(&script_->mutex);
      script_->tested.push_back(endpoint->settings.url);
      result = script_->result;
      if (script_->hold) {
        held_.push_back(std::move(done));
        return;
      }
    }
    std::move(done)(std::move(result));
  }
  void SetAddressRules(std::shared_ptr<const AddressRules>) override {}
  void AbortAll() override {
    if (script_->at_abort != nullptr) script_->at_abort();
    for (Done& done : std::exchange(held_, {})) {
      Result aborted;
      aborted.outcome = "aborted";
      std::move(done)(std::move(aborted));
    }
  }
  size_t in_flight() const override { return held_.size(); }

 private:
  const std::shared_ptr<Script> script_;
  std::vector<Done> held_;
};

class EndpointTestsTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    StartRole();
    role_->AllowTests();
    customer_ = MakeCustomer();
  }
  std::string Path() { return absl::StrCat("/v1/endpoints/", MakeEndpoint(customer_).Text("id")); }
  JsonReply Test(const std::string& path, const std::string& key, const std::string& body = "",
                 tests::HttpClient::Headers headers = {}) {
    tests::HttpClient client(role_->port());
    return CallOn(client, "POST", path + "/test", key, body, std::move(headers));
  }
  JsonReply TestOnce(const std::string& path, const std::string& idempotency) {
    return Test(path, customer_.key, "", {{"idempotency-key", idempotency}});
  }
  void StartRole() {
    suite()->make_tester =
        [script = script_](EventLoop&) -> absl::StatusOr<std::unique_ptr<EndpointTester>> {
      return std::unique_ptr<EndpointTester>(std::make_unique<ScriptedTester>(script));
    };
    ASSERT_OK_AND_ASSIGN(role_, suite()->StartRole(suite()->database->options().api_url));
    suite()->make_tester = nullptr;
  }
  void SetResult(int status, const std::string& outcome, milliseconds took,
                 const std::string& response = "") {
    absl::MutexLock lock(&script_->mutex);
    script_->result.webhook_id = "msg_1";
    script_->result.status = status;
    script_->result.outcome = outcome;
    script_->result.took = took;
    script_->result.response = response;
  }
  std::vector<std::string> Tested() {
    absl::MutexLock lock(&script_->mutex);
    return script_->tested;
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::unique_ptr<ApiRole> role_;
  Customer customer_;
};

TEST_F(EndpointTestsTest, TellsWhatCameOfIt) {
  SetResult(200, "delivered", milliseconds(17), "thanks \xff");
  const JsonReply reply = Test(Path(), customer_.key);
  EXPECT_EQ(reply.status, 200) << reply.text;
  EXPECT_EQ(reply.text,
            "{\"message_id\":\"msg_1\",\"outcome\":\"delivered\",\"status\":200,"
            "\"duration_ms\":17,\"response\":\"thanks \xef\xbf\xbd\"}");
  EXPECT_THAT(Tested(), ::testing::ElementsAre("https://example.com/hook"));
}

TEST_F(EndpointTestsTest, RoundsHowLongItTookToReachNobody) {
  for (const auto& [took, shown] :
       std::vector<std::pair<int, int>>{{0, 1'000}, {999, 1'000}, {1'000, 2'000}}) {
    SetResult(0, "connect", milliseconds(took));
    const std::string path = Path();
    const auto begun = std::chrono::steady_clock::now();
    const JsonReply reply = Test(path, customer_.key);
    EXPECT_EQ(reply["duration_ms"].integer(), shown) << took;
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1))
        << "the customer has a clock too";
    EXPECT_TRUE(reply["status"].is_null());
    EXPECT_TRUE(reply["response"].is_null());
  }
}

TEST_F(EndpointTestsTest, TestsNothingBeforeItMay) {
  StartRole();
  EXPECT_EQ(Test(Path(), customer_.key).status, 503);
  EXPECT_TRUE(Tested().empty());
}

TEST_F(EndpointTestsTest, OneEndpointIsNotTestedAgainAtOnce) {
  SetResult(200, "delivered", milliseconds(1));
  const std::string path = Path();
  EXPECT_EQ(Test(path, customer_.key).status, 200);
  tests::HttpClient client(role_->port());
  const tests::HttpReply again = client.Send(
      "POST", path + "/test", {{"authorization", absl::StrCat("Bearer ", customer_.key)}}, "");
  EXPECT_EQ(again.status, 429);
  EXPECT_NE(again.Header("retry-after"), "");
  EXPECT_EQ(Test(Path(), customer_.key).status, 200) << "another one is";
}

TEST_F(EndpointTestsTest, ARepeatWithAnIdempotencyKeySendsNothingAgain) {
  SetResult(200, "delivered", milliseconds(17));
  const std::string path = Path();
  const JsonReply first = TestOnce(path, "k");
  EXPECT_EQ(first.status, 200) << first.text;
  EXPECT_EQ(TestOnce(path, "k").text, first.text) << "and it is no test too many";
  EXPECT_EQ(TestOnce(path, "other").status, 429);
  EXPECT_EQ(TestOnce(path, "other").status, 429) << "which is not kept, nor under way";
  EXPECT_EQ(Tested().size(), 1u);
}

TEST_F(EndpointTestsTest, AProcessThatEndsLeavesAnIdempotencyKeyUnderWayForTwoMinutes) {
  {
    absl::MutexLock lock(&script_->mutex);
    script_->hold = true;
  }
  const std::string path = Path();
  tests::HttpClient client(role_->port());
  client.Write(absl::StrCat("POST ", path, "/test HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ",
                            customer_.key, "\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n"));
  {
    absl::MutexLock lock(&script_->mutex);
    const auto one = [this]()
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return script_->tested.size() == 1; };
    script_->mutex.Await(absl::Condition(&one));
    script_->hold = false;
  }
  EXPECT_EQ(TestOnce(path, "k").status, 409);
  // As a crash leaves it, not an abort, which gives the key back.
  ASSERT_OK_AND_ASSIGN(auto session, BlockingSession::Open(suite()->database->options().api_url));
  ASSERT_OK(session->Script("SET postrider.operator = 'on'"));
  const std::string row = absl::StrCat(
      " WHERE owner = '", subscriptions::CustomerId::Parse(customer_.id)->ToUuid(), "'");
  role_.reset();
  client.Read();
  ASSERT_OK(session->Script("UPDATE postrider.idempotency_keys SET created_at = now()" + row));
  StartRole();
  role_->AllowTests();
  SetResult(200, "delivered", milliseconds(17));
  EXPECT_EQ(TestOnce(path, "k").status, 409);
  ASSERT_OK(session->Script(
      "UPDATE postrider.idempotency_keys SET created_at = now() - interval '60 seconds'" + row));
  EXPECT_EQ(TestOnce(path, "k").status, 409);
  EXPECT_EQ(Tested().size(), 1u);
  ASSERT_OK(session->Script(
      "UPDATE postrider.idempotency_keys SET created_at = now() - interval '120 seconds'" + row));
  const JsonReply sent = TestOnce(path, "k");
  EXPECT_EQ(sent.status, 200) << sent.text;
  EXPECT_EQ(TestOnce(path, "k").text, sent.text);
  EXPECT_EQ(Tested().size(), 2u);
}

TEST_F(EndpointTestsTest, OnlyAnAnswerOfTheEndpointIsKept) {
  for (const std::string outcome : {"connect", "auth_failed", "aborted"}) {
    const std::string path = Path();
    SetResult(0, outcome, milliseconds(1));
    EXPECT_EQ(TestOnce(path, outcome).Text("outcome"), outcome);
    // It is made again, as far as the limits let it.
    EXPECT_EQ(TestOnce(path, outcome).status, 429);
  }
  const std::string path = Path();
  SetResult(500, "server_error", milliseconds(1));
  const JsonReply first = TestOnce(path, "k");
  EXPECT_EQ(first.status, 200) << first.text;
  EXPECT_EQ(TestOnce(path, "k").text, first.text);
  EXPECT_EQ(Tested().size(), 4u);
}

TEST_F(EndpointTestsTest, AnAbortGivesTheIdempotencyKeyBack) {
  {
    absl::MutexLock lock(&script_->mutex);
    script_->hold = true;
  }
  const std::string path = Path();
  tests::HttpClient client(role_->port());
  client.Write(absl::StrCat("POST ", path, "/test HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ",
                            customer_.key, "\r\nidempotency-key: k\r\ncontent-length: 0\r\n\r\n"));
  {
    absl::MutexLock lock(&script_->mutex);
    const auto one = [this]()
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return script_->tested.size() == 1; };
    script_->mutex.Await(absl::Condition(&one));
    script_->hold = false;
  }
  role_.reset();
  client.Read();
  StartRole();
  role_->AllowTests();
  SetResult(200, "delivered", milliseconds(1));
  const JsonReply sent = TestOnce(path, "k");
  EXPECT_EQ(sent.status, 200) << sent.text;
  EXPECT_EQ(sent.Text("outcome"), "delivered");
}

// The connection breaks on which the answer is to be kept.
TEST_F(EndpointTestsTest, AnAnswerIsKeptThoughTheDatabaseWentAwayMeanwhile) {
  const std::string url = suite()->database->options().api_url;
  ASSERT_OK_AND_ASSIGN(auto holder, BlockingSession::Open(url));
  ASSERT_OK(holder->Script("SET postrider.operator = 'on'"));
  ASSERT_OK_AND_ASSIGN(auto watcher, BlockingSession::Open(url));
  const std::string path = Path();
  SetResult(200, "delivered", milliseconds(17));
  script_->at_test = [&] {
    EXPECT_OK(holder->Script("BEGIN; SELECT 1 FROM postrider.idempotency_keys FOR UPDATE"));
  };
  JsonReply first;
  std::thread thread([&] { first = TestOnce(path, "k"); });
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  bool broken = false;
  while (!broken && std::chrono::steady_clock::now() < patience) {
    auto result = watcher->Query(
        "SELECT pg_terminate_backend(pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE NOT l.granted AND a.datname = current_database()");
    ASSERT_OK(result);
    broken = result->rows() > 0;
    std::this_thread::yield();
  }
  EXPECT_TRUE(broken);
  ASSERT_OK(holder->Script("COMMIT"));
  thread.join();
  script_->at_test = nullptr;
  EXPECT_EQ(first.status, 200) << first.text;
  const JsonReply again = TestOnce(path, "k");
  EXPECT_EQ(again.status, 200) << again.text;
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(Tested().size(), 1u);
}

TEST_F(EndpointTestsTest, IsForTheCustomersOwnAndThoseThatNoOperatorHolds) {
  const std::string path = Path();
  const Customer other = MakeCustomer();
  EXPECT_EQ(Test(path, other.key).status, 404);
  EXPECT_EQ(Test("/v1/endpoints/ep_x", customer_.key).status, 404);
  EXPECT_EQ(Test(path, operator_key()).status, 403);
  EXPECT_EQ(Test(path, customer_.key, R"({"x":1})").Faults(), "/x");
  const std::string theirs = absl::StrCat("/v1/customers/", customer_.id, path.substr(3));
  EXPECT_EQ(Call("POST", theirs + "/pause", operator_key()).status, 200);
  EXPECT_EQ(Test(path, customer_.key).status, 409);
  EXPECT_TRUE(Tested().empty());
  EXPECT_EQ(Call("POST", theirs + "/resume", operator_key()).status, 200);
  // What the customer has switched off is tested all the same.
  EXPECT_EQ(Call("POST", path + "/disable", customer_.key).status, 200);
  SetResult(200, "delivered", milliseconds(1));
  EXPECT_EQ(Test(path, customer_.key).status, 200);
}

TEST_F(EndpointTestsTest, HoldsNoConnectionToTheDatabaseMeanwhile) {
  {
    absl::MutexLock lock(&script_->mutex);
    script_->hold = true;
  }
  std::vector<std::unique_ptr<tests::HttpClient>> clients;
  std::vector<Customer> customers;
  // More than the database's connections.
  for (int i = 0; i < 12; ++i) {
    if (i % 4 == 0) customers.push_back(MakeCustomer());
    const std::string id = MakeEndpoint(customers.back()).Text("id");
    clients.push_back(std::make_unique<tests::HttpClient>(role_->port()));
    clients.back()->Write(absl::StrCat("POST /v1/endpoints/", id,
                                       "/test HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ",
                                       customers.back().key, "\r\ncontent-length: 0\r\n\r\n"));
  }
  {
    absl::MutexLock lock(&script_->mutex);
    const auto all = [this]()
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return script_->tested.size() == 12; };
    script_->mutex.Await(absl::Condition(&all));
  }
  tests::HttpClient other(role_->port());
  EXPECT_EQ(CallOn(other, "GET", "/v1/endpoints", customer_.key).status, 200);
  EXPECT_EQ(Test(absl::StrCat("/v1/endpoints/", MakeEndpoint(customers.back()).Text("id")),
                 customers.back().key)
                .status,
            429)
      << "four of a customer at once";
  role_.reset();  // ends them
  for (const auto& client : clients) client->Read();
}

TEST_F(EndpointTestsTest, SaysThatThereIsNobodyToTest) {
  const JsonReply reply = Call("POST", Path() + "/test", customer_.key);
  EXPECT_EQ(reply.status, 503);
}

TEST_F(EndpointTestsTest, EndsThoughItHearsOfAStopOnlyThen) {
  bool heard = false;
  script_->at_abort = [&heard, role = role_.get()] {
    heard = true;
    role->Stop([] {});
  };
  role_.reset();
  EXPECT_TRUE(heard);
}

}  // namespace
}  // namespace postrider::api
