#pragma once

#include <chrono>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "subscriptions/registry/ids.h"

namespace postrider::api {

// How many tests of endpoints are let through: the service is nobody's scanner, and one
// customer who tests what hangs takes an eighth of the places.
//
// Threads: the loop's.
// Bounds:  kAtOnceMax tests; what it knows of endpoints and customers lasts a minute at most.
class TestLimits {
 public:
  static constexpr size_t kAtOnceMax = 32;
  static constexpr size_t kAtOnceOfCustomerMax = 4;
  static constexpr size_t kOfCustomerPerMinute = 30;
  static constexpr std::chrono::seconds kEndpointEvery{10};
  static constexpr size_t kKnownMax = 10'000;

  // No value: a test may begin, and End() is owed. Else none may for so long, at least a second.
  absl::optional<std::chrono::seconds> Begin(subscriptions::CustomerId customer,
                                             subscriptions::EndpointId endpoint, MonotonicTime now);
  void End(subscriptions::CustomerId customer);

 private:
  struct Customer {
    size_t at_once = 0;
    size_t begun = 0;  // since `from`
    MonotonicTime from;
  };
  void Forget(MonotonicTime now);

  size_t at_once_ = 0;
  absl::flat_hash_map<subscriptions::CustomerId, Customer> customers_;
  absl::flat_hash_map<subscriptions::EndpointId, MonotonicTime> endpoints_;  // last tested
};

}  // namespace postrider::api
