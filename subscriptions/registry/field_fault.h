#pragma once

#include <string>
#include <vector>

namespace postrider::subscriptions {

// One field that breaks a rule: where it stands in the customer's JSON, and what is allowed. The
// detail never repeats a secret.
struct FieldFault {
  std::string pointer;  // "/batch/events_max"
  std::string detail;

  friend bool operator==(const FieldFault&, const FieldFault&) = default;
};
using FieldFaults = std::vector<FieldFault>;

}  // namespace postrider::subscriptions
