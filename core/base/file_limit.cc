#include "core/base/file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace postrider {

int64_t RaiseOpenFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int32_t>::max());
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
}

}  // namespace postrider
