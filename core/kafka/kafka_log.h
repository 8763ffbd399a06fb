#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

struct KafkaOptions {
  std::string brokers = "localhost:9092";
  // What the names of our own topics and groups begin with.
  std::string prefix = "postrider.";
  // Any property of librdkafka, TLS and SASL above all, but those that correctness depends on.
  absl::flat_hash_map<std::string, std::string> properties;
  // Lets own topics have fewer than three replicas, as many as there are brokers.
  bool allow_single_replica = false;

  // kafka.brokers, kafka.prefix, kafka.properties, kafka.allow_single_replica
  void Register(Options& options);
};

// The Log on Apache Kafka 3.9 or later, by librdkafka's C interface.
//
// Topics that EnsureTopics() makes have min.insync.replicas 2 and no unclean election unless their
// spec says otherwise. With allow_single_replica they get as many replicas as the cluster has
// brokers, three at most, and min.insync.replicas one below that.
//
// A producer, a member of a group, a reader and the log itself are a client each with threads of
// their own, which touch nothing of ours but their queues; see Log for whose thread calls what. A
// loop that was passed to Trim(), OffsetForTime() or Ends() lives until `done` has run.
// GroupConsumer::Poll(0) handles one record too.
//
// FreezeTopic() sets the topic's max.message.bytes to a size that nothing fits in.
//
// Bounds: 1,024 calls of Trim(), OffsetForTime() and Ends() wait at most, the next is
// kResourceExhausted (of Ends(): no value).
class KafkaLog final : public Log {
 public:
  // kInvalidArgument for a property that is refused, unknown or has a bad value. Does not wait for
  // a broker: see Ping(). `clock` and `metrics` outlive the log, the log outlives what it opened.
  static absl::StatusOr<std::unique_ptr<KafkaLog>> Open(const KafkaOptions& options,
                                                        const Clock& clock, Metrics& metrics);
  ~KafkaLog() override;
  KafkaLog(const KafkaLog&) = delete;
  KafkaLog& operator=(const KafkaLog&) = delete;

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

  // Where brokers say that they are (advertised.listeners): host and port. Empty when none answers.
  // Blocks at most `timeout`. Threads: any.
  std::vector<std::pair<std::string, uint16_t>> Brokers(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  explicit KafkaLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
