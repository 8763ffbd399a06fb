#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/stream/group_coordinator.h"
#include "core/stream/record.h"
#include "tests/fakes/memory_log.h"

namespace postrider {
namespace memory_log_internal {

using RecordPtr = std::shared_ptr<const MemoryLog::StoredRecord>;

struct Partition {
  int64_t begin = 0;
  int64_t end = 0;
  std::deque<RecordPtr> records;

  // The first record at or above `offset`; null when there is none.
  RecordPtr Find(int64_t offset) const {
    const auto found =
        std::lower_bound(records.begin(), records.end(), offset,
                         [](const RecordPtr& record, int64_t at) { return record->offset < at; });
    return found == records.end() ? nullptr : *found;
  }
};

struct Topic {
  int16_t replication = 1;
  bool frozen = false;
  std::vector<Partition> partitions;
};

// Passes a stored record on as a log does.
void Pass(const TopicPartition& tp, const MemoryLog::StoredRecord& stored,
          const std::function<void(const LogRecord&)>& to);

}  // namespace memory_log_internal

// What the parts of the log share.
struct MemoryLog::Impl {
  explicit Impl(const Clock& log_clock) : clock(log_clock), groups(log_clock) {}

  using Partition = memory_log_internal::Partition;
  using Topic = memory_log_internal::Topic;

  Partition* FindPartition(const TopicPartition& tp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = topics.find(tp.topic);
    if (found == topics.end() || tp.partition < 0 ||
        static_cast<size_t>(tp.partition) >= found->second.partitions.size()) {
      return nullptr;
    }
    return &found->second.partitions[static_cast<size_t>(tp.partition)];
  }
  void Store(Partition& partition, StoredRecord&& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    record.offset = partition.end++;
    record.timestamp = clock.Wall();
    partition.records.push_back(std::make_shared<const StoredRecord>(std::move(record)));
  }
  void TrimPartition(Partition& partition, int64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    partition.begin = std::max(partition.begin, offset);
    while (!partition.records.empty() && partition.records.front()->offset < partition.begin) {
      partition.records.pop_front();
    }
  }

  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (reachable) groups.ExpireAll();
  }

  const Clock& clock;
  mutable absl::Mutex mutex;
  std::map<std::string, Topic> topics ABSL_GUARDED_BY(mutex);
  GroupCoordinator groups ABSL_GUARDED_BY(mutex);
  std::set<Consumer*> consumers ABSL_GUARDED_BY(mutex);
  std::set<Producer*> producers ABSL_GUARDED_BY(mutex);
  std::set<Reader*> readers ABSL_GUARDED_BY(mutex);
  bool reachable ABSL_GUARDED_BY(mutex) = true;
  bool hold_appends ABSL_GUARDED_BY(mutex) = false;
  size_t unanswered ABSL_GUARDED_BY(mutex) = 0;
  CommitFault commit_fault ABSL_GUARDED_BY(mutex) = CommitFault::kNone;
  CommitObserver commit_observer ABSL_GUARDED_BY(mutex);
};

}  // namespace postrider
