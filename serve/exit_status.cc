#include "serve/exit_status.h"

#include <cstdio>
#include <string>

namespace postrider {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "postrider: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
}

}  // namespace postrider
