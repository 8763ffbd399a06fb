#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "loadtest/internal/event_sink.h"
#include "loadtest/internal/rest_call.h"
#include "loadtest/plan.h"

namespace postrider::loadtest::internal {

// Publishes by POST /v1/events. What comes while every connection waits for an answer goes with the
// next request. A request is repeated until it is answered by 202: 429, 503, and a server that is
// away or dies are weathered; any other answer is final. With one connection the events are stored
// in their order.
// Bounds: at most kEventsOut events; a request has at most kEventsPerRequest and ends behind the
// event with which it reaches kBytesPerRequest.
class ApiSink final : public EventSink {
 public:
  static constexpr size_t kEventsOut = 20'000;
  static constexpr size_t kEventsPerRequest = 200;
  static constexpr size_t kBytesPerRequest = 256 << 10;

  // `url`: scheme, host and port. It borrows the plan.
  ApiSink(const Plan& plan, std::string url, std::string key, int connections);
  ~ApiSink() override;

  absl::Status Put(const std::string& id, const std::string& payload,
                   ProducedRecord* record) override;
  absl::Status Poll(int timeout_ms) override;
  uint64_t sent_again() const override { return sent_again_; }

 private:
  struct Call : RestCall {
    std::vector<ProducedRecord*> records;
    bool running = false;
    bool connected = false;                     // the last request was answered
    std::chrono::steady_clock::time_point due;  // not before
  };

  void Start();
  absl::Status Take(Call* call, CURLcode code);

  const Plan& plan_;
  const std::string url_;
  const std::string key_;
  std::unique_ptr<CURLM, MultiFree> multi_;
  std::vector<std::unique_ptr<Call>> calls_;
  struct Gathered {
    std::string event;  // as JSON
    ProducedRecord* record = nullptr;
  };
  std::deque<Gathered> gathered_;
  size_t out_ = 0;  // gathered or on their way
  uint64_t sent_again_ = 0;
};

}  // namespace postrider::loadtest::internal
