#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace postrider::tests {

// Root may write anywhere: the rest of the test is nobody's.
class Nobody {
 public:
  Nobody() { Become(65'534); }
  ~Nobody() { Become(0); }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;

 private:
  void Become(uid_t user) const {
    if (root_) {
      EXPECT_EQ(::seteuid(user), 0);
    }
  }
  const bool root_ = ::getuid() == 0;
};

}  // namespace postrider::tests
