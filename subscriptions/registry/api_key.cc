#include "subscriptions/registry/api_key.h"

#include "core/base/check.h"

namespace postrider::subscriptions {

absl::string_view KeyScopeName(KeyScope scope) {
  switch (scope) {
    case KeyScope::kOperator:
      return "operator";
    case KeyScope::kCustomer:
      return "customer";
    case KeyScope::kPublisher:
      return "publisher";
  }
  POSTRIDER_CHECK(false);
}

absl::optional<KeyScope> ParseKeyScope(absl::string_view name) {
  if (name == "operator") return KeyScope::kOperator;
  if (name == "customer") return KeyScope::kCustomer;
  if (name == "publisher") return KeyScope::kPublisher;
  return absl::nullopt;
}

}  // namespace postrider::subscriptions
