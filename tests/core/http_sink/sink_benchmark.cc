// What the sink and the loop spend on one request, beside a receiver in a process of its own that
// answers at once. The numbers of iterations are fixed, so that instructions and system calls can
// be counted too:
//   valgrind --tool=callgrind core_http_sink_benchmark --benchmark_filter=Alone
//   strace -c core_http_sink_benchmark --benchmark_filter=Together

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/resolver.h"

namespace postrider {
namespace {

constexpr int kAddresses = 100;
constexpr int kRequests = 20'000;
constexpr size_t kBodyBytes = 700;

constexpr absl::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 21:00:00 GMT\r\nServer: receiver\r\n"
    "Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}";

// Of the requests of this benchmark: a head, and a body as long as it says.
size_t RequestBytes(absl::string_view text) {
  constexpr absl::string_view kLength = "Content-Length: ";
  const size_t end = text.find("\r\n\r\n");
  const size_t length = text.find(kLength);
  size_t body = 0;
  if (end == absl::string_view::npos || length == absl::string_view::npos) return 0;
  const size_t start = length + kLength.size();
  if (!absl::SimpleAtoi(text.substr(start, text.find("\r\n", start) - start), &body)) return 0;
  return end + 4 + body;
}

[[noreturn]] void Serve(int listener) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [epoll](int fd) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  };
  watch(listener);
  std::vector<std::string> unfinished;
  std::array<char, 16'384> bytes;
  std::array<epoll_event, 256> events;
  for (;;) {
    const int count = epoll_wait(epoll, events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listener) {
        const int made = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        const auto index = static_cast<size_t>(made);
        if (index >= unfinished.size()) unfinished.resize(index + 1);
        unfinished[index].clear();
        watch(made);
        continue;
      }
      const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
      if (got <= 0) {
        close(fd);
        continue;
      }
      std::string& text = unfinished[static_cast<size_t>(fd)];
      text.append(bytes.data(), static_cast<size_t>(got));
      for (size_t size = 0; (size = RequestBytes(text)) > 0 && text.size() >= size;) {
        text.erase(0, size);
        if (send(fd, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL) < 0) break;
      }
    }
  }
}

// Every address of 127.0.0.0/8 is answered on one port. The receiver ends with this process.
uint16_t StartReceiver() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  POSTRIDER_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  POSTRIDER_CHECK(listen(listener, 1'024) == 0);
  POSTRIDER_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const pid_t child = fork();
  POSTRIDER_CHECK(child >= 0);
  if (child == 0) Serve(listener);
  close(listener);
  return ntohs(address.sin_port);
}

class NoNames final : public Resolver {
 public:
  void Resolve(const std::string&, Done) override { std::abort(); }
};

class Sender {
 public:
  Sender() : loop_(*EventLoop::Create(clock_)) {
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    sink_ = *CreateCurlSink(*loop_, CurlSinkOptions(), resolver_, *AddressRules::Create(rules),
                            metrics_);
    const uint16_t port = StartReceiver();
    for (int i = 1; i <= kAddresses; ++i) {
      urls_.push_back(*ParseHttpUrl(absl::StrCat("http://127.0.0.", i, ":", port, "/hook/", i)));
    }
    for (int i = 0; i < 2 * kAddresses; ++i) Send(static_cast<size_t>(i));
    while (sink_->in_flight() > 0) loop_->RunOnce(std::chrono::seconds(1));
  }

  void Send(size_t number) {
    HttpRequest request;
    request.url = urls_[number % urls_.size()];
    request.headers = {{"content-type", "application/json"},
                       {"user-agent", "Postrider/1.0"},
                       {"webhook-id", absl::StrCat("msg_ABCDEFGHIJKLMNOPQRSTUVWX", number)},
                       {"webhook-timestamp", "1796077200"},
                       {"webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="},
                       {"webhook-attempt", "1"},
                       {"webhook-batch-size", "1"}};
    request.body = std::string(kBodyBytes, 'x');
    request.response_header_prefix = "webhook-";
    request.connection_group = absl::StrCat("cus_", number % 2);
    sink_->Send(std::move(request), [this](HttpResult result) {
      POSTRIDER_CHECK(result.status == 200 && result.resends == 0);
      ++ended_;
    });
  }
  void Turn() { loop_->RunOnce(std::chrono::seconds(1)); }
  size_t in_flight() const { return sink_->in_flight(); }
  size_t ended() const { return ended_; }

 private:
  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  Metrics metrics_;
  NoNames resolver_;
  std::unique_ptr<HttpSink> sink_;
  std::vector<HttpUrl> urls_;
  size_t ended_ = 0;
};

Sender& TheSender() {
  static Sender sender;
  return sender;
}

// One at a time: nothing is shared between requests of one turn.
void Alone(benchmark::State& state) {
  Sender& sender = TheSender();
  size_t number = 0;
  for (auto _ : state) {
    const size_t before = sender.ended();
    sender.Send(number++);
    while (sender.ended() == before) sender.Turn();
  }
}
BENCHMARK(Alone)->Iterations(kRequests)->UseRealTime()->MeasureProcessCPUTime();

void Together(benchmark::State& state) {
  constexpr size_t kAtOnce = 64;
  Sender& sender = TheSender();
  size_t number = 0;
  for (auto _ : state) {
    while (sender.in_flight() >= kAtOnce) sender.Turn();
    sender.Send(number++);
  }
  while (sender.in_flight() > 0) sender.Turn();
}
BENCHMARK(Together)->Iterations(kRequests)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace postrider

BENCHMARK_MAIN();
