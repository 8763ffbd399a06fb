#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/record.h"

namespace postrider {

// The log that streams stand on: topics of partitions of records, producers, groups of consumers
// with committed offsets, and trimming. core/kafka implements it on Apache Kafka; tests/fakes has
// one in memory; both pass tests/contract/log_contract.h.

struct TopicSpec {
  std::string name;
  int32_t partitions = 1;
  int16_t replication = 3;
  // Topic settings by the names that Apache Kafka gives them ("retention.ms", "cleanup.policy").
  std::vector<std::pair<std::string, std::string>> settings;
};

struct ProducerOptions {
  // Whether records travel with others, which is cheaper by far, or each alone. What Apache Kafka
  // says of a batch (kFailedPrecondition, and kInvalidArgument that it has found itself) is said of
  // all records in it.
  enum class Batches : uint8_t { kShared, kOfOne };
  Batches batches = Batches::kShared;
  std::chrono::milliseconds linger{5};
  int64_t queue_records_max = 100'000;
  int64_t queue_bytes_max = 64 << 20;
};

// Appends records: acknowledged by all in-sync replicas, written once per producer's life and in
// the order of the calls for each partition. It retries for as long as it lives.
//
// Threads: the one of the EventLoop that it was opened with; callbacks run there, from Poll().
class LogProducer {
 public:
  // The offset that the record got; or why it can never be written (the topic is gone, it is too
  // large or has neither key, value nor header; kFailedPrecondition: the topic is frozen), or
  // kAborted when the producer was closed before the answer came.
  using AppendDone = absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&>;

  virtual ~LogProducer() = default;

  // False: the queue is at its bounds and nothing was taken; try again when room_callback is
  // called. `done` is called exactly once, never from inside this call.
  [[nodiscard]] virtual bool Append(AppendRecord&& record, AppendDone&& done) = 0;
  // Called from Poll() when the queue has shrunk to half after Append() refused.
  virtual void SetRoomCallback(absl::AnyInvocable<void()> room) = 0;
  // Appends that wait for their answer.
  virtual size_t pending() const = 0;
  // Runs the callbacks of what was answered; also run by the loop when there are any.
  virtual void Poll() = 0;
  // Sends what lingers without waiting for it. Does not block.
  virtual void Flush() = 0;
};

struct CommittedPosition {
  int64_t offset = 0;
  std::string metadata;  // at most kCommitMetadataBytesMax
  friend bool operator==(const CommittedPosition&, const CommittedPosition&) = default;
};
inline constexpr size_t kCommitMetadataBytesMax = 4'096;

struct AssignedPartition {
  TopicPartition tp;
  absl::optional<CommittedPosition> committed;
};

struct Assignment {
  std::vector<AssignedPartition> partitions;
  // Whether the group has a committed offset for any partition at all.
  bool group_has_commits = false;
};

// Where to read on: an offset, the start of the log or its end.
struct StartPosition {
  enum class At { kOffset, kLogStart, kLogEnd };
  TopicPartition tp;
  At at = At::kOffset;
  int64_t offset = 0;
};

struct CommitEntry {
  TopicPartition tp;
  CommittedPosition position;
};

// What a group member is told. All calls come from inside GroupConsumer::Poll().
class GroupHandler {
 public:
  virtual ~GroupHandler() = default;

  // The group has given us exactly these partitions (all of them, each time: eager groups). Nothing
  // is read until GroupConsumer::Start().
  virtual void OnAssigned(Assignment assignment) = 0;
  // The group takes back all that it gave. Reading has stopped; the group waits for Release(), at
  // most until the poll interval's bound. Commits are still possible.
  virtual void OnRevoked() = 0;
  // The same, but it is too late: another member may own them already and no commit is possible.
  // Release() is still to be called.
  virtual void OnLost() = 0;
  virtual void OnRecord(const LogRecord& record) = 0;
  // Everything that was there has been read; `next` is the offset that the next record will have.
  virtual void OnPartitionEnd(const TopicPartition& tp, int64_t next) = 0;
  // The position is below the log's start (or past its end): nothing of this partition is read
  // until Restart(). `log_start` is the first offset that can be read.
  virtual void OnOutOfRange(const TopicPartition& tp, int64_t log_start) = 0;
  // No topic matches the pattern: the member has nothing to take part in until one does, which
  // OnAssigned() then says. May be told again.
  virtual void OnNothingMatches() {}
  // The log does not answer, or answers again. For state and metrics: reading goes on by itself.
  virtual void OnReachable(bool reachable) = 0;
};

enum class AssignmentStrategy { kRange, kRoundRobin };

struct GroupOptions {
  std::string group;
  // Topic names; or one pattern that begins with '^' (POSIX extended, on the whole name).
  std::vector<std::string> topics;
  // Topics that a pattern must not match: names with one of these beginnings, but for those of
  // `exempt_topics`.
  std::vector<std::string> excluded_prefixes;
  std::vector<std::string> exempt_topics;
  AssignmentStrategy strategy = AssignmentStrategy::kRange;
  std::chrono::milliseconds session_timeout{6'000};
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds poll_interval_max{10'000};
  std::chrono::milliseconds topic_refresh{30'000};  // how soon a pattern finds new topics
  std::chrono::milliseconds fetch_wait_max{500};
  int64_t fetch_bytes_min = 1;
  int64_t prefetch_records = 100'000;  // what the client may hold ahead of Poll()
  int64_t prefetch_bytes = 64 << 20;
};

// One member of a group of consumers.
//
// Threads: the one of the EventLoop that it was opened with.
class GroupConsumer {
 public:
  // One status per entry, in their order. kAborted: this member is fenced (the group has moved on);
  // kUnavailable: not known whether it was stored.
  using CommitDone = absl::AnyInvocable<void(std::vector<absl::Status>) &&>;

  virtual ~GroupConsumer() = default;

  // Readable when Poll() has something to do; watch it for kFdReadable. Edge cases are its own
  // matter: after Poll() returned fewer than `records_max` it is readable again only for news.
  virtual int wake_fd() const = 0;
  // Handles what is there, at most `records_max` records; rebalances and answers always. Must be
  // called at least every poll_interval_max, else the member leaves the group. Returns the records
  // passed to the handler.
  virtual size_t Poll(size_t records_max) = 0;

  // Answers OnAssigned(): read these from there. Partitions that are left out stay assigned,
  // unread.
  virtual void Start(std::vector<StartPosition> positions) = 0;
  // Answers OnOutOfRange(), reads again what was read, and begins to read a partition that Start()
  // left out: goes on with one partition of the present assignment at `offset`. No record of it
  // that was fetched before this call is passed after it. Several calls in one turn cost as much as
  // one; each interrupts the fetching of all partitions for a moment.
  virtual void Restart(const TopicPartition& tp, int64_t offset) = 0;
  // Answers OnRevoked() and OnLost().
  virtual void Release() = 0;

  // Stores positions of the present assignment. Not blocking; `done` runs from Poll().
  virtual void Commit(std::vector<CommitEntry> entries, CommitDone done) = 0;
  // Until when this member may act as the owner of what it was assigned: the time at which the last
  // commit that was acknowledged had been *issued*, plus the session timeout less one second.
  // MonotonicTime::max() where nobody else can take over.
  virtual MonotonicTime LeaseUntil() const = 0;

  // Leaves the group: OnRevoked() comes if anything is assigned, and after its Release() `done`.
  virtual void Leave(absl::AnyInvocable<void() &&> done) = 0;
};

// What a reader of partitions is told. All calls come from inside PartitionReader::Poll().
class ReadHandler {
 public:
  virtual ~ReadHandler() = default;
  virtual void OnRecord(const LogRecord& record) = 0;
  // Everything that was there has been read; `next` is the offset that the next record will have.
  // Told once for each time that the end is reached, also for a partition without any record.
  virtual void OnPartitionEnd(const TopicPartition& tp, int64_t next) = 0;
};

struct ReaderOptions {
  std::chrono::milliseconds fetch_wait_max{100};
  int64_t prefetch_bytes = 16 << 20;  // what the client may hold ahead of Poll()
};

// Reads partitions of one's choice, without a group: changelogs, control topics. A position below
// the log's start goes on from the start, one past its end from the end; the log's silence is
// waited for, and so is a partition that does not exist. Records with neither key, value nor header
// are passed over: FreezeTopic() may leave some.
//
// Threads: the one of the EventLoop that it was opened with.
class PartitionReader {
 public:
  virtual ~PartitionReader() = default;

  // As GroupConsumer's.
  virtual int wake_fd() const = 0;
  virtual size_t Poll(size_t records_max) = 0;
  // Begins to read a partition, or reads it anew from there. Cheap to call for many in one turn;
  // what is read already goes on without a gap or a repeat.
  virtual void Add(const StartPosition& position) = 0;
  // Nothing of it is passed any more. Of a partition that is not read: nothing happens.
  virtual void Remove(const TopicPartition& tp) = 0;
};

// Threads: any for the blocking calls (they are for start and for the command line, never on a
// shard's loop), the loop's own for what is opened on it.
class Log {
 public:
  virtual ~Log() = default;

  virtual absl::StatusOr<std::unique_ptr<LogProducer>> OpenProducer(
      EventLoop& loop, const ProducerOptions& options) = 0;
  // `handler` outlives the consumer.
  virtual absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop,
                                                                   const GroupOptions& options,
                                                                   GroupHandler& handler) = 0;

  // `handler` outlives the reader.
  virtual absl::StatusOr<std::unique_ptr<PartitionReader>> OpenReader(EventLoop& loop,
                                                                      const ReaderOptions& options,
                                                                      ReadHandler& handler) = 0;

  // Makes the topics that are missing and waits until every partition of each has a leader. One
  // that exists with another number of partitions or a lower replication is kFailedPrecondition.
  // Blocks at most `timeout`.
  virtual absl::Status EnsureTopics(const std::vector<TopicSpec>& topics,
                                    std::chrono::milliseconds timeout) = 0;
  // The number of partitions; kNotFound. Blocks at most `timeout`.
  virtual absl::StatusOr<int32_t> Partitions(const std::string& topic,
                                             std::chrono::milliseconds timeout) = 0;
  // The first offset that can be read and the one that the next record will get. Blocks.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  virtual absl::StatusOr<Range> Offsets(const TopicPartition& tp,
                                        std::chrono::milliseconds timeout) = 0;
  // Removes what is below `offset`. Not blocking; `done` runs on `loop`, an offset past the end is
  // kOutOfRange.
  virtual void Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
                    absl::AnyInvocable<void(absl::Status) &&> done) = 0;
  // The first offset whose record was appended at or after `time`; the partition's end when there
  // is none. Not blocking; `done` runs on `loop`.
  virtual void OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                             absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) = 0;

  // The offset that the next record of each partition will have, in their order; no value for one
  // whose end the log cannot tell now. Not blocking; `done` runs on `loop`.
  virtual void Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
                    absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) = 0;

  // A group as it stands, for the command line: its members now, and what it has committed of those
  // partitions (none: no value). Blocks at most `timeout`.
  struct GroupState {
    int members = 0;
    std::vector<AssignedPartition> partitions;
  };
  virtual absl::StatusOr<GroupState> DescribeGroup(const std::string& group,
                                                   const std::vector<TopicPartition>& partitions,
                                                   std::chrono::milliseconds timeout) = 0;
  // Stores positions of a group that has no members; kFailedPrecondition when it has some. All or
  // nothing where the log can. Blocks at most `timeout`.
  virtual absl::Status ResetGroup(const std::string& group, const std::vector<CommitEntry>& entries,
                                  std::chrono::milliseconds timeout) = 0;
  // Removes a topic; one that is not there is no error. Blocks at most `timeout`.
  virtual absl::Status DeleteTopic(const std::string& topic, std::chrono::milliseconds timeout) = 0;
  // Closes a topic to appends, for good: from its return on none is acknowledged any more, each is
  // answered with kFailedPrecondition, and Offsets() covers all that ever was. Again is nothing;
  // kNotFound. After an error the topic may be closed or not. Blocks at most `timeout`.
  virtual absl::Status FreezeTopic(const std::string& topic, std::chrono::milliseconds timeout) = 0;
  // Whether the log answers. Blocks at most `timeout`.
  virtual absl::Status Ping(std::chrono::milliseconds timeout) = 0;
};

}  // namespace postrider
