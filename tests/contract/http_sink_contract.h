#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/http/http_sink.h"
#include "core/http/url.h"

namespace postrider::contract {

// What every HttpSink is held to. A test binary includes this once and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Curl, HttpSinkContract, testing::Values(...));
//
// The sink's receiver keeps each request until it is told what to do with it.
class HttpSinkContractEnvironment {
 public:
  // Requests that may wait for a slot, and slots.
  static constexpr size_t kWaitingMax = 8;
  static constexpr size_t kSlots = 4;

  virtual ~HttpSinkContractEnvironment() = default;
  virtual HttpSink& sink() = 0;
  virtual std::string url() const = 0;
  // Lets loop and receiver work until `done`; false when it takes too long.
  virtual bool RunUntil(const std::function<bool()>& done) = 0;
  // Lets them work until nothing more happens by itself.
  virtual void Settle() = 0;

  struct Seen {
    std::string body;
    std::function<std::string(const std::string& name)> header;
  };
  // The requests that have reached the receiver so far, in their order.
  virtual size_t seen() const = 0;
  virtual Seen at(size_t index) const = 0;
  virtual void Answer(size_t index, int status, const std::string& body) = 0;
  // Its connection breaks before an answer.
  virtual void Break(size_t index) = 0;
};
using HttpSinkContractFactory = std::function<std::unique_ptr<HttpSinkContractEnvironment>()>;

class HttpSinkContract : public testing::TestWithParam<HttpSinkContractFactory> {
 protected:
  HttpSinkContract() : environment_(GetParam()()) {}
  ~HttpSinkContract() override {
    sink().AbortAll();
    EXPECT_TRUE(environment_->RunUntil([this] { return sink().in_flight() == 0; }));
  }

  HttpSink& sink() { return environment_->sink(); }

  HttpRequest Request(std::string body) const {
    HttpRequest request;
    request.url = *ParseHttpUrl(environment_->url());
    request.headers = {{"content-type", "text/plain"}, {"webhook-id", absl::StrCat("msg_", body)}};
    request.body = std::move(body);
    request.connection_group = "cus_1";
    return request;
  }
  // Its result stands in results_ under its body; a second one is a failure.
  HttpRequestId Send(HttpRequest request) {
    const InCall in_call(*this);
    std::string body = request.body;
    auto done = [this, body](HttpResult result) {
      EXPECT_EQ(calls_, 0) << body << " was answered inside a call to the sink";
      EXPECT_TRUE(results_.emplace(body, std::move(result)).second) << body << " twice";
      if (on_done_) on_done_(body);
    };
    return sink().Send(std::move(request), std::move(done));
  }
  HttpRequestId Send(const std::string& body) { return Send(Request(body)); }
  void Abort(HttpRequestId id) {
    const InCall in_call(*this);
    sink().Abort(id);
  }
  void AbortAll() {
    const InCall in_call(*this);
    sink().AbortAll();
  }
  bool WaitSeen(size_t count) {
    return environment_->RunUntil([&] { return environment_->seen() >= count; });
  }
  bool WaitResults(size_t count) {
    return environment_->RunUntil([&] { return results_.size() >= count; });
  }
  // The place at the receiver of the request with this body.
  size_t PlaceOf(const std::string& body) const {
    for (size_t i = 0; i < environment_->seen(); ++i) {
      if (environment_->at(i).body == body) return i;
    }
    ADD_FAILURE() << body << " was not seen";
    return 0;
  }
  bool WasSeen(const std::string& body) const {
    for (size_t i = 0; i < environment_->seen(); ++i) {
      if (environment_->at(i).body == body) return true;
    }
    return false;
  }

  // While it lives the sink is being called.
  class InCall {
   public:
    explicit InCall(HttpSinkContract& test) : test_(test) { ++test_.calls_; }
    ~InCall() { --test_.calls_; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

   private:
    HttpSinkContract& test_;
  };

  const std::unique_ptr<HttpSinkContractEnvironment> environment_;
  std::map<std::string, HttpResult> results_;
  std::function<void(const std::string& body)> on_done_;
  int calls_ = 0;
};

TEST_P(HttpSinkContract, BringsWhatItIsGivenAndWhatIsAnswered) {
  Send("hello");
  ASSERT_TRUE(WaitSeen(1));
  const auto seen = environment_->at(0);
  EXPECT_EQ(seen.body, "hello");
  EXPECT_EQ(seen.header("content-type"), "text/plain");
  EXPECT_EQ(seen.header("webhook-id"), "msg_hello");
  environment_->Answer(0, 201, "thanks");
  ASSERT_TRUE(WaitResults(1));
  const HttpResult& result = results_.at("hello");
  EXPECT_EQ(result.failure, HttpFailure::kNone);
  EXPECT_EQ(result.status, 201);
  EXPECT_EQ(result.body_excerpt, "thanks");
  EXPECT_TRUE(result.request_sent);
  EXPECT_FALSE(result.timed_out);
  EXPECT_FALSE(result.body_cut);
}

TEST_P(HttpSinkContract, AnswersEachOnceAndWithItsOwn) {
  constexpr size_t kAll = HttpSinkContractEnvironment::kSlots;
  for (int round = 0; round < 5; ++round) {
    results_.clear();
    const size_t before = environment_->seen();
    for (size_t i = 0; i < kAll; ++i) Send(absl::StrCat(round, "/", i));
    ASSERT_TRUE(WaitSeen(before + kAll));
    // The last one first.
    for (size_t i = kAll; i > 0; --i) {
      const std::string body = absl::StrCat(round, "/", i - 1);
      environment_->Answer(PlaceOf(body), static_cast<int>(220 + i), body);
    }
    ASSERT_TRUE(WaitResults(kAll));
    environment_->Settle();
    for (size_t i = 1; i <= kAll; ++i) {
      const std::string body = absl::StrCat(round, "/", i - 1);
      EXPECT_EQ(results_.at(body).status, 220 + static_cast<int>(i));
      EXPECT_EQ(results_.at(body).body_excerpt, body);
    }
    EXPECT_EQ(sink().in_flight(), 0u);
  }
}

TEST_P(HttpSinkContract, EveryStatusIsAnAnswer) {
  for (const int status : {200, 204, 302, 400, 410, 429, 500, 503}) {
    const std::string body = absl::StrCat("s", status);
    const size_t place = environment_->seen();
    Send(body);
    ASSERT_TRUE(WaitSeen(place + 1));
    environment_->Answer(place, status, "");
    ASSERT_TRUE(environment_->RunUntil([&] { return results_.contains(body); }));
    EXPECT_EQ(results_.at(body).failure, HttpFailure::kNone);
    EXPECT_EQ(results_.at(body).status, status);
  }
}

TEST_P(HttpSinkContract, TellsThatAConnectionBrokeBeforeTheAnswer) {
  Send("broken");
  ASSERT_TRUE(WaitSeen(1));
  environment_->Break(0);
  ASSERT_TRUE(WaitResults(1));
  EXPECT_EQ(results_.at("broken").failure, HttpFailure::kReset);
  EXPECT_EQ(results_.at("broken").status, 0);
  EXPECT_TRUE(results_.at("broken").request_sent) << "the receiver may have seen it";
}

TEST_P(HttpSinkContract, NamesEachRequestByAnIdOfItsOwn) {
  std::set<HttpRequestId> ids = {0};
  for (int i = 0; i < 10; ++i) {
    const std::string body = absl::StrCat("n", i);
    const size_t place = environment_->seen();
    EXPECT_TRUE(ids.insert(Send(body)).second);
    ASSERT_TRUE(WaitSeen(place + 1));
    environment_->Answer(place, 200, "");
    ASSERT_TRUE(environment_->RunUntil([&] { return results_.contains(body); }));
  }
}

TEST_P(HttpSinkContract, CountsARequestUntilItsAnswerIsDelivered) {
  EXPECT_EQ(sink().in_flight(), 0u);
  const HttpRequestId id = Send("a");
  Send("b");
  EXPECT_EQ(sink().in_flight(), 2u);
  ASSERT_TRUE(WaitSeen(2));
  EXPECT_EQ(sink().in_flight(), 2u);
  Abort(id);
  EXPECT_EQ(sink().in_flight(), 2u) << "its answer has not been delivered";
  ASSERT_TRUE(WaitResults(1));
  EXPECT_EQ(sink().in_flight(), 1u);
  environment_->Answer(PlaceOf("b"), 200, "");
  ASSERT_TRUE(WaitResults(2));
  EXPECT_EQ(sink().in_flight(), 0u);
}

TEST_P(HttpSinkContract, AnswersOneThatIsAbortedSoon) {
  const HttpRequestId at_once = Send("at once");
  Abort(at_once);
  EXPECT_TRUE(results_.empty());
  ASSERT_TRUE(WaitResults(1));
  EXPECT_EQ(results_.at("at once").failure, HttpFailure::kAborted);
  EXPECT_FALSE(results_.at("at once").request_sent);

  const size_t place = environment_->seen();
  const HttpRequestId later = Send("later");
  ASSERT_TRUE(WaitSeen(place + 1));
  Abort(later);
  Abort(later);
  ASSERT_TRUE(WaitResults(2));
  EXPECT_EQ(results_.at("later").failure, HttpFailure::kAborted);
  EXPECT_EQ(results_.at("later").status, 0);
  environment_->Settle();
  EXPECT_EQ(sink().in_flight(), 0u);
}

TEST_P(HttpSinkContract, AnAbortOfWhatHasEndedOrNeverWasHasNoEffect) {
  Abort(0);
  Abort(12'345);
  const HttpRequestId ended = Send("ended");
  ASSERT_TRUE(WaitSeen(1));
  environment_->Answer(0, 200, "");
  ASSERT_TRUE(WaitResults(1));
  Send("other");
  Abort(ended);
  Abort(0);
  Abort(ended + 12'345);
  ASSERT_TRUE(WaitSeen(2));
  environment_->Answer(1, 200, "");
  ASSERT_TRUE(WaitResults(2));
  EXPECT_EQ(results_.at("ended").status, 200);
  EXPECT_EQ(results_.at("other").status, 200);
}

TEST_P(HttpSinkContract, AbortsAllThatWaitOrFly) {
  constexpr size_t kAll = HttpSinkContractEnvironment::kSlots + 2;
  for (size_t i = 0; i < kAll; ++i) Send(absl::StrCat(i));
  ASSERT_TRUE(WaitSeen(HttpSinkContractEnvironment::kSlots));
  AbortAll();
  EXPECT_TRUE(results_.empty());
  ASSERT_TRUE(WaitResults(kAll));
  for (const auto& [body, result] : results_) {
    EXPECT_EQ(result.failure, HttpFailure::kAborted) << body;
  }
  EXPECT_EQ(sink().in_flight(), 0u);
  const size_t place = environment_->seen();
  Send("afterwards");
  ASSERT_TRUE(WaitSeen(place + 1));
  environment_->Answer(place, 200, "");
  ASSERT_TRUE(WaitResults(kAll + 1));
  EXPECT_EQ(results_.at("afterwards").status, 200);
}

TEST_P(HttpSinkContract, AsksBeforeItSendsAndSendsNothingWhenToldNo) {
  HttpRequest request = Request("never");
  int asked = 0;
  request.may_start = [&](HttpRequest&) {
    ++asked;
    return false;
  };
  Send(std::move(request));
  ASSERT_TRUE(WaitResults(1));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(results_.at("never").failure, HttpFailure::kAborted);
  EXPECT_FALSE(results_.at("never").request_sent);
  environment_->Settle();
  EXPECT_FALSE(WasSeen("never"));
}

TEST_P(HttpSinkContract, SendsTheHeadersThatTheAskedOneBrought) {
  HttpRequest request = Request("anew");
  request.may_start = [](HttpRequest& mine) {
    mine.headers = {{"content-type", "text/plain"}, {"webhook-id", "msg_of_now"}};
    return true;
  };
  Send(std::move(request));
  ASSERT_TRUE(WaitSeen(1));
  EXPECT_EQ(environment_->at(0).header("webhook-id"), "msg_of_now");
  environment_->Answer(0, 200, "");
  ASSERT_TRUE(WaitResults(1));
}

TEST_P(HttpSinkContract, AsksOneThatWaitsOnlyWhenItGetsItsSlot) {
  constexpr size_t kSlots = HttpSinkContractEnvironment::kSlots;
  for (size_t i = 0; i < kSlots; ++i) Send(absl::StrCat(i));
  ASSERT_TRUE(WaitSeen(kSlots));
  HttpRequest request = Request("waits");
  int asked = 0;
  request.may_start = [&](HttpRequest&) { return ++asked > 0; };
  Send(std::move(request));
  environment_->Settle();
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(WasSeen("waits"));
  environment_->Answer(PlaceOf("0"), 200, "");
  ASSERT_TRUE(environment_->RunUntil([&] { return WasSeen("waits"); }));
  EXPECT_EQ(asked, 1);
}

TEST_P(HttpSinkContract, RefusesByItsBoundAndTakesMoreWhenOneHasEnded) {
  constexpr size_t kAll =
      HttpSinkContractEnvironment::kSlots + HttpSinkContractEnvironment::kWaitingMax;
  size_t sent = 0;
  while (sink().CanSend() && sent < 10 * kAll) {
    Send(absl::StrCat(sent++));
    environment_->Settle();
  }
  EXPECT_EQ(sent, kAll);
  EXPECT_FALSE(sink().CanSend());
  environment_->Answer(PlaceOf("0"), 200, "");
  ASSERT_TRUE(environment_->RunUntil([this] { return sink().CanSend(); }));
  AbortAll();
  ASSERT_TRUE(WaitResults(kAll));
  EXPECT_TRUE(sink().CanSend());
}

TEST_P(HttpSinkContract, AHostHasRoomForNoMoreThanItsPart) {
  const std::string host = ParseHttpUrl(environment_->url())->authority();
  const size_t room = sink().RoomFor(host);
  ASSERT_GT(room, 0u);
  constexpr size_t kAll =
      HttpSinkContractEnvironment::kSlots + HttpSinkContractEnvironment::kWaitingMax / 2;
  for (size_t i = 0; i < kAll; ++i) Send(absl::StrCat(i));
  environment_->Settle();
  EXPECT_LT(sink().RoomFor(host), room);
  EXPECT_GT(sink().RoomFor("another.example"), 0u) << "what one host has is no other's";
  AbortAll();
  ASSERT_TRUE(WaitResults(kAll));
  EXPECT_EQ(sink().RoomFor(host), room);
}

TEST_P(HttpSinkContract, MayBeCalledFromWhereItAnswers) {
  const HttpRequestId victim = Send("victim");
  Send("first");
  ASSERT_TRUE(WaitSeen(2));
  on_done_ = [&](const std::string& body) {
    if (body != "first") return;
    Send("second");
    Abort(victim);
  };
  environment_->Answer(PlaceOf("first"), 200, "");
  ASSERT_TRUE(WaitSeen(3));
  environment_->Answer(PlaceOf("second"), 200, "");
  ASSERT_TRUE(WaitResults(3));
  EXPECT_EQ(results_.at("second").status, 200);
  EXPECT_EQ(results_.at("victim").failure, HttpFailure::kAborted);
}

TEST_P(HttpSinkContract, KeepsNothingOfOneThatHasEnded) {
  const auto kept = std::make_shared<int>(0);
  bool ended = false;
  HttpRequest request = Request("kept");
  request.may_start = [kept](HttpRequest&) { return true; };
  {
    const InCall in_call(*this);
    sink().Send(std::move(request), [kept, &ended](HttpResult) { ended = true; });
  }
  ASSERT_TRUE(WaitSeen(1));
  environment_->Answer(0, 200, "");
  ASSERT_TRUE(environment_->RunUntil([&] { return ended; }));
  environment_->Settle();
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace postrider::contract
