#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

inline constexpr size_t kNameBytesMax = 200;
inline constexpr size_t kTenantBytesMax = 200;
inline constexpr size_t kGrantsPerCallMax = 1000;

// An account of ours that owns endpoints.
struct Customer {
  CustomerId id;
  std::string name;
  uint64_t generation = 0;
  WallTime created_at;
  WallTime updated_at;
};

// That a customer may receive a tenant's events.
struct Grant {
  CustomerId customer;
  std::string tenant;
  WallTime created_at;
};

// 1 .. kNameBytesMax bytes of UTF-8 without control characters.
FieldFaults ValidateName(absl::string_view name, absl::string_view pointer);
// The name of a tenant or of a department: 1 .. kTenantBytesMax bytes of the same.
FieldFaults ValidateTenant(absl::string_view tenant, absl::string_view pointer);
// 1 .. kGrantsPerCallMax of them; faults point to `pointer`/0, `pointer`/1 and so on.
FieldFaults ValidateTenants(absl::Span<const std::string> tenants, absl::string_view pointer);

}  // namespace postrider::subscriptions
