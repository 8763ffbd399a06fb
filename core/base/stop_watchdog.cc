#include "core/base/stop_watchdog.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/check.h"
#include "core/base/thread_name.h"

namespace postrider {
namespace {

constexpr int kSayMs = 1'000;

// Not by the log, whose lock the thread that hangs may hold, nor into a pipe that nobody reads.
void Say(const std::string& line) {
  pollfd standard_error{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&standard_error, 1, kSayMs) != 1) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

StopWatchdog::~StopWatchdog() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  thread_.join();
}

void StopWatchdog::Arm(std::chrono::milliseconds limit, int exit_status, Unfinished unfinished) {
  POSTRIDER_CHECK(!thread_.joinable());
  thread_ = std::thread([this, limit, exit_status, unfinished = std::move(unfinished)] {
    NameThread("stop-watchdog");
    Watch(limit, exit_status, unfinished);
  });
}

void StopWatchdog::Watch(std::chrono::milliseconds limit, int exit_status,
                         const Unfinished& unfinished) {
  {
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&ended_), absl::FromChrono(limit))) return;
  }
  Say(absl::StrCat("postrider: the stop did not end within ", limit.count(),
                   " ms, so the process ends as it is: ", unfinished(), "\n"));
  ::_exit(exit_status);
}

}  // namespace postrider
