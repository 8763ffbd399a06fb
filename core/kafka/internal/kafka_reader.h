#pragma once

#include <librdkafka/rdkafka.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/event_loop.h"
#include "core/kafka/internal/client.h"
#include "core/kafka/internal/control_thread.h"
#include "core/kafka/internal/range_lookup.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::kafka_internal {

// Partitions of one's choice, by plain polls of one queue of a client of its own, which is made
// when the first partition is added.
//
// It starts and stops each partition by itself, which librdkafka calls a simple consumer: that
// leaves the others alone, where an assignment would fetch all of them anew, and it needs no group.
// To stop one waits for the client's main thread, which hands the order to nobody else.
//
// Threads: the loop's; librdkafka and the control thread only put things into its queues and write
// to the wake fd.
class KafkaReader final : public PartitionReader {
 public:
  // `admin` is a client that outlives `control`'s jobs.
  static absl::StatusOr<std::unique_ptr<KafkaReader>> Create(
      const ClientConfig& config, ControlThread& control, rd_kafka_t* admin, EventLoop& loop,
      KafkaMetrics& metrics, const ReaderOptions& options, ReadHandler& handler);
  ~KafkaReader() override;

  int wake_fd() const override { return wake_->fd(); }
  size_t Poll(size_t records_max) override;
  void Add(const StartPosition& position) override;
  void Remove(const TopicPartition& tp) override;

 private:
  struct Position {
    TopicPartition tp;
    bool started = false;
    int64_t start = RD_KAFKA_OFFSET_INVALID;  // an offset or a logical one
    int64_t next = -1;                        // -1 while it is not known
    int64_t end_told = -1;
    // Not zero: the log's range was asked for with this ticket, because the position lay outside.
    uint64_t lookup = 0;
  };

  KafkaReader(const ClientConfig& config, EventLoop& loop, KafkaMetrics& metrics,
              const ReaderOptions& options, ReadHandler& handler);

  absl::Status MakeReadingClient();
  void StartAll();
  void StartAllLater();
  void Begin(Position& position);
  void End(Position& position);
  rd_kafka_topic_t* TopicHandle(const std::string& topic);
  Position* Find(const rd_kafka_message_t& message);
  void HandleMessage(const rd_kafka_message_t& message, size_t* records);
  void HandleError(const rd_kafka_message_t& message);
  void HandleRanges();

  const ClientConfig config_;
  EventLoop& loop_;
  KafkaMetrics& metrics_;
  const ReaderOptions options_;
  ReadHandler& handler_;

  std::unique_ptr<WakeFd> wake_;
  std::unique_ptr<RangeLookup> lookup_;
  ClientPtr client_;
  QueuePtr queue_;
  absl::flat_hash_map<std::string, TopicPtr> topics_;
  absl::node_hash_map<TopicPartition, Position> positions_;
  absl::flat_hash_map<std::pair<const void*, int32_t>, Position*> by_handle_;
  std::vector<RecordHeader> headers_;
  uint64_t last_lookup_ = 0;
  TimerId start_timer_ = 0;
};

}  // namespace postrider::kafka_internal
