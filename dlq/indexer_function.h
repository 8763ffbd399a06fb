#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/postgres/pool.h"
#include "core/postgres/result.h"
#include "core/stream/function.h"
#include "core/stream/record.h"
#include "dlq/letters/dead_letter_record.h"

namespace postrider::dlq {

struct IndexerMetrics {
  explicit IndexerMetrics(Metrics& metrics);

  Counter& letters;
  Counter& undecodable;
  Counter& refused;
  Counter& missing;
  Counter& recovered;
  Counter& failures;
  Counter& displaced;
  Histogram& batch_letters;
  // One gauge per partition, for each is read by a function of its own.
  Gauge& OldestSeconds(int32_t partition);

 private:
  Metrics& metrics_;
};

struct IndexerLimits {
  size_t letters_max = 1'000;  // per transaction
  size_t bytes_max = 4 << 20;
  Duration wait_max = std::chrono::milliseconds(200);  // for a transaction to fill
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_most = std::chrono::seconds(5);
};

// Writes one partition of the dead-letters topic into Postgres: letters and the offset behind them
// in one transaction, by compare-and-set on the offset that it read when it began. So each letter
// is stored exactly once, whoever else believes to own the partition, and whatever Kafka says was
// committed. Letters that come again are known by their ids, not by their offsets: a log that has
// lost its end gives offsets below the stored one to new letters. The offset is that of this
// incarnation of the topic, and never goes back: it tells two writers apart, and what is missing.
//
//   reading offset --known--> idle --full, or old enough--> writing --stored--> idle
//   writing --another writer was there--> reading offset
//   writing --this batch cannot be stored--> idle, to try half of it
//   writing, reading offset --unavailable--> waiting --> reading offset
//
// A record that is no letter, or whose values Postgres refuses, goes to the `rejected` topic as it
// was, with headers that say why and whence; the offset moves past it once that is acknowledged.
// The other letters of its batch are stored. While Postgres is away records wait.
//
// Threads: the shard's. Bounds: those of the shard's pending records.
class IndexerFunction final : public KeyedProcessFunction {
 public:
  // `pool` and `metrics` outlive it.
  IndexerFunction(Pool& pool, IndexerMetrics& metrics, const IndexerLimits& limits,
                  std::string rejected_topic);

  absl::Status Open(TaskContext& ctx) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext&, int64_t) override {}
  void OnRoom(TaskContext& ctx) override;
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override { return phase_ == Phase::kWriting ? 1 : 0; }
  // A transaction that runs goes on by itself; whether it took effect, the next owner reads.
  void Close(TaskContext& ctx, CloseReason reason) override;

 private:
  enum class Phase { kReadingOffset, kIdle, kWriting, kWaiting };
  struct Entry {
    int64_t offset = 0;
    size_t bytes = 0;
    WallTime appended_at;
    absl::optional<DeadLetterRecord> letter;  // none: it goes, or went, to the rejected topic
    bool rejecting = false;                   // which has not acknowledged it yet
  };
  struct OnItsWay {
    int64_t offset = 0;
    AppendRecord record;
  };
  struct Write;

  void ReadOffset();
  void OnOffset(absl::StatusOr<QueryResult> result);
  void MaybeWrite();
  void StartWrite(size_t entries);
  void OnWritten(const Write& write, const absl::Status& status);
  void TakeApart(const Write& write, const absl::Status& why);
  void RetryLater(const absl::Status& why);
  void CompleteFirst(size_t entries);
  void NoteRecovered(const Write& write);
  // `entry` keeps its place in the offsets; its record goes elsewhere.
  void Reject(Entry& entry, absl::string_view reason, std::string key, absl::string_view value);
  void DrainRejections();
  void NoteOldest();
  std::string CopyText(size_t entries) const;
  size_t Letters(size_t entries) const;

  Pool& pool_;
  IndexerMetrics& metrics_;
  const IndexerLimits limits_;
  const std::string rejected_topic_;
  TaskContext* ctx_ = nullptr;
  Gauge* oldest_seconds_ = nullptr;
  std::string stored_as_;  // the topic and its incarnation: what the stored offset counts in
  Phase phase_ = Phase::kReadingOffset;
  std::deque<Entry> entries_;  // read, not stored; by offset
  size_t bytes_ = 0;
  std::deque<OnItsWay> rejections_;        // no room for them yet
  absl::optional<int64_t> stored_;         // Postgres' next offset; none: it has no row
  absl::optional<int64_t> missing_above_;  // the stored offset for which a gap was counted
  size_t letters_max_;                     // smaller while a batch is being taken apart
  Duration retry_delay_{};
  bool offset_known_ = false;
  bool draining_ = false;
  std::shared_ptr<IndexerFunction*> self_;
};

}  // namespace postrider::dlq
