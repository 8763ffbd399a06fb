#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"

namespace postrider {

// Passes every call on to another log. A test overrides what is to go otherwise.
// Threads: as the other log's. The other one outlives it.
class ForwardingLog : public Log {
 public:
  explicit ForwardingLog(Log& log) : log_(log) {}

  absl::StatusOr<std::unique_ptr<LogProducer>> OpenProducer(
      EventLoop& loop, const ProducerOptions& options) override {
    return log_.OpenProducer(loop, options);
  }
  absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop,
                                                           const GroupOptions& options,
                                                           GroupHandler& handler) override {
    return log_.JoinGroup(loop, options, handler);
  }
  absl::StatusOr<std::unique_ptr<PartitionReader>> OpenReader(EventLoop& loop,
                                                              const ReaderOptions& options,
                                                              ReadHandler& handler) override {
    return log_.OpenReader(loop, options, handler);
  }
  absl::Status EnsureTopics(const std::vector<TopicSpec>& topics,
                            std::chrono::milliseconds timeout) override {
    return log_.EnsureTopics(topics, timeout);
  }
  absl::StatusOr<int32_t> Partitions(const std::string& topic,
                                     std::chrono::milliseconds timeout) override {
    return log_.Partitions(topic, timeout);
  }
  absl::StatusOr<Range> Offsets(const TopicPartition& tp,
                                std::chrono::milliseconds timeout) override {
    return log_.Offsets(tp, timeout);
  }
  void Trim(EventLoop& loop, const TopicPartition& tp, int64_t offset,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    log_.Trim(loop, tp, offset, std::move(done));
  }
  void OffsetForTime(EventLoop& loop, const TopicPartition& tp, WallTime time,
                     absl::AnyInvocable<void(absl::StatusOr<int64_t>) &&> done) override {
    log_.OffsetForTime(loop, tp, time, std::move(done));
  }
  void Ends(EventLoop& loop, std::vector<TopicPartition> partitions,
            absl::AnyInvocable<void(std::vector<absl::optional<int64_t>>) &&> done) override {
    log_.Ends(loop, std::move(partitions), std::move(done));
  }
  absl::StatusOr<GroupState> DescribeGroup(const std::string& group,
                                           const std::vector<TopicPartition>& partitions,
                                           std::chrono::milliseconds timeout) override {
    return log_.DescribeGroup(group, partitions, timeout);
  }
  absl::Status ResetGroup(const std::string& group, const std::vector<CommitEntry>& entries,
                          std::chrono::milliseconds timeout) override {
    return log_.ResetGroup(group, entries, timeout);
  }
  absl::Status DeleteTopic(const std::string& topic, std::chrono::milliseconds timeout) override {
    return log_.DeleteTopic(topic, timeout);
  }
  absl::Status FreezeTopic(const std::string& topic, std::chrono::milliseconds timeout) override {
    return log_.FreezeTopic(topic, timeout);
  }
  absl::Status Ping(std::chrono::milliseconds timeout) override { return log_.Ping(timeout); }

 protected:
  Log& log() { return log_; }

 private:
  Log& log_;
};

}  // namespace postrider
