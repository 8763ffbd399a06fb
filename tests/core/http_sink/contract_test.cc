// The sink on libcurl and on our own connections keeps what HttpSink promises.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/resolver.h"
#include "tests/contract/http_sink_contract.h"
#include "tests/fakes/raw_socket_stub.h"
#include "tests/support/status_matchers.h"

namespace postrider::contract {
namespace {

using std::chrono::milliseconds;
using tests::RawSocketStub;
using tests::ResetConnection;
using tests::SendBytes;
using tests::StubAnswer;
using tests::StubRequest;
using tests::StubScript;

// Its receivers have addresses.
class NoResolver final : public Resolver {
 public:
  void Resolve(const std::string&, Done done) override { std::move(done)(ResolveResult()); }
};

class CurlSinkEnvironment final : public HttpSinkContractEnvironment {
 public:
  CurlSinkEnvironment() : loop_(*EventLoop::Create(clock_)), stub_(*loop_) {
    // It is kept until OnConnection() is told of it.
    stub_.SetScript([](const StubRequest&) { return StubScript(); });
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    CurlSinkOptions options;
    options.pools = 2;
    options.in_flight_max = kSlots;
    options.waiting_max = kWaitingMax;
    auto made = CreateCurlSink(*loop_, options, resolver_, *AddressRules::Create(rules), metrics_);
    EXPECT_OK(made);
    sink_ = *std::move(made);
  }

  HttpSink& sink() override { return *sink_; }
  std::string url() const override { return stub_.url(); }
  bool RunUntil(const std::function<bool()>& done) override {
    const MonotonicTime end = clock_.Now() + std::chrono::seconds(20);
    while (!done()) {
      if (clock_.Now() > end) return false;
      loop_->RunOnce(milliseconds(20));
    }
    return true;
  }
  // Some turns in a row in which nothing comes in.
  void Settle() override {
    constexpr int kQuietTurns = 3;
    int quiet = 0;
    while (quiet < kQuietTurns) {
      const auto before = std::make_pair(stub_.bytes_received(), sink_->in_flight());
      loop_->RunOnce(milliseconds(5));
      const auto after = std::make_pair(stub_.bytes_received(), sink_->in_flight());
      quiet = before == after ? quiet + 1 : 0;
    }
  }
  size_t seen() const override { return stub_.requests().size(); }
  Seen at(size_t index) const override {
    const StubRequest& request = stub_.requests().at(index);
    return {request.body, [request](const std::string& name) { return request.Header(name); }};
  }
  void Answer(size_t index, int status, const std::string& body) override {
    stub_.OnConnection(stub_.requests().at(index).connection,
                       {SendBytes(StubAnswer(status, body))});
  }
  void Break(size_t index) override {
    stub_.OnConnection(stub_.requests().at(index).connection, {ResetConnection()});
  }

 private:
  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  RawSocketStub stub_;
  NoResolver resolver_;
  Metrics metrics_;
  std::unique_ptr<HttpSink> sink_;
};

INSTANTIATE_TEST_SUITE_P(Curl, HttpSinkContract, testing::Values([] {
                           return std::unique_ptr<HttpSinkContractEnvironment>(
                               std::make_unique<CurlSinkEnvironment>());
                         }));

}  // namespace
}  // namespace postrider::contract
