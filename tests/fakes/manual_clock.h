#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/clock.h"

namespace postrider {

// A clock that stands until it is moved. It begins an hour after boot, at 2024-01-01T00:00:00Z.
// Threads: any.
class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  WallTime Wall() const override {
    absl::MutexLock lock(&mutex_);
    return std::chrono::floor<std::chrono::milliseconds>(wall_);
  }

  // Moves both times; never back.
  void Advance(Duration by) {
    POSTRIDER_CHECK(by >= Duration::zero());
    absl::MutexLock lock(&mutex_);
    now_ += by;
    wall_ += by;
  }
  // A jump of the wall clock alone, either way.
  void SetWall(WallTime wall) {
    absl::MutexLock lock(&mutex_);
    wall_ = wall;
  }

 private:
  mutable absl::Mutex mutex_;
  MonotonicTime now_ ABSL_GUARDED_BY(mutex_){std::chrono::hours(1)};
  // Finer than WallTime, so that many small steps add up.
  std::chrono::sys_time<Duration> wall_ ABSL_GUARDED_BY(mutex_){
      std::chrono::milliseconds(1'704'067'200'000)};
};

}  // namespace postrider
