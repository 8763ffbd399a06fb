#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

using tests::HalfClose;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::WaitFor;

class SinkFlowTest : public SinkTest {};

TEST_F(SinkFlowTest, NeverCallsBackInsideACall) {
  RawSocketStub stub(*loop_);
  bool called = false;
  HttpRequest broken = Request(stub.url());
  broken.headers.emplace_back("X", "\n");
  sink().Send(std::move(broken), [&](HttpResult) { called = true; });
  EXPECT_FALSE(called);
  const HttpRequestId id = sink().Send(Request(stub.url()), [&](HttpResult) { called = true; });
  sink().Abort(id);
  EXPECT_FALSE(called);
  EXPECT_EQ(sink().in_flight(), 2u);
  EXPECT_TRUE(Run([&] { return sink().in_flight() == 0; }));
  EXPECT_TRUE(called);
}

// LOOP-02
TEST_F(SinkFlowTest, WaitingInLineCountsToNoDeadline) {
  options_.in_flight_max = 4;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(100)), SendBytes(StubAnswer(200))};
  });
  for (int i = 0; i < 40; ++i) {
    HttpRequest request = Request(stub.url());
    request.total_timeout = milliseconds(400);
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(RunUntilResults(40));
  Duration longest_queue{};
  for (const HttpResult& result : results_) {
    EXPECT_EQ(result.status, 200);
    EXPECT_FALSE(result.timed_out);
    EXPECT_LT(result.timings.total, milliseconds(400));
    EXPECT_GE(result.timings.first_byte, milliseconds(95));
    longest_queue = std::max(longest_queue, result.timings.queued);
  }
  EXPECT_GE(longest_queue, milliseconds(800));
  EXPECT_LE(stub.connections(), 4);
}

TEST_F(SinkFlowTest, TheLineIsBounded) {
  options_.in_flight_max = 2;
  options_.waiting_max = 3;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(50)), SendBytes(StubAnswer(200))};
  });
  int accepted = 0;
  while (sink().CanSend()) {
    SendAsync(Request(stub.url()));
    ++accepted;
  }
  EXPECT_EQ(accepted, 5);
  ASSERT_TRUE(RunUntilResults(1));
  EXPECT_TRUE(sink().CanSend());
  ASSERT_TRUE(RunUntilResults(5));
}

// A receiver that hangs takes no more than its part of the line.
TEST_F(SinkFlowTest, OneHostMayFillAPartOfTheLineOnly) {
  options_.host_in_flight_max = 2;
  options_.waiting_max = 12;
  options_.host_waiting_max = 4;
  RawSocketStub hangs(*loop_);
  RawSocketStub quick(*loop_);
  hangs.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(150)), SendBytes(StubAnswer(201))};
  });
  const std::string hanging = ParseHttpUrl(hangs.url())->authority();
  const std::string healthy = ParseHttpUrl(quick.url())->authority();
  EXPECT_EQ(sink().RoomFor(hanging), 4u);
  int accepted = 0;
  while (sink().RoomFor(hanging) > 0) {
    SendAsync(Request(hangs.url()));
    ++accepted;
  }
  EXPECT_EQ(accepted, 6);  // two have their slot
  EXPECT_TRUE(sink().CanSend());
  EXPECT_EQ(sink().RoomFor(healthy), 4u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Send(quick.url()).status, 200);
  // One that gets its slot makes room.
  ASSERT_TRUE(RunUntilResults(21));
  EXPECT_TRUE(Run([&] { return sink().RoomFor(hanging) > 0; }));
  ASSERT_TRUE(RunUntilResults(26));
  EXPECT_EQ(sink().RoomFor(hanging), 4u);
}

TEST_F(SinkFlowTest, AHostsRoomIsNeverMoreThanTheLinesOwn) {
  options_.in_flight_max = 1;
  options_.waiting_max = 3;
  options_.host_waiting_max = 8;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) { return StubScript{WaitFor(seconds(30))}; });
  const std::string host = ParseHttpUrl(stub.url())->authority();
  SendAsync(Request(stub.url()));
  for (size_t left = 3; left > 0; --left) {
    EXPECT_EQ(sink().RoomFor(host), left);
    SendAsync(Request(stub.url()));
  }
  EXPECT_EQ(sink().RoomFor(host), 0u);
  EXPECT_EQ(sink().RoomFor("never.asked.example:80"), 0u);
  EXPECT_FALSE(sink().CanSend());
}

TEST_F(SinkFlowTest, OneHostGetsSoManyAtOnceAndTheOthersGoOn) {
  options_.host_in_flight_max = 2;
  RawSocketStub slow(*loop_);
  RawSocketStub quick(*loop_);
  int at_once = 0;
  int most = 0;
  slow.SetScript([&](const StubRequest&) {
    most = std::max(most, ++at_once);
    loop_->CallAfter(milliseconds(60), [&at_once] { --at_once; });
    return StubScript{WaitFor(milliseconds(60)), SendBytes(StubAnswer(201))};
  });
  for (int i = 0; i < 8; ++i) SendAsync(Request(slow.url()));
  SendAsync(Request(quick.url()));
  ASSERT_TRUE(RunUntilResults(9));
  EXPECT_EQ(results_.front().status, 200);
  EXPECT_EQ(slow.requests().size(), 8u);
  EXPECT_LE(most, 2);
  EXPECT_LE(slow.connections(), 3);
}

TEST_F(SinkFlowTest, AskedWhenItGetsItsSlotARequestMayStillNotStart) {
  options_.host_in_flight_max = 1;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(30)), SendBytes(StubAnswer(200))};
  });
  bool may = true;
  for (int i = 0; i < 5; ++i) {
    HttpRequest request = Request(stub.url());
    request.may_start = [&may](HttpRequest&) { return may; };
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(Run([&] { return stub.requests().size() == 1; }));
  may = false;
  ASSERT_TRUE(RunUntilResults(5)) << "none of those that waited for the host stays behind";
  EXPECT_EQ(stub.requests().size(), 1u);
  EXPECT_EQ(results_.front().status, 200);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(results_[i].failure, HttpFailure::kAborted);
    EXPECT_FALSE(results_[i].request_sent);
  }
}

TEST_F(SinkFlowTest, WhoIsAskedWhenARequestGetsItsSlotMayBringItsHeadersUpToDate) {
  options_.host_in_flight_max = 1;
  RawSocketStub stub(*loop_);
  std::string now = "one";
  for (int i = 0; i < 2; ++i) {
    HttpRequest request = Request(stub.url());
    request.headers.emplace_back("x-time", "old");
    request.may_start = [&now](HttpRequest& made) {
      made.headers.back().second = now;
      now = "the other one";
      return true;
    };
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(RunUntilResults(2));
  ASSERT_EQ(stub.requests().size(), 2u);
  EXPECT_THAT(stub.requests()[0].head, testing::HasSubstr("x-time: one\r\n"));
  EXPECT_THAT(stub.requests()[1].head, testing::HasSubstr("x-time: the other one\r\n"));
}

TEST_F(SinkFlowTest, AbortEndsARequestInEveryState) {
  options_.in_flight_max = 2;
  options_.host_in_flight_max = 1;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) { return StubScript{WaitFor(seconds(30))}; });
  resolver_.hold = true;
  std::vector<HttpRequestId> ids;
  ids.push_back(SendAsync(Request("http://slow.example/")));  // waits for its name
  ids.push_back(SendAsync(Request(stub.url())));              // sent
  ids.push_back(SendAsync(Request(stub.url())));              // waits for its host
  ASSERT_TRUE(Run([&] { return stub.requests().size() == 1; }));
  ids.push_back(SendAsync(Request(stub.url())));
  for (const HttpRequestId id : ids) sink().Abort(id);
  for (const HttpRequestId id : ids) sink().Abort(id);
  ASSERT_TRUE(RunUntilResults(4));
  for (const HttpResult& result : results_) EXPECT_EQ(result.failure, HttpFailure::kAborted);
  EXPECT_EQ(std::count_if(results_.begin(), results_.end(),
                          [](const HttpResult& result) { return result.request_sent; }),
            1);
  EXPECT_TRUE(Run([&] { return stub.open_connections() == 0; }));
  EXPECT_EQ(results_.size(), 4u);
}

TEST_F(SinkFlowTest, AHeadThatWasInOutlivesAnAbort) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{SendBytes("HTTP/1.1 202 OK\r\nContent-Length: 9\r\n\r\npart")};
  });
  const HttpRequestId id = SendAsync(Request(stub.url()));
  ASSERT_TRUE(Run([&] { return stub.bytes_sent() > 0; }));
  loop_->RunOnce(milliseconds(50));
  loop_->RunOnce(milliseconds(50));
  sink().Abort(id);
  ASSERT_TRUE(RunUntilResults(1));
  EXPECT_EQ(results_[0].status, 202);
  EXPECT_TRUE(results_[0].body_cut);
}

TEST_F(SinkFlowTest, ANameThatHangsEndsAloneAndLateAnswersAreUsed) {
  options_.resolve_timeout = milliseconds(100);
  RawSocketStub stub(*loop_);
  resolver_.hold = true;
  SendAsync(Request("http://slow.example:" + std::to_string(stub.port()) + "/"));
  SendAsync(Request(stub.url()));
  ASSERT_TRUE(RunUntilResults(2));
  EXPECT_EQ(results_[0].status, 200);
  EXPECT_EQ(results_[1].failure, HttpFailure::kDns);
  EXPECT_TRUE(results_[1].timed_out);
  ResolveResult late;
  late.addresses = {*IpAddress::Parse("127.0.0.1")};
  late.valid_until = clock_.Now() + seconds(60);
  ASSERT_EQ(resolver_.held.size(), 1u);
  std::move(resolver_.held[0])(late);
  loop_->RunOnce(milliseconds(50));
  EXPECT_EQ(Send("http://slow.example:" + std::to_string(stub.port()) + "/").status, 200);
  EXPECT_EQ(resolver_.lookups, 1);
}

// CONN-03
TEST_F(SinkFlowTest, FollowsANameToItsNewAddress) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{SendBytes(StubAnswer(200, "", "Connection: close\r\n"))};
  });
  const std::string url = "http://moves.example:" + std::to_string(stub.port()) + "/";
  // Nothing listens on 127.0.0.9.
  resolver_.answers["moves.example"] = {{"127.0.0.1"}, {"127.0.0.9"}, {"127.0.0.1"}};
  EXPECT_EQ(Send(url).status, 200);
  EXPECT_EQ(Send(url).failure, HttpFailure::kConnect);
  EXPECT_EQ(Send(url).status, 200);
}

TEST_F(SinkFlowTest, ManyRequestsToANewNameNeedOneLookup) {
  RawSocketStub stub(*loop_);
  resolver_.answers["new.example"] = {{"127.0.0.1"}};
  for (int i = 0; i < 50; ++i) {
    SendAsync(Request("http://new.example:" + std::to_string(stub.port()) + "/"));
  }
  ASSERT_TRUE(RunUntilResults(50));
  for (const HttpResult& result : results_) EXPECT_EQ(result.status, 200);
  EXPECT_EQ(resolver_.lookups, 1);
}

// LOOP-04
TEST_F(SinkFlowTest, DeadIdleConnectionsLeaveTheLoopAsleep) {
  options_.pools = 2;
  constexpr int kConnections = 40;
  RawSocketStub halves(*loop_);
  RawSocketStub resets(*loop_);
  RawSocketStub chatty(*loop_);
  for (RawSocketStub* stub : {&halves, &resets, &chatty}) {
    stub->SetScript([](const StubRequest&) {
      return StubScript{WaitFor(milliseconds(50)), SendBytes(StubAnswer(200))};
    });
    for (int i = 0; i < kConnections; ++i) SendAsync(Request(stub->url()));
  }
  ASSERT_TRUE(RunUntilResults(3 * kConnections));
  halves.OnAll({HalfClose()});
  resets.OnAll({ResetConnection()});
  chatty.OnAll({SendBytes("unasked for")});
  // Everything that these events cause, with timers of the closing.
  Run([] { return false; }, milliseconds(200));
  const double idle_events =
      metrics_.AddCounter("postrider_http_idle_socket_events_total", "").value();
  size_t callbacks = 0;
  const MonotonicTime end = clock_.Now() + milliseconds(500);
  while (clock_.Now() < end) callbacks += loop_->RunOnce(milliseconds(500));
  EXPECT_LT(callbacks, 25u);
  EXPECT_EQ(idle_events, 3 * kConnections);
  // And they are not used again.
  for (RawSocketStub* stub : {&halves, &resets, &chatty}) {
    EXPECT_EQ(Send(stub->url()).status, 200);
    EXPECT_EQ(stub->connections(), kConnections + 1);
  }
}

// What is large goes out in parts, beside small ones, on connections that are kept.
TEST_F(SinkFlowTest, LargeRequestsGoOutWholeOnKeptConnections) {
  RawSocketStub stub(*loop_);
  constexpr size_t kRequests = 12;
  constexpr size_t kBodyBytes = 3 << 20;
  for (size_t i = 0; i < kRequests; ++i) {
    const std::string body(i % 2 == 0 ? kBodyBytes + i : 10, static_cast<char>('a' + i));
    EXPECT_EQ(Send(Request(stub.url(), body)).status, 200);
    ASSERT_EQ(stub.requests().size(), i + 1);
    EXPECT_TRUE(stub.requests()[i].body == body) << i;
  }
  EXPECT_EQ(stub.connections(), 1);
}

// A kept connection that breaks under a large request: the whole of it goes out once more.
TEST_F(SinkFlowTest, ALargeRequestIsSentAgainFromItsBegin) {
  RawSocketStub stub(*loop_);
  std::map<int, int> on_connection;
  stub.SetScript([&](const StubRequest& request) {
    if (++on_connection[request.connection] == 1) return StubScript{SendBytes(StubAnswer(200))};
    return StubScript{ResetConnection()};
  });
  EXPECT_EQ(Send(stub.url()).status, 200);
  const std::string body(5 << 20, 'x');
  const HttpResult result = Send(Request(stub.url(), body));
  EXPECT_EQ(result.status, 200);
  EXPECT_EQ(result.resends, 1);
  ASSERT_EQ(stub.requests().size(), 3u);
  EXPECT_TRUE(stub.requests()[1].body == body);
  EXPECT_TRUE(stub.requests()[2].body == body);
  EXPECT_EQ(stub.connections(), 2);
}

TEST_F(SinkFlowTest, ACallbackMaySendAgain) {
  RawSocketStub stub(*loop_);
  int left = 200;
  int ended = 0;
  absl::AnyInvocable<void(HttpResult)> next = [&](HttpResult result) {
    EXPECT_EQ(result.status, 200);
    ++ended;
    if (--left > 0) sink().Send(Request(stub.url()), [&](HttpResult again) { next(again); });
  };
  sink().Send(Request(stub.url()), [&](HttpResult first) { next(first); });
  EXPECT_TRUE(Run([&] { return ended == 200; }));
  EXPECT_EQ(stub.connections(), 1);
}

TEST(SystemResolverTest, KnowsLocalhostAndCachesIt) {
  SystemClock clock;
  Metrics metrics;
  auto loop = *EventLoop::Create(clock);
  const auto resolver = CreateSystemResolver(SystemResolverOptions(), clock, metrics);
  std::vector<ResolveResult> results;
  for (size_t round = 1; round <= 2; ++round) {
    for (const std::string host : {"localhost", "no-such-host.invalid"}) {
      resolver->Resolve(host, [&](ResolveResult result) {
        EXPECT_TRUE(loop->Post([&results, result] { results.push_back(result); }));
      });
    }
    const MonotonicTime end = clock.Now() + seconds(20);
    while (results.size() < 2 * round && clock.Now() < end) loop->RunOnce(milliseconds(50));
    ASSERT_EQ(results.size(), 2 * round);
  }
  EXPECT_EQ(std::count_if(results.begin(), results.end(),
                          [](const ResolveResult& result) { return !result.addresses.empty(); }),
            2);
  EXPECT_EQ(
      metrics.AddCounter("postrider_http_dns_lookups_total", "", {{"result", "found"}}).value(), 1);
}

}  // namespace
}  // namespace postrider
