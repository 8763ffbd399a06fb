// libcurl's handles are counted by wrapping the two calls that make and free them.

#include <curl/curl.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/curl_sink.h"
#include "tests/core/http_sink/sink_fixture.h"
#include "tests/fakes/manual_clock.h"

namespace {

std::atomic<int> handles_made{0};
std::atomic<int> handles_alive{0};

template <typename Function>
Function* Wrapped(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" CURL* curl_easy_init() {
  ++handles_made;
  ++handles_alive;
  return Wrapped<CURL*()>("curl_easy_init")();
}

extern "C" void curl_easy_cleanup(CURL* easy) {
  --handles_alive;
  Wrapped<void(CURL*)>("curl_easy_cleanup")(easy);
}

namespace postrider {
namespace {

using tests::RawSocketStub;

// As many transfers in libcurl as are told to be, on time that the test makes. What is sent without
// TLS leaves it once it is connected; so these shake hands with a receiver that says nothing.
class SinkSlotsTest : public SinkTest {
 protected:
  SinkSlotsTest() {
    loop_ = *EventLoop::Create(time_);
    options_.host_in_flight_max = 400;
    sink();  // libcurl makes some handles of its own for it
    made_before_ = handles_made;
    alive_before_ = handles_alive;
  }
  ~SinkSlotsTest() override {
    sink().AbortAll();
    EXPECT_TRUE(Run([this] { return sink().in_flight() == 0; }));
    sink_.reset();
    stub_.reset();
    loop_.reset();  // before its clock
    EXPECT_EQ(alive(), 0) << "all are given back";
  }
  // So many at once; they are given up when all have their handles.
  void SendRound(int count) {
    if (stub_ == nullptr) stub_ = std::make_unique<RawSocketStub>(*loop_);
    results_.clear();
    HttpRequest request = Request(stub_->url());
    request.url.scheme = HttpUrl::Scheme::kHttps;
    for (int i = 0; i < count; ++i) SendAsync(request);
    ASSERT_GE(alive(), count);
    sink().AbortAll();
    ASSERT_TRUE(RunUntilResults(static_cast<size_t>(count)));
    for (const HttpResult& result : results_) ASSERT_EQ(result.failure, HttpFailure::kAborted);
  }
  void Pass(Duration time) {
    time_.Advance(time);
    loop_->RunOnce(Duration::zero());
  }
  int made() const { return handles_made - made_before_; }
  int alive() const { return handles_alive - alive_before_; }

  ManualClock time_;
  std::unique_ptr<RawSocketStub> stub_;
  int made_before_ = 0;
  int alive_before_ = 0;
};

TEST_F(SinkSlotsTest, WhatABurstHasLeftIsGivenBackButForAFew) {
  SendRound(400);
  EXPECT_EQ(alive(), 400);
  Pass(milliseconds(999));
  EXPECT_EQ(alive(), 400) << "not within the span";
  Pass(seconds(1));
  Pass(seconds(1));
  EXPECT_LT(alive(), 400);
  EXPECT_GT(alive(), 64) << "so many at a time";
  for (int i = 0; i < 5; ++i) Pass(seconds(1));
  EXPECT_EQ(alive(), 64);
  SendRound(64);
  EXPECT_EQ(made(), 400) << "the kept ones serve the next";
}

TEST_F(SinkSlotsTest, WhatIsNeededAgainAndAgainStays) {
  for (int i = 0; i < 30; ++i) SendRound(100);
  EXPECT_EQ(made(), 100) << "in three spans none was made anew";
  EXPECT_EQ(alive(), 100);
}

}  // namespace
}  // namespace postrider
