#pragma once

#include "absl/strings/string_view.h"
#include "core/base/id.h"

namespace postrider::subscriptions {

struct CustomerTag {
  static constexpr absl::string_view kPrefix = "cus_";
};
struct EndpointTag {
  static constexpr absl::string_view kPrefix = "ep_";
};
struct SubscriptionTag {
  static constexpr absl::string_view kPrefix = "sub_";
};
struct ErasureTag {
  static constexpr absl::string_view kPrefix = "era_";
};
struct LetterTag {
  static constexpr absl::string_view kPrefix = "dl_";
};

using CustomerId = Id<CustomerTag>;
using EndpointId = Id<EndpointTag>;
using SubscriptionId = Id<SubscriptionTag>;
using ErasureId = Id<ErasureTag>;
using LetterId = Id<LetterTag>;

}  // namespace postrider::subscriptions
