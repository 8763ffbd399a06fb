#include "api/internal/test_limits.h"

#include <algorithm>

namespace postrider::api {
namespace {

using std::chrono::seconds;

constexpr seconds kMinute{60};

seconds Until(MonotonicTime then, MonotonicTime now) {
  return std::max(std::chrono::ceil<seconds>(then - now), seconds(1));
}

}  // namespace

absl::optional<seconds> TestLimits::Begin(subscriptions::CustomerId customer,
                                          subscriptions::EndpointId endpoint, MonotonicTime now) {
  if (endpoints_.size() >= kKnownMax || customers_.size() >= kKnownMax) Forget(now);
  if (at_once_ >= kAtOnceMax || endpoints_.size() >= kKnownMax || customers_.size() >= kKnownMax) {
    return seconds(1);
  }
  if (const auto last = endpoints_.find(endpoint);
      last != endpoints_.end() && now < last->second + kEndpointEvery) {
    return Until(last->second + kEndpointEvery, now);
  }
  Customer& one = customers_[customer];
  if (one.begun == 0 || now >= one.from + kMinute) {
    one.begun = 0;
    one.from = now;
  }
  if (one.begun >= kOfCustomerPerMinute) return Until(one.from + kMinute, now);
  if (one.at_once >= kAtOnceOfCustomerMax) return seconds(1);
  ++one.begun;
  ++one.at_once;
  ++at_once_;
  endpoints_[endpoint] = now;
  return absl::nullopt;
}

void TestLimits::End(subscriptions::CustomerId customer) {
  --at_once_;
  // It is known as long as a test of its is under way.
  --customers_.find(customer)->second.at_once;
}

void TestLimits::Forget(MonotonicTime now) {
  absl::erase_if(endpoints_, [now](const auto& one) { return now >= one.second + kEndpointEvery; });
  absl::erase_if(customers_, [now](const auto& one) {
    return one.second.at_once == 0 && now >= one.second.from + kMinute;
  });
}

}  // namespace postrider::api
