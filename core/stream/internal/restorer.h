#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/internal/changelog_part.h"
#include "core/stream/internal/shard_metrics.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// Reads the changelogs of a shard's tasks from their start to the marker that each task has
// appended, with one reader for all. What must be there before records are read goes first and
// together; the rest a few at a time, in small turns beside delivery, and not while anything of the
// first kind is read. A part whose store is full waits, and only that one.
//
// A restore ends at the marker: everything that a former owner was told to be durable stands before
// it, and what stands behind it is this owner's own or comes too late.
//
// Threads: the shard's.
// Bounds:  what the reader holds (ReaderOptions); in a turn kPollRecords, or kFirstRecords while
//          anything of the first kind is read. What restores hold of the partitions' identities
//          (ChangelogReplay): beyond `bytes_max` the oldest goes on alone, so it is that and the
//          identities of one partition.
class Restorer final : public ReadHandler {
 public:
  // All outlive it, but for the parts: Remove() them before.
  Restorer(Log& log, EventLoop& loop, int beside_max, int64_t prefetch_bytes, int64_t bytes_max,
           ShardMetrics& metrics);
  ~Restorer() override;

  // The part is marked; ends with its EndRestore() or Fail().
  void Add(ChangelogPart& part);
  // It has ended. Of one that is not there: nothing happens.
  void Remove(ChangelogPart& part);
  size_t size() const { return restores_.size(); }

  // ReadHandler.
  void OnRecord(const LogRecord& record) override;
  void OnPartitionEnd(const TopicPartition& tp, int64_t next) override;

 private:
  static constexpr size_t kPollRecords = 256;
  static constexpr size_t kFirstRecords = 8 * kPollRecords;

  struct Restore {
    ChangelogPart* part = nullptr;
    uint64_t number = 0;  // in the order of Add()
    MonotonicTime began;
    bool reading = false;
    absl::optional<int64_t> next;  // to be read; none: the log's start
    uint64_t records = 0;
    // A record that the store had no room for.
    absl::optional<std::pair<std::string, std::string>> refused;
    TimerId retry = 0;
  };
  using Restores = std::map<TopicPartition, Restore>;

  absl::Status OpenReader();
  void Schedule();
  void LookAtMemory();
  void Read();
  Restores::iterator Find(absl::string_view topic, int32_t partition);
  void Begin(const TopicPartition& tp, Restore& restore);
  void Suspend(const TopicPartition& tp, Restore& restore);
  void Retry(const TopicPartition& tp);
  // The record at next - 1 was taken: is it over?
  void Advance(Restores::iterator at);
  void WaitForRoom(const TopicPartition& tp, Restore& restore);
  void Finish(Restores::iterator at);
  void Fault(Restores::iterator at, const absl::Status& why);

  Log& log_;
  EventLoop& loop_;
  const int beside_max_;
  const int64_t prefetch_bytes_;
  const int64_t bytes_max_;
  ShardMetrics& metrics_;
  std::unique_ptr<PartitionReader> reader_;
  Restores restores_;
  Restores::iterator last_ = restores_.end();  // that was found
  uint64_t added_ = 0;
  size_t first_ = 0;   // of them must be there before records are read
  bool full_ = false;  // they hold bytes_max
  TimerId read_timer_ = 0;
};

}  // namespace postrider::internal
