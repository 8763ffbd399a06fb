#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace postrider::api {

// How long an attempt took, as a customer is told. Without an answer (`status` 0) it is told in
// whole seconds, the next one up: how long a connection took to fail would tell what is at an
// address that does not answer us. Of an address that we refuse nothing is told (RULES 4).
inline int64_t ShownDurationMs(absl::string_view outcome, int64_t status, int64_t took_ms) {
  constexpr int64_t kSecond = 1'000;
  // No request was made.
  if (outcome == "no_token" || outcome == "configuration") return 0;
  if (outcome == "address_not_allowed") return 0;
  return status != 0 ? took_ms : (took_ms / kSecond + 1) * kSecond;
}

}  // namespace postrider::api
