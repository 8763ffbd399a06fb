#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/postgres/pool.h"
#include "core/stream/function.h"
#include "core/stream/record.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"

namespace postrider::dlq {

struct ReportIndexerMetrics {
  explicit ReportIndexerMetrics(Metrics& metrics);

  Counter& statuses;
  Counter& attempts;
  Counter& unreadable;
  Counter& refused;
  Counter& failures;
};

struct ReportIndexerLimits {
  size_t reports_max = 2'000;  // per transaction
  size_t bytes_max = 4 << 20;
  Duration wait_max = std::chrono::milliseconds(500);  // for a transaction to fill
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_most = std::chrono::seconds(5);
  Duration days_interval = std::chrono::hours(1);  // between looks at the days' partitions
  int attempt_days_kept = 14;
};

// Writes one partition of the topic of reports into Postgres: of each endpoint's part the newest
// status wins, attempts are copied into the partition of their day. Both may be written again
// without harm (a status that is not newer and an attempt that is there change nothing), so Kafka's
// commit alone says how far it has come. Refusals are completed: nobody reads them here.
//
// A report is worth less than the rest: one that cannot be read or that Postgres refuses is counted
// and left out, and so is an attempt older than what is kept. While Postgres is away reports wait.
//
// Threads: the shard's. Bounds: those of the shard's pending records.
class ReportIndexerFunction final : public KeyedProcessFunction {
 public:
  // `pool` and `metrics` outlive it.
  ReportIndexerFunction(Pool& pool, ReportIndexerMetrics& metrics,
                        const ReportIndexerLimits& limits);

  absl::Status Open(TaskContext& ctx) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext&, int64_t) override {}
  void OnRoom(TaskContext&) override {}
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override { return phase_ == Phase::kWriting ? 1 : 0; }
  void Close(TaskContext& ctx, CloseReason reason) override;

 private:
  enum class Phase { kIdle, kWriting, kWaiting };
  struct Entry {
    int64_t offset = 0;
    size_t bytes = 0;
    absl::optional<EndpointStatus> status;
    absl::optional<AttemptReport> attempt;
  };
  struct Write;

  void MaybeWrite();
  void OnWritten(const Write& write, const absl::Status& status);
  std::string StatusRows(size_t entries) const;
  std::string AttemptRows(size_t entries) const;

  Pool& pool_;
  ReportIndexerMetrics& metrics_;
  const ReportIndexerLimits limits_;
  TaskContext* ctx_ = nullptr;
  Phase phase_ = Phase::kIdle;
  std::deque<Entry> entries_;  // read, not stored; by offset
  size_t bytes_ = 0;
  size_t reports_max_;  // smaller while a batch is being taken apart
  Duration retry_delay_{};
  absl::optional<MonotonicTime> days_at_;  // when the days' partitions were seen to
  bool draining_ = false;
  std::shared_ptr<ReportIndexerFunction*> self_;
};

}  // namespace postrider::dlq
