// Receivers that try to use up memory, time or connections, many at once: the ABUSE, CONN and HTTP
// cases that need more than one answer.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

using tests::CloseConnection;
using tests::HalfClose;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::WaitFor;

size_t ResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  unsigned long resident = 0;
  EXPECT_EQ(std::fscanf(file, "%lu %lu", &pages, &resident), 2);
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class SinkHostileTest : public SinkTest {
 protected:
  RawSocketStub stub_{*loop_};
};

// ABUSE-01: many at once, and what each may take is bounded.
TEST_F(SinkHostileTest, EndlessBodiesAtOnceTakeNoMemory) {
  constexpr size_t kRequests = 200;
  const std::string chunk = "2000\r\n" + std::string(8'192, '0') + "\r\n";
  stub_.SetScript([&](const StubRequest&) {
    return StubScript{SendBytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                      SendBytes(chunk, 1'000'000'000)};
  });
  const size_t before = ResidentBytes();
  for (size_t i = 0; i < kRequests; ++i) SendAsync(Request(stub_.url()));
  ASSERT_TRUE(RunUntilResults(kRequests));
  for (const HttpResult& result : results_) {
    EXPECT_EQ(result.status, 200);
    EXPECT_TRUE(result.body_cut);
    EXPECT_EQ(result.body_excerpt.size(), 16u * 1024);
  }
  EXPECT_LT(ResidentBytes() - std::min(before, ResidentBytes()), size_t{64} << 20);
}

// ABUSE-03, ABUSE-06: many at once.
TEST_F(SinkHostileTest, EndlessHeadsAndTrailersAtOnceTakeNoMemory) {
  constexpr size_t kRequests = 90;
  stub_.SetScript([](const StubRequest& request) {
    const std::string line = "X: " + std::string(1'000, 'y') + "\r\n";
    switch (request.number % 3) {
      case 0:
        return StubScript{SendBytes("HTTP/1.1 200 OK\r\n"), SendBytes(line, 1'000'000'000)};
      case 1:
        return StubScript{SendBytes("HTTP/1.1 103 Hint\r\n" + line + "\r\n", 1'000'000'000)};
      default:
        return StubScript{
            SendBytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"),
            SendBytes(line, 1'000'000'000)};
    }
  });
  const size_t before = ResidentBytes();
  for (size_t i = 0; i < kRequests; ++i) SendAsync(Request(stub_.url()));
  ASSERT_TRUE(RunUntilResults(kRequests));
  size_t answered = 0;
  for (const HttpResult& result : results_) {
    if (result.failure == HttpFailure::kNone) {
      ++answered;
      EXPECT_EQ(result.status, 200);
    } else {
      EXPECT_EQ(result.failure, HttpFailure::kHeadersTooLarge);
    }
  }
  EXPECT_EQ(answered, kRequests / 3) << "trailers change nothing about a head";
  EXPECT_LT(ResidentBytes() - std::min(before, ResidentBytes()), size_t{64} << 20);
}

// ABUSE-01: a body that would be large once unpacked is kept as it came.
TEST_F(SinkHostileTest, PackedBodiesAreNotUnpacked) {
  // gzip of 10 MB of zeros begins so; whatever follows is not looked at.
  const std::string bomb("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xec\xc1\x01\x01", 14);
  for (const std::string coding :
       {"gzip", "deflate", "br", "zstd", "gzip, gzip, gzip", "made-up"}) {
    stub_.SetScript([&](const StubRequest&) {
      return StubScript{SendBytes(StubAnswer(200, bomb, "Content-Encoding: " + coding + "\r\n"))};
    });
    const HttpResult result = Send(stub_.url());
    EXPECT_EQ(result.status, 200) << coding;
    EXPECT_EQ(result.body_excerpt, bomb) << coding;
  }
  for (const StubRequest& request : stub_.requests()) {
    EXPECT_EQ(request.Header("accept-encoding"), "");
  }
}

// ABUSE-04: many that drip, each in its own way, harm nobody else.
TEST_F(SinkHostileTest, ManyThatDripLeaveTheOthersQuick) {
  constexpr size_t kDripping = 300;
  RawSocketStub drips(*loop_);
  options_.host_in_flight_max = 500;
  drips.SetScript([](const StubRequest& request) {
    StubScript script = {SendBytes(request.number % 2 == 0
                                       ? "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
                                       : "HTTP/1.1 200 OK\r\n")};
    for (int i = 0; i < 100; ++i) {
      script.push_back(WaitFor(milliseconds(100)));
      script.push_back(SendBytes("x"));
    }
    return script;
  });
  size_t ended = 0;
  for (size_t i = 0; i < kDripping; ++i) {
    HttpRequest request = Request(drips.url());
    request.total_timeout = milliseconds(1'500);
    sink().Send(std::move(request), [&](HttpResult result) {
      EXPECT_TRUE(result.timed_out);
      EXPECT_LT(result.timings.total, milliseconds(1'500 + 750));
      ++ended;
    });
  }
  ASSERT_TRUE(Run([&] { return drips.requests().size() == kDripping; }));
  for (int i = 0; i < 50; ++i) {
    const HttpResult result = Send(stub_.url());
    EXPECT_EQ(result.status, 200);
    EXPECT_LT(result.timings.total, milliseconds(400));
  }
  ASSERT_TRUE(Run([&] { return ended == kDripping; }));
  EXPECT_TRUE(Run([&] { return drips.open_connections() == 0; }));
}

// ABUSE-04: one that reads a byte now and then takes no more of the time than one that reads none.
TEST_F(SinkHostileTest, AReceiverThatStopsReadingEndsAtTheDeadline) {
  RawSocketStub deaf(*loop_);
  deaf.SetConnectScript({}, false);
  std::vector<HttpResult> ended;
  for (int i = 0; i < 20; ++i) {
    HttpRequest request = Request(deaf.url(), std::string(8 << 20, 'x'));
    request.total_timeout = milliseconds(500);
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(RunUntilResults(20));
  for (const HttpResult& result : results_) {
    EXPECT_EQ(result.failure, HttpFailure::kTimeout);
    EXPECT_TRUE(result.request_sent);
  }
}

// An answer that comes before the body was read, as from a receiver that refuses large ones.
TEST_F(SinkHostileTest, AnAnswerBeforeTheEndOfTheBodyCounts) {
  RawSocketStub early(*loop_);
  for (const int status : {413, 401, 503}) {
    early.SetConnectScript({SendBytes(StubAnswer(status, "no", "Connection: close\r\n"))}, false);
    const HttpResult result = Send(Request(early.url(), std::string(8 << 20, 'x')));
    EXPECT_EQ(result.status, status);
    EXPECT_EQ(result.body_excerpt, "no");
  }
  EXPECT_EQ(early.connections(), 3);
}

// A receiver that closes its half before, within and after its answer.
TEST_F(SinkHostileTest, HalfClosedConnectionsAreTakenForWhatWasSaid) {
  struct Row {
    StubScript script;
    HttpFailure failure;
    int status;
  };
  const Row rows[] = {
      {{HalfClose(), WaitFor(seconds(30))}, HttpFailure::kReset, 0},
      {{SendBytes("HTTP/1.1 200 OK\r\nX:"), HalfClose(), WaitFor(seconds(30))},
       HttpFailure::kReset,
       0},
      {{SendBytes("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), HalfClose(),
        WaitFor(seconds(30))},
       HttpFailure::kNone,
       200},
      {{SendBytes(StubAnswer(200, "all")), HalfClose(), WaitFor(seconds(30))},
       HttpFailure::kNone,
       200},
  };
  int number = 0;
  for (const Row& row : rows) {
    stub_.SetScript([&](const StubRequest&) { return row.script; });
    const HttpResult result = Send(stub_.url());
    EXPECT_EQ(result.failure, row.failure) << number;
    EXPECT_EQ(result.status, row.status) << number;
    EXPECT_FALSE(result.timed_out) << number;
    // The next request goes out on a new connection.
    EXPECT_EQ(stub_.connections(), ++number);
    ASSERT_TRUE(Run([&] { return stub_.open_connections() == 0; }));
  }
}

// HTTP-02, CONN-07: a connection on which a request has timed out takes no more.
TEST_F(SinkHostileTest, AConnectionThatFellSilentIsGivenUpAtTheFirstTimeout) {
  // As after a change of routes: what is open is dead, what is new works.
  stub_.SetScript([](const StubRequest& request) {
    if (request.connection == 1 && request.number > 1) return StubScript{WaitFor(seconds(30))};
    return StubScript{SendBytes(StubAnswer(200))};
  });
  EXPECT_EQ(Send(stub_.url()).status, 200);
  HttpRequest request = Request(stub_.url());
  request.total_timeout = milliseconds(300);
  EXPECT_EQ(Send(std::move(request)).failure, HttpFailure::kTimeout);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(stub_.connections(), 2);
  EXPECT_TRUE(Run([&] { return stub_.open_connections() == 1; }));
}

// CONN-08: connections are given up for age and idleness, and not before.
TEST_F(SinkHostileTest, ConnectionsEndAtTheirAge) {
  options_.connection_age_max = seconds(1);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(stub_.connections(), 1);
  // However busy it is. libcurl counts in whole seconds.
  const MonotonicTime end = clock_.Now() + milliseconds(2'100);
  while (clock_.Now() < end) EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_GE(stub_.connections(), 2);
  EXPECT_LE(stub_.connections(), 4);
  EXPECT_LE(stub_.open_connections(), 1);
}

TEST_F(SinkHostileTest, IdleConnectionsAreBounded) {
  options_.pools = 2;
  options_.idle_connections_max = 16;
  std::vector<std::unique_ptr<RawSocketStub>> stubs;
  for (int i = 0; i < 60; ++i) {
    stubs.push_back(std::make_unique<RawSocketStub>(*loop_));
    EXPECT_EQ(Send(stubs.back()->url()).status, 200);
  }
  const auto open = [&] {
    int count = 0;
    for (const auto& stub : stubs) count += stub->open_connections();
    return count;
  };
  EXPECT_TRUE(Run([&] { return open() <= 16; }));
  EXPECT_GT(open(), 0);
}

// HTTP-01: what an interim answer may be, and how many.
TEST_F(SinkHostileTest, InterimAnswersAreNeverTheAnswer) {
  const std::string interims[] = {"HTTP/1.1 100 Continue\r\n\r\n",
                                  "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n",
                                  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
                                  "HTTP/1.1 199 X\r\nRetry-After: 9\r\nContent-Length: 5\r\n\r\n"};
  for (const std::string& interim : interims) {
    for (const int64_t count : {1, 20}) {
      stub_.SetScript([&](const StubRequest&) {
        return StubScript{SendBytes(interim, count), WaitFor(milliseconds(5)),
                          SendBytes(StubAnswer(429, "body"))};
      });
      const HttpResult result = Send(stub_.url());
      EXPECT_EQ(result.status, 429) << interim;
      EXPECT_EQ(result.body_excerpt, "body") << interim;
      EXPECT_TRUE(result.retry_after.empty());
    }
    // And then nothing.
    stub_.SetScript([&](const StubRequest&) {
      return StubScript{SendBytes(interim), CloseConnection()};
    });
    const HttpResult cut = Send(stub_.url());
    EXPECT_EQ(cut.status, 0) << interim;
    EXPECT_EQ(cut.failure, HttpFailure::kReset) << interim;
  }
}

TEST_F(SinkHostileTest, WhatIsNoHttpIsAProtocolFailure) {
  const std::string nonsense[] = {
      "HTTP/1.1 OK\r\n\r\n",
      "HTTP/1.1 20 OK\r\n\r\n",
      "HTTP/1.1 2000 OK\r\n\r\n",
      "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
      "HTTP/9.9 200 OK\r\n\r\n",
      "ICY 200 OK\r\n\r\n",
      "<html>200</html>",
      std::string(64, '\0'),
      "\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
  };
  for (const std::string& text : nonsense) {
    stub_.SetScript([&](const StubRequest&) {
      return StubScript{SendBytes(text), CloseConnection()};
    });
    const HttpResult result = Send(stub_.url());
    EXPECT_NE(result.failure, HttpFailure::kNone) << text;
    EXPECT_EQ(result.status, 0) << text;
  }
}

// HTTP-08, as often as the case says.
TEST_F(SinkHostileTest, AReceiverThatClosesAfterEachAnswerCostsNoAttempt) {
  const StubScript scripts[] = {
      {SendBytes("HTTP/1.0 200 OK\r\n\r\n"), CloseConnection()},
      {SendBytes(StubAnswer(200, "", "Connection: close\r\n")), CloseConnection()},
      {SendBytes(StubAnswer(200)), HalfClose()},
  };
  for (const StubScript& script : scripts) {
    stub_.SetScript([&](const StubRequest&) { return script; });
    for (int i = 0; i < 100; ++i) {
      const HttpResult result = Send(stub_.url());
      ASSERT_EQ(result.status, 200);
      ASSERT_EQ(result.resends, 0);
    }
  }
  EXPECT_EQ(stub_.requests().size(), 300u);
}

}  // namespace
}  // namespace postrider
