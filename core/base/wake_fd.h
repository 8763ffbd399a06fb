#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace postrider {

// An eventfd that says "Poll() has something to do". Threads: any.
class WakeFd {
 public:
  // kResourceExhausted: the process or the machine has no descriptor left.
  static absl::StatusOr<WakeFd> Create() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return absl::ErrnoToStatus(errno, "no descriptor to wake a loop by");
    return WakeFd(fd);
  }
  ~WakeFd() {
    if (fd_ >= 0) close(fd_);
  }
  WakeFd(WakeFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  WakeFd& operator=(WakeFd&&) = delete;
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
  explicit WakeFd(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace postrider
