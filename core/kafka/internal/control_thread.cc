#include "core/kafka/internal/control_thread.h"

#include <utility>

#include "absl/synchronization/mutex.h"

namespace postrider::kafka_internal {

ControlThread::ControlThread() : thread_([this] { Loop(); }) {}

ControlThread::~ControlThread() {
  std::deque<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    dropped.swap(jobs_);
  }
  thread_.join();
}

bool ControlThread::Run(Job&& job) {
  absl::MutexLock lock(&mutex_);
  if (stop_ || jobs_.size() >= kJobsMax) return false;
  jobs_.push_back(std::move(job));
  return true;
}

void ControlThread::Loop() {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || !jobs_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::move(job)();
  }
}

}  // namespace postrider::kafka_internal
