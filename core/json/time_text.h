#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider {

// Times as text: JSON has no other form for them. Neither function depends on the machine's time
// zone.

// `2030-03-31T00:30:00.000Z`: always UTC, always milliseconds. Times outside the years 0000 to 9999
// are held to the nearest that can be written.
std::string FormatRfc3339(WallTime time);
void AppendRfc3339(WallTime time, std::string* out);

// RFC 3339: the zone is required, lower-case `t` and `z` and a space for the T are taken, fractions
// past a millisecond are cut off, a leap second :60 is the first instant of the next minute. No
// value for anything else.
absl::optional<WallTime> ParseRfc3339(absl::string_view text);

}  // namespace postrider
