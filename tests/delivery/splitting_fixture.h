#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "delivery/bisection.h"
#include "dlq/letters/dead_letter_record.h"
#include "tests/delivery/delivery_fixture.h"

namespace postrider::delivery {

// One endpoint with a receiver that judges each request by the numbers of its events, and a ledger
// of what became of each of them. Numbers begin at 1.
class SplittingFixture : public DeliveryFixture {
 protected:
  using Numbers = std::vector<int64_t>;
  using Receiver = std::function<HttpResult(const Numbers&, size_t body_bytes)>;

  SplittingFixture() {
    settings_.batch.wait_max = std::chrono::milliseconds(100);
    settings_.retry.first_delay = std::chrono::seconds(2);
    settings_.retry.cap = std::chrono::seconds(2);
  }

  static HttpResult Status(int status) {
    HttpResult result;
    result.status = status;
    return result;
  }
  // Takes all but those, and refuses the whole if there is one.
  static Receiver Refusing(std::set<int64_t> poison, int status = 422) {
    return [poison = std::move(poison), status](const Numbers& numbers, size_t) {
      for (const int64_t number : numbers) {
        if (poison.contains(number)) return Status(status);
      }
      return Status(200);
    };
  }

  static Numbers NumbersOf(const FakeHttpSink::Sent& sent) {
    Numbers numbers;
    const absl::string_view body = sent.request.body;
    const absl::string_view mark = "\"data\":{\"n\":";
    for (size_t at = body.find(mark); at != absl::string_view::npos; at = body.find(mark, at)) {
      at += mark.size();
      int64_t number = 0;
      const size_t end = body.find_first_not_of("0123456789", at);
      EXPECT_TRUE(absl::SimpleAtoi(body.substr(at, end - at), &number));
      numbers.push_back(number);
    }
    return numbers;
  }

  // Answers one request and enters it into the ledger.
  void AnswerBy(size_t index, const Receiver& receiver) {
    const Numbers numbers = NumbersOf(sink_->at(index));
    const HttpResult result = receiver(numbers, sink_->at(index).request.body.size());
    if (result.status / 100 == 2) {
      for (const int64_t number : numbers) ++delivered_[number];
    }
    sink_->Answer(index, result);
  }
  // Answers all that is in flight, and what that brings about, until nothing is; no time passes.
  // The figures are of the requests since the last call.
  void Serve(const Receiver& receiver) {
    requests_ = 0;
    in_flight_most_ = 0;
    while (true) {
      SendAll();
      size_t open = 0;
      for (size_t i = served_; i < sink_->size(); ++i) open += sink_->at(i).open ? 1 : 0;
      in_flight_most_ = std::max(in_flight_most_, open);
      if (open == 0) return;
      while (!sink_->at(served_).open) ++served_;
      ++requests_;
      AnswerBy(served_++, receiver);
    }
  }
  // Gathers these into one batch, and sends it.
  void Send(int64_t first, int64_t last) {
    Deliver(first, last);
    Advance(settings_.batch.wait_max);
  }
  // The numbers of the letters of this life.
  std::multiset<int64_t> Letters(dlq::DeadReason reason) {
    std::multiset<int64_t> numbers;
    for (size_t i = 0; i < ctx().emitted().size(); ++i) {
      const dlq::DeadLetterRecord letter = Letter(i);
      EXPECT_EQ(letter.reason, reason);
      int64_t number = 0;
      EXPECT_TRUE(absl::SimpleAtoi(letter.event_id.substr(1), &number));
      numbers.insert(number);
    }
    return numbers;
  }
  // Each of these was taken so many times, but for those that are not expected at all.
  void ExpectDelivered(int64_t first, int64_t last, const std::set<int64_t>& not_these,
                       int times = 1) {
    for (int64_t number = first; number <= last; ++number) {
      EXPECT_EQ(delivered_[number], not_these.contains(number) ? 0 : times) << number;
    }
  }

  std::map<int64_t, int> delivered_;
  size_t served_ = 0;
  size_t requests_ = 0;
  size_t in_flight_most_ = 0;
};

}  // namespace postrider::delivery
