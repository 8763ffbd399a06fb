#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

// Whose events: every tenant that the customer is granted, listed tenants, or one tenant's listed
// departments.
enum class ScopeKind : uint8_t { kGranted, kTenants, kDepartments };

absl::string_view ScopeKindName(ScopeKind kind);
absl::optional<ScopeKind> ParseScopeKind(absl::string_view name);

inline constexpr size_t kScopeEntriesMax = 1000;

struct SubscriptionSettings {
  EndpointId endpoint;
  std::vector<std::string> event_types;  // patterns: event_type.h
  ScopeKind scope = ScopeKind::kGranted;
  std::vector<std::string> tenants;      // kTenants: 1 .. 1000; kDepartments: exactly one
  std::vector<std::string> departments;  // kDepartments: 1 .. 1000

  friend bool operator==(const SubscriptionSettings&, const SubscriptionSettings&) = default;
};

// Every field that breaks a rule, as the JSON of REST names them. Not whether the tenants are
// granted nor whether the endpoint exists: ask the repository.
FieldFaults Validate(const SubscriptionSettings& settings);

struct Subscription {
  SubscriptionId id;
  CustomerId customer;
  SubscriptionSettings settings;
  uint64_t generation = 0;
  uint64_t changed_xid = 0;
  WallTime created_at;
  WallTime updated_at;
};

}  // namespace postrider::subscriptions
