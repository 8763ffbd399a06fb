#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "core/stream/log.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"

namespace postrider::internal {

// The shard's ResultSink: keeps what the producer has no room for, for a minute.
//
// Threads: the shard's.
// Bounds:  kWaitingMax results wait; past it the oldest is dropped.
class ResultLog final : public ResultSink {
 public:
  static constexpr size_t kWaitingMax = 10'000;

  // All outlive it, and it outlives the producer's callbacks: destroy it after the producer.
  ResultLog(EventLoop& loop, LogProducer& producer, Counter& appended, Counter& dropped)
      : loop_(loop), producer_(producer), appended_(appended), dropped_(dropped) {}

  void Append(const TopicPartition& tp, const OperationResult& result) override;
  // The producer has room again.
  void OnRoom();
  // Drops what has waited too long; called now and then.
  void Expire();
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    AppendRecord record;
    MonotonicTime until;
  };
  bool TryAppend(AppendRecord& record);
  void DropFirst();

  EventLoop& loop_;
  LogProducer& producer_;
  Counter& appended_;
  Counter& dropped_;
  std::deque<Waiting> waiting_;
};

}  // namespace postrider::internal
