#include "dlq/upkeep_job.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/log.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"
#include "core/postgres/transaction.h"
#include "dlq/letters/letter_store.h"
#include "dlq/reports/report_store.h"

namespace postrider::dlq {
namespace {

constexpr const char* kNames[kUpkeeps] = {"erase", "purge", "letter_days", "attempt_days"};
// Each with its bound as $1; `count`: what it has deleted, below zero when there was nothing to
// look at. keep_attempt_days makes the days to come as well, which are not counted: the days that
// it will drop are those of the statement's snapshot.
constexpr const char* kStatements[kUpkeeps] = {
    "SELECT postrider.erase_some($1::integer) AS count",
    "SELECT postrider.purge_some($1::integer) AS count",
    "SELECT postrider.drop_letter_days($1::integer) AS count",
    "SELECT (SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE "
    "i.inhparent = 'postrider.attempts'::regclass AND c.relname < 'attempts_' || "
    "to_char((now() AT TIME ZONE 'UTC')::date - $1::integer, 'YYYYMMDD')) AS count, "
    "postrider.keep_attempt_days($1::integer)"};

int64_t BoundOf(Upkeep which, const UpkeepLimits& limits) {
  switch (which) {
    case Upkeep::kErase:
    case Upkeep::kPurge:
      break;
    case Upkeep::kLetterDays:
      return kLetterRetention / std::chrono::hours(24);
    case Upkeep::kAttemptDays:
      return kAttemptDaysKept;
  }
  return limits.rows_max;
}

}  // namespace

UpkeepMetrics::UpkeepMetrics(Metrics& metrics) {
  for (size_t i = 0; i < kUpkeeps; ++i) {
    const MetricLabels labels = {{"work", kNames[i]}};
    gone[i] = &metrics.AddCounter(
        "postrider_dlq_upkeep_deleted_total",
        "What was deleted from Postgres: rows, and days of letters and attempts.", labels);
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
  const int64_t bound = BoundOf(static_cast<Upkeep>(which), limits_);
  Transaction::Run(pool_, {}, {Statement{kStatements[which], {SqlParam::Int(bound)}}},
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
    const int64_t count = row.Int("count");
    if (count > 0) metrics_.gone[which]->Add(static_cast<double>(count));
    wait = count > 0 ? limits_.between_steps : limits_.when_idle[which];
  }
  due_[which] = loop_.clock().Now() + wait;
  Plan();
}

}  // namespace postrider::dlq
