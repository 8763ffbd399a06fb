#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace rocksdb {
class Env;
}

namespace postrider {

struct EmbeddedLogOptions {
  // Its own, made when it is missing; the directory above it exists.
  std::string directory;
  // For RocksDB's blocks and memtables and for the latest records, together; at least 8 MB. What
  // producers and readers may hold is bounded by their own options.
  size_t memory_bytes = 96 << 20;
  // From one sync to the next while little waits: a record that comes alone is synced at once, at a
  // steady rate those of so long share one. 0: as often as the disk can.
  std::chrono::milliseconds sync_interval{1};
  // Between two rounds of retention and compaction; 0: only RunUpkeep().
  std::chrono::milliseconds upkeep_interval{15'000};
  // How long, and how much of each partition, topics keep that say neither (`retention.ms`,
  // `retention.bytes`); as a broker's log.retention.ms and log.retention.bytes. -1: no bound.
  std::chrono::milliseconds retention{std::chrono::hours(7 * 24)};
  int64_t retention_bytes = -1;
  std::chrono::milliseconds retry_interval{500};  // of a write that failed
  // A write that takes longer makes Ping() say so: a disk that hangs fails no write.
  std::chrono::milliseconds slow_after{3'000};
  // What is to stay free on the disk, or an eighth of it when that is less: below it records are
  // refused with kResourceExhausted whose topic says nothing of how long it keeps them. So events
  // from outside leave room for what makes room: results, commits, trims and retention.
  uint64_t reserve_bytes = 256 << 20;
  // In place of the system's files, for tests; outlives the log.
  rocksdb::Env* env = nullptr;
  // In place of what the file system says, for tests. Threads: any, one at a time.
  std::function<std::filesystem::space_info()> space;
};

// The Log in one process, on a RocksDB in a directory of its own: for those who have one machine
// and no Kafka. An append is acknowledged when it is on the disk; one thread gathers what all
// producers append, writes it together and syncs it once.
//
// Groups are those of Kafka, within the process: several members share partitions, generations
// fence their commits. LeaseUntil() has no end, for no other process can take over. Topics keep
// what retention.ms, retention.bytes, cleanup.policy, delete.retention.ms,
// min.cleanable.dirty.ratio and min.compaction.lag.ms say, with Kafka's defaults; replication is
// not looked at.
//
// A disk that is nearly full refuses records from outside at once (EmbeddedLogOptions::
// reserve_bytes). One that is full or fails a write: nothing is answered, Ping() says why, group
// members are told that the log is not reachable, reads go on, and the same write is tried again
// until it goes through. Producers' queues fill meanwhile. So nothing acknowledged is lost.
//
// Records are stamped with the wall clock, and age by what passes while the log is open: a clock
// that is set meanwhile ages none of them. What a start finds too old stays for another hour.
//
// Damage on the disk is told of in the process's log and a metric; what can be read is served, and
// what cannot is passed over as if it had been compacted away.
//
// Threads: see Log; four of its own (writer, watch, fetcher, upkeep) beside RocksDB's.
// Bounds:  memory_bytes; records of 1,000,000 bytes; 1,024 calls of Trim() and OffsetForTime()
//          wait at most, the next is kResourceExhausted.
class EmbeddedLog final : public Log {
 public:
  // kFailedPrecondition: another process has the directory, a newer version wrote it, or it holds
  // files that are not ours (nothing was touched); kUnavailable: it cannot be made, read or
  // written; kDataLoss: it is damaged so that it cannot be opened. `clock` and `metrics` outlive
  // the log, the log outlives what it opened.
  static absl::StatusOr<std::unique_ptr<EmbeddedLog>> Open(const EmbeddedLogOptions& options,
                                                           const Clock& clock, Metrics& metrics);
  ~EmbeddedLog() override;
  EmbeddedLog(const EmbeddedLog&) = delete;
  EmbeddedLog& operator=(const EmbeddedLog&) = delete;

  absl::StatusOr<std::unique_ptr<LogProducer>> OpenProducer(
      EventLoop& loop, const ProducerOptions& options) override;
  absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop,
                                                           const GroupOptions& options,
                                                           GroupHandler& handler) override;
  absl::StatusOr<std::unique_ptr<PartitionReader>> OpenReader(EventLoop& loop,
                                                              const ReaderOptions& options,
                                                              ReadHandler& handler) override;
  absl::Status EnsureTopics(const std::vector<TopicSpec>& topics,
                            std::chrono::milliseconds timeout) override;
  absl::StatusOr<int32_t> Partitions(const std::string& topic,
                                     std::chrono::milliseconds timeout) override;
  absl::StatusOr<Range> Offsets(const TopicPartition& tp,
                                std::chrono::milliseconds timeout) override;
  void Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
            absl::AnyInvocable<void(absl::Status) &&> done) override;
  void OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                     absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) override;
  void Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
            absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) override;
  absl::StatusOr<GroupState> DescribeGroup(const std::string& group,
                                           const std::vector<TopicPartition>& partitions,
                                           std::chrono::milliseconds timeout) override;
  absl::Status ResetGroup(const std::string& group, const std::vector<CommitEntry>& entries,
                          std::chrono::milliseconds timeout) override;
  absl::Status DeleteTopic(const std::string& topic, std::chrono::milliseconds timeout) override;
  absl::Status FreezeTopic(const std::string& topic, std::chrono::milliseconds timeout) override;
  absl::Status Ping(std::chrono::milliseconds timeout) override;

  // Every topic, by name.
  struct TopicState {
    std::string name;
    int32_t partitions = 0;
    WallTime created;
    bool frozen = false;
    std::vector<std::pair<std::string, std::string>> settings;
  };
  std::vector<TopicState> Topics() const;
  // Names of groups that have members or positions.
  std::vector<std::string> Groups() const;
  // A round of retention and compaction at once, whether it is worth it or not. Blocks. Threads:
  // one at a time, and only with upkeep_interval 0.
  void RunUpkeep();

 private:
  struct Impl;
  explicit EmbeddedLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
