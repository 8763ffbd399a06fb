#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/partition.h"
#include "core/stream/group_coordinator.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

class CursorSet;

// A wall clock that is further off what has passed was set, not only corrected.
inline constexpr Duration kClockOffMax = std::chrono::minutes(10);

struct LogMetrics {
  explicit LogMetrics(Metrics& metrics);
  Counter& appends;
  Counter& append_bytes;
  Counter& groups;
  Histogram& write_seconds;
  Counter& write_failures;
  Counter& damage;
  Counter& cold_reads;
  Counter& compacted_records;
  Gauge& writable;
  Gauge& takes_events;
  Gauge& disk_bytes;
  Gauge& memory_bytes;
};

// What the parts of the log share: its topics, its groups and what was written last. The mutex is
// held for moments only, never over a callback, a read or a write of the disk.
class Core {
 public:
  Core(const Clock& log_clock, Metrics& registry, size_t tail_max)
      : clock(log_clock),
        metrics(registry),
        tail_bytes_max(tail_max),
        groups(log_clock),
        began_wall_(log_clock.Wall()),
        began_(log_clock.Now()) {}

  // The time by which records age: it goes on from the wall clock's at the start by what has passed
  // since, however the wall clock is set meanwhile. Threads: any.
  WallTime AgeTime() const {
    return began_wall_ + std::chrono::duration_cast<WallTime::duration>(OpenFor());
  }
  Duration OpenFor() const { return clock.Now() - began_; }

  // Null: there is none.
  PartitionPtr FindPartition(const TopicPartition& tp) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Lets readers see the group that was written.
  void Publish(const std::vector<PartitionPtr>& touched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void AddTopic(TopicPtr topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // With everything that groups have committed for it.
  void RemoveTopic(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void SetBegin(Partition& partition, int64_t begin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Whether writes go through; `why` when they do not. Tells all members.
  void SetWritable(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const Clock& clock;
  LogMetrics metrics;
  std::atomic<bool> nearly_full{false};  // of the disk
  const size_t tail_bytes_max;
  std::unique_ptr<Database> database;

  mutable absl::Mutex mutex;
  std::map<std::string, TopicPtr> topics ABSL_GUARDED_BY(mutex);
  GroupCoordinator groups ABSL_GUARDED_BY(mutex);
  std::vector<CursorSet*> sets ABSL_GUARDED_BY(mutex);
  absl::Status writable ABSL_GUARDED_BY(mutex);
  size_t producers ABSL_GUARDED_BY(mutex) = 0;
  // The greatest number of a topic that the database had anything of when it was opened.
  uint32_t topic_number_max ABSL_GUARDED_BY(mutex) = 0;

 private:
  const WallTime began_wall_;
  const MonotonicTime began_;
  struct TailEntry {
    PartitionPtr partition;
    size_t bytes;
  };
  std::deque<TailEntry> tail_order_ ABSL_GUARDED_BY(mutex);
  size_t tail_bytes_ ABSL_GUARDED_BY(mutex) = 0;
};

// Database::CopyEntries(); a failure is told of, and waits for the next time. No lock is held.
void KeepEntryCopy(Core& core);

}  // namespace postrider::embedded_log_internal
