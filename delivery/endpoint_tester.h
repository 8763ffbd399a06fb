#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/compression/compressor.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/http/http_sink.h"
#include "delivery/outcome.h"
#include "delivery/prepared_endpoint.h"
#include "delivery/token_cache.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {

// What came of a test message.
struct TestResult {
  std::string webhook_id;  // empty: no request could be made
  OutcomeKind outcome = OutcomeKind::kAborted;
  int status = 0;  // 0: no head came
  Duration took{};
  std::string response;  // the first kResponseBytesMax of the answer's body
};

// Sends single messages of the type "postrider.test" to endpoints: body, signature, headers,
// credentials and address guard are those of a delivery. It knows of no breaker, limit, backlog or
// retry, nor is a test counted as a delivery or reported as an attempt.
//
// Threads: the loop's of the sink.
// Bounds:  the sink's; a host has its part of that (HttpSink::RoomFor()), and a test beyond it ends
// at once with kAborted. From its request on a test lasts kTimeoutMax at most; before that come its
// wait for a slot of its host, the time for its name and that for its token.
class EndpointTester {
 public:
  static constexpr std::chrono::seconds kTimeoutMax{15};
  static constexpr size_t kResponseBytesMax = 2'048;
  using Done = absl::AnyInvocable<void(TestResult) &&>;

  // `clock`, `keys` and `metrics` outlive it.
  EndpointTester(const Clock& clock, std::unique_ptr<HttpSink> sink, const KeyRing& keys,
                 Metrics& metrics);
  // Every test must have ended: see AbortAll().
  ~EndpointTester();
  EndpointTester(const EndpointTester&) = delete;
  EndpointTester& operator=(const EndpointTester&) = delete;

  // `done` is called exactly once, perhaps inside this call, when nothing can be sent.
  void Test(std::shared_ptr<const subscriptions::Endpoint> endpoint, Done done);
  // Soon they have ended, with kAborted.
  void AbortAll();
  size_t in_flight() const { return in_flight_; }
  void SetAddressRules(std::shared_ptr<const AddressRules> rules) {
    sink_->SetAddressRules(std::move(rules));
  }

 private:
  struct Pending {
    std::unique_ptr<PreparedEndpoint> prepared;
    Done done;
  };

  // Sends, or waits for the token.
  void Go(Pending pending);
  void Send(Pending pending, absl::string_view token);
  void End(Done done, TestResult result);
  void OnToken(const std::string& source);

  const Clock& clock_;
  const KeyRing& keys_;
  const std::unique_ptr<HttpSink> sink_;
  TokenCache tokens_;
  Compressor compressor_;
  std::map<std::string, std::vector<Pending>> waiting_;  // for a token, by its source
  size_t in_flight_ = 0;
  bool aborting_ = false;
};

}  // namespace postrider::delivery
