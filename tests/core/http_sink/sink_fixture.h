#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/resolver.h"
#include "gtest/gtest.h"
#include "tests/fakes/raw_socket_stub.h"
#include "tests/support/status_matchers.h"

namespace postrider {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Answers by script: for each name a list of answers, the last one again and again.
class ScriptedResolver final : public Resolver {
 public:
  void Resolve(const std::string& host, Done done) override {
    ++lookups;
    ResolveResult result;
    std::vector<std::vector<std::string>>& script = answers[host];
    if (hold) {
      held.push_back(std::move(done));
      return;
    }
    if (!script.empty()) {
      for (const std::string& text : script.front()) {
        result.addresses.push_back(*IpAddress::Parse(text));
      }
      if (script.size() > 1) script.erase(script.begin());
    }
    result.valid_until = clock.Now();  // asked again for each request
    std::move(done)(std::move(result));
  }

  SystemClock clock;
  int lookups = 0;
  bool hold = false;
  std::vector<Done> held;
  std::map<std::string, std::vector<std::vector<std::string>>> answers;
};

class SinkTest : public ::testing::Test {
 protected:
  SinkTest() {
    loop_ = *EventLoop::Create(clock_);
    AddressRulesOptions rules;
    rules.allow = {"127.0.0.0/8"};
    allow_loopback_ = *AddressRules::Create(rules);
    options_.pools = 4;
  }
  ~SinkTest() override {
    if (sink_ != nullptr) {
      sink_->AbortAll();
      Run([this] { return sink_->in_flight() == 0; });
    }
  }

  HttpSink& sink() {
    if (sink_ == nullptr) {
      auto made = CreateCurlSink(*loop_, options_, resolver_, allow_loopback_, metrics_);
      EXPECT_OK(made);
      sink_ = *std::move(made);
    }
    return *sink_;
  }

  // Turns until `done`; false after `limit`.
  bool Run(absl::AnyInvocable<bool()> done, Duration limit = seconds(20)) {
    const MonotonicTime end = clock_.Now() + limit;
    while (!done()) {
      if (clock_.Now() > end) return false;
      loop_->RunOnce(milliseconds(20));
    }
    return true;
  }

  HttpRequest Request(const std::string& url, std::string body = "{}") {
    HttpRequest request;
    request.url = *ParseHttpUrl(url);
    request.headers = {{"content-type", "application/json"}, {"webhook-id", "msg_1"}};
    request.body = std::move(body);
    request.connect_timeout = seconds(3);
    request.total_timeout = seconds(10);
    request.connection_group = "cus_1";
    return request;
  }

  // Puts the result at the end of results_ when it comes.
  HttpRequestId SendAsync(HttpRequest request) {
    return sink().Send(std::move(request),
                       [this](HttpResult result) { results_.push_back(std::move(result)); });
  }
  HttpResult Send(HttpRequest request) {
    const size_t before = results_.size();
    SendAsync(std::move(request));
    EXPECT_TRUE(Run([&] { return results_.size() > before; }));
    if (results_.size() == before) return HttpResult();
    return results_.back();
  }
  HttpResult Send(const std::string& url) { return Send(Request(url)); }
  bool RunUntilResults(size_t count, Duration limit = seconds(20)) {
    return Run([&] { return results_.size() >= count; }, limit);
  }

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  Metrics metrics_;
  ScriptedResolver resolver_;
  CurlSinkOptions options_;
  std::shared_ptr<const AddressRules> allow_loopback_;
  std::vector<HttpResult> results_;
  std::unique_ptr<HttpSink> sink_;
};

}  // namespace postrider
