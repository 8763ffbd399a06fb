#include "dlq/upkeep_job.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"
#include "dlq/letters/letter_store.h"

namespace postrider::dlq {
namespace {

constexpr const char* kNames[kUpkeeps] = {"erase", "purge", "letter_days"};
constexpr const char* kFunctions[kUpkeeps] = {"erase_some", "purge_some", "drop_letter_days"};

}  // namespace

UpkeepMetrics::UpkeepMetrics(Metrics& metrics) {
  for (size_t i = 0; i < kUpkeeps; ++i) {
    const MetricLabels labels = {{"work", kNames[i]}};
    gone[i] =
        &metrics.AddCounter("postrider_dlq_upkeep_deleted_total",
                            "What was deleted from Postgres: rows, and days of letters.", labels);
    failures[i] = &metrics.AddCounter("postrider_dlq_upkeep_failures_total",
                                      "Steps of that which failed and are tried again.", labels);
  }
}

UpkeepJob::UpkeepJob(EventLoop& loop, Pool& pool, UpkeepMetrics& metrics,
                     const UpkeepLimits& limits)
    : loop_(loop), pool_(pool), metrics_(metrics), limits_(limits) {
  const MonotonicTime now = loop_.clock().Now();
  for (size_t i = 0; i < kUpkeeps; ++i) due_[i] = now + limits_.when_idle[i];
  Plan();
}

UpkeepJob::~UpkeepJob() {
  *alive_ = false;
  if (timer_ != 0) loop_.CancelTimer(timer_);
}

void UpkeepJob::Plan() {
  const auto next = std::min_element(due_.begin(), due_.end());
  const Duration wait = std::max(*next - loop_.clock().Now(), Duration::zero());
  timer_ = loop_.CallAfter(wait, [this, which = static_cast<size_t>(next - due_.begin())] {
    timer_ = 0;
    Step(which);
  });
}

void UpkeepJob::Step(size_t which) {
  const int64_t argument = which == static_cast<size_t>(Upkeep::kLetterDays)
                               ? kLetterRetention / std::chrono::hours(24)
                               : limits_.rows_max;
  Transaction::Run(
      pool_, {},
      {Statement{absl::StrCat("SELECT postrider.", kFunctions[which], "($1::integer) AS count"),
                 {SqlParam::Int(argument)}}},
      [this, which, alive = alive_](absl::StatusOr<std::vector<QueryResult>> results) {
        if (*alive) OnStep(which, std::move(results));
      });
}

void UpkeepJob::OnStep(size_t which, absl::StatusOr<std::vector<QueryResult>> results) {
  Duration wait = limits_.after_failure;
  if (!results.ok()) {
    metrics_.failures[which]->Increment();
    POSTRIDER_LOG(kWarn, "a deletion waits", {"what", kNames[which]},
                  {"why", results.status().message()});
  } else {
    RowReader row(results->back(), 0);
    // Below zero: there was nothing to look at.
    const int64_t count = row.Int("count");
    if (count > 0) metrics_.gone[which]->Add(static_cast<double>(count));
    wait = count > 0 ? limits_.between_steps : limits_.when_idle[which];
  }
  due_[which] = loop_.clock().Now() + wait;
  Plan();
}

}  // namespace postrider::dlq
