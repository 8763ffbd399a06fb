#pragma once

#include <sys/resource.h>

#include "core/base/check.h"

namespace postrider::tests {

// While it lives the process can open nothing more; what is open goes on.
class NoDescriptors {
 public:
  NoDescriptors() {
    POSTRIDER_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    POSTRIDER_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { POSTRIDER_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace postrider::tests
