#include "api/server.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "api/probes.h"
#include "api/problem.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_client.h"
#include "tests/support/status_matchers.h"

namespace postrider::api {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using tests::HttpClient;
using tests::HttpReply;

constexpr size_t kLimit = 1'000;

const HttpClient::Headers kJson = {{"content-type", "application/json"}};

// A server with a few routes on a loop with a thread of its own.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { loop_ = *EventLoop::Create(clock_); }
  ~ServerTest() override {
    if (!thread_.joinable()) return;
    OnLoop([this] {
      held_.clear();
      server_.reset();
    });
    loop_->Stop();
    thread_.join();
  }

  void Start(ServerOptions options = {}, Server::Gate gate = nullptr) {
    options.listen = "127.0.0.1:0";
    Router router;
    router.Add({.method = HttpMethod::kGet,
                .path = "/hello/{name}",
                .handler = [](Request request, Respond respond) {
                  Response response;
                  response.body = absl::StrCat("hello ", request.params[0]);
                  response.content_type = "text/plain";
                  std::move(respond)(std::move(response));
                }});
    router.Add({.method = HttpMethod::kPost,
                .path = "/size",
                .handler =
                    [](Request request, Respond respond) {
                      Response response;
                      response.body = absl::StrCat(request.body.size());
                      std::move(respond)(std::move(response));
                    },
                .body_bytes_max = kLimit});
    router.Add({.method = HttpMethod::kPost,
                .path = "/lines",
                .handler =
                    [](Request request, Respond respond) {
                      Response response;
                      response.status = kLinesGoOn;
                      if (request.lines->end == LineStream::End::kWhole) response.status = 200;
                      if (request.lines->end == LineStream::End::kCut) {
                        response.status = request.lines->cut.status;
                      }
                      response.body = absl::StrCat(request.lines->first_line - 1);
                      std::move(respond)(std::move(response));
                    },
                .body_bytes_max = kLimit,
                .takes_lines = true});
    router.Add(
        {.method = HttpMethod::kDelete, .path = "/thing", .handler = [](Request, Respond respond) {
           Response response;
           response.status = 204;
           std::move(respond)(std::move(response));
         }});
    router.Add({.method = HttpMethod::kGet, .path = "/drop", .handler = [](Request, Respond) {}});
    router.Add(
        {.method = HttpMethod::kGet, .path = "/hold", .handler = [this](Request, Respond respond) {
           held_.push_back(std::move(respond));
           absl::MutexLock lock(&mutex_);
           ++held_count_;
         }});
    auto started =
        Server::Start(*loop_, std::move(router), options, metrics_, "test", std::move(gate));
    ASSERT_OK(started);
    server_ = *std::move(started);
    thread_ = std::thread([this] { loop_->Run(); });
  }

  void OnLoop(EventLoop::Callback call) {
    absl::Notification done;
    ASSERT_TRUE(loop_->Post([&] {
      std::move(call)();
      done.Notify();
    }));
    done.WaitForNotification();
  }
  void AwaitHeld(int count) {
    absl::MutexLock lock(&mutex_);
    held_wanted_ = count;
    mutex_.Await(absl::Condition(
        +[](ServerTest* test) { return test->held_count_ >= test->held_wanted_; }, this));
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::vector<Respond> held_;  // the loop's thread
  absl::Mutex mutex_;
  int held_count_ = 0;
  int held_wanted_ = 0;
};

std::string Chunked(size_t size, size_t chunk) {
  std::string text =
      "POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
      "transfer-encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < size; at += chunk) {
    const size_t part = std::min(chunk, size - at);
    absl::StrAppend(&text, absl::Hex(part), "\r\n", std::string(part, 'x'), "\r\n");
  }
  return text + "0\r\n\r\n";
}

TEST_F(ServerTest, HandlesABodyOfLinesWhileItComesIn) {
  Start();
  HttpClient client(server_->port());
  const HttpClient::Headers lines = {{"content-type", "application/x-ndjson"}};
  const std::string many(5'000, '\n');
  HttpReply reply = client.Send("POST", "/lines", lines, many);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "5000");
  EXPECT_TRUE(client.connected());
  reply = client.Send("POST", "/lines", lines, "a\nb");
  EXPECT_EQ(reply.body, "2");
  EXPECT_EQ(client.Send("POST", "/size", lines, "a\nb").status, 415);
  reply = client.Send("POST", "/lines", lines, "a\n" + std::string(kLineBytesMax + 1, 'x'));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.body, "1");
  // Refused by its length alone.
  reply = client.SendRaw(
      absl::StrCat("POST /lines HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-ndjson\r\n"
                   "content-length: ",
                   kLinesBytesMax + 1, "\r\n\r\n"));
  EXPECT_EQ(reply.status, 413);
}

TEST_F(ServerTest, TellsHowFarABodyOfLinesHasComeWhoeverEndsIt) {
  ServerOptions options;
  options.handler_timeout = 100ms;
  std::atomic<int64_t> ended_at = 0;
  Start(options, [this, &ended_at](const Route& route, Request request, Respond respond) {
    LineStream& lines = *request.lines;
    if (lines.first_line <= 2'000) {
      lines.accepted = lines.first_line;
      return route.handler(std::move(request), std::move(respond));
    }
    ended_at = lines.first_line;
    // As a key that was revoked meanwhile; or it takes too long, and goes on.
    if (request.Header("x-hold") == nullptr) {
      return std::move(respond)(Problem(401, "This key is not valid."));
    }
    lines.accepted = 9'999;
    held_.push_back(std::move(respond));
  });
  const std::string many(5'000, '\n');
  for (const int status : {401, 503}) {
    HttpClient client(server_->port());
    HttpClient::Headers headers = {{"content-type", "application/x-ndjson"}};
    if (status == 503) headers.emplace_back("x-hold", "1");
    const HttpReply reply = client.Send("POST", "/lines", headers, many);
    EXPECT_EQ(reply.status, status);
    ASSERT_OK_AND_ASSIGN(const JsonValue told, JsonValue::Parse(reply.body));
    EXPECT_EQ(*told.Find("status")->integer(), status);
    EXPECT_EQ(*told.Find("lines_settled")->integer(), ended_at - 1);
    EXPECT_GE(ended_at, 2'001);
    EXPECT_GE(*told.Find("accepted")->integer(), 1) << "what the parts that ended have left";
    EXPECT_LE(*told.Find("accepted")->integer(), 2'000);
    EXPECT_EQ(*told.Find("refused")->integer(), 0);
  }
}

TEST_F(ServerTest, WaitsForEachLineNoLongerThanForABody) {
  ServerOptions options;
  options.body_timeout = 200ms;
  Start(options);
  HttpClient client(server_->port());
  client.Write(
      "POST /lines HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-ndjson\r\n"
      "content-length: 1000\r\n\r\nbegun");
  EXPECT_EQ(client.Read().status, 0);
}

TEST_F(ServerTest, AnswersRequestsOnOneConnection) {
  Start();
  HttpClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const HttpReply reply = client.Send("GET", absl::StrCat("/hello/n", i));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, absl::StrCat("hello n", i));
    EXPECT_EQ(reply.Header("cache-control"), "no-store");
    EXPECT_TRUE(client.connected());
  }
}

TEST_F(ServerTest, AnswersRequestsThatCameTogetherInTheirOrder) {
  Start();
  HttpClient client(server_->port());
  client.Write("GET /hello/a HTTP/1.1\r\nhost: h\r\n\r\nGET /hello/b HTTP/1.1\r\nhost: h\r\n\r\n");
  EXPECT_EQ(client.Read().body, "hello a");
  EXPECT_EQ(client.Read().body, "hello b");
}

TEST_F(ServerTest, AnswersHeadWithoutABody) {
  Start();
  HttpClient client(server_->port());
  const HttpReply reply = client.Send("HEAD", "/hello/you");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("content-length"), "9");
  EXPECT_EQ(client.Send("GET", "/hello/me").body, "hello me");
}

TEST_F(ServerTest, SendsNoBodyAndNoLengthWith204) {
  Start();
  HttpClient client(server_->port());
  const HttpReply reply = client.Send("DELETE", "/thing");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.Header("content-length"), "");
  EXPECT_EQ(client.Send("GET", "/hello/me").status, 200);
}

TEST_F(ServerTest, TellsAnUnknownPathFromAMissingMethod) {
  Start();
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("GET", "/nothing").status, 404);
  const HttpReply reply = client.Send("POST", "/hello/a", kJson, "{}");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.Header("allow"), "GET, HEAD");
  EXPECT_EQ(reply.Header("content-type"), "application/problem+json");
  EXPECT_EQ(client.Send("BREW", "/size").status, 405);
  EXPECT_EQ(client.Send("GET", "/hello/me").status, 200);
}

TEST_F(ServerTest, BoundsABodyByItsLength) {
  Start();
  HttpClient client(server_->port());
  for (const size_t size : {kLimit - 1, kLimit}) {
    const HttpReply reply = client.Send("POST", "/size", kJson, std::string(size, 'x'));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, absl::StrCat(size));
  }
  const HttpReply reply = client.Send("POST", "/size", kJson, std::string(kLimit + 1, 'x'));
  EXPECT_EQ(reply.status, 413);
  EXPECT_THAT(reply.body, HasSubstr("1000 bytes"));
  // 2^63 and one that is no 64-bit number.
  HttpClient second(server_->port());
  const std::string head = "POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n";
  HttpReply huge = second.SendRaw(head + "content-length: 9223372036854775808\r\n\r\n");
  EXPECT_EQ(huge.status, 413);
  EXPECT_EQ(huge.Header("connection"), "close");
  HttpClient third(server_->port());
  EXPECT_EQ(third.SendRaw(head + "content-length: 18446744073709551616\r\n\r\n").status, 400);
  HttpClient fourth(server_->port());
  EXPECT_EQ(fourth.SendRaw(head + "content-length: -1\r\n\r\n").status, 400);
  HttpClient fifth(server_->port());
  EXPECT_EQ(fifth.SendRaw(head + "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n").status,
            400);
}

TEST_F(ServerTest, BoundsAChunkedBodyByWhatHasCome) {
  Start();
  HttpClient client(server_->port());
  for (const size_t size : {kLimit - 1, kLimit}) {
    EXPECT_EQ(client.SendRaw(Chunked(size, 100)).body, absl::StrCat(size));
  }
  const HttpReply reply = client.SendRaw(Chunked(kLimit + 1, 100));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.Header("connection"), "close");
  HttpClient second(server_->port());
  EXPECT_EQ(second.SendRaw(Chunked(4 << 20, 64 << 10)).status, 413);
  HttpClient third(server_->port());
  EXPECT_EQ(third
                .SendRaw("POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
                         "transfer-encoding: chunked\r\n\r\nzz\r\n")
                .status,
            400);
}

TEST_F(ServerTest, RefusesABodyWhoseEndIsAGuess) {
  Start();
  const std::string smuggled = "GET /hello/a HTTP/1.1\r\nhost: h\r\n\r\n";
  for (const std::string coding :
       {"gzip", "xchunked", "gzip, chunked", "chunked, gzip", "identity", "",
        "chunked\r\ntransfer-encoding: chunked", "chunked\r\ntransfer-encoding: identity"}) {
    HttpClient client(server_->port());
    const HttpReply reply = client.SendRaw(
        "POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
        "transfer-encoding: " +
        coding + "\r\n\r\n" + smuggled);
    EXPECT_EQ(reply.status, 400) << coding;
    EXPECT_EQ(reply.Header("connection"), "close") << coding;
  }
  HttpClient old(server_->port());
  EXPECT_EQ(old.SendRaw("POST /size HTTP/1.0\r\nhost: h\r\ncontent-type: application/json\r\n"
                        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
                .status,
            400);
}

TEST_F(ServerTest, TakesABodyOnlyWhereTheRouteHasOne) {
  Start();
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("GET", "/hello/a", kJson, "{}").status, 413);
  EXPECT_EQ(client.Send("DELETE", "/thing", {{"content-length", "0"}}).status, 204);
}

TEST_F(ServerTest, TakesJsonOnly) {
  Start();
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("POST", "/size", {}, "{}").status, 415);
  EXPECT_EQ(client.Send("POST", "/size", {{"content-type", "text/plain"}}, "{}").status, 415);
  EXPECT_EQ(client.Send("POST", "/size", {{"content-type", "application/jsonx"}}, "{}").status,
            415);
  EXPECT_EQ(client
                .Send("POST", "/size",
                      {{"content-type", "application/json"}, {"content-encoding", "gzip"}}, "{}")
                .status,
            415);
  EXPECT_EQ(
      client.Send("POST", "/size", {{"Content-Type", "Application/JSON; charset=utf-8"}}, "{}")
          .status,
      200);
  EXPECT_EQ(
      client.Send("POST", "/size", {{"content-type", "application/merge-patch+json"}}, "{}").status,
      200);
}

TEST_F(ServerTest, BoundsTheHeader) {
  Start();
  const std::string before = "GET /hello/a HTTP/1.1\r\nhost: h\r\nx: ";
  const std::string after = "\r\n\r\n";
  const size_t room = ServerOptions().header_bytes_max - before.size() - after.size();
  HttpClient client(server_->port());
  EXPECT_EQ(client.SendRaw(before + std::string(room, 'x') + after).status, 200);
  const HttpReply reply = client.SendRaw(before + std::string(room + 1, 'x') + after);
  EXPECT_EQ(reply.status, 431);
  EXPECT_EQ(reply.Header("connection"), "close");
  HttpClient second(server_->port());
  EXPECT_EQ(second.SendRaw("GET /" + std::string(300'000, 'x')).status, 431);
}

TEST_F(ServerTest, RefusesWhatIsNoHttp) {
  Start();
  for (const char* text :
       {"hello\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\nhost: h\r\n\r\n", "GET /%zz HTTP/1.1\r\nhost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nhost: h\r\n\r\n", "\x16\x03\x01\x02\x01\x01\r\n\r\n"}) {
    HttpClient client(server_->port());
    EXPECT_EQ(client.SendRaw(text).status, 400) << text;
  }
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("GET", "/hello/still").status, 200);
}

TEST_F(ServerTest, AsksForTheBodyWhenTheClientWaitsForThat) {
  Start();
  HttpClient client(server_->port());
  const std::string head =
      "POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
      "expect: 100-continue\r\n";
  EXPECT_EQ(client.SendRaw(head + "content-length: 2\r\n\r\n").status, 100);
  EXPECT_EQ(client.SendRaw("{}").body, "2");
  // It is not asked for one that is too long.
  EXPECT_EQ(client.SendRaw(head + "content-length: 2000\r\n\r\n").status, 413);
}

TEST_F(ServerTest, Answers503ForAHandlerThatDropsTheRequest) {
  Start();
  HttpClient client(server_->port());
  const HttpReply reply = client.Send("GET", "/drop");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("retry-after"), "1");
}

TEST_F(ServerTest, Answers503ForAHandlerThatTakesTooLong) {
  ServerOptions options;
  options.handler_timeout = 50ms;
  Start(options);
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("GET", "/hold").status, 503);
  EXPECT_EQ(client.Send("GET", "/hello/a").status, 200);
}

TEST_F(ServerTest, AsksTheGateFirst) {
  Start({}, [](const Route& route, Request request, Respond respond) {
    if (request.Header("x-pass") != nullptr) {
      return route.handler(std::move(request), std::move(respond));
    }
    Response response;
    response.status = 403;
    std::move(respond)(std::move(response));
  });
  HttpClient client(server_->port());
  EXPECT_EQ(client.Send("GET", "/hello/a").status, 403);
  EXPECT_EQ(client.Send("GET", "/hello/a", {{"X-Pass", "1"}}).status, 200);
}

TEST_F(ServerTest, ClosesConnectionsThatSayNothing) {
  ServerOptions options;
  options.idle_timeout = 50ms;
  options.header_timeout = 50ms;
  options.body_timeout = 50ms;
  Start(options);
  for (const char* text : {"", "GET /hello/a HT",
                           "POST /size HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
                           "content-length: 5\r\n\r\n{"}) {
    HttpClient client(server_->port());
    client.Write(absl::StrCat("GET /hello/a HTTP/1.1\r\nhost: h\r\n\r\n", text));
    EXPECT_EQ(client.Read().status, 200);
    EXPECT_EQ(client.Read().status, 0) << text;
  }
}

TEST_F(ServerTest, Answers503PastItsConnections) {
  ServerOptions options;
  options.connections_max = 2;
  Start(options);
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  HttpClient third(server_->port());
  EXPECT_EQ(first.Send("GET", "/hello/a").status, 200);
  EXPECT_EQ(second.Send("GET", "/hello/a").status, 200);
  const HttpReply refused = third.Send("GET", "/hello/a");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("connection"), "close");
  first.Close();
  // The server learns of the close some time later.
  HttpReply reply;
  for (int i = 0; i < 1'000 && reply.status != 200; ++i) {
    HttpClient again(server_->port());
    reply = again.Send("GET", "/hello/a");
  }
  EXPECT_EQ(reply.status, 200);
}

TEST_F(ServerTest, StopsAfterTheRequestsThatItHas) {
  Start();
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.Send("GET", "/hello/a").status, 200);
  HttpClient busy(server_->port());
  busy.Write("GET /hold HTTP/1.1\r\nhost: h\r\n\r\n");
  AwaitHeld(1);
  absl::Notification stopped;
  OnLoop([&] { server_->Stop([&] { stopped.Notify(); }); });
  EXPECT_EQ(idle.Read().status, 0);
  EXPECT_FALSE(stopped.HasBeenNotified());
  OnLoop([&] { std::move(held_.front())(Response()); });
  const HttpReply reply = busy.Read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("connection"), "close");
  stopped.WaitForNotification();
}

TEST_F(ServerTest, DropsRequestsThatOutliveItsPatience) {
  ServerOptions options;
  options.stop_wait_max = 50ms;
  Start(options);
  HttpClient busy(server_->port());
  busy.Write("GET /hold HTTP/1.1\r\nhost: h\r\n\r\n");
  AwaitHeld(1);
  absl::Notification stopped;
  OnLoop([&] { server_->Stop([&] { stopped.Notify(); }); });
  stopped.WaitForNotification();
  EXPECT_EQ(busy.Read().status, 0);
  OnLoop([&] {
    server_.reset();
    // Too late, and nobody is hurt.
    std::move(held_.front())(Response());
  });
}

TEST_F(ServerTest, SaysWhyItCannotListen) {
  Start();
  ServerOptions options;
  for (const char* listen : {"", "127.0.0.1", "localhost:80", "127.0.0.1:65536", "::1:x"}) {
    options.listen = listen;
    EXPECT_THAT(Server::Start(*loop_, Router(), options, metrics_, "second", nullptr),
                tests::StatusIs(absl::StatusCode::kInvalidArgument));
  }
  options.listen = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_THAT(Server::Start(*loop_, Router(), options, metrics_, "second", nullptr),
              tests::StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options.listen)));
}

TEST(ProbesTest, TellLifeReadinessAndMetrics) {
  Metrics metrics;
  metrics.AddCounter("postrider_test_things_total", "Things.").Add(3);
  absl::Status database;
  const Router router = MakeProbes(metrics, [&] {
    return std::vector<Readiness>{{"worker", absl::OkStatus()}, {"database", database}};
  });
  auto get = [&](absl::string_view path) {
    Response answer;
    const Router::Match match = router.Find(HttpMethod::kGet, ParseTarget(path)->segments);
    match.route->handler(Request(), [&](Response response) { answer = std::move(response); });
    return answer;
  };
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/readyz").status, 200);
  database = absl::UnavailableError("no answer");
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body,
            R"({"ready":false,"parts":{"worker":"ok","database":"no answer"}})");
  EXPECT_THAT(get("/metrics").body, HasSubstr("postrider_test_things_total 3"));
  EXPECT_EQ(router.Find(HttpMethod::kPost, ParseTarget("/metrics")->segments).allow, "GET, HEAD");
}

}  // namespace
}  // namespace postrider::api
