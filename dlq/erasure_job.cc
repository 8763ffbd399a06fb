#include "dlq/erasure_job.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/log.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"

namespace postrider::dlq {

ErasureMetrics::ErasureMetrics(Metrics& metrics)
    : rows(metrics.AddCounter("postrider_dlq_erased_rows_total",
                              "Letters, attempts and statuses that were deleted on request.")),
      failures(metrics.AddCounter("postrider_dlq_erasure_failures_total",
                                  "Steps of erasures that failed and are tried again.")) {}

ErasureJob::ErasureJob(EventLoop& loop, Pool& pool, ErasureMetrics& metrics,
                       const ErasureLimits& limits)
    : loop_(loop), pool_(pool), metrics_(metrics), limits_(limits) {
  Plan(limits_.when_idle);
}

ErasureJob::~ErasureJob() {
  *alive_ = false;
  if (timer_ != 0) loop_.CancelTimer(timer_);
}

void ErasureJob::Plan(Duration delay) {
  timer_ = loop_.CallAfter(delay, [this] {
    timer_ = 0;
    Step();
  });
}

void ErasureJob::Step() {
  Transaction::Run(pool_, {},
                   {Statement{"SELECT postrider.erase_some($1::integer) AS count",
                              {SqlParam::Int(limits_.rows_max)}}},
                   [this, alive = alive_](absl::StatusOr<std::vector<QueryResult>> results) {
                     if (*alive) OnStep(std::move(results));
                   });
}

void ErasureJob::OnStep(absl::StatusOr<std::vector<QueryResult>> results) {
  if (!results.ok()) {
    metrics_.failures.Increment();
    POSTRIDER_LOG(kWarn, "an erasure waits", {"why", results.status().message()});
    return Plan(limits_.after_failure);
  }
  RowReader row(results->back(), 0);
  const int64_t count = row.Int("count");
  if (count > 0) metrics_.rows.Add(static_cast<double>(count));
  Plan(count > 0 ? limits_.between_steps : limits_.when_idle);
}

}  // namespace postrider::dlq
