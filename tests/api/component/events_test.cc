#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "core/postgres/url.h"
#include "tests/api/component/api_fixture.h"
#include "tests/support/tcp_relay.h"

namespace postrider::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

class EventsTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    for (const char* type : {"order.created", "order.paid", "user.made"}) {
      const int status =
          Call("PUT", absl::StrCat("/v1/event-types/", type), operator_key(), "{}").status;
      ASSERT_TRUE(status == 200 || status == 201);
    }
    publisher_ =
        MakeKey(R"({"scope":"publisher","event_types":["order.*"],"tenants":["t1","t2"]})");
  }
  JsonReply Publish(const std::string& body) {
    return Call("POST", "/v1/events", publisher_, body);
  }
  JsonReply Lines(const std::string& body) {
    tests::HttpClient client(suite()->role->port());
    const tests::HttpReply reply =
        client.Send("POST", "/v1/events",
                    {{"authorization", absl::StrCat("Bearer ", publisher_)},
                     {"content-type", "application/x-ndjson"}},
                    body);
    JsonReply json;
    json.status = reply.status;
    json.text = reply.body;
    auto parsed = JsonValue::Parse(reply.body);
    EXPECT_OK(parsed);
    if (parsed.ok()) json.body = *std::move(parsed);
    return json;
  }
  static MemoryLog& log() { return suite()->log; }
  static size_t Stored() { return log().Records({"events.order.created", 0}).size(); }

  std::string publisher_;
};

TEST_F(EventsTest, StoresAnEventByteForByte) {
  const JsonReply reply = Publish(
      "{\"type\":\"order.created\", \"tenant\":\"t1\",\"department\":\"d\\u00e9\",\"id\":\"e-1\","
      "\"time\":\"2030-03-31T02:30:00+02:00\",\"data\" : {\"b\": 1.0,  "
      "\"a\":1e999,\"b\":\"\\u0000\"}  }");
  ASSERT_EQ(reply.status, 202) << reply.text;
  const JsonValue& row = (*reply["data"].array())[0];
  EXPECT_EQ(*row.Find("id")->string(), "e-1");
  EXPECT_EQ(*row.Find("topic")->string(), "events.order.created");
  const auto records = log().Records(
      {"events.order.created", static_cast<int32_t>(*row.Find("partition")->integer())});
  const auto offset = static_cast<size_t>(*row.Find("offset")->integer());
  ASSERT_LT(offset, records.size());
  EXPECT_EQ(records[offset].value, R"({"b": 1.0,  "a":1e999,"b":"\u0000"})");
  EXPECT_THAT(records[offset].headers,
              ::testing::ElementsAre(Pair("tenant", "t1"), Pair("department", "d\xc3\xa9"),
                                     Pair("id", "e-1"), Pair("time", "2030-03-31T00:30:00.000Z")));
}

// SSRF-11: one who publishes what it received passes on how often that came through here.
TEST_F(EventsTest, StoresHowOftenTheEventsCameThroughHere) {
  const JsonReply reply = Call("POST", "/v1/events", publisher_,
                               R"([{"type":"order.created","tenant":"t1","data":1},
               {"type":"order.created","tenant":"t1","data":2}])",
                               {{"Webhook-Hops", "2" + std::string(100, '0')}});
  ASSERT_EQ(reply.status, 202) << reply.text;
  for (const JsonValue& row : *reply["data"].array()) {
    const auto records = log().Records(
        {"events.order.created", static_cast<int32_t>(*row.Find("partition")->integer())});
    EXPECT_THAT(records[static_cast<size_t>(*row.Find("offset")->integer())].headers,
                ::testing::Contains(Pair("webhook-hops", "2" + std::string(19, '0'))));
  }
}

TEST_F(EventsTest, StoresAnArrayAndMakesIds) {
  const JsonReply reply = Publish(
      R"([{"type":"order.created","tenant":"t1","data":null},{"type":"order.paid","tenant":"t2","data":[1, 2]}])");
  ASSERT_EQ(reply.status, 202) << reply.text;
  ASSERT_EQ(reply["data"].array()->size(), 2u);
  for (const JsonValue& row : *reply["data"].array()) {
    EXPECT_THAT(*row.Find("id")->string(), StartsWith("evt_"));
  }
  EXPECT_EQ(log().Records({"events.order.paid", 0}).back().value, "[1, 2]");
}

TEST_F(EventsTest, PutsATenantsEventsIntoOnePartition) {
  const int status = Call("PUT", "/v1/event-types/order.spread", operator_key(), "{}").status;
  ASSERT_EQ(status, 201);
  log().MakeTopic("events.order.spread", 8);
  std::string body = "[";
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&body, i == 0 ? "" : ",", R"({"type":"order.spread","tenant":"t)", i % 2 + 1,
                    R"(","data":1})");
  }
  const JsonReply reply = Publish(body + "]");
  ASSERT_EQ(reply.status, 202) << reply.text;
  const auto& rows = *reply["data"].array();
  for (size_t i = 2; i < rows.size(); ++i) {
    EXPECT_EQ(*rows[i].Find("partition"), *rows[i - 2].Find("partition"));
    EXPECT_EQ(*rows[i].Find("offset")->integer() > *rows[i - 2].Find("offset")->integer(), true);
  }
}

TEST_F(EventsTest, LetsPublishersAloneAndOnlyWhatTheyMay) {
  const Customer customer = MakeCustomer();
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  EXPECT_EQ(Call("POST", "/v1/events", customer.key, good).status, 403);
  EXPECT_EQ(Call("POST", "/v1/events", operator_key(), good).status, 403);
  EXPECT_EQ(Publish(R"({"type":"user.made","tenant":"t1","data":1})").status, 403);
  EXPECT_EQ(Publish(R"({"type":"order","tenant":"t1","data":1})").status, 403);
  EXPECT_EQ(Publish(R"({"type":"order.created","tenant":"t3","data":1})").status, 403);
  EXPECT_EQ(Call("GET", "/v1/endpoints", publisher_).status, 403);
  EXPECT_EQ(Publish(absl::StrCat("[", good, R"(,{"type":"order.created","tenant":"t3","data":1}])"))
                .status,
            403);
}

TEST_F(EventsTest, RefusesBadEventsAndStoresNone) {
  const size_t before = log().Partitions("events.order.created", std::chrono::seconds(1)).ok()
                            ? log().Records({"events.order.created", 0}).size()
                            : 0;
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  const std::pair<std::string, const char*> table[] = {
      {R"({})", "/data /type /tenant"},
      {R"({"type":"order.created","tenant":"t1"})", "/data"},
      {R"({"type":"order.created","tenant":null,"data":1})", "/tenant"},
      {R"({"type":"order.created","tenant":7,"data":1})", "/tenant"},
      {R"({"type":"order.created","tenant":"","data":1})", "/tenant"},
      {R"({"type":"order.created","tenant":"customer:cus_x","data":1})", "/tenant"},
      {R"({"type":"a b","tenant":"t1","data":1})", "/type"},
      {R"({"type":"order.created","tenant":"t1","data":1,"data":2})", "/data"},
      {R"({"type":"order.created","tenant":"t1","data":1,"topic":"x"})", "/topic"},
      {R"({"type":"order.created","tenant":"t1","data":1,"time":"yesterday"})", "/time"},
      {R"({"type":"order.created","tenant":"t1","data":1,"id":"a\nb","department":1})",
       "/id /department"},
      {R"({"type":"order.unknown","tenant":"t1","data":1})", "/type"},
      {absl::StrCat("[", good, R"(,7,{"type":"order.unknown","tenant":"t1"}])"), "/1 /2/data"},
      {absl::StrCat("[", good, R"(,{"type":"order.unknown","tenant":"t1","data":1}])"), "/1/type"},
      {"[]", ""},
      {"7", ""},
      {absl::StrCat(R"({"type":"order.created","tenant":"t1","data":")", std::string(600'000, 'x'),
                    "\"}"),
       "/data"},
  };
  for (const auto& [body, pointers] : table) {
    const JsonReply reply = Publish(body);
    EXPECT_EQ(reply.status, 422) << body.substr(0, 200) << reply.text;
    EXPECT_EQ(reply.Faults(), pointers) << body.substr(0, 200);
  }
  EXPECT_EQ(Publish(R"({"type":"order.created","tenant":"t1","data":1},{)").status, 400);
  EXPECT_EQ(Publish("{\"type\":\"order.created\",\"tenant\":\"t1\",\"data\":\"\xff\"}").status,
            400);
  std::string many = "[" + good;
  for (int i = 0; i < 1'000; ++i) absl::StrAppend(&many, ",", good);
  EXPECT_EQ(Publish(many + "]").status, 422);
  EXPECT_EQ(Publish(std::string((1 << 20) + 1, ' ')).status, 413);
  if (before != 0) {
    EXPECT_EQ(log().Records({"events.order.created", 0}).size(), before);
  }
}

TEST_F(EventsTest, StoresLinesAndTellsWhichItHasRefused) {
  const auto line = [](int number, absl::string_view type, absl::string_view tenant) {
    return absl::StrCat(R"({"type":")", type, R"(","tenant":")", tenant, R"(","id":"line-)", number,
                        R"(","data":)", number, "}\r\n");
  };
  const std::string body =
      absl::StrCat(line(1, "order.created", "t1"), "\n", line(3, "order.unknown", "t1"), "{\n",
                   line(5, "order.created", "t3"), "[]\n", line(7, "order.paid", "t2"),
                   R"({"type":"order.paid","tenant":"t2"})");
  const JsonReply reply = Lines(body);
  EXPECT_EQ(reply.status, 422) << reply.text;
  EXPECT_EQ(*reply["accepted"].integer(), 2);
  EXPECT_EQ(*reply["refused"].integer(), 5);
  EXPECT_EQ(*reply["lines_settled"].integer(), 8);
  std::vector<std::string> told;
  for (const JsonValue& error : *reply["errors"].array()) {
    told.push_back(absl::StrCat(*error.Find("line")->integer(), *error.Find("pointer")->string()));
  }
  EXPECT_THAT(told, ::testing::UnorderedElementsAre("3/type", "4", "5", "6", "8/data"));
  EXPECT_EQ(log().Records({"events.order.paid", 0}).back().value, "7");
  const JsonReply good = Lines(line(9, "order.paid", "t1"));
  EXPECT_EQ(good.status, 202) << good.text;
  EXPECT_EQ(*good["accepted"].integer(), 1);
  EXPECT_EQ(log().Records({"events.order.paid", 0}).back().value, "9");
}

TEST_F(EventsTest, NamesEachRefusedLineThoughAllHaveManyFaults) {
  std::string body;
  for (int line = 1; line <= 200; ++line) {
    absl::StrAppend(&body, "{");
    for (int i = 0; i < 12; ++i) absl::StrAppend(&body, R"("unknown)", i, R"(":1,)");
    absl::StrAppend(&body, R"("type":"order.created","tenant":"t1"})", "\n");
  }
  const JsonReply reply = Lines(body);
  ASSERT_EQ(reply.status, 422) << reply.text;
  EXPECT_EQ(*reply["refused"].integer(), 200);
  std::set<int64_t> named;
  for (const JsonValue& error : *reply["errors"].array()) {
    named.insert(*error.Find("line")->integer());
  }
  EXPECT_EQ(named.size(), 200u);
}

TEST_F(EventsTest, StoresMoreLinesThanABodyOfOneDocumentMayHold) {
  std::string body;
  int events = 0;
  for (; body.size() < (3u << 20); ++events) {
    absl::StrAppend(&body, R"({"type":"order.many","tenant":"t1","id":"many-)", events,
                    R"(","data":")", std::string(1'000, 'x'), "\"}\n");
  }
  ASSERT_EQ(Call("PUT", "/v1/event-types/order.many", operator_key(), "{}").status, 201);
  const JsonReply reply = Lines(body);
  ASSERT_EQ(reply.status, 202) << reply.text;
  EXPECT_EQ(*reply["accepted"].integer(), events);
  const auto records = log().Records({"events.order.many", 0});
  ASSERT_EQ(records.size(), static_cast<size_t>(events));
  for (int i = 0; i < events; ++i) {
    EXPECT_EQ(records[static_cast<size_t>(i)].headers[1].second, absl::StrCat("many-", i));
  }
}

TEST_F(EventsTest, TellsHowFarItHasComeInLinesWhenTheLogStops) {
  PublishOptions publish;
  publish.answer_within = std::chrono::milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  tests::HttpClient client(role->port());
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  // The first part is acknowledged before anything of the second is sent.
  const std::string first = absl::StrCat(good, "\n", "{\n");
  client.Write(
      absl::StrCat("POST /v1/events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ", publisher_,
                   "\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
                   absl::Hex(first.size()), "\r\n", first, "\r\n"));
  const size_t before = Stored();
  while (Stored() == before || log().UnansweredAppends() > 0) std::this_thread::yield();
  log().HoldAppends(true);
  client.Write(absl::StrCat(absl::Hex(good.size() + 1), "\r\n", good, "\n\r\n"));
  const tests::HttpReply reply = client.Read();
  log().HoldAppends(false);
  EXPECT_EQ(reply.status, 503) << reply.body;
  EXPECT_EQ(reply.Header("retry-after"), "1");
  ASSERT_OK_AND_ASSIGN(const JsonValue told, JsonValue::Parse(reply.body));
  EXPECT_EQ(*told.Find("accepted")->integer(), 1);
  EXPECT_EQ(*told.Find("refused")->integer(), 1);
  EXPECT_EQ(*told.Find("lines_settled")->integer(), 2);
  EXPECT_EQ(*(*told.Find("errors")->array())[0].Find("line")->integer(), 2);
}

TEST_F(EventsTest, NamesWhatTheLogCanNeverTakeAndStoresTheRest) {
  PublishOptions publish;
  publish.event_bytes_max = 2 << 20;  // more than the log takes
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  tests::HttpClient client(role->port());
  const auto event = [](absl::string_view data) {
    return absl::StrCat(R"({"type":"order.created","tenant":"t1","data":)", data, "}");
  };
  const std::string large = event(absl::StrCat("\"", std::string(1'000'010, 'x'), "\""));
  const size_t before = Stored();
  const JsonReply array = CallOn(client, "POST", "/v1/events", publisher_,
                                 absl::StrCat("[", event("1"), ",", large, ",", event("2"), "]"));
  EXPECT_EQ(array.status, 422) << array.text;
  EXPECT_EQ(array.Faults(), "/1");
  EXPECT_THAT(array.Text("detail"), HasSubstr("all others are stored"));
  EXPECT_EQ(Stored(), before + 2);
  const tests::HttpReply lines =
      client.Send("POST", "/v1/events",
                  {{"authorization", absl::StrCat("Bearer ", publisher_)},
                   {"content-type", "application/x-ndjson"}},
                  absl::StrCat(event("3"), "\n", large, "\n", event("4"), "\n{\n", event("5")));
  EXPECT_EQ(lines.status, 422) << lines.body;
  ASSERT_OK_AND_ASSIGN(const JsonValue told, JsonValue::Parse(lines.body));
  EXPECT_EQ(*told.Find("accepted")->integer(), 3);
  EXPECT_EQ(*told.Find("lines_settled")->integer(), 5);
  std::set<int64_t> refused;
  for (const JsonValue& error : *told.Find("errors")->array()) {
    refused.insert(*error.Find("line")->integer());
  }
  EXPECT_EQ(refused, (std::set<int64_t>{2, 4}));
  EXPECT_EQ(log().Records({"events.order.created", 0}).back().value, "5");
}

TEST_F(EventsTest, ReadsNoLineOfOneWhoMayNotPublish) {
  tests::HttpClient client(suite()->role->port());
  client.Write(absl::StrCat("POST /v1/events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ",
                            operator_key(),
                            "\r\ncontent-type: application/x-ndjson\r\ncontent-length: "
                            "60000000\r\n\r\n{"));
  EXPECT_EQ(client.Read().status, 403);
}

TEST_F(EventsTest, StopsReadingAtALineThatIsTooLong) {
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  const JsonReply reply =
      Lines(absl::StrCat(good, "\n", std::string((1 << 20) + 1, ' '), "\n", good));
  EXPECT_EQ(reply.status, 413) << reply.text;
  EXPECT_EQ(*reply["accepted"].integer(), 1);
  EXPECT_EQ(*reply["lines_settled"].integer(), 1);
  EXPECT_THAT(reply.Text("detail"), HasSubstr("Line 2 is longer"));
}

TEST_F(EventsTest, NeverWritesToOurOwnTopics) {
  PublishOptions publish;
  publish.topic_prefix = "";
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  ASSERT_EQ(Call("PUT", "/v1/event-types/postrider.reports", operator_key(), "{}").status, 201);
  const std::string all = MakeKey(R"({"scope":"publisher","event_types":["*"],"tenants":["*"]})");
  tests::HttpClient client(role->port());
  EXPECT_EQ(CallOn(client, "POST", "/v1/events", all,
                   R"({"type":"postrider.reports","tenant":"t1","data":1})")
                .Faults(),
            "/type");
}

TEST_F(EventsTest, Answers503WhenTheLogDoesNotAcknowledge) {
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  ASSERT_EQ(Publish(good).status, 202);
  PublishOptions publish;
  publish.answer_within = std::chrono::milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  tests::HttpClient client(role->port());
  log().HoldAppends(true);
  const JsonReply reply = CallOn(client, "POST", "/v1/events", publisher_, good);
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.Text("detail"), HasSubstr("may have been stored"));
  log().HoldAppends(false);
  EXPECT_EQ(Publish(good).status, 202);
}

TEST_F(EventsTest, Answers503AtOnceWhileTheLogCannotBeWritten) {
  const std::string good = R"({"type":"order.created","tenant":"t1","data":1})";
  ASSERT_EQ(Publish(good).status, 202);
  PublishOptions publish;
  publish.answer_within = std::chrono::minutes(10);
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole(suite()->database->options().api_url, publish));
  tests::HttpClient client(role->port());
  ASSERT_EQ(CallOn(client, "POST", "/v1/events", publisher_, good).status, 202);
  log().SetReachable(false);
  // The first waits until the log is asked, the second is refused by what it said.
  for (int i = 0; i < 2; ++i) {
    const tests::HttpReply reply =
        client.Send("POST", "/v1/events",
                    {{"authorization", absl::StrCat("Bearer ", publisher_)},
                     {"content-type", "application/json"}},
                    good);
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.Header("retry-after"), "1");
  }
  log().SetReachable(true);
  int status = 503;
  for (int i = 0; i < 100'000 && status != 202; ++i) {
    status = CallOn(client, "POST", "/v1/events", publisher_, good).status;
  }
  EXPECT_EQ(status, 202) << "it goes on by itself";
}

class OutageTest : public ApiFixture {};

TEST_F(OutageTest, Answers503WithRetryAfterWhilePostgresIsAway) {
  ASSERT_OK_AND_ASSIGN(DatabaseUrl url, DatabaseUrl::Parse(suite()->database->options().api_url));
  const size_t colon = url.hosts.rfind(':');
  ASSERT_NE(colon, std::string::npos);
  tests::TcpRelay relay(static_cast<uint16_t>(std::stoi(url.hosts.substr(colon + 1))));
  url.hosts = absl::StrCat("127.0.0.1:", relay.port());
  ASSERT_OK_AND_ASSIGN(const auto role, suite()->StartRole(url.ToString()));
  tests::HttpClient client(role->port());
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 200);
  for (const auto mode : {tests::TcpRelay::Mode::kClosed, tests::TcpRelay::Mode::kSilent}) {
    relay.Set(tests::TcpRelay::Mode::kClosed);
    relay.Set(mode);
    const MonotonicTime begin = suite()->clock.Now();
    const tests::HttpReply reply = client.Send(
        "GET", "/v1/customers", {{"authorization", absl::StrCat("Bearer ", operator_key())}});
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.Header("retry-after"), "1");
    EXPECT_LT(suite()->clock.Now() - begin, std::chrono::seconds(5));
  }
  EXPECT_EQ(CallOn(client, "GET", "/openapi.json", "").status, 200);
  relay.Set(tests::TcpRelay::Mode::kOpen);
  // It comes back by itself.
  int status = 0;
  for (int i = 0; i < 100 && status != 200; ++i) {
    status = CallOn(client, "GET", "/v1/customers", operator_key()).status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(OutageTest, StartsWithoutPostgres) {
  ASSERT_OK_AND_ASSIGN(const auto role,
                       suite()->StartRole("postgresql://nobody:x@127.0.0.1:1/none"));
  tests::HttpClient client(role->port());
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 503);
}

TEST_F(OutageTest, RefusesToServeAsARoleThatCouldGetAroundTheWalls) {
  ASSERT_OK_AND_ASSIGN(const auto role, suite()->StartRole(suite()->database->options().url));
  tests::HttpClient client(role->port());
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 503);
}

TEST_F(OutageTest, DropsWhatIsUnderWayWhenItIsDestroyed) {
  const Customer customer = MakeCustomer();
  ASSERT_OK_AND_ASSIGN(auto role, suite()->StartRole(suite()->database->options().api_url));
  const std::string publisher =
      MakeKey(R"({"scope":"publisher","event_types":["*"],"tenants":["*"]})");
  Call("PUT", "/v1/event-types/hard.stop", operator_key(), "{}");
  std::vector<std::unique_ptr<tests::HttpClient>> clients;
  const auto send = [&](absl::string_view method, absl::string_view path, absl::string_view key,
                        absl::string_view body) {
    clients.push_back(std::make_unique<tests::HttpClient>(role->port()));
    clients.back()->Write(absl::StrCat(
        method, " ", path, " HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ", key,
        "\r\ncontent-type: application/json\r\ncontent-length: ", body.size(), "\r\n\r\n", body));
  };
  suite()->log.HoldAppends(true);
  for (int i = 0; i < 10; ++i) {
    send("POST", "/v1/dead-letters/poll", customer.key, R"({"wait_s":20})");
    send("POST", "/v1/events", publisher, R"({"type":"hard.stop","tenant":"t1","data":1})");
    send("POST", "/v1/endpoints", customer.key, R"({"url":"https://example.com/"})");
  }
  role.reset();
  suite()->log.HoldAppends(false);
  for (const auto& client : clients) {
    const int status = client->Read().status;
    EXPECT_TRUE(status == 0 || status == 201 || status == 503) << status;
  }
}

TEST_F(OutageTest, TellsWhetherTheDatabaseAnswers) {
  ASSERT_OK_AND_ASSIGN(const auto role, suite()->StartRole(suite()->database->options().api_url));
  while (!role->health().ok()) std::this_thread::yield();
  ASSERT_OK_AND_ASSIGN(const auto lonely,
                       suite()->StartRole("postgresql://nobody:x@127.0.0.1:1/none"));
  tests::HttpClient client(lonely->port());
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 503);
  EXPECT_FALSE(lonely->health().ok());
}

TEST_F(OutageTest, StopsGracefully) {
  ASSERT_OK_AND_ASSIGN(const auto role, suite()->StartRole(suite()->database->options().api_url));
  tests::HttpClient client(role->port());
  EXPECT_EQ(CallOn(client, "GET", "/v1/customers", operator_key()).status, 200);
  absl::Notification stopped;
  role->Stop([&] { stopped.Notify(); });
  stopped.WaitForNotification();
  EXPECT_EQ(client.Read().status, 0);
}

}  // namespace
}  // namespace postrider::api
