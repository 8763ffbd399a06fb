#include "serve/endpoint_tester.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/http/curl_sink.h"
#include "delivery/endpoint_tester.h"
#include "delivery/outcome.h"

namespace postrider {
namespace {

// The API lets 32 tests through at once; each may have a token fetched before.
constexpr size_t kRequestsMax = 64;
constexpr size_t kIdleConnectionsMax = 8;

class Tester final : public api::EndpointTester {
 public:
  Tester(const Clock& clock, std::unique_ptr<HttpSink> sink, const KeyRing& keys, Metrics& metrics)
      : tester_(clock, std::move(sink), keys, metrics) {}

  void Test(std::shared_ptr<const subscriptions::Endpoint> endpoint, Done done) override {
    tester_.Test(std::move(endpoint), [done = std::move(done)](delivery::TestResult sent) mutable {
      Result result;
      result.webhook_id = std::move(sent.webhook_id);
      result.outcome = std::string(delivery::OutcomeName(sent.outcome));
      result.status = sent.status;
      result.took = sent.took;
      result.response = std::move(sent.response);
      std::move(done)(std::move(result));
    });
  }
  void SetAddressRules(std::shared_ptr<const AddressRules> rules) override {
    tester_.SetAddressRules(std::move(rules));
  }
  void AbortAll() override { tester_.AbortAll(); }
  size_t in_flight() const override { return tester_.in_flight(); }

 private:
  delivery::EndpointTester tester_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<api::EndpointTester>> MakeEndpointTester(
    EventLoop& loop, const EndpointTesterParts& parts) {
  CurlSinkOptions options;
  options.pools = 1;
  options.in_flight_max = kRequestsMax;
  options.waiting_max = kRequestsMax;
  options.host_in_flight_max = kRequestsMax / 8;
  options.host_waiting_max = kRequestsMax / 8;
  options.idle_connections_max = kIdleConnectionsMax;
  options.ca_bundle_file = parts.ca_file;
  options.proxy = parts.proxy;
  ASSIGN_OR_RETURN(std::unique_ptr<HttpSink> sink,
                   CreateCurlSink(loop, options, parts.resolver, parts.rules, parts.metrics));
  return std::unique_ptr<api::EndpointTester>(
      std::make_unique<Tester>(loop.clock(), std::move(sink), parts.keys, parts.metrics));
}

}  // namespace postrider
