#include "subscriptions/registry/customer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "subscriptions/registry/internal/text_rules.h"

namespace postrider::subscriptions {
namespace {

FieldFaults ValidateText(absl::string_view text, size_t bytes_max, absl::string_view pointer) {
  if (text.empty() || text.size() > bytes_max) {
    return {{std::string(pointer), absl::StrCat("must be 1 to ", bytes_max, " bytes long")}};
  }
  if (!internal::IsPlainText(text)) {
    return {{std::string(pointer), "must be UTF-8 without control characters"}};
  }
  return {};
}

}  // namespace

FieldFaults ValidateName(absl::string_view name, absl::string_view pointer) {
  return ValidateText(name, kNameBytesMax, pointer);
}

FieldFaults ValidateTenant(absl::string_view tenant, absl::string_view pointer) {
  return ValidateText(tenant, kTenantBytesMax, pointer);
}

FieldFaults ValidateTenants(absl::Span<const std::string> tenants, absl::string_view pointer) {
  if (tenants.empty() || tenants.size() > kGrantsPerCallMax) {
    return {{std::string(pointer), absl::StrCat("must have 1 to ", kGrantsPerCallMax, " entries")}};
  }
  FieldFaults faults;
  for (size_t i = 0; i < tenants.size(); ++i) {
    for (FieldFault& fault : ValidateTenant(tenants[i], absl::StrCat(pointer, "/", i))) {
      faults.push_back(std::move(fault));
    }
  }
  return faults;
}

}  // namespace postrider::subscriptions
