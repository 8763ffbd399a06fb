#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/http/egress_proxy.h"
#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/tls_stub.h"

namespace postrider {
namespace {

using tests::Certificate;
using tests::CloseConnection;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using tests::TlsStub;
using tests::WaitFor;

// A proxy that makes one tunnel, on a thread of its own.
class OneTunnel {
 public:
  OneTunnel() : listen_fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listen_fd_, 8), 0);
    EXPECT_EQ(getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~OneTunnel() {
    shutdown(listen_fd_, SHUT_RDWR);
    thread_.join();
    close(listen_fd_);
  }
  uint16_t port() const { return port_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void Serve() {
    const int client = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    std::string head;
    char byte = 0;
    while (head.find("\r\n\r\n") == std::string::npos && recv(client, &byte, 1, 0) == 1) {
      head.push_back(byte);
    }
    const size_t colon = head.find(':');
    const sockaddr_in target = Loopback(static_cast<uint16_t>(std::atoi(&head[colon + 1])));
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
      const std::string yes = "HTTP/1.1 200 Connection established\r\n\r\n";
      static_cast<void>(send(client, yes.data(), yes.size(), MSG_NOSIGNAL));
      while (Pass(client, server)) {
      }
    }
    close(server);
    close(client);
  }
  static bool Pass(int a, int b) {
    pollfd fds[] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char buffer[4'096];
      const ssize_t got = recv(fds[i].fd, buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      if (send(fds[1 - i].fd, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) return false;
    }
    return true;
  }

  int listen_fd_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// The stub is the proxy, and behind a tunnel each receiver.
class SinkProxyTest : public SinkTest {
 protected:
  SinkProxyTest() {
    // The guard allows neither the proxy nor anything else that is not public.
    allow_loopback_ = AddressRules::Default();
    resolver_.answers["hook.example"] = {{"8.8.8.8"}};
    UseProxy("127.0.0.1", proxy_stub_.port());
    Answer({SendBytes("HTTP/1.1 200 Established\r\n\r\n")});
  }
  void UseProxy(const std::string& host, uint16_t port) {
    auto proxy = std::make_shared<EgressProxy>();
    proxy->host = host;
    proxy->address = IpAddress::Parse(host);
    proxy->port = port;
    options_.proxy = std::move(proxy);
  }
  // What the proxy says to CONNECT; receivers say 200.
  void Answer(StubScript to_connect) {
    proxy_stub_.SetScript([to_connect = std::move(to_connect)](const StubRequest& request) {
      if (request.head.substr(0, 8) == "CONNECT ") return to_connect;
      return StubScript{SendBytes(StubAnswer(200, "behind"))};
    });
  }
  std::string FirstLine(size_t index) {
    const std::string& head = proxy_stub_.requests().at(index).head;
    return head.substr(0, head.find("\r\n"));
  }

  RawSocketStub proxy_stub_{*loop_};
};

TEST_F(SinkProxyTest, ConnectsToTheAddressThatWasCheckedAndKeepsTheTunnel) {
  for (int i = 0; i < 3; ++i) {
    const HttpResult result = Send("http://hook.example:8080/in?x=1");
    EXPECT_EQ(result.status, 200);
    EXPECT_EQ(result.body_excerpt, "behind");
  }
  const std::vector<StubRequest>& requests = proxy_stub_.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(FirstLine(0), "CONNECT 8.8.8.8:8080 HTTP/1.1");
  EXPECT_EQ(requests[0].Header("webhook-id"), "") << "our headers are not the proxy's";
  EXPECT_EQ(requests[0].Header("proxy-authorization"), "");
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(FirstLine(i), "POST /in?x=1 HTTP/1.1");
    EXPECT_EQ(requests[i].Header("host"), "hook.example:8080");
    EXPECT_EQ(requests[i].connection, 1);
  }
}

TEST_F(SinkProxyTest, AnIpv6AddressStandsInBrackets) {
  resolver_.answers["six.example"] = {{"2606:4700::1111"}};
  EXPECT_EQ(Send("http://six.example/").status, 200);
  EXPECT_EQ(FirstLine(0), "CONNECT [2606:4700::1111]:80 HTTP/1.1");
  EXPECT_EQ(Send("http://[2606:4700::2222]:8080/").status, 200);
  EXPECT_EQ(FirstLine(2), "CONNECT [2606:4700::2222]:8080 HTTP/1.1");
}

// SSRF-02 behind a proxy: it is never asked for what the guard refuses, nor for a name.
TEST_F(SinkProxyTest, RefusesWhatTheGuardRefusesAtEveryRequest) {
  resolver_.answers["rebind.example"] = {{"8.8.4.4"}, {"10.0.0.1"}, {"127.0.0.1"}, {"8.8.4.4"}};
  EXPECT_EQ(Send("http://rebind.example/").status, 200);
  for (int i = 0; i < 2; ++i) {
    const HttpResult result = Send("http://rebind.example/");
    EXPECT_EQ(result.failure, HttpFailure::kAddressRefused);
    EXPECT_FALSE(result.request_sent);
  }
  EXPECT_EQ(Send("http://rebind.example/").status, 200);
  for (const std::string url :
       {"http://169.254.169.254/", "http://[::1]/", "http://8.8.8.8:6379/"}) {
    EXPECT_EQ(Send(url).failure, HttpFailure::kAddressRefused) << url;
  }
  // The proxy's own address is exempt as the proxy, not as a receiver.
  EXPECT_EQ(Send(proxy_stub_.url()).failure, HttpFailure::kAddressRefused);
  EXPECT_EQ(proxy_stub_.requests().size(), 3u);
}

TEST_F(SinkProxyTest, TakesTheAllowedOneOfManyAddressesAndAnotherAfterAFailure) {
  resolver_.answers["many.example"] = {{"10.0.0.1", "8.8.8.8", "8.8.4.4"}};
  Answer({SendBytes(StubAnswer(503))});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Send("http://many.example/").failure, HttpFailure::kConnect);
  }
  EXPECT_EQ(FirstLine(0), "CONNECT 8.8.8.8:80 HTTP/1.1");
  EXPECT_EQ(FirstLine(2), "CONNECT 8.8.4.4:80 HTTP/1.1");
}

TEST_F(SinkProxyTest, ShowsItsOwnCredentialsToTheProxyAlone) {
  auto proxy = std::make_shared<EgressProxy>(*options_.proxy);
  proxy->user = "postrider";
  proxy->password = "s3cr:et";
  options_.proxy = proxy;
  HttpRequest request = Request("http://hook.example/");
  request.headers.emplace_back("authorization", "Bearer of the customer");
  EXPECT_EQ(Send(std::move(request)).status, 200);
  ASSERT_EQ(proxy_stub_.requests().size(), 2u);
  const StubRequest& connect = proxy_stub_.requests()[0];
  const StubRequest& post = proxy_stub_.requests()[1];
  EXPECT_EQ(connect.Header("proxy-authorization"), "Basic cG9zdHJpZGVyOnMzY3I6ZXQ=");
  EXPECT_EQ(connect.Header("authorization"), "");
  EXPECT_EQ(post.Header("proxy-authorization"), "");
  EXPECT_EQ(post.Header("authorization"), "Bearer of the customer");
}

// Two customers whose receivers have one address share no tunnel.
TEST_F(SinkProxyTest, GroupsShareNoTunnel) {
  options_.pools = 1;
  resolver_.answers["other.example"] = {{"8.8.8.8"}};
  HttpRequest other = Request("http://hook.example/");
  other.connection_group = "cus_2";
  EXPECT_EQ(Send("http://hook.example/").status, 200);
  EXPECT_EQ(Send(std::move(other)).status, 200);
  EXPECT_EQ(Send("http://other.example/").status, 200);
  EXPECT_EQ(Send("http://hook.example/").status, 200);
  EXPECT_EQ(proxy_stub_.connections(), 3);
}

TEST_F(SinkProxyTest, TellsTheProxysFailuresFromTheReceivers) {
  struct Row {
    StubScript script;
    HttpFailure failure;
  };
  const Row rows[] = {
      {{SendBytes(StubAnswer(407, "", "Proxy-Authenticate: Basic\r\n"))}, HttpFailure::kProxy},
      {{SendBytes(StubAnswer(403))}, HttpFailure::kProxy},
      {{SendBytes(StubAnswer(301, "", "Location: http://127.0.0.1/\r\n"))}, HttpFailure::kProxy},
      {{SendBytes("SSH-2.0-OpenSSH\r\n"), CloseConnection()}, HttpFailure::kProxy},
      {{CloseConnection()}, HttpFailure::kProxy},
      {{ResetConnection()}, HttpFailure::kProxy},
      {{SendBytes(StubAnswer(502))}, HttpFailure::kConnect},
      {{SendBytes(StubAnswer(503, "no route"))}, HttpFailure::kConnect},
      {{SendBytes(StubAnswer(504))}, HttpFailure::kConnect},
      {{WaitFor(seconds(30))}, HttpFailure::kConnect},
  };
  int number = 0;
  for (const Row& row : rows) {
    Answer(row.script);
    HttpRequest request = Request("http://hook.example/");
    request.connect_timeout = milliseconds(300);
    const HttpResult result = Send(std::move(request));
    EXPECT_EQ(result.failure, row.failure) << number;
    EXPECT_FALSE(result.request_sent) << number;
    EXPECT_EQ(result.status, 0) << number;
    ++number;
  }
  EXPECT_EQ(proxy_stub_.requests().size(), std::size(rows));
  // A receiver's own 407 or 502 behind a tunnel is an answer like any other.
  proxy_stub_.SetScript([](const StubRequest& request) {
    const bool connect = request.head.substr(0, 8) == "CONNECT ";
    return StubScript{SendBytes(connect ? "HTTP/1.1 200 Yes\r\n\r\n" : StubAnswer(502))};
  });
  EXPECT_EQ(Send("http://hook.example/").status, 502);
}

TEST_F(SinkProxyTest, AProxyThatIsNotThereIsNobodysFailureButOurs) {
  uint16_t closed_port = 0;
  { closed_port = RawSocketStub(*loop_).port(); }
  UseProxy("127.0.0.1", closed_port);
  const HttpResult result = Send("http://hook.example/");
  EXPECT_EQ(result.failure, HttpFailure::kProxy);
  EXPECT_FALSE(result.request_sent);
}

TEST_F(SinkProxyTest, ResolvesTheProxysNameToo) {
  UseProxy("proxy.internal", proxy_stub_.port());
  resolver_.answers["proxy.internal"] = {{"127.0.0.1"}};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Send("http://hook.example/").status, 200);
  EXPECT_EQ(proxy_stub_.connections(), 1);
  // Literals ask for it as well.
  EXPECT_EQ(Send("http://8.8.4.4/").status, 200);
}

TEST_F(SinkProxyTest, AProxyWithoutAddressIsNobodysFailureButOurs) {
  UseProxy("proxy.internal", proxy_stub_.port());
  EXPECT_EQ(Send("http://hook.example/").failure, HttpFailure::kProxy);
  EXPECT_EQ(Send("http://nowhere.example/").failure, HttpFailure::kDns);
  options_.resolve_timeout = milliseconds(50);
}

TEST_F(SinkProxyTest, ARequestThatWaitsForTheProxysNameCanBeAborted) {
  UseProxy("proxy.internal", proxy_stub_.port());
  resolver_.hold = true;
  const HttpRequestId id = SendAsync(Request("http://8.8.8.8/"));
  EXPECT_EQ(resolver_.held.size(), 1u);
  sink().Abort(id);
  ASSERT_TRUE(RunUntilResults(1));
  EXPECT_EQ(results_[0].failure, HttpFailure::kAborted);
  ResolveResult late;
  late.addresses = {*IpAddress::Parse("127.0.0.1")};
  late.valid_until = clock_.Now() + seconds(60);
  std::move(resolver_.held[0])(late);
  EXPECT_EQ(Send("http://8.8.8.8/").status, 200);
}

TEST_F(SinkProxyTest, NoProxyOfTheEnvironmentIsUsedNorExcused) {
  setenv("no_proxy", "*", 1);
  EXPECT_EQ(Send("http://hook.example/").status, 200);
  EXPECT_EQ(proxy_stub_.requests().size(), 2u);
  unsetenv("no_proxy");
  sink_.reset();
  setenv("http_proxy", ("http://127.0.0.1:" + std::to_string(proxy_stub_.port())).c_str(), 1);
  options_.proxy = nullptr;
  AddressRulesOptions rules;
  rules.allow = {"127.0.0.0/8"};
  allow_loopback_ = *AddressRules::Create(rules);
  RawSocketStub direct(*loop_);
  EXPECT_EQ(Send(direct.url()).status, 200);
  EXPECT_EQ(proxy_stub_.requests().size(), 2u);
  unsetenv("http_proxy");
}

TEST_F(SinkProxyTest, TlsIsSpokenWithTheReceiverThroughTheTunnel) {
  Certificate::Options named;
  named.authority = true;
  const Certificate certificate(named);
  const std::string bundle =
      ::testing::TempDir() + "proxy_test." + std::to_string(getpid()) + ".pem";
  certificate.WriteTo(bundle);
  options_.ca_bundle_file = bundle;
  AddressRulesOptions rules;
  rules.allow = {"127.0.0.0/8"};
  allow_loopback_ = *AddressRules::Create(rules);
  resolver_.answers["hook.example"] = {{"127.0.0.1"}};
  resolver_.answers["wrong.example"] = {{"127.0.0.1"}};
  TlsStub stub(certificate);
  for (const bool right : {true, false}) {
    OneTunnel tunnel;
    UseProxy("127.0.0.1", tunnel.port());
    const HttpResult result = Send((right ? "https://hook.example:" : "https://wrong.example:") +
                                   std::to_string(stub.port()) + "/");
    EXPECT_EQ(result.status, right ? 200 : 0);
    EXPECT_EQ(result.failure, right ? HttpFailure::kNone : HttpFailure::kTls);
    sink_.reset();
  }
  EXPECT_EQ(stub.requests().size(), 1u);
  unlink(bundle.c_str());
}

TEST_F(SinkProxyTest, NewRulesHoldForARequestWhoseTunnelIsBeingMade) {
  for (const bool refused : {true, false}) {
    proxy_stub_.ForgetRequests();
    sink().SetAddressRules(AddressRules::Default());
    proxy_stub_.SetScript([&](const StubRequest& request) {
      if (request.head.substr(0, 8) != "CONNECT ") return StubScript{SendBytes(StubAnswer(200))};
      AddressRulesOptions rules;
      rules.deny = {refused ? "8.8.8.8/32" : "8.8.4.4/32"};
      sink().SetAddressRules(*AddressRules::Create(rules));
      return StubScript{SendBytes("HTTP/1.1 200 Established\r\n\r\n")};
    });
    const HttpResult result = Send("http://hook.example/");
    EXPECT_EQ(result.failure, refused ? HttpFailure::kAddressRefused : HttpFailure::kNone);
    EXPECT_EQ(result.request_sent, !refused);
    EXPECT_EQ(proxy_stub_.requests().size(), refused ? 1u : 2u);
  }
}

class EgressProxyOptionsTest : public ::testing::Test {
 protected:
  EgressProxyOptionsTest()
      : file_(::testing::TempDir() + "credentials." + std::to_string(getpid())) {}
  ~EgressProxyOptionsTest() override { unlink(file_.c_str()); }
  void Write(const std::string& text) {
    std::ofstream(file_) << text;
    ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  }
  EgressProxyOptions options_;
  std::string file_;
};

TEST_F(EgressProxyOptionsTest, TakesAnHttpUrlAndAFileOfCredentials) {
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const EgressProxy> none, options_.Load());
  EXPECT_EQ(none, nullptr);
  options_.url = "http://Proxy.internal:3128";
  options_.credentials_file = file_;
  Write("user:pass:word\n");
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const EgressProxy> proxy, options_.Load());
  EXPECT_EQ(proxy->host, "proxy.internal");
  EXPECT_EQ(proxy->port, 3128);
  EXPECT_EQ(proxy->user, "user");
  EXPECT_EQ(proxy->password, "pass:word");
}

TEST_F(EgressProxyOptionsTest, RefusesOtherUrls) {
  for (const std::string url : {"https://proxy:3128", "http://user:secret@proxy:3128",
                                "http://proxy:3128/path", "socks5://proxy", "proxy:3128"}) {
    options_.url = url;
    const auto loaded = options_.Load();
    EXPECT_THAT(loaded, tests::StatusIs(absl::StatusCode::kInvalidArgument,
                                        ::testing::HasSubstr("network.egress_proxy")))
        << url;
    EXPECT_EQ(loaded.status().message().find("secret"), absl::string_view::npos);
  }
  options_.url = "";
  options_.credentials_file = file_;
  EXPECT_THAT(options_.Load(), tests::StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(EgressProxyOptionsTest, RefusesAFileThatOthersMayReadOrThatIsNoCredentials) {
  options_.url = "http://proxy:3128";
  options_.credentials_file = file_;
  EXPECT_THAT(options_.Load(), tests::StatusIs(absl::StatusCode::kInvalidArgument));
  for (const std::string text : {"", "secret", ":secret", "a:b\nc:secret"}) {
    Write(text);
    const auto loaded = options_.Load();
    EXPECT_THAT(loaded, tests::StatusIs(absl::StatusCode::kInvalidArgument)) << text;
    EXPECT_EQ(loaded.status().message().find("secret"), absl::string_view::npos);
  }
  Write("user:secret");
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  EXPECT_THAT(options_.Load(), tests::StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace postrider
