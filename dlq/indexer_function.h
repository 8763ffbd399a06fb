#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "core/base/metrics.h"
#include "core/postgres/pool.h"
#include "core/postgres/transaction.h"
#include "core/stream/function.h"
#include "dlq/letters/dead_letter_record.h"

namespace postrider::dlq {

struct IndexerMetrics {
  explicit IndexerMetrics(Metrics& metrics);

  Counter& letters;
  Counter& undecodable;
  Counter& refused;
  Counter& failures;
  Counter& displaced;
  Histogram& batch_letters;
  Gauge& oldest_seconds;
};

struct IndexerLimits {
  size_t letters_max = 1'000;  // per transaction
  size_t bytes_max = 4 << 20;
  Duration wait_max = std::chrono::milliseconds(200);
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_most = std::chrono::seconds(5);
};

// Writes one partition of the dead-letters topic into Postgres: letters and the offset behind them in one
// transaction, by compare-and-set on the offset that it read when it began. So each letter is stored
// exactly once, whoever else believes to own the partition, and whatever Kafka says was committed.
//
//   reading offset --known--> idle --full, or old enough--> writing --stored--> idle
//         ^                                                   | |--unavailable--> waiting --> writing
//         '------------- another writer was there ------------' '--this batch cannot be--> half of it
//
// A letter whose values Postgres refuses, or that cannot be decoded, is counted and logged with its offset, at which
// the topic keeps it for seven days, and does not hold up
// the rest. While Postgres is away records wait.
//
// Threads: the shard's. Bounds: those of the shard's pending records.
class IndexerFunction final : public KeyedProcessFunction {
 public:
  // `pool` and `metrics` outlive it.
  IndexerFunction(Pool& pool, IndexerMetrics& metrics, const IndexerLimits& limits);

  absl::Status Open(TaskContext& ctx) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext&, int64_t) override {}
  void OnRoom(TaskContext&) override {}
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override { return phase_ == Phase::kWriting ? 1 : 0; }
  void Close(TaskContext& ctx) override;

 private:
  enum class Phase { kReadingOffset, kIdle, kWriting, kWaiting };
  struct Entry {
    int64_t offset = 0;
    size_t bytes = 0;
    absl::optional<DeadLetterRecord> letter;  // none: it could not be decoded
    WallTime read_at;
  };
  struct Write;

  void ReadOffset();
  void OnOffset(absl::StatusOr<QueryResult> result);
  void MaybeWrite();
  void StartWrite(size_t entries);
  void OnWritten(size_t entries, int64_t next, absl::Status status);
  void RetryLater(const absl::Status& why);
  void CompleteBelow(int64_t offset);
  std::string CopyText(size_t entries) const;

  Pool& pool_;
  IndexerMetrics& metrics_;
  const IndexerLimits limits_;
  TaskContext* ctx_ = nullptr;
  Phase phase_ = Phase::kReadingOffset;
  std::deque<Entry> entries_;  // read, not stored; by offset
  size_t bytes_ = 0;
  absl::optional<int64_t> stored_;  // Postgres' next offset; none: it has no row
  size_t letters_max_;              // smaller while a batch is being taken apart
  Duration retry_delay_{};
  bool offset_known_ = false;
  bool draining_ = false;
  std::shared_ptr<IndexerFunction*> self_;
};

}  // namespace postrider::dlq
