#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace postrider::internal {

// Whole numbers with a unit, as options write them: sizes in B, KB, MB, GB (powers of 1024),
// durations in ms, s, m, h, d. A bare number has no value unless it is 0, nor has one that does
// not fit int64.
absl::optional<int64_t> ParseByteSize(absl::string_view text);
absl::optional<int64_t> ParseMillis(absl::string_view text);

// In the largest unit that divides it: "64MB", "90s", "0".
std::string FormatByteSize(int64_t bytes);
std::string FormatMillis(int64_t millis);

// How many single-character changes make one text of the other.
int EditDistance(absl::string_view a, absl::string_view b);

}  // namespace postrider::internal
