// Names and their addresses: the real resolver against a scripted name server, and what the sink
// makes of answers with several addresses.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/dns_stub.h"

namespace postrider {
namespace {

using tests::DnsAnswer;
using tests::DnsStub;
using tests::RawSocketStub;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;
using Family = IpAddress::Family;

// An address on which a SYN is never answered: a listener whose queue is full.
class BlackHole {
 public:
  BlackHole(const std::string& text, uint16_t port) {
    sockaddr_storage address = {};
    const socklen_t size = Fill(*IpAddress::Parse(text), port, &address);
    listen_fd_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listen_fd_, 0), 0);
    for (int i = 0; i < 8; ++i) {
      const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      fillers_.push_back(fd);
      connect(fd, reinterpret_cast<sockaddr*>(&address), size);
      pollfd wait = {fd, POLLOUT, 0};
      if (poll(&wait, 1, 100) == 0) return;  // this one is not answered
    }
    ADD_FAILURE() << "the queue takes every connection";
  }
  ~BlackHole() {
    for (const int fd : fillers_) close(fd);
    close(listen_fd_);
  }

 private:
  static socklen_t Fill(const IpAddress& address, uint16_t port, sockaddr_storage* out) {
    if (address.family() == Family::kV4) {
      auto* const v4 = reinterpret_cast<sockaddr_in*>(out);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(port);
      v4->sin_addr.s_addr = htonl(address.v4());
      return sizeof(*v4);
    }
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(out);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::copy(address.bytes().begin(), address.bytes().end(), v6->sin6_addr.s6_addr);
    return sizeof(*v6);
  }

  int listen_fd_ = -1;
  std::vector<int> fillers_;
};

// ---- Several addresses ----

class SinkAddressesTest : public SinkTest {
 protected:
  SinkAddressesTest() {
    Allow({"127.0.0.1", "127.0.0.2", "::1"});
    live_.SetScript([](const StubRequest&) {
      return StubScript{SendBytes(StubAnswer(200, "", "Connection: close\r\n"))};
    });
  }
  void Allow(std::vector<std::string> networks) {
    AddressRulesOptions rules;
    rules.allow = std::move(networks);
    allow_loopback_ = *AddressRules::Create(rules);
  }
  std::string Url(const std::string& host) {
    return absl::StrCat("http://", host, ":", live_.port(), "/");
  }

  RawSocketStub live_{*loop_};  // on 127.0.0.1
};

// CONN-10
TEST_F(SinkAddressesTest, ASilentIpv6AddressCostsLessThanASecond) {
  BlackHole dead("::1", live_.port());
  resolver_.answers["both.example"] = {{"::1", "127.0.0.1"}};
  for (int i = 0; i < 5; ++i) {
    const HttpResult result = Send(Url("both.example"));
    EXPECT_EQ(result.status, 200);
    EXPECT_LT(result.timings.connect, seconds(1));
    EXPECT_GE(result.timings.connect, milliseconds(150)) << "the other address was tried first";
  }
  EXPECT_EQ(live_.connections(), 5);
}

TEST_F(SinkAddressesTest, AnIpv6AddressThatRefusesCostsNothing) {
  resolver_.answers["both.example"] = {{"::1", "127.0.0.1"}};
  for (int i = 0; i < 5; ++i) {
    const HttpResult result = Send(Url("both.example"));
    EXPECT_EQ(result.status, 200);
    EXPECT_LT(result.timings.connect, milliseconds(500));
  }
}

TEST_F(SinkAddressesTest, ASilentIpv4AddressLeavesIpv6Working) {
  RawSocketStub six(*loop_, "::1");
  BlackHole dead("127.0.0.2", six.port());
  resolver_.answers["both.example"] = {{"127.0.0.2", "::1"}};
  const HttpResult result = Send(absl::StrCat("http://both.example:", six.port(), "/"));
  EXPECT_EQ(result.status, 200);
  EXPECT_LT(result.timings.connect, seconds(1));
}

TEST_F(SinkAddressesTest, EitherFamilyAloneWorks) {
  RawSocketStub six(*loop_, "::1");
  resolver_.answers["six.example"] = {{"::1"}};
  resolver_.answers["four.example"] = {{"127.0.0.1"}};
  EXPECT_EQ(Send(absl::StrCat("http://six.example:", six.port(), "/")).status, 200);
  EXPECT_EQ(Send(absl::StrCat("http://[::1]:", six.port(), "/")).status, 200);
  EXPECT_EQ(six.requests()[1].Header("host"), absl::StrCat("[::1]:", six.port()));
  EXPECT_EQ(Send(Url("four.example")).status, 200);
}

// Of one family each address gets a part of the time for connecting.
TEST_F(SinkAddressesTest, ASilentAddressLeavesTheNextOneOfItsFamilyWorking) {
  BlackHole dead("127.0.0.2", live_.port());
  resolver_.answers["many.example"] = {{"127.0.0.2", "127.0.0.1"}};
  const HttpResult result = Send(Url("many.example"));
  EXPECT_EQ(result.status, 200);
  EXPECT_LT(result.timings.connect, seconds(3));
}

TEST_F(SinkAddressesTest, AnAddressThatRefusesLeavesTheNextOneOfItsFamilyWorkingAtOnce) {
  resolver_.answers["many.example"] = {{"127.0.0.2", "127.0.0.1"}};
  for (int i = 0; i < 5; ++i) {
    const HttpResult result = Send(Url("many.example"));
    EXPECT_EQ(result.status, 200);
    EXPECT_LT(result.timings.connect, milliseconds(500));
  }
}

TEST_F(SinkAddressesTest, ManyThatFallBackAtOnceDisturbNobody) {
  options_.pools = 1;
  BlackHole dead("::1", live_.port());
  RawSocketStub quick(*loop_);
  resolver_.answers["both.example"] = {{"::1", "127.0.0.1"}};
  constexpr size_t kRequests = 40;
  for (size_t i = 0; i < kRequests; ++i) SendAsync(Request(Url("both.example")));
  while (results_.size() < kRequests) {
    const size_t before = results_.size();
    bool done = false;
    sink().Send(Request(quick.url()), [&](HttpResult result) {
      EXPECT_EQ(result.status, 200);
      done = true;
    });
    ASSERT_TRUE(Run([&] { return done; })) << before;
  }
  for (const HttpResult& result : results_) EXPECT_EQ(result.status, 200);
  EXPECT_EQ(quick.connections(), 1);
}

// The guard has let it through under rules that hold no more.
TEST_F(SinkAddressesTest, AConnectionBegunUnderOldRulesServesOnce) {
  BlackHole dead("::1", live_.port());
  live_.SetScript([](const StubRequest&) { return StubScript{SendBytes(StubAnswer(200))}; });
  resolver_.answers["both.example"] = {{"::1", "127.0.0.1"}};
  SendAsync(Request(Url("both.example")));
  Run([] { return false; }, milliseconds(50));
  ASSERT_TRUE(results_.empty()) << "it waits for the first address";
  sink().SetAddressRules(allow_loopback_);
  ASSERT_TRUE(RunUntilResults(1));
  EXPECT_EQ(results_[0].status, 200);
  EXPECT_TRUE(Run([this] { return live_.open_connections() == 0; }));
}

TEST_F(SinkAddressesTest, TheAddressesToFallBackToAreJudgedToo) {
  Allow({"::1"});
  BlackHole dead("::1", live_.port());
  resolver_.answers["both.example"] = {{"::1", "127.0.0.1"}};
  HttpRequest request = Request(Url("both.example"));
  request.connect_timeout = milliseconds(800);
  const HttpResult result = Send(std::move(request));
  EXPECT_EQ(result.failure, HttpFailure::kConnect);
  EXPECT_FALSE(result.request_sent);
  EXPECT_EQ(live_.connections(), 0);
}

TEST_F(SinkAddressesTest, WithoutAnyAddressThatAnswersItEndsAtItsTime) {
  BlackHole first("127.0.0.2", live_.port());
  BlackHole second("::1", live_.port());
  resolver_.answers["dead.example"] = {{"::1", "127.0.0.2"}};
  HttpRequest request = Request(Url("dead.example"));
  request.connect_timeout = milliseconds(700);
  const MonotonicTime start = clock_.Now();
  const HttpResult result = Send(std::move(request));
  EXPECT_EQ(result.failure, HttpFailure::kConnect);
  EXPECT_TRUE(result.timed_out);
  EXPECT_LT(clock_.Now() - start, milliseconds(1'200));
}

// ---- The resolver ----

class ResolverTest : public ::testing::Test {
 protected:
  ResolverTest() : loop_(*EventLoop::Create(clock_)) {
    options_.valid_for = milliseconds(60'000);
    options_.failure_valid_for = milliseconds(60'000);
  }
  void Start(DnsStub::Script script) {
    dns_ = std::make_unique<DnsStub>(std::move(script));
    options_.name_server.emplace(*IpAddress::Parse("127.0.0.1"), dns_->port());
    resolver_ = CreateSystemResolver(options_, clock_, metrics_);
  }
  // Asks, and puts the name on answered_ when the answer is there.
  void Ask(const std::string& name) {
    resolver_->Resolve(name, [this, name](ResolveResult result) {
      EXPECT_TRUE(loop_->Post([this, name, result = std::move(result)]() mutable {
        answered_.push_back(name);
        last_ = std::move(result);
      }));
    });
  }
  bool RunUntilAnswered(size_t count, Duration limit = seconds(20)) {
    const MonotonicTime end = clock_.Now() + limit;
    while (answered_.size() < count && clock_.Now() < end) loop_->RunOnce(milliseconds(20));
    return answered_.size() >= count;
  }
  std::vector<IpAddress> AddressesOf(const std::string& name) {
    const size_t before = answered_.size();
    Ask(name);
    EXPECT_TRUE(RunUntilAnswered(before + 1)) << name;
    return last_.addresses;
  }
  double Lookups(const std::string& result) {
    return metrics_.AddCounter("postrider_http_dns_lookups_total", "", {{"result", result}})
        .value();
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<EventLoop> loop_;
  SystemResolverOptions options_;
  std::unique_ptr<DnsStub> dns_;
  std::unique_ptr<Resolver> resolver_;
  std::vector<std::string> answered_;
  ResolveResult last_;
};

DnsAnswer Nothing(DnsAnswer::Code code) {
  DnsAnswer answer;
  answer.code = code;
  return answer;
}
DnsAnswer Silence() {
  DnsAnswer answer;
  answer.silent = true;
  return answer;
}
DnsAnswer Found(std::vector<std::string> addresses) {
  DnsAnswer answer;
  answer.addresses = std::move(addresses);
  return answer;
}

TEST_F(ResolverTest, KeepsAllAddressesOfAnAnswerUpToItsBound) {
  options_.addresses_max = 3;
  Start([](const DnsStub::Question& question) {
    if (question.family == Family::kV6) return Found({});
    return Found({"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"});
  });
  EXPECT_EQ(AddressesOf("many.example").size(), 3u);
  EXPECT_EQ(AddressesOf("many.example").size(), 3u);
  EXPECT_EQ(Lookups("found"), 1);
}

// CONN-10: what the other family says does no harm.
TEST_F(ResolverTest, OneFamilysFailureLeavesTheOtherOnesAddress) {
  Start([](const DnsStub::Question& question) {
    if (question.family == Family::kV4) return Found({"192.0.2.1"});
    if (absl::StartsWith(question.name, "nxdomain")) return Nothing(DnsAnswer::Code::kNoSuchName);
    if (absl::StartsWith(question.name, "none")) return Found({});
    return Silence();
  });
  const std::vector<IpAddress> expected = {*IpAddress::Parse("192.0.2.1")};
  EXPECT_EQ(AddressesOf("none.example"), expected);
  EXPECT_EQ(AddressesOf("nxdomain.example"), expected);
}

TEST_F(ResolverTest, FailuresAreKeptForTheirTime) {
  Start([](const DnsStub::Question& question) {
    return Nothing(question.name == "refused.example"  ? DnsAnswer::Code::kRefused
                   : question.name == "broken.example" ? DnsAnswer::Code::kServerFailure
                                                       : DnsAnswer::Code::kNoSuchName);
  });
  for (int round = 0; round < 2; ++round) {
    for (const std::string name : {"no.example", "refused.example", "broken.example"}) {
      EXPECT_TRUE(AddressesOf(name).empty()) << name;
    }
  }
  EXPECT_EQ(Lookups("failed"), 3);
}

// CONN-03: however many hosts there were once, the cache holds so many, and those asked for last.
TEST_F(ResolverTest, ForgetsTheOldestNamesBeyondItsBound) {
  options_.names_max = 10;
  Start([](const DnsStub::Question& question) {
    return question.family == Family::kV4 ? Found({"192.0.2.1"}) : Found({});
  });
  const auto name = [](int i) { return absl::StrCat("n", i, ".example"); };
  for (int i = 0; i < 30; ++i) EXPECT_EQ(AddressesOf(name(i)).size(), 1u);
  EXPECT_EQ(Lookups("found"), 30);
  EXPECT_EQ(AddressesOf(name(29)).size(), 1u);
  EXPECT_EQ(Lookups("found"), 30) << "is known";
  EXPECT_EQ(AddressesOf(name(0)).size(), 1u);
  EXPECT_EQ(Lookups("found"), 31) << "was forgotten";
}

TEST_F(ResolverTest, AsksForTheNameAsItStands) {
  Start([](const DnsStub::Question&) { return Nothing(DnsAnswer::Code::kNoSuchName); });
  EXPECT_TRUE(AddressesOf("db").empty());
  EXPECT_TRUE(AddressesOf("db.other").empty());
  EXPECT_GE(dns_->questions("db"), 1);
  EXPECT_GE(dns_->questions("db.other"), 1);
}

// LOOP-01: the name server is silent for 500 names, and those that work do not feel it.
TEST_F(ResolverTest, NamesThatHangKeepNoWorkingNameWaiting) {
  options_.valid_for = milliseconds(0);
  options_.failure_valid_for = milliseconds(0);
  Start([](const DnsStub::Question& question) {
    if (absl::EndsWith(question.name, ".dead.example")) return Silence();
    return question.family == Family::kV4 ? Found({"192.0.2.1"}) : Found({});
  });
  EXPECT_EQ(AddressesOf("healthy.example").size(), 1u);
  for (int i = 0; i < 500; ++i) Ask(absl::StrCat("n", i, ".dead.example"));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(AddressesOf("healthy.example").size(), 1u);
    EXPECT_EQ(answered_.back(), "healthy.example");
  }
  EXPECT_EQ(answered_.size(), 51u) << "before the first one that hangs has given up";
}

// What has failed has fewer threads than what nobody has asked for yet.
TEST_F(ResolverTest, NamesThatHangKeepNoNewNameWaitingWhenTheyAreAskedForAgain) {
  options_.valid_for = milliseconds(0);
  options_.failure_valid_for = milliseconds(0);
  options_.threads = 8;
  options_.threads_for_new = 6;
  options_.threads_for_failed = 2;
  Start([](const DnsStub::Question& question) {
    if (absl::EndsWith(question.name, ".dead.example")) return Silence();
    return question.family == Family::kV4 ? Found({"192.0.2.1"}) : Found({});
  });
  constexpr size_t kDead = 12;
  for (size_t i = 0; i < kDead; ++i) Ask(absl::StrCat("n", i, ".dead.example"));
  ASSERT_TRUE(RunUntilAnswered(kDead));
  answered_.clear();
  for (size_t i = 0; i < kDead; ++i) Ask(absl::StrCat("n", i, ".dead.example"));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(AddressesOf(absl::StrCat("new", i, ".example")).size(), 1u);
  }
  EXPECT_EQ(answered_.size(), 20u) << "before one that hangs has given up again";
}

TEST_F(ResolverTest, TheLinesOfNamesAreBoundedEachForItself) {
  options_.valid_for = milliseconds(0);
  options_.threads = 3;
  options_.threads_for_new = 1;
  options_.threads_for_failed = 1;
  options_.lookups_max = 5;
  Start([](const DnsStub::Question& question) {
    if (absl::EndsWith(question.name, ".dead.example")) return Silence();
    return question.family == Family::kV4 ? Found({"192.0.2.1"}) : Found({});
  });
  EXPECT_EQ(AddressesOf("healthy.example").size(), 1u);
  for (int i = 0; i < 20; ++i) Ask(absl::StrCat("n", i, ".dead.example"));
  // One is being looked up, five wait.
  ASSERT_TRUE(RunUntilAnswered(15));
  EXPECT_GE(Lookups("queue_full"), 14);
  EXPECT_EQ(AddressesOf("healthy.example").size(), 1u);
}

TEST_F(ResolverTest, OneLookupAnswersAllWhoAsk) {
  Start([](const DnsStub::Question& question) {
    return question.family == Family::kV4 ? Found({"192.0.2.1"}) : Found({});
  });
  for (int i = 0; i < 100; ++i) Ask("one.example");
  ASSERT_TRUE(RunUntilAnswered(100));
  EXPECT_EQ(Lookups("found"), 1);
}

TEST_F(ResolverTest, AnEndDoesNotWaitForALookupThatHangs) {
  Start([](const DnsStub::Question&) { return Silence(); });
  bool called = false;
  bool dropped = false;
  struct Guard {
    bool* dropped;
    ~Guard() { *dropped = true; }
  };
  resolver_->Resolve("dead.example", [&called, guard = std::make_unique<Guard>(Guard{&dropped})](
                                         ResolveResult) { called = true; });
  const MonotonicTime start = clock_.Now();
  resolver_.reset();
  EXPECT_LT(clock_.Now() - start, milliseconds(900));
  EXPECT_TRUE(dropped);
  EXPECT_FALSE(called);
}

// ---- Both together ----

class SinkNamesTest : public SinkTest {
 protected:
  void Start(DnsStub::Script script) {
    dns_ = std::make_unique<DnsStub>(std::move(script));
    SystemResolverOptions options;
    options.valid_for = options.failure_valid_for = milliseconds(0);
    options.name_server.emplace(*IpAddress::Parse("127.0.0.1"), dns_->port());
    system_ = CreateSystemResolver(options, clock_, metrics_);
    auto made = CreateCurlSink(*loop_, options_, *system_, allow_loopback_, metrics_);
    ASSERT_OK(made);
    sink_ = *std::move(made);
  }
  ~SinkNamesTest() override {
    sink_->AbortAll();
    Run([this] { return sink_->in_flight() == 0; });
    sink_.reset();
  }
  std::unique_ptr<DnsStub> dns_;
  std::unique_ptr<Resolver> system_;
};

// SSRF-02: a name that resolves to a private address on the second look-up is refused.
TEST_F(SinkNamesTest, ANameThatTurnsPrivateIsRefused) {
  AddressRulesOptions rules;
  rules.allow = {"127.0.0.1"};  // the public one of this test
  allow_loopback_ = *AddressRules::Create(rules);
  RawSocketStub stub(*loop_);
  RawSocketStub inside(*loop_, "127.0.0.2", stub.port());
  stub.SetScript([](const StubRequest&) {
    return StubScript{SendBytes(StubAnswer(200, "", "Connection: close\r\n"))};
  });
  Start([](const DnsStub::Question& question) {
    if (question.family == Family::kV6) return Found({});
    const bool good = absl::StartsWith(question.name, "good") == (question.number == 1);
    return Found({good ? "127.0.0.1" : "127.0.0.2"});
  });
  const auto url = [&](const std::string& host) {
    return absl::StrCat("http://", host, ":", stub.port(), "/");
  };
  EXPECT_EQ(Send(url("good-first.example")).status, 200);
  EXPECT_EQ(Send(url("bad-first.example")).failure, HttpFailure::kAddressRefused);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Send(url("good-first.example")).failure, HttpFailure::kAddressRefused);
    EXPECT_EQ(Send(url("bad-first.example")).status, 200);
  }
  EXPECT_EQ(inside.connections(), 0);
  EXPECT_EQ(stub.connections(), 4);
}

// RETRY-09: what a name server says is no reason to give up.
TEST_F(SinkNamesTest, ANameThatComesToExistIsReachedByTheNextTry) {
  RawSocketStub stub(*loop_);
  bool exists = false;
  Start([&exists](const DnsStub::Question& question) {
    if (!exists) {
      return Nothing(absl::StartsWith(question.name, "broken") ? DnsAnswer::Code::kServerFailure
                                                               : DnsAnswer::Code::kNoSuchName);
    }
    return question.family == Family::kV4 ? Found({"127.0.0.1"}) : Found({});
  });
  for (const std::string host : {"no.example", "broken.example"}) {
    exists = false;
    const std::string url = absl::StrCat("http://", host, ":", stub.port(), "/");
    for (int i = 0; i < 2; ++i) {
      const HttpResult result = Send(url);
      EXPECT_EQ(result.failure, HttpFailure::kDns) << host;
      EXPECT_FALSE(result.request_sent);
    }
    exists = true;
    EXPECT_EQ(Send(url).status, 200) << host;
  }
}

// LOOP-01
TEST_F(SinkNamesTest, ADeadNameServerBlocksNeitherTheLoopNorTheOthers) {
  RawSocketStub stub(*loop_);
  Start([](const DnsStub::Question& question) {
    if (absl::EndsWith(question.name, ".dead.example")) return Silence();
    return question.family == Family::kV4 ? Found({"127.0.0.1"}) : Found({});
  });
  const auto url = [&](const std::string& host) {
    return absl::StrCat("http://", host, ":", stub.port(), "/");
  };
  EXPECT_EQ(Send(url("healthy.example")).status, 200);
  std::vector<HttpRequestId> dead;
  std::vector<HttpResult> dead_results;
  for (int i = 0; i < 500; ++i) {
    dead.push_back(
        sink().Send(Request(url(absl::StrCat("n", i, ".dead.example"))),
                    [&](HttpResult result) { dead_results.push_back(std::move(result)); }));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Send(url("healthy.example")).status, 200);
  EXPECT_LT(dead_results.size(), 500u);
  const MonotonicTime start = clock_.Now();
  for (const HttpRequestId id : dead) sink().Abort(id);
  EXPECT_LT(clock_.Now() - start, milliseconds(200));
  ASSERT_TRUE(Run([&] { return dead_results.size() == 500; }));
}

// LOOP-06: the end of a lookup wakes the loop.
TEST_F(SinkNamesTest, AFinishedLookupIsNoticedAtOnce) {
  RawSocketStub stub(*loop_);
  Start([](const DnsStub::Question& question) {
    return question.family == Family::kV4 ? Found({"127.0.0.1"}) : Found({});
  });
  std::vector<Duration> waits;
  constexpr int kNames = 200;
  for (int i = 0; i < kNames; ++i) {
    const HttpResult result = Send(absl::StrCat("http://n", i, ".example:", stub.port(), "/"));
    ASSERT_EQ(result.status, 200);
    waits.push_back(result.timings.queued);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_LT(waits[kNames / 2], milliseconds(20));
}

}  // namespace
}  // namespace postrider
