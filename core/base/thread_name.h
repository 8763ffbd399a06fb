#pragma once

#include "absl/strings/string_view.h"

namespace postrider {

// Names the calling thread as tools show it: what it belongs to, then what it is, as "worker-0" or
// "log-writer". The part before the `-` tells whose CPU time it is in a process that has all roles.
// Bounds: 15 bytes; the rest is cut off.
void NameThread(absl::string_view name);

}  // namespace postrider
