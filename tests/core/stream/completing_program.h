#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/stream/function.h"
#include "core/stream/job.h"
#include "core/stream/log.h"

namespace postrider::tests {

// What the functions of all shards have met. Any thread's.
class Seen {
 public:
  void Record(const TopicPartition& tp, int64_t offset) {
    absl::MutexLock lock(&mutex_);
    ++met_;
    offsets_[tp].insert(offset);
    threads_.insert(std::this_thread::get_id());
  }
  void End(const TopicPartition& tp, int64_t next) {
    absl::MutexLock lock(&mutex_);
    ends_[tp] = next;
  }

  // False: `at_most` was over before.
  bool AwaitRecords(size_t count, absl::Duration at_most) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return Records() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), at_most);
  }
  // Until so many partitions were read up to `next`.
  bool AwaitEnds(size_t partitions, int64_t next, absl::Duration at_most) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      size_t there = 0;
      for (const auto& [tp, end] : ends_) there += end == next ? 1 : 0;
      return there == partitions;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&all), at_most);
  }

  // Each counts once.
  size_t records() {
    absl::MutexLock lock(&mutex_);
    return Records();
  }
  size_t repeats() {
    absl::MutexLock lock(&mutex_);
    return met_ - Records();
  }
  size_t threads() {
    absl::MutexLock lock(&mutex_);
    return threads_.size();
  }

 private:
  size_t Records() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    size_t all = 0;
    for (const auto& [tp, offsets] : offsets_) all += offsets.size();
    return all;
  }

  absl::Mutex mutex_;
  size_t met_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<TopicPartition, std::set<int64_t>> offsets_ ABSL_GUARDED_BY(mutex_);
  std::map<TopicPartition, int64_t> ends_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

// Completes each record at once.
class CompletingFunction final : public KeyedProcessFunction {
 public:
  explicit CompletingFunction(Seen& seen) : seen_(seen) {}
  absl::Status Open(TaskContext&) override { return absl::OkStatus(); }
  void OnElement(TaskContext& ctx, const LogRecord& record) override {
    ctx.Complete(record.offset);
    seen_.Record(ctx.partition(), record.offset);
  }
  void OnTimer(TaskContext&, absl::string_view, uint32_t, MonotonicTime) override {}
  void OnPartitionEnd(TaskContext& ctx, int64_t next) override { seen_.End(ctx.partition(), next); }
  void OnRoom(TaskContext&) override {}
  void OnResume(TaskContext&) override {}
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext&, Drain) override {}
  size_t in_flight() const override { return 0; }
  void Close(TaskContext&, CloseReason) override {}

 private:
  Seen& seen_;
};

class CompletingProgram final : public ShardProgram {
 public:
  explicit CompletingProgram(Seen& seen) : seen_(seen) {}
  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
    return std::make_unique<CompletingFunction>(seen_);
  }

 private:
  Seen& seen_;
};

}  // namespace postrider::tests
