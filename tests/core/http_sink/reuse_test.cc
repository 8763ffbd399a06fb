// When a kept connection takes another request, and when a request goes out again.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

using tests::CloseConnection;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::WaitFor;

class SinkReuseTest : public SinkTest {
 protected:
  // The first request of the first connection is answered, all others end by `script`.
  void AnswerOnceThen(StubScript script) {
    stub_.SetScript([script](const StubRequest& request) {
      return request.number == 1 ? StubScript{SendBytes(StubAnswer(200))} : script;
    });
    EXPECT_EQ(Send(stub_.url()).status, 200);
  }
  double Counted(HttpFailure failure) {
    return metrics_
        .AddCounter("postrider_http_requests_total", "",
                    {{"failure", std::string(HttpFailureName(failure))}})
        .value();
  }
  RawSocketStub stub_{*loop_};
};

// CONN-01: the second sending was on a new connection, and its end is the receiver's answer to it.
TEST_F(SinkReuseTest, ARequestIsSentOnceMoreAndThenNoMore) {
  AnswerOnceThen({ResetConnection()});
  const HttpResult result = Send(stub_.url());
  EXPECT_EQ(result.failure, HttpFailure::kReset);
  EXPECT_TRUE(result.request_sent);
  EXPECT_EQ(result.resends, 1);
  ASSERT_EQ(stub_.requests().size(), 3u);
  EXPECT_EQ(stub_.requests()[1].connection, 1);
  EXPECT_EQ(stub_.requests()[2].connection, 2);
  EXPECT_EQ(metrics_.AddCounter("postrider_http_resends_total", "").value(), 1);
}

// A receiver that has begun to answer has the request. libcurl sees no answer before its first line
// is complete.
TEST_F(SinkReuseTest, NothingIsSentAgainOnceAnAnswerHasBegun) {
  AnswerOnceThen({SendBytes("HTTP/1.1 200 OK\r\n"), WaitFor(milliseconds(20)), CloseConnection()});
  const HttpResult result = Send(stub_.url());
  EXPECT_EQ(result.failure, HttpFailure::kReset);
  EXPECT_EQ(result.resends, 0);
  EXPECT_EQ(stub_.requests().size(), 2u);
}

TEST_F(SinkReuseTest, NothingIsSentAgainAfterItsDeadline) {
  AnswerOnceThen({WaitFor(seconds(30))});
  HttpRequest request = Request(stub_.url());
  request.total_timeout = milliseconds(200);
  const HttpResult result = Send(std::move(request));
  EXPECT_EQ(result.failure, HttpFailure::kTimeout);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.resends, 0);
  EXPECT_EQ(stub_.requests().size(), 2u);
  EXPECT_TRUE(Run([this] { return stub_.open_connections() == 0; }));
}

TEST_F(SinkReuseTest, AnIdleConnectionIsNotUsedPastItsAge) {
  options_.idle_age_max = seconds(1);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(stub_.connections(), 1);
  // Ages may be counted in whole seconds.
  Run([] { return false; }, milliseconds(2'100));
  EXPECT_EQ(Send(stub_.url()).status, 200);
  EXPECT_EQ(stub_.connections(), 2);
  EXPECT_TRUE(Run([this] { return stub_.open_connections() == 1; }));
}

// The rest of the body would be read as the next request.
TEST_F(SinkReuseTest, AConnectionWithARequestLeftInItTakesNoOther) {
  stub_.SetConnectScript({SendBytes(StubAnswer(413, "large"))}, false);
  for (int i = 1; i <= 2; ++i) {
    const HttpResult result = Send(Request(stub_.url(), std::string(8 << 20, 'x')));
    EXPECT_EQ(result.status, 413);
    EXPECT_EQ(result.body_excerpt, "large");
    EXPECT_EQ(stub_.connections(), i);
  }
}

// One at a time on each connection: what comes while the first is under way goes out on another.
TEST_F(SinkReuseTest, RequestsAtOnceAreOnConnectionsOfTheirOwn) {
  stub_.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(50)), SendBytes(StubAnswer(200))};
  });
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 4; ++i) SendAsync(Request(stub_.url()));
    ASSERT_TRUE(RunUntilResults(static_cast<size_t>(4 * (round + 1))));
  }
  std::map<int, int> on_connection;
  for (const StubRequest& request : stub_.requests()) ++on_connection[request.connection];
  EXPECT_EQ(on_connection, (std::map<int, int>{{1, 2}, {2, 2}, {3, 2}, {4, 2}}));
}

// Customers share no connections, but a host's limit is one for all.
TEST_F(SinkReuseTest, AHostsLimitHoldsOverAllGroups) {
  options_.host_in_flight_max = 3;
  int at_once = 0;
  int most = 0;
  stub_.SetScript([&](const StubRequest&) {
    most = std::max(most, ++at_once);
    loop_->CallAfter(milliseconds(30), [&at_once] { --at_once; });
    return StubScript{WaitFor(milliseconds(30)), SendBytes(StubAnswer(200))};
  });
  for (int i = 0; i < 12; ++i) {
    HttpRequest request = Request(stub_.url());
    request.connection_group = "cus_" + std::to_string(i % 4);
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(RunUntilResults(12));
  for (const HttpResult& result : results_) EXPECT_EQ(result.status, 200);
  EXPECT_GT(most, 1);
  EXPECT_LE(most, 3);
}

TEST_F(SinkReuseTest, AKeptConnectionTakesNoTimeToConnect) {
  stub_.SetScript([](const StubRequest&) {
    return StubScript{WaitFor(milliseconds(30)), SendBytes("HTTP/1.1 200 OK\r\n"),
                      WaitFor(milliseconds(30)), SendBytes("Content-Length: 0\r\n\r\n")};
  });
  for (int i = 0; i < 2; ++i) {
    const HttpTimings timings = Send(stub_.url()).timings;
    EXPECT_EQ(timings.connect > Duration::zero(), i == 0);
    EXPECT_EQ(timings.tls, Duration::zero());
    EXPECT_GE(timings.first_byte, milliseconds(28));
    EXPECT_LT(timings.first_byte, timings.total);
    EXPECT_GE(timings.total, milliseconds(58));
  }
  EXPECT_EQ(stub_.connections(), 1);
}

TEST_F(SinkReuseTest, CountsWhatBecameOfEachRequest) {
  AnswerOnceThen({CloseConnection()});
  EXPECT_EQ(Send(stub_.url()).failure, HttpFailure::kReset);
  EXPECT_EQ(Send("http://nowhere.example/").failure, HttpFailure::kDns);
  EXPECT_EQ(Send("http://10.0.0.1/").failure, HttpFailure::kAddressRefused);
  HttpRequest unclean = Request(stub_.url());
  unclean.headers.emplace_back("X", "\n");
  EXPECT_EQ(Send(std::move(unclean)).failure, HttpFailure::kBadRequest);
  sink().Abort(SendAsync(Request(stub_.url())));
  ASSERT_TRUE(RunUntilResults(6));
  for (const HttpFailure failure :
       {HttpFailure::kNone, HttpFailure::kReset, HttpFailure::kDns, HttpFailure::kAddressRefused,
        HttpFailure::kBadRequest, HttpFailure::kAborted}) {
    EXPECT_EQ(Counted(failure), 1) << HttpFailureName(failure);
  }
  EXPECT_EQ(Counted(HttpFailure::kTimeout), 0);
  EXPECT_EQ(metrics_.AddCounter("postrider_http_connections_total", "").value(),
            stub_.connections());
}

}  // namespace
}  // namespace postrider
