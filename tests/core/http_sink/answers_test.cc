#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/tls_front.h"

namespace postrider {
namespace {

using tests::Certificate;
using tests::CloseConnection;
using tests::HalfClose;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::TlsFront;
using tests::WaitFor;

enum class Wire { kPlain, kTls };

Certificate::Options Ours() {
  Certificate::Options options;
  options.common_name = "127.0.0.1";
  options.names = "IP:127.0.0.1";
  return options;
}

// The same bytes without TLS, where the exchange is ours, and with it, where it is libcurl's: they
// must come to the same.
class SinkAnswersTest : public SinkTest, public ::testing::WithParamInterface<Wire> {
 protected:
  SinkAnswersTest() {
    if (GetParam() == Wire::kPlain) return;
    bundle_ = ::testing::TempDir() + "sink_answers_test." + std::to_string(getpid()) + ".pem";
    certificate_.WriteTo(bundle_);
    options_.ca_bundle_file = bundle_;
    front_ = std::make_unique<TlsFront>(*loop_, certificate_, stub_.port());
  }
  ~SinkAnswersTest() override {
    if (!bundle_.empty()) unlink(bundle_.c_str());
  }

  std::string Scheme() const { return GetParam() == Wire::kPlain ? "http://" : "https://"; }
  std::string Url() const {
    if (front_ == nullptr) return stub_.url();
    return "https://127.0.0.1:" + std::to_string(front_->port()) + "/hook";
  }
  // The result of one request that is answered by `script`.
  HttpResult Answered(StubScript script, milliseconds deadline = seconds(10)) {
    stub_.SetScript([script](const StubRequest&) { return script; });
    HttpRequest request = Request(Url());
    request.total_timeout = deadline;
    return Send(std::move(request));
  }

  Certificate certificate_{Ours()};
  std::string bundle_;
  RawSocketStub stub_{*loop_};
  std::unique_ptr<TlsFront> front_;  // null: without TLS
};

INSTANTIATE_TEST_SUITE_P(Wires, SinkAnswersTest, ::testing::Values(Wire::kPlain, Wire::kTls),
                         [](const auto& wire) {
                           return wire.param == Wire::kPlain ? "Plain" : "Tls";
                         });

// HTTP-01
TEST_P(SinkAnswersTest, EveryFinalStatusIsTakenWhateverTheBody) {
  const std::string bodies[] = {"", "<html>", "{\"broken\"", std::string("\0\xff\x01", 3)};
  for (const int status : {200, 201, 202, 203, 206, 226, 299, 300, 404, 500, 599, 999}) {
    for (const std::string& body : bodies) {
      const HttpResult result = Answered({SendBytes(StubAnswer(status, body))});
      EXPECT_EQ(result.failure, HttpFailure::kNone) << status;
      EXPECT_EQ(result.status, status);
      EXPECT_EQ(result.body_excerpt, body);
      EXPECT_FALSE(result.body_cut);
    }
  }
  EXPECT_EQ(Answered({SendBytes("HTTP/1.1 204 No\r\n\r\n")}).status, 204);
  EXPECT_EQ(Answered({SendBytes(StubAnswer(205))}).status, 205);
  // 199 is interim, and nothing follows it.
  const HttpResult interim = Answered({SendBytes("HTTP/1.1 199 X\r\n\r\n"), CloseConnection()});
  EXPECT_NE(interim.failure, HttpFailure::kNone);
  EXPECT_EQ(interim.status, 0);
}

TEST_P(SinkAnswersTest, InterimAnswersAreSkipped) {
  const HttpResult result = Answered(
      {SendBytes("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nRetry-After: 1\r\n\r\n" +
                 StubAnswer(503, "busy", "Retry-After: 120\r\nretry-after: 7\r\nDate: now\r\n"))});
  EXPECT_EQ(result.status, 503);
  EXPECT_EQ(result.retry_after, (std::vector<std::string>{"120", "7"}));
  EXPECT_EQ(result.date, "now");
  EXPECT_EQ(result.body_excerpt, "busy");
}

// HTTP-02
TEST_P(SinkAnswersTest, A2xxHeadIsSuccessWhateverHappensToTheBody) {
  const StubScript scripts[] = {
      {SendBytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789"),
       WaitFor(milliseconds(20)), ResetConnection()},
      {SendBytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789"), CloseConnection()},
      {SendBytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
       WaitFor(milliseconds(20))},
      {SendBytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")},
  };
  int number = 0;
  for (const StubScript& script : scripts) {
    const HttpResult result = Answered(script, milliseconds(300));
    EXPECT_EQ(result.status, 200) << number;
    EXPECT_EQ(result.failure, HttpFailure::kNone);
    EXPECT_TRUE(result.body_cut);
    EXPECT_EQ(stub_.requests().size(), static_cast<size_t>(++number));
    EXPECT_EQ(stub_.requests().back().connection, number);  // each on a new connection
  }
  EXPECT_TRUE(results_.back().timed_out);
}

// HTTP-06
TEST_P(SinkAnswersTest, NeverWaitsForContinue) {
  for (const size_t size : {512u, 2'048u, 1'048'576u, 5'242'880u}) {
    const MonotonicTime start = clock_.Now();
    const HttpResult result = Send(Request(Url(), std::string(size, 'x')));
    EXPECT_EQ(result.status, 200);
    EXPECT_LT(clock_.Now() - start, milliseconds(900)) << size;
    EXPECT_EQ(stub_.requests().back().Header("expect"), "");
    EXPECT_EQ(stub_.requests().back().body.size(), size);
  }
}

// HTTP-08
TEST_P(SinkAnswersTest, ClosingReceiversCostNoFailedAttempt) {
  const StubScript scripts[] = {
      {SendBytes("HTTP/1.0 200 OK\r\n\r\nold"), CloseConnection()},
      {SendBytes(StubAnswer(200, "", "connection: Close, x\r\n"))},
      {SendBytes("HTTP/1.1 200 OK\r\n\r\nuntil the end"), CloseConnection()},
      {SendBytes(StubAnswer(200)), WaitFor(milliseconds(5)), CloseConnection()},
  };
  size_t requests = 0;
  for (const StubScript& script : scripts) {
    for (int i = 0; i < 50; ++i) {
      const HttpResult result = Answered(script);
      ASSERT_EQ(result.status, 200);
      requests += 1 + static_cast<size_t>(result.resends);
      ASSERT_EQ(stub_.requests().size(), requests);
    }
  }
}

// CONN-01: the receiver reads the second request of each connection and breaks it.
TEST_P(SinkAnswersTest, AResendIsCounted) {
  std::map<int, int> on_connection;
  stub_.SetScript([&](const StubRequest& request) {
    if (++on_connection[request.connection] == 1) return StubScript{SendBytes(StubAnswer(200))};
    return StubScript{ResetConnection()};
  });
  int resends = 0;
  constexpr int kAttempts = 60;
  for (int i = 0; i < kAttempts; ++i) {
    const HttpResult result = Send(Url());
    EXPECT_EQ(result.status, 200);
    resends += result.resends;
  }
  EXPECT_EQ(stub_.requests().size(), static_cast<size_t>(kAttempts + resends));
  EXPECT_EQ(resends, kAttempts - 1);
  EXPECT_EQ(metrics_.AddCounter("postrider_http_resends_total", "").value(), resends);
  for (const StubRequest& request : stub_.requests()) {
    EXPECT_EQ(request.Header("webhook-id"), "msg_1");
  }
}

// CONN-01
TEST_P(SinkAnswersTest, ABreakOnANewConnectionIsAFailedAttempt) {
  const HttpResult result = Answered({ResetConnection()});
  EXPECT_EQ(result.failure, HttpFailure::kReset);
  EXPECT_TRUE(result.request_sent);
  EXPECT_EQ(result.resends, 0);
  EXPECT_EQ(stub_.requests().size(), 1u);
  EXPECT_EQ(Answered({CloseConnection()}).failure, HttpFailure::kReset);
}

TEST_P(SinkAnswersTest, TellsFailuresApart) {
  EXPECT_EQ(Answered({SendBytes("SSH-2.0-OpenSSH\r\n"), CloseConnection()}).failure,
            HttpFailure::kProtocol);
  HttpRequest https = Request("https://127.0.0.1:" + std::to_string(stub_.port()) + "/");
  stub_.SetConnectScript({SendBytes("not TLS at all, sorry\r\n")}, false);
  EXPECT_EQ(Send(std::move(https)).failure, HttpFailure::kTls);
  uint16_t closed_port = 0;
  { closed_port = RawSocketStub(*loop_).port(); }
  const HttpResult refused = Send(Scheme() + "127.0.0.1:" + std::to_string(closed_port) + "/");
  EXPECT_EQ(refused.failure, HttpFailure::kConnect);
  EXPECT_FALSE(refused.request_sent);
  const HttpResult unknown = Send(Scheme() + "nowhere.example/");
  EXPECT_EQ(unknown.failure, HttpFailure::kDns);
  EXPECT_FALSE(unknown.request_sent);
}

// ABUSE-01
TEST_P(SinkAnswersTest, AnEndlessBodyIsCut) {
  const std::string chunk = "10000\r\n" + std::string(65'536, '0') + "\r\n";
  const std::string heads[] = {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                               "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n",
                               "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
                               "HTTP/1.1 500 No\r\n\r\n"};
  for (const std::string& head : heads) {
    const int64_t before = stub_.bytes_sent();
    const HttpResult result = Answered({SendBytes(head), SendBytes(chunk, 1'000'000)});
    EXPECT_EQ(result.failure, HttpFailure::kNone);
    EXPECT_EQ(result.status, head[9] == '2' ? 200 : 500);
    EXPECT_TRUE(result.body_cut);
    EXPECT_EQ(result.body_excerpt.size(), 16u * 1024);
    EXPECT_TRUE(Run([&] { return stub_.open_connections() == 0; }));
    EXPECT_LT(stub_.bytes_sent() - before, 32 << 20);  // what sockets buffer on loopback
  }
}

// What a caller asks for besides the status: lines of the head, and more of the body.
TEST_P(SinkAnswersTest, KeepsTheLinesAndAsMuchOfTheBodyAsWasAskedFor) {
  const std::string body(200'000, 'x');
  stub_.SetScript([&](const StubRequest&) {
    return StubScript{SendBytes(StubAnswer(200, body, "Webhook-Rate: 5\r\nx-other: 1\r\n"))};
  });
  HttpRequest request = Request(Url());
  request.response_header_prefix = "webhook-";
  request.response_body_bytes_max = 256 * 1024;
  const HttpResult result = Send(std::move(request));
  EXPECT_EQ(result.body_excerpt, body);
  EXPECT_FALSE(result.body_cut);
  EXPECT_EQ(result.kept_headers, (HttpHeaders{{"webhook-rate", "5"}}));
  EXPECT_TRUE(Send(Url()).kept_headers.empty());
}

// ABUSE-03
TEST_P(SinkAnswersTest, TooManyOrTooLongHeadersEndTheAttempt) {
  std::string lines;
  for (int i = 0; i < 1'000; ++i) lines += "X: y\r\n";
  const StubScript scripts[] = {
      {SendBytes("HTTP/1.1 200 OK\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n")},
      {SendBytes("HTTP/1.1 200 OK\r\n"), SendBytes(lines, 100)},
      {SendBytes("HTTP/1.1 200 OK\r\n"), SendBytes(lines, 1'000'000)},
      {SendBytes("HTTP/1.1 103 Hint\r\nX: " + std::string(1'000, 'x') + "\r\n\r\n", 10'000),
       SendBytes(StubAnswer(200))},
  };
  for (const StubScript& script : scripts) {
    const HttpResult result = Answered(script);
    EXPECT_EQ(result.failure, HttpFailure::kHeadersTooLarge);
    EXPECT_EQ(result.status, 0);
    EXPECT_FALSE(result.timed_out);
    EXPECT_TRUE(Run([&] { return stub_.open_connections() == 0; }));
  }
}

// ABUSE-04
TEST_P(SinkAnswersTest, OneDeadlineEndsEveryKindOfDrip) {
  const milliseconds deadline(400);
  const auto expect_deadline = [&](HttpRequest request) {
    request.total_timeout = deadline;
    const MonotonicTime start = clock_.Now();
    const HttpResult result = Send(std::move(request));
    EXPECT_TRUE(result.timed_out);
    EXPECT_GE(clock_.Now() - start, deadline - milliseconds(5));
    EXPECT_LE(clock_.Now() - start, deadline + milliseconds(250));
    return result;
  };
  StubScript drip = {SendBytes("HTTP/1.1 200 OK\r\n")};
  for (int i = 0; i < 100; ++i) {
    drip.push_back(WaitFor(milliseconds(50)));
    drip.push_back(SendBytes("x"));
  }
  stub_.SetScript([drip](const StubRequest&) { return drip; });
  EXPECT_EQ(expect_deadline(Request(Url())).failure, HttpFailure::kTimeout);

  StubScript body_drip = {SendBytes("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")};
  body_drip.insert(body_drip.end(), drip.begin() + 1, drip.end());
  stub_.SetScript([body_drip](const StubRequest&) { return body_drip; });
  EXPECT_EQ(expect_deadline(Request(Url())).status, 200);

  RawSocketStub deaf(*loop_);
  deaf.SetConnectScript({}, false);
  const TlsFront deaf_front(*loop_, certificate_, deaf.port());
  const std::string deaf_url =
      front_ == nullptr ? deaf.url()
                        : "https://127.0.0.1:" + std::to_string(deaf_front.port()) + "/hook";
  EXPECT_EQ(expect_deadline(Request(deaf_url, std::string(20 << 20, 'x'))).failure,
            HttpFailure::kTimeout);
  EXPECT_EQ(
      expect_deadline(Request("https://127.0.0.1:" + std::to_string(deaf.port()) + "/")).failure,
      HttpFailure::kTls);
}

TEST_P(SinkAnswersTest, AConnectThatHangsEndsAtItsOwnDeadline) {
  // A listener whose queue is full answers no SYN: the TLS of a deaf receiver stands in for it, for
  // the limit of connecting covers both.
  RawSocketStub deaf(*loop_);
  deaf.SetConnectScript({}, false);
  HttpRequest request = Request("https://127.0.0.1:" + std::to_string(deaf.port()) + "/");
  request.connect_timeout = milliseconds(200);
  const MonotonicTime start = clock_.Now();
  const HttpResult result = Send(std::move(request));
  EXPECT_EQ(result.failure, HttpFailure::kConnect);
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.request_sent);
  EXPECT_LT(clock_.Now() - start, milliseconds(600));
}

// ABUSE-06
TEST_P(SinkAnswersTest, ChunkExtensionsAndTrailersChangeNothing) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string lines;
  for (int i = 0; i < 1'000; ++i) lines += "T: x\r\n";
  const StubScript scripts[] = {
      {SendBytes(head + "5;"), SendBytes(std::string(65'536, 'e'), 80), SendBytes("\r\nhello\r\n")},
      {SendBytes(head + "1\r\na\r\n0\r\n"), SendBytes(lines, 100'000)},
      {SendBytes(head + "ffffffffffffffff\r\nabc")},
      {SendBytes(head + "-5\r\nhello\r\n0\r\n\r\n")},
      {SendBytes(head + "0x5\r\nhello\r\n0\r\n\r\n")},
  };
  int connections = 0;
  for (const StubScript& script : scripts) {
    const HttpResult result = Answered(script, milliseconds(500));
    EXPECT_EQ(result.status, 200) << connections << HttpFailureName(result.failure);
    EXPECT_LE(result.body_excerpt.size(), 16u * 1024);
    EXPECT_EQ(stub_.connections(), ++connections);
  }
}

// Bytes after an answer never become the answer to the next request.
TEST_P(SinkAnswersTest, WhatComesUnaskedIsNoAnswer) {
  stub_.SetScript([](const StubRequest& request) {
    if (request.number == 1) {
      return StubScript{SendBytes(StubAnswer(500) + StubAnswer(200, "forged"))};
    }
    return StubScript{SendBytes(StubAnswer(404))};
  });
  EXPECT_EQ(Send(Url()).status, 500);
  EXPECT_EQ(Send(Url()).status, 404);
}

}  // namespace
}  // namespace postrider
