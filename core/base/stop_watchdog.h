#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace postrider {

// Ends a process whose stop hangs, whatever hangs in it: a stop is safe at any moment, as what is
// not committed is repeated, and a process that never ends keeps its successor from its data.
//
// Threads: one of its own, from Arm() on, that needs no loop and no lock of others. Its destructor
// ends it: let it outlive all that may hang.
class StopWatchdog {
 public:
  // Called on its thread when the time is over, so it may take no lock that a hanging thread holds;
  // says what has not ended.
  using Unfinished = std::function<std::string()>;

  StopWatchdog() = default;
  StopWatchdog(const StopWatchdog&) = delete;
  StopWatchdog& operator=(const StopWatchdog&) = delete;
  ~StopWatchdog();

  // Unless this is destroyed within `limit` the process says so on standard error and ends with
  // `exit_status`, by _exit(). Once.
  void Arm(std::chrono::milliseconds limit, int exit_status, Unfinished unfinished);

 private:
  void Watch(std::chrono::milliseconds limit, int exit_status, const Unfinished& unfinished);

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace postrider
