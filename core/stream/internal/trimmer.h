#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// Removes from a topic of our own what is complete and old: below the committed watermark, but
// nothing that was appended less than `safety` ago, and nothing that somebody still holds. It asks
// the log for ages, so that a restart forgets nothing.
//
// Threads: the shard's.
class Trimmer {
 public:
  using Limit = std::function<absl::optional<int64_t>(const TopicPartition&)>;

  // `log`, `loop` and `failed` outlive it. `limit`: the lowest offset that must stay, if any.
  Trimmer(Log& log, EventLoop& loop, std::chrono::milliseconds safety, Limit limit, Counter& failed)
      : log_(log), loop_(loop), safety_(safety), limit_(std::move(limit)), failed_(failed) {}

  // The group's commit of that partition stands at `watermark`.
  void Trim(const TopicPartition& tp, int64_t watermark);

 private:
  void OnOffset(const TopicPartition& tp, int64_t watermark, const absl::StatusOr<int64_t>& offset);
  void OnTrimmed(const TopicPartition& tp, const absl::Status& status);

  Log& log_;
  EventLoop& loop_;
  const std::chrono::milliseconds safety_;
  const Limit limit_;
  Counter& failed_;
  absl::flat_hash_map<TopicPartition, int64_t> trimmed_;
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
};

}  // namespace postrider::internal
