#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/base/check.h"

namespace postrider {

// An eventfd that says "Poll() has something to do". Threads: any.
class WakeFd {
 public:
  WakeFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { POSTRIDER_CHECK(fd_ >= 0); }
  ~WakeFd() { close(fd_); }
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  int get() const { return fd_; }
  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  }
  void Clear() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
  }

 private:
  const int fd_;
};

}  // namespace postrider
