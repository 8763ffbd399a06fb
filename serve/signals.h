#pragma once

#include "absl/status/statusor.h"

namespace postrider {

// A file that SIGTERM, SIGINT and SIGHUP are read from (signalfd) without blocking; the threads
// that are started later are not interrupted by them. Writes to what is closed, or past a limit,
// fail instead of ending the process. To be called once, before any thread is started.
absl::StatusOr<int> WatchSignals();

}  // namespace postrider
