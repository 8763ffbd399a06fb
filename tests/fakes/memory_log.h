#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// The log in memory, with a group coordinator that behaves as Apache Kafka's does with eager
// groups: generations, a join that waits for everybody's release, members that expire by the clock,
// commits that a generation fences. A consumer that is destroyed without Leave() has crashed: its
// member stays until its session times out. It is deterministic when one thread drives all loops
// with a manual clock. Linger is not modelled: a record is written by Append() and acknowledged in
// the next Poll().
//
// Threads: any; what was opened on a loop is used on its thread. It outlives all of that.
class MemoryLog final : public Log {
 public:
  static constexpr size_t kRecordBytesMax = 1'000'000;

  explicit MemoryLog(const Clock& clock);
  ~MemoryLog() override;

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

  // What a test reads and writes from behind.
  struct StoredRecord {
    int64_t offset = 0;
    WallTime timestamp;
    std::string key;
    std::string value;
    std::vector<std::pair<std::string, std::string>> headers;
    bool tombstone = false;
  };
  // Makes one topic, or CHECKs.
  void MakeTopic(const std::string& name, int32_t partitions);
  // With everything that groups have committed for it.
  void DeleteTopic(const std::string& name);
  // Returns the record's offset.
  int64_t Write(const TopicPartition& tp, absl::string_view key, absl::string_view value,
                std::vector<std::pair<std::string, std::string>> headers = {});
  int64_t WriteTombstone(const TopicPartition& tp, absl::string_view key);
  // Keeps the last record of each key, as a compaction of all that is there does.
  enum class Tombstones { kKeep, kDrop };
  void Compact(const TopicPartition& tp, Tombstones tombstones = Tombstones::kKeep);
  // The next `count` offsets never come, as after a compaction.
  void SkipOffsets(const TopicPartition& tp, int64_t count);
  // At once, whether the log is reachable or not.
  void TrimNow(const TopicPartition& tp, int64_t offset);
  std::vector<StoredRecord> Records(const TopicPartition& tp) const;
  absl::optional<CommittedPosition> Committed(const std::string& group,
                                              const TopicPartition& tp) const;
  void SetCommitted(const std::string& group, const TopicPartition& tp, CommittedPosition position);
  // As when a group was empty for too long, or is deleted.
  void ForgetCommits(const std::string& group);
  // Called for each position when it is stored, by whatever thread stores it. The log's lock is
  // held: it must not call the log.
  using CommitObserver =
      std::function<void(const std::string& group, uint64_t member, const CommitEntry& entry)>;
  void SetCommitObserver(CommitObserver observer);
  // Members that the coordinator knows, the oldest first; crashed ones too.
  std::vector<uint64_t> Members(const std::string& group) const;
  int64_t Generation(const std::string& group) const;

  // Faults. All are off at first.
  // While unreachable nothing is stored, read, answered or expired; what waits goes on afterwards.
  void SetReachable(bool reachable);
  enum class CommitFault {
    kNone,
    kRefuse,      // nothing is stored, the answer is kUnavailable
    kLoseAnswer,  // stored, yet the answer is kUnavailable
    kHold,        // stored, answered when the fault is changed
  };
  void SetCommitFault(CommitFault fault);
  // Appended records are written, but acknowledged only after HoldAppends(false).
  void HoldAppends(bool hold);
  // Appends whose callback has not run to its end.
  size_t UnansweredAppends() const;
  // The coordinator drops this member at once; it learns of it in its next Poll().
  void Expire(const std::string& group, uint64_t member);
  // Nothing passes between this member and the log, until false. Its session may expire meanwhile.
  void Isolate(const std::string& group, uint64_t member, bool isolated);

 private:
  struct Impl;
  class Producer;
  class Consumer;
  class Reader;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
