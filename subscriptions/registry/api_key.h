#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

enum class KeyScope { kOperator, kCustomer, kPublisher };

absl::string_view KeyScopeName(KeyScope scope);
absl::optional<KeyScope> ParseKeyScope(absl::string_view name);

// An API key as it is kept: never its secret, only the secret's SHA-256 (32 bytes).
struct ApiKey {
  std::string key_id;  // 12 characters
  KeyScope scope = KeyScope::kCustomer;
  absl::optional<CustomerId> customer;   // of scope customer, and only of it
  std::vector<std::string> event_types;  // patterns; of scope publisher
  std::vector<std::string> tenants;      // or "*"; of scope publisher
  std::string name;
  std::string secret_sha256;
  WallTime created_at;
  absl::optional<WallTime> revoked_at;
};

}  // namespace postrider::subscriptions
