// Connections that are never made: what libcurl does with their sockets differs from all others.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/core/http_sink/sink_fixture.h"

namespace postrider {
namespace {

using tests::RawSocketStub;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;

// A listener whose queue is full: it answers no SYN, as a host behind a firewall does.
class FullListener {
 public:
  FullListener() {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    EXPECT_EQ(listen(fd_, 0), 0);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
    constexpr int kTries = 20;
    bool full = false;
    for (int i = 0; i < kTries && !full; ++i) full = !Connects();
    EXPECT_TRUE(full);
  }
  ~FullListener() {
    for (const int fd : waiting_) close(fd);
    close(fd_);
  }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)) + "/";
  }

 private:
  bool Connects() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    waiting_.push_back(fd);
    connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    constexpr int kWaitMs = 100;
    pollfd wanted{fd, POLLOUT, 0};
    return poll(&wanted, 1, kWaitMs) > 0;
  }

  int fd_ = -1;
  sockaddr_in address_{};
  std::vector<int> waiting_;
};

// While it lives this process can open so many descriptors more.
class DescriptorsLeft {
 public:
  explicit DescriptorsLeft(size_t left) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    // All below the first number that is free are in use, and none is at it or above.
    for (int fd = Open(); fd >= 0; fd = Open()) {
      held_.push_back(fd);
      if (fd > kHighest) break;
    }
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(held_.back()) + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    EXPECT_EQ(Open(), -1);
    for (size_t i = 0; i < left; ++i) {
      close(held_.back());
      held_.pop_back();
    }
  }
  ~DescriptorsLeft() {
    for (const int fd : held_) close(fd);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  DescriptorsLeft(const DescriptorsLeft&) = delete;
  DescriptorsLeft& operator=(const DescriptorsLeft&) = delete;

 private:
  static constexpr int kHighest = 200;  // above those that the test's own things have
  static int Open() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

  rlimit before_{};
  std::vector<int> held_;
};

class SinkConnectTest : public SinkTest {
 protected:
  double Ended(HttpFailure failure) {
    return metrics_
        .AddCounter("postrider_http_requests_total", "",
                    {{"failure", std::string(HttpFailureName(failure))}})
        .value();
  }
};

TEST_F(SinkConnectTest, WithoutADescriptorForASocketNobodyIsToBlame) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) { return StubScript{SendBytes(StubAnswer(200))}; });
  sink();
  // Plain ones are ours, those with TLS libcurl's.
  for (const std::string& url :
       {stub.url(), absl::StrCat("https://127.0.0.1:", stub.port(), "/")}) {
    DescriptorsLeft none(0);
    const HttpResult result = Send(url);
    EXPECT_EQ(result.failure, HttpFailure::kOwnLimit) << url;
    EXPECT_FALSE(result.request_sent);
    EXPECT_FALSE(result.timed_out);
  }
  EXPECT_EQ(Ended(HttpFailure::kOwnLimit), 2);
  EXPECT_EQ(Send(stub.url()).status, 200) << "there are some again";
  // A connection that is kept needs none.
  DescriptorsLeft none(0);
  EXPECT_EQ(Send(stub.url()).status, 200);
}

TEST_F(SinkConnectTest, WithoutADescriptorForItsOwnWayNobodyIsToBlame) {
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) { return StubScript{SendBytes(StubAnswer(200))}; });
  sink();
  {
    // The socket has it.
    DescriptorsLeft one(1);
    const HttpResult result = Send(stub.url());
    EXPECT_EQ(result.failure, HttpFailure::kOwnLimit);
    EXPECT_FALSE(result.request_sent);
  }
  EXPECT_EQ(Send(stub.url()).status, 200);
}

TEST_F(SinkConnectTest, EndsAtItsDeadlineWhenNobodyAnswersTheSyn) {
  FullListener full;
  for (int i = 0; i < 8; ++i) {
    HttpRequest request = Request(full.url());
    request.connect_timeout = milliseconds(200);
    SendAsync(std::move(request));
  }
  ASSERT_TRUE(RunUntilResults(8));
  for (const HttpResult& result : results_) {
    EXPECT_EQ(result.failure, HttpFailure::kConnect);
    EXPECT_TRUE(result.timed_out);
    EXPECT_FALSE(result.request_sent);
  }
}

TEST_F(SinkConnectTest, CanBeAbortedWhileItConnects) {
  FullListener full;
  std::vector<HttpRequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(SendAsync(Request(full.url())));
  // Its connect is under way after a turn or two.
  Run([] { return false; }, milliseconds(50));
  for (const HttpRequestId id : ids) sink().Abort(id);
  ASSERT_TRUE(RunUntilResults(8));
  for (const HttpResult& result : results_) EXPECT_EQ(result.failure, HttpFailure::kAborted);
}

TEST_F(SinkConnectTest, TheSocketsNumbersServeOthersAtOnce) {
  FullListener full;
  RawSocketStub stub(*loop_);
  stub.SetScript([](const StubRequest&) { return StubScript{SendBytes(StubAnswer(200))}; });
  for (int round = 0; round < 5; ++round) {
    results_.clear();
    std::vector<HttpRequestId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(SendAsync(Request(full.url())));
    Run([] { return false; }, milliseconds(30));
    for (const HttpRequestId id : ids) sink().Abort(id);
    // Of another group each time, so that connections are new.
    for (int i = 0; i < 4; ++i) {
      HttpRequest request = Request(stub.url());
      request.connection_group = "group " + std::to_string(4 * round + i);
      SendAsync(std::move(request));
    }
    ASSERT_TRUE(RunUntilResults(8));
    int answered = 0;
    for (const HttpResult& result : results_) answered += result.status == 200 ? 1 : 0;
    EXPECT_EQ(answered, 4);
  }
}

}  // namespace
}  // namespace postrider
