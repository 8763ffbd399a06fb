#include "subscriptions/registry/subscription.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "subscriptions/registry/customer.h"
#include "subscriptions/registry/event_type.h"

namespace postrider::subscriptions {

absl::string_view ScopeKindName(ScopeKind kind) {
  switch (kind) {
    case ScopeKind::kGranted:
      return "granted";
    case ScopeKind::kTenants:
      return "tenants";
    case ScopeKind::kDepartments:
      return "departments";
  }
  POSTRIDER_CHECK(false);
}

absl::optional<ScopeKind> ParseScopeKind(absl::string_view name) {
  if (name == "granted") return ScopeKind::kGranted;
  if (name == "tenants") return ScopeKind::kTenants;
  if (name == "departments") return ScopeKind::kDepartments;
  return absl::nullopt;
}

FieldFaults Validate(const SubscriptionSettings& settings) {
  FieldFaults faults = ValidateEventTypePatterns(settings.event_types, "/event_types");
  FieldFaults scope;
  switch (settings.scope) {
    case ScopeKind::kGranted:
      if (!settings.tenants.empty()) scope.push_back({"/scope/tenants", "is not of this kind"});
      break;
    case ScopeKind::kTenants:
      scope = ValidateTenants(settings.tenants, "/scope/tenants");
      break;
    case ScopeKind::kDepartments:
      if (settings.tenants.size() != 1) {
        scope.push_back({"/scope/tenant", "must name one tenant"});
      } else {
        scope = ValidateTenant(settings.tenants.front(), "/scope/tenant");
      }
      for (FieldFault& fault : ValidateTenants(settings.departments, "/scope/departments")) {
        scope.push_back(std::move(fault));
      }
      break;
  }
  if (settings.scope != ScopeKind::kDepartments && !settings.departments.empty()) {
    scope.push_back({"/scope/departments", "is not of this kind"});
  }
  for (FieldFault& fault : scope) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace postrider::subscriptions
