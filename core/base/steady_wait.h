#pragma once

#include <chrono>
#include <condition_variable>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace postrider {

// Waits for something with a bound, in time that passes. The waits of absl::Mutex with a timeout or
// a deadline go by the wall clock (Abseil 20220623): one that is set back meanwhile makes them
// longer by as much. Those without a bound may be used beside this on the same mutex.
//
// Threads: any.
class SteadyWait {
 public:
  SteadyWait() = default;
  SteadyWait(const SteadyWait&) = delete;
  SteadyWait& operator=(const SteadyWait&) = delete;

  // Until `done()` holds, which is looked at now and after each Notify(), or `most` has passed.
  // `mutex` is held, but while it waits, and when `done` is called. Returns whether it holds.
  template <typename Done>
  bool For(absl::Mutex& mutex, std::chrono::nanoseconds most, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Lockable lockable(mutex);
    return condition_.wait_for(lockable, most, std::move(done));
  }
  // Whoever makes what somebody waits for calls it afterwards, with or without the mutex.
  void Notify() { condition_.notify_all(); }

 private:
  // By the standard's names.
  class Lockable {
   public:
    explicit Lockable(absl::Mutex& mutex) : mutex_(mutex) {}
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Unlock(); }

   private:
    absl::Mutex& mutex_;
  };
  std::condition_variable_any condition_;
};

}  // namespace postrider
