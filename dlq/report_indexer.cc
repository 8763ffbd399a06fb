#include "dlq/report_indexer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/postgres/copy.h"
#include "core/postgres/statement.h"
#include "dlq/reports/report_record.h"
#include "dlq/write_course.h"

namespace postrider::dlq {
namespace {

constexpr uint32_t kFillTimer = 1;
constexpr uint32_t kRetryTimer = 2;

constexpr char kIncomingStatus[] =
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_status (LIKE postrider.endpoint_status)"
    " ON COMMIT DELETE ROWS";
constexpr char kCopyStatus[] =
    "COPY incoming_status (endpoint_id, part, customer_id, observed_at, state, reason, held_until,"
    " failing_since, auto_disabled_generation, backlog_messages, backlog_bytes, request_window,"
    " learned_events_max, learned_bytes_max, learned_milli_rate, last_outcome, last_status,"
    " last_attempt_at, last_success_at) FROM STDIN";
// In one order, so that two writers cannot wait for each other. A worker that was not there for the
// last attempt does not make it unknown.
constexpr char kUpsertStatus[] =
    "INSERT INTO postrider.endpoint_status AS s (endpoint_id, part, customer_id, observed_at,"
    " state, reason, held_until, failing_since, auto_disabled_generation, backlog_messages,"
    " backlog_bytes, request_window, learned_events_max, learned_bytes_max, learned_milli_rate,"
    " last_outcome, last_status, last_attempt_at, last_success_at)"
    " SELECT endpoint_id, part, customer_id, observed_at, state, reason, held_until,"
    " failing_since, auto_disabled_generation, backlog_messages, backlog_bytes, request_window,"
    " learned_events_max, learned_bytes_max, learned_milli_rate, last_outcome, last_status,"
    " last_attempt_at, last_success_at FROM incoming_status i WHERE NOT EXISTS (SELECT 1"
    " FROM postrider.erasures e WHERE e.of_deleted AND e.customer_id = i.customer_id)"
    " ORDER BY endpoint_id, part"
    " ON CONFLICT (endpoint_id, part) DO UPDATE SET observed_at = EXCLUDED.observed_at,"
    " state = EXCLUDED.state, reason = EXCLUDED.reason, held_until = EXCLUDED.held_until,"
    " failing_since = EXCLUDED.failing_since,"
    " auto_disabled_generation = EXCLUDED.auto_disabled_generation,"
    " backlog_messages = EXCLUDED.backlog_messages, backlog_bytes = EXCLUDED.backlog_bytes,"
    " request_window = EXCLUDED.request_window,"
    " learned_events_max = EXCLUDED.learned_events_max,"
    " learned_bytes_max = EXCLUDED.learned_bytes_max,"
    " learned_milli_rate = EXCLUDED.learned_milli_rate,"
    " last_outcome = CASE WHEN EXCLUDED.last_attempt_at IS NULL THEN s.last_outcome"
    " ELSE EXCLUDED.last_outcome END,"
    " last_status = CASE WHEN EXCLUDED.last_attempt_at IS NULL THEN s.last_status"
    " ELSE EXCLUDED.last_status END,"
    " last_attempt_at = coalesce(EXCLUDED.last_attempt_at, s.last_attempt_at),"
    " last_success_at = coalesce(EXCLUDED.last_success_at, s.last_success_at)"
    " WHERE s.observed_at < EXCLUDED.observed_at AND s.customer_id = EXCLUDED.customer_id";

constexpr char kIncomingAttempts[] =
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_attempts ("
    "id uuid, customer_id uuid, endpoint_id uuid, message_id text, messages integer,"
    " attempt integer, started_at timestamptz, duration_ms bigint, outcome text, status integer,"
    " response bytea, tenants text[]) ON COMMIT DELETE ROWS";
constexpr char kCopyAttempts[] =
    "COPY incoming_attempts (id, customer_id, endpoint_id, message_id, messages, attempt,"
    " started_at, duration_ms, outcome, status, response, tenants) FROM STDIN";
// Days without a partition are too old, or a clock was wrong. What an erasure of a customer or a
// tenant covers is not taken, however late it comes; whether an attempt was of an event is told by
// the letters only, which are gone then.
constexpr char kInsertAttempts[] =
    "INSERT INTO postrider.attempts (day, id, customer_id, endpoint_id, message_id, messages,"
    " attempt, started_at, duration_ms, outcome, status, response, tenants)"
    " SELECT postrider.letter_day(id), id, customer_id, endpoint_id, message_id, messages, attempt,"
    " started_at, duration_ms, outcome, status, response, tenants FROM incoming_attempts i WHERE"
    " postrider.letter_day(id) BETWEEN (now() AT TIME ZONE 'UTC')::date - $1::integer"
    " AND (now() AT TIME ZONE 'UTC')::date + 1"
    " AND NOT EXISTS (SELECT 1 FROM postrider.erasures e WHERE e.customer_id = i.customer_id"
    " AND e.event_id IS NULL AND e.tenant IS NULL"
    " AND i.started_at <= e.created_at + interval '10 seconds')"
    " AND id NOT IN (SELECT a.id FROM incoming_attempts a CROSS JOIN unnest(a.tenants) t (tenant)"
    " JOIN postrider.erasures e ON e.tenant = t.tenant WHERE e.event_id IS NULL"
    " AND (e.customer_id IS NULL OR e.customer_id = a.customer_id)"
    " AND a.started_at <= e.created_at + interval '10 seconds')"
    " ON CONFLICT DO NOTHING";

void AddTime(CopyRows& rows, const absl::optional<WallTime>& time) {
  if (time) {
    rows.Time(Storable(*time));
  } else {
    rows.Null();
  }
}

int64_t Clamped(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
}
int64_t Clamped32(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int32_t>::max()));
}

}  // namespace

ReportIndexerMetrics::ReportIndexerMetrics(Metrics& metrics)
    : statuses(metrics.AddCounter("postrider_dlq_reports_indexed_total",
                                  "Reports written to Postgres, by kind", {{"kind", "status"}})),
      attempts(metrics.AddCounter("postrider_dlq_reports_indexed_total",
                                  "Reports written to Postgres, by kind", {{"kind", "attempt"}})),
      unreadable(metrics.AddCounter("postrider_dlq_reports_unreadable_total",
                                    "Records of the topic of reports that are none")),
      refused(metrics.AddCounter("postrider_dlq_reports_refused_total",
                                 "Reports that Postgres will not take")),
      failures(metrics.AddCounter("postrider_dlq_report_write_failures_total",
                                  "Transactions of reports that failed and were tried again")) {}

ReportIndexerFunction::ReportIndexerFunction(Pool& pool, ReportIndexerMetrics& metrics,
                                             const ReportIndexerLimits& limits)
    : pool_(pool),
      metrics_(metrics),
      limits_(limits),
      reports_max_(limits.reports_max),
      self_(std::make_shared<ReportIndexerFunction*>(this)) {}

absl::Status ReportIndexerFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  return absl::OkStatus();
}

void ReportIndexerFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  Entry entry;
  entry.offset = record.offset;
  entry.bytes = record.bytes();
  const absl::optional<ReportKind> kind = ReportKindOf(record.value);
  bool readable = kind.has_value();
  if (kind == ReportKind::kEndpointStatus) {
    absl::StatusOr<EndpointStatus> status = DecodeEndpointStatus(record.value);
    readable = status.ok();
    if (status.ok()) entry.status = *std::move(status);
  } else if (kind == ReportKind::kAttempt) {
    absl::StatusOr<AttemptReport> attempt = DecodeAttemptReport(record.value);
    readable = attempt.ok();
    if (attempt.ok()) entry.attempt = *std::move(attempt);
  }
  if (!readable) metrics_.unreadable.Increment();
  if (!entry.status && !entry.attempt) {
    ctx.Complete(record.offset);
    return;
  }
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  if (entries_.size() == 1) {
    ctx.SetTimer("", kFillTimer, ctx.clock().Now() + limits_.wait_max);
  }
  if (entries_.size() >= reports_max_ || bytes_ >= limits_.bytes_max) MaybeWrite();
}

void ReportIndexerFunction::OnTimer(TaskContext&, absl::string_view, uint32_t tag, MonotonicTime) {
  if (tag == kRetryTimer && phase_ == Phase::kWaiting) phase_ = Phase::kIdle;
  MaybeWrite();
}

void ReportIndexerFunction::OnResume(TaskContext&) {
  draining_ = false;
  MaybeWrite();
}

void ReportIndexerFunction::OnDrain(TaskContext&, Drain kind) {
  if (kind == Drain::kShutdown) return MaybeWrite();
  draining_ = true;
}

std::string ReportIndexerFunction::StatusRows(size_t entries) const {
  // Of each part the newest: one statement may not touch a row twice.
  std::map<std::pair<subscriptions::EndpointId, uint32_t>, const EndpointStatus*> newest;
  for (size_t i = 0; i < entries; ++i) {
    if (!entries_[i].status) continue;
    const EndpointStatus& status = *entries_[i].status;
    const EndpointStatus*& kept = newest[{status.endpoint, status.part}];
    if (kept == nullptr || kept->observed_at <= status.observed_at) kept = &status;
  }
  CopyRows rows;
  for (const auto& [key, status] : newest) {
    rows.Uuid(status->endpoint.bytes())
        .Int(Clamped32(status->part))
        .Uuid(status->customer.bytes())
        .Time(Storable(status->observed_at))
        .Text(EndpointHealthStateName(status->state))
        .Text(status->reason);
    AddTime(rows, status->held_until);
    AddTime(rows, status->failing_since);
    rows.Int(Clamped(status->auto_disabled_generation))
        .Int(Clamped(status->backlog_messages))
        .Int(Clamped(status->backlog_bytes))
        .Int(Clamped32(status->window))
        .Int(Clamped(status->learned_events_max))
        .Int(Clamped(status->learned_bytes_max))
        .Int(Clamped(status->learned_messages_per_1000_seconds))
        .Text(status->last_outcome)
        .Int(Clamped32(status->last_status));
    AddTime(rows, status->last_attempt_at);
    AddTime(rows, status->last_success_at);
    rows.EndRow();
  }
  return rows.Take();
}

std::string ReportIndexerFunction::AttemptRows(size_t entries) const {
  CopyRows rows;
  for (size_t i = 0; i < entries; ++i) {
    if (!entries_[i].attempt) continue;
    const AttemptReport& attempt = *entries_[i].attempt;
    rows.Uuid(attempt.id.bytes())
        .Uuid(attempt.customer.bytes())
        .Uuid(attempt.endpoint.bytes())
        .Text(attempt.message_id)
        .Int(Clamped32(attempt.messages))
        .Int(Clamped32(attempt.attempt))
        .Time(Storable(attempt.started_at))
        .Int(attempt.duration_ms)
        .Text(attempt.outcome)
        .Int(Clamped32(attempt.status))
        .Bytes(attempt.response)
        .Text(FormatTextArray(attempt.tenants));
    rows.EndRow();
  }
  return rows.Take();
}

struct ReportIndexerFunction::Write final : WriteCourse {
  std::weak_ptr<ReportIndexerFunction*> function;
  std::string statuses;
  std::string attempts;
  int days_kept = 0;
  bool see_to_days = false;
  size_t entries = 0;
  int64_t statuses_changed = 0;
  int64_t attempts_added = 0;

 private:
  void Run() override {
    if (see_to_days) {
      Query({"SELECT postrider.keep_attempt_days($1::integer)", {SqlParam::Int(days_kept)}});
    }
    if (!statuses.empty()) {
      Query({kIncomingStatus, {}});
      CopyIn(kCopyStatus, std::move(statuses));
      Query({kUpsertStatus, {}},
            [this](const QueryResult& result) { statuses_changed = result.affected(); });
    }
    if (!attempts.empty()) {
      Query({kIncomingAttempts, {}});
      CopyIn(kCopyAttempts, std::move(attempts));
      Query({kInsertAttempts, {SqlParam::Int(days_kept)}},
            [this](const QueryResult& result) { attempts_added = result.affected(); });
    }
    Finish({"SELECT 1", {}});
  }
  void OnEnd(const absl::Status& result) override {
    if (const auto alive = function.lock(); alive != nullptr) (*alive)->OnWritten(*this, result);
  }
};

void ReportIndexerFunction::MaybeWrite() {
  if (phase_ != Phase::kIdle || entries_.empty() || draining_ || !ctx_->MayAct()) return;
  phase_ = Phase::kWriting;
  auto write = std::make_shared<Write>();
  write->function = self_;
  size_t bytes = 0;
  while (write->entries < std::min(entries_.size(), reports_max_) &&
         (write->entries == 0 || bytes + entries_[write->entries].bytes <= limits_.bytes_max)) {
    bytes += entries_[write->entries].bytes;
    ++write->entries;
  }
  write->statuses = StatusRows(write->entries);
  write->attempts = AttemptRows(write->entries);
  write->days_kept = limits_.attempt_days_kept;
  write->see_to_days = !write->attempts.empty() &&
                       (!days_at_ || ctx_->clock().Now() >= *days_at_ + limits_.days_interval);
  write->Begin(pool_);
}

void ReportIndexerFunction::OnWritten(const Write& write, const absl::Status& status) {
  phase_ = Phase::kIdle;
  const bool poison = IsPoison(status);
  if (poison && write.entries > 1) {
    // Halves the batch until the report stands alone that Postgres refuses.
    reports_max_ = write.entries / 2;
    return MaybeWrite();
  }
  if (!status.ok() && !poison) {
    metrics_.failures.Increment();
    POSTRIDER_LOG(kWarn, "reports wait for postgres", {"partition", ctx_->partition().ToString()},
                  {"why", status.message()});
    // What is too much for one statement's time may not be in smaller parts.
    if (absl::IsDeadlineExceeded(status)) reports_max_ = std::max<size_t>(1, write.entries / 2);
    phase_ = Phase::kWaiting;
    retry_delay_ = retry_delay_ == Duration::zero()
                       ? limits_.retry_first
                       : std::min(limits_.retry_most, retry_delay_ * 2);
    ctx_->SetTimer("", kRetryTimer, ctx_->clock().Now() + retry_delay_);
    return;
  }
  retry_delay_ = Duration::zero();
  if (poison) {
    metrics_.refused.Increment();
    POSTRIDER_LOG(kError, "postgres refuses a report", {"partition", ctx_->partition().ToString()},
                  {"offset", entries_.front().offset}, {"why", status.message()});
  } else {
    reports_max_ = std::min(limits_.reports_max, reports_max_ * 2);
    metrics_.statuses.Add(static_cast<double>(write.statuses_changed));
    metrics_.attempts.Add(static_cast<double>(write.attempts_added));
    if (write.see_to_days) days_at_ = ctx_->clock().Now();
  }
  for (size_t i = 0; i < write.entries; ++i) {
    bytes_ -= entries_.front().bytes;
    ctx_->Complete(entries_.front().offset);
    entries_.pop_front();
  }
  if (!entries_.empty() && entries_.size() < reports_max_ && bytes_ < limits_.bytes_max) {
    ctx_->SetTimer("", kFillTimer, ctx_->clock().Now() + limits_.wait_max);
    return;
  }
  MaybeWrite();
}

void ReportIndexerFunction::Close(TaskContext&, CloseReason) {
  self_.reset();
  ctx_ = nullptr;
}

}  // namespace postrider::dlq
