#pragma once

#include "absl/strings/string_view.h"

namespace postrider::subscriptions::internal {

// UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F).
bool IsPlainText(absl::string_view text);

}  // namespace postrider::subscriptions::internal
