#pragma once

#include <cstdint>

namespace postrider {

// Raises the process's limit of open files to what it may be raised to (RLIMIT_NOFILE), and says
// how many that are. Threads: one, at start.
int64_t RaiseOpenFileLimit();

}  // namespace postrider
