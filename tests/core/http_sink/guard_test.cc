#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

using tests::RawSocketStub;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;

class SinkGuardTest : public SinkTest {};

// SSRF-01
TEST_F(SinkGuardTest, FollowsNoRedirect) {
  RawSocketStub target(*loop_);
  RawSocketStub stub(*loop_);
  const int statuses[] = {301, 302, 303, 307, 308};
  stub.SetScript([&](const StubRequest& request) {
    return StubScript{SendBytes(
        StubAnswer(statuses[request.number - 1], "", "Location: " + target.url() + "\r\n"))};
  });
  for (const int status : statuses) {
    const HttpResult result = Send(stub.url());
    EXPECT_EQ(result.status, status);
    EXPECT_EQ(result.failure, HttpFailure::kNone);
  }
  ASSERT_EQ(stub.requests().size(), 5u);
  for (const StubRequest& request : stub.requests()) {
    EXPECT_EQ(request.head.substr(0, 5), "POST ");
    EXPECT_EQ(request.body, "{}");
  }
  EXPECT_EQ(target.connections(), 0);
}

// SSRF-02
TEST_F(SinkGuardTest, ChecksTheAddressThatItConnectsToEachTime) {
  allow_loopback_ = AddressRules::Default();
  RawSocketStub stub(*loop_);
  const std::string url = "http://rebind.example:" + std::to_string(stub.port()) + "/";
  resolver_.answers["rebind.example"] = {
      {"127.0.0.1"}, {"10.0.0.1"}, {"::ffff:127.0.0.1"}, {"127.0.0.1"}};
  for (int i = 0; i < 5; ++i) {
    const HttpResult result = Send(url);
    EXPECT_EQ(result.failure, HttpFailure::kAddressRefused);
    EXPECT_FALSE(result.request_sent);
    EXPECT_EQ(result.body_excerpt, "");
    EXPECT_EQ(result.timings.connect, Duration::zero());
  }
  EXPECT_EQ(stub.connections(), 0);
  EXPECT_EQ(resolver_.lookups, 5);
}

// SSRF-02: the first answer was good.
TEST_F(SinkGuardTest, ALaterAnswerIsCheckedToo) {
  AddressRulesOptions rules;
  rules.allow = {"127.0.0.1"};
  allow_loopback_ = *AddressRules::Create(rules);
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{SendBytes(StubAnswer(200, "", "Connection: close\r\n"))};
  });
  resolver_.answers["rebind.example"] = {{"127.0.0.1"}, {"127.0.0.2"}};
  const std::string url = "http://rebind.example:" + std::to_string(stub.port()) + "/";
  EXPECT_EQ(Send(url).status, 200);
  EXPECT_EQ(stub.requests()[0].Header("host"), "rebind.example:" + std::to_string(stub.port()));
  EXPECT_EQ(Send(url).failure, HttpFailure::kAddressRefused);
  EXPECT_EQ(stub.connections(), 1);
}

TEST_F(SinkGuardTest, TakesTheAllowedOneOfManyAddresses) {
  RawSocketStub stub(*loop_);
  resolver_.answers["many.example"] = {{"10.0.0.1", "fe80::1", "127.0.0.1"}};
  EXPECT_EQ(Send("http://many.example:" + std::to_string(stub.port()) + "/").status, 200);
}

TEST_F(SinkGuardTest, RefusesLiteralsAndPorts) {
  allow_loopback_ = AddressRules::Default();
  for (const std::string url :
       {"http://127.0.0.1:8080/", "http://[::1]:8080/", "http://169.254.169.254/",
        "http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/", "http://8.8.8.8:6379/"}) {
    EXPECT_EQ(Send(url).failure, HttpFailure::kAddressRefused) << url;
  }
}

// SSRF-11
TEST_F(SinkGuardTest, RefusesAHostOfOurOwn) {
  RawSocketStub stub(*loop_);
  AddressRulesOptions options;
  options.allow = {"127.0.0.0/8"};
  options.own_hosts = {"127.0.0.1"};
  EXPECT_EQ(Send(stub.url()).status, 200);
  sink().SetAddressRules(*AddressRules::Create(options));
  EXPECT_EQ(Send(stub.url()).failure, HttpFailure::kAddressRefused);
  EXPECT_EQ(stub.requests().size(), 1u);
}

TEST_F(SinkGuardTest, ConnectionsMadeUnderOldRulesAreNotUsedAgain) {
  RawSocketStub stub(*loop_);
  EXPECT_EQ(Send(stub.url()).status, 200);
  sink().SetAddressRules(AddressRules::Default());
  EXPECT_EQ(Send(stub.url()).failure, HttpFailure::kAddressRefused);
  EXPECT_TRUE(Run([&] { return stub.open_connections() == 0; }));
  sink().SetAddressRules(allow_loopback_);
  EXPECT_EQ(Send(stub.url()).status, 200);
  EXPECT_EQ(stub.requests().size(), 2u);
}

// Our own servers may get new addresses again and again.
TEST_F(SinkGuardTest, NewRulesCloseOnlyConnectionsToWhatTheyRefuse) {
  RawSocketStub refused(*loop_);
  RawSocketStub kept(*loop_);
  EXPECT_EQ(Send(refused.url()).status, 200);
  EXPECT_EQ(Send(kept.url()).status, 200);
  AddressRulesOptions rules;
  rules.allow = {"127.0.0.0/8"};
  rules.own = {{*IpAddress::Parse("127.0.0.1"), refused.port()}};
  sink().SetAddressRules(*AddressRules::Create(rules));
  EXPECT_TRUE(Run([&] { return refused.open_connections() == 0; }));
  EXPECT_EQ(Send(kept.url()).status, 200);
  EXPECT_EQ(kept.connections(), 1);
  EXPECT_EQ(Send(refused.url()).failure, HttpFailure::kAddressRefused);
}

TEST_F(SinkGuardTest, RulesMayChangeInsideACallbackAndUnderARequest) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{tests::WaitFor(milliseconds(30)), SendBytes(StubAnswer(200))};
  });
  std::vector<int> statuses;
  for (int i = 0; i < 3; ++i) {
    sink().Send(Request(stub.url()), [&](HttpResult result) {
      statuses.push_back(result.status);
      sink().SetAddressRules(AddressRules::Default());
    });
  }
  ASSERT_TRUE(Run([&] { return stub.requests().size() == 3; }));
  sink().SetAddressRules(AddressRules::Default());
  ASSERT_TRUE(Run([&] { return statuses.size() == 3; }));
  EXPECT_EQ(statuses, (std::vector<int>{200, 200, 200}));
  EXPECT_TRUE(Run([&] { return stub.open_connections() == 0; }));
}

TEST_F(SinkGuardTest, ConnectionsThatNewRulesAllowAreUsedAgain) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) {
    return StubScript{tests::WaitFor(milliseconds(30)), SendBytes(StubAnswer(200))};
  });
  for (int i = 0; i < 3; ++i) SendAsync(Request(stub.url()));
  ASSERT_TRUE(Run([&] { return stub.requests().size() == 3; }));
  sink().SetAddressRules(allow_loopback_);
  ASSERT_TRUE(RunUntilResults(3));
  EXPECT_EQ(Send(stub.url()).status, 200);
  EXPECT_EQ(stub.connections(), 3);
}

// The kernel makes the connection while the loop does something else.
TEST_F(SinkGuardTest, NewRulesHoldForARequestWhoseConnectionIsBeingMade) {
  const auto connected = [](int listener) {
    pollfd waits = {listener, POLLIN, 0};
    return poll(&waits, 1, 0) == 1;
  };
  for (const bool refused : {true, false}) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 8), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    sink().SetAddressRules(allow_loopback_);
    HttpRequest request =
        Request("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/");
    SendAsync(std::move(request));
    ASSERT_TRUE(Run([&] { return connected(listener); }));
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    rules.deny = {refused ? "127.0.0.1/32" : "10.0.0.0/8"};
    sink().SetAddressRules(*AddressRules::Create(rules));
    const int accepted = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    ASSERT_GE(accepted, 0);
    ssize_t got = -1;
    ASSERT_TRUE(Run([&] {
      char bytes[4'096];
      got = recv(accepted, bytes, sizeof(bytes), 0);
      return got >= 0;
    }));
    EXPECT_EQ(got == 0, refused);  // the end, or the request
    close(accepted);
    close(listener);
    ASSERT_TRUE(RunUntilResults(refused ? 1 : 2));
    EXPECT_EQ(results_.back().failure,
              refused ? HttpFailure::kAddressRefused : HttpFailure::kReset);
    EXPECT_EQ(results_.back().request_sent, !refused);
  }
}

// The connection of one customer is never lent to another one.
TEST_F(SinkGuardTest, GroupsShareNoConnection) {
  options_.pools = 1;
  RawSocketStub stub(*loop_);
  HttpRequest other = Request(stub.url());
  other.connection_group = "cus_2";
  EXPECT_EQ(Send(stub.url()).status, 200);
  EXPECT_EQ(Send(std::move(other)).status, 200);
  EXPECT_EQ(Send(stub.url()).status, 200);
  EXPECT_EQ(stub.connections(), 2);
  EXPECT_EQ(stub.requests()[2].connection, stub.requests()[0].connection);
}

// URL-05: put into the database past the API.
TEST_F(SinkGuardTest, UncleanHeadersNeverReachTheWire) {
  RawSocketStub stub(*loop_);
  const std::pair<std::string, std::string> headers[] = {
      {"X-A", "a\r\nX-Evil: 1"}, {"X-A\r\nX-Evil", "1"},           {"X-A", "a\nb"},
      {"Host", "evil"},          {"Transfer-Encoding", "chunked"}, {"content-length", "5"}};
  for (const auto& header : headers) {
    HttpRequest request = Request(stub.url());
    request.headers.push_back(header);
    const HttpResult result = Send(std::move(request));
    EXPECT_EQ(result.failure, HttpFailure::kBadRequest) << header.first;
  }
  EXPECT_EQ(stub.connections(), 0);
}

// URL-07
TEST_F(SinkGuardTest, SendsHeadersAsGivenEachTime) {
  RawSocketStub stub(*loop_);
  for (int i = 0; i < 50; ++i) {
    HttpRequest request = Request(stub.url("/a/../b?q=%20"));
    for (int h = 0; h < 8; ++h) {
      request.headers.emplace_back("X-Custom-" + std::to_string(h), "Value " + std::to_string(h));
    }
    request.headers.emplace_back("X-Empty", "");
    EXPECT_EQ(Send(std::move(request)).status, 200);
  }
  const std::string expected =
      "POST /a/../b?q=%20 HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(stub.port()) +
      "\r\ncontent-type: application/json\r\nwebhook-id: msg_1\r\nX-Custom-0: Value 0\r\n"
      "X-Custom-1: Value 1\r\nX-Custom-2: Value 2\r\nX-Custom-3: Value 3\r\nX-Custom-4: Value 4\r\n"
      "X-Custom-5: Value 5\r\nX-Custom-6: Value 6\r\nX-Custom-7: Value 7\r\nX-Empty:\r\n"
      "Content-Length: 2\r\n\r\n";
  ASSERT_EQ(stub.requests().size(), 50u);
  for (const StubRequest& request : stub.requests()) EXPECT_EQ(request.head, expected);
}

}  // namespace
}  // namespace postrider
