#pragma once

#include "absl/status/status.h"

namespace postrider {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitStopHangs = 3;

// Says on standard error why the program ends, and gives its exit status: what is wrong with the
// options or the command line (kInvalidArgument) is told apart.
int Fail(const absl::Status& status);

}  // namespace postrider
