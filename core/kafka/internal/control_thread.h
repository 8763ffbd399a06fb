#pragma once

#include <cstddef>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace postrider::kafka_internal {

// One thread for the blocking calls that a shard's loop must not make; jobs run one after the
// other.
//
// Threads: any.
// Bounds:  kJobsMax wait.
class ControlThread {
 public:
  using Job = absl::AnyInvocable<void() &&>;
  static constexpr size_t kJobsMax = 1'024;

  ControlThread();
  // Finishes the job that runs and drops the rest.
  ~ControlThread();
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  // False: kJobsMax jobs wait, or it stops; `job` is untouched.
  [[nodiscard]] bool Run(Job&& job);

 private:
  void Loop();

  absl::Mutex mutex_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace postrider::kafka_internal
