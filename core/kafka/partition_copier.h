#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/kafka/kafka_log.h"
#include "core/stream/record.h"

namespace postrider {

struct PartitionCopierOptions {
  // So long nothing is acknowledged, and Kafka is taken to be away.
  std::chrono::milliseconds silence_max{60'000};
  int64_t queue_bytes_max = 64 << 20;
};

// Writes a partition that was a log's elsewhere: every record with its time, at its own offset.
// What lies between records, and before the first one, is filled with records that say nothing,
// which readers pass over (see FreezeTopic() in core/stream/log.h). For moving a log, never on a
// shard's loop: it is to be the only one who appends to the partition.
//
// Threads: owned by one; its calls block.
// Bounds:  queue_bytes_max.
class PartitionCopier {
 public:
  // kInvalidArgument for a property that is refused.
  static absl::StatusOr<std::unique_ptr<PartitionCopier>> Open(
      const KafkaOptions& kafka, const PartitionCopierOptions& options);
  ~PartitionCopier();
  PartitionCopier(const PartitionCopier&) = delete;
  PartitionCopier& operator=(const PartitionCopier&) = delete;

  // Goes on with a partition whose next record will have the offset `next`. What was put into
  // others need not be acknowledged yet.
  void Begin(const TopicPartition& tp, int64_t next);
  // Appends up to, not including, `until`; nothing if that is there. `time` is theirs.
  absl::Status Fill(int64_t until, WallTime time);
  // At its offset, which is not below what was written; topic and partition are Begin()'s.
  absl::Status Put(const LogRecord& record);
  // The offset that the next record of the partition will have.
  int64_t next() const;
  // Waits until all is acknowledged, of every partition. kAborted: something lies at another offset
  // than it should, so somebody else has written to fault_tp(); kUnavailable: Kafka is away. After
  // a fault, which any call may return, the copier is to be dropped; what is there tells where to
  // go on.
  absl::Status End();
  // Of kAborted.
  const TopicPartition& fault_tp() const;

 private:
  struct Impl;
  explicit PartitionCopier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
