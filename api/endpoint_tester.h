#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "core/base/clock.h"
#include "core/http/address_guard.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::api {

// Sends a test message to an endpoint, as a delivery would be sent.
//
// Threads: the role's loop.
class EndpointTester {
 public:
  struct Result {
    std::string webhook_id;  // empty: no request could be made
    std::string outcome;     // the names that attempts have
    int status = 0;          // 0: no head came
    Duration took{};
    std::string response;  // the beginning of the answer's body; any bytes
  };
  using Done = absl::AnyInvocable<void(Result) &&>;

  virtual ~EndpointTester() = default;

  // `done` is called exactly once, perhaps inside this call.
  virtual void Test(std::shared_ptr<const subscriptions::Endpoint> endpoint, Done done) = 0;
  // Whom it may reach from now on.
  virtual void SetAddressRules(std::shared_ptr<const AddressRules> rules) = 0;
  // All tests end soon. It is not destroyed before in_flight() is 0.
  virtual void AbortAll() = 0;
  virtual size_t in_flight() const = 0;
};

}  // namespace postrider::api
