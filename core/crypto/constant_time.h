#pragma once

#include "absl/strings/string_view.h"

namespace postrider {

// Whether two texts are equal, in a time that depends on their lengths alone. Threads: any.
bool ConstantTimeEqual(absl::string_view a, absl::string_view b);

}  // namespace postrider
