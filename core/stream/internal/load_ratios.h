#pragma once

#include <chrono>

#include "core/base/clock.h"
#include "core/base/event_loop.h"

namespace postrider::internal {

// How a shard's time divides into working, waiting for room downstream, and waiting for work. The
// three add up to 1.
//
// Threads: the shard's.
class LoadRatios {
 public:
  explicit LoadRatios(const EventLoop& loop) : loop_(loop) {}

  // Whether the shard reads nothing because of a bound, from now on.
  void SetFull(bool full) {
    AddFull();
    full_ = full;
  }

  struct Ratios {
    double busy = 0;
    double pressured = 0;
    double idle = 1;
  };
  // Since the last call.
  Ratios Take() {
    AddFull();
    const double busy = Seconds(loop_.busy_time() - busy_);
    const double idle = Seconds(loop_.idle_time() - idle_);
    const double pressured = Seconds(full_idle_);
    busy_ = loop_.busy_time();
    idle_ = loop_.idle_time();
    full_idle_ = Duration::zero();
    const double all = busy + idle;
    if (all <= 0) return Ratios();
    return {busy / all, pressured / all, (idle - pressured) / all};
  }

 private:
  static double Seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
  }
  // Waiting counts as pressured while the shard is full.
  void AddFull() {
    if (full_) full_idle_ += loop_.idle_time() - seen_idle_;
    seen_idle_ = loop_.idle_time();
  }

  const EventLoop& loop_;
  bool full_ = false;
  Duration seen_idle_{0};  // waiting that was looked at
  Duration full_idle_{0};
  Duration busy_{0};
  Duration idle_{0};
};

}  // namespace postrider::internal
