#include "dlq/reports/report_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/postgres/result.h"
#include "core/postgres/statement.h"

namespace postrider::dlq {
namespace {

using subscriptions::CustomerId;
using subscriptions::EndpointId;

absl::optional<EndpointHealthState> ParseState(absl::string_view name) {
  for (int i = 1; i <= static_cast<int>(EndpointHealthState::kDisabled); ++i) {
    const auto state = static_cast<EndpointHealthState>(i);
    if (EndpointHealthStateName(state) == name) return state;
  }
  return absl::nullopt;
}

absl::StatusOr<EndpointStatus> ReadStatus(const QueryResult& result, size_t i) {
  RowReader row(result, i);
  EndpointStatus status;
  status.customer = CustomerId(row.Uuid("customer_id"));
  status.endpoint = EndpointId(row.Uuid("endpoint_id"));
  status.part = static_cast<uint32_t>(row.Int("part"));
  status.observed_at = row.Time("observed_at");
  const absl::optional<EndpointHealthState> state = ParseState(row.Text("state"));
  status.reason = row.Text("reason");
  status.held_until = row.OptionalTime("held_until");
  status.failing_since = row.OptionalTime("failing_since");
  status.auto_disabled_generation = row.Unsigned("auto_disabled_generation");
  status.backlog_messages = row.Unsigned("backlog_messages");
  status.backlog_bytes = row.Unsigned("backlog_bytes");
  status.window = static_cast<uint32_t>(row.Int("request_window"));
  status.learned_events_max = row.Unsigned("learned_events_max");
  status.learned_bytes_max = row.Unsigned("learned_bytes_max");
  status.learned_messages_per_1000_seconds = row.Unsigned("learned_milli_rate");
  status.last_outcome = row.Text("last_outcome");
  status.last_status = static_cast<uint32_t>(row.Int("last_status"));
  status.last_attempt_at = row.OptionalTime("last_attempt_at");
  status.last_success_at = row.OptionalTime("last_success_at");
  RETURN_IF_ERROR(row.status());
  if (!state) return absl::DataLossError("dlq: an endpoint's state is not known");
  status.state = *state;
  return status;
}

absl::StatusOr<AttemptReport> ReadAttempt(const QueryResult& result, size_t i, CustomerId customer,
                                          EndpointId endpoint) {
  RowReader row(result, i);
  AttemptReport attempt;
  attempt.id = AttemptId(row.Uuid("id"));
  attempt.customer = customer;
  attempt.endpoint = endpoint;
  attempt.message_id = row.Text("message_id");
  attempt.messages = static_cast<uint32_t>(row.Int("messages"));
  attempt.attempt = static_cast<uint32_t>(row.Int("attempt"));
  attempt.started_at = row.Time("started_at");
  attempt.duration_ms = static_cast<uint32_t>(row.Int("duration_ms"));
  attempt.outcome = row.Text("outcome");
  attempt.status = static_cast<uint32_t>(row.Int("status"));
  attempt.response = row.Bytes("response");
  attempt.tenants = row.TextArray("tenants");
  RETURN_IF_ERROR(row.status());
  return attempt;
}

}  // namespace

void GetEndpointStatus(Transaction& tx, CustomerId customer, EndpointId endpoint,
                       ReportsDone<std::vector<EndpointStatus>> done) {
  tx.Query(
      Statement{
          "SELECT endpoint_id, part, customer_id, postrider.millis(observed_at) AS observed_at, "
          "state, reason, postrider.millis(held_until) AS held_until, "
          "postrider.millis(failing_since) AS failing_since, auto_disabled_generation, "
          "backlog_messages, backlog_bytes, request_window, learned_events_max, "
          "learned_bytes_max, learned_milli_rate, last_outcome, last_status, "
          "postrider.millis(last_attempt_at) AS last_attempt_at, "
          "postrider.millis(last_success_at) AS last_success_at FROM postrider.endpoint_status "
          "WHERE customer_id = $1::uuid AND endpoint_id = $2::uuid ORDER BY part",
          {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(endpoint.bytes())}},
      [done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
        if (!result.ok()) return std::move(done)(result.status());
        std::vector<EndpointStatus> parts;
        for (size_t i = 0; i < result->rows(); ++i) {
          absl::StatusOr<EndpointStatus> part = ReadStatus(*result, i);
          if (!part.ok()) return std::move(done)(part.status());
          parts.push_back(*std::move(part));
        }
        std::move(done)(std::move(parts));
      });
}

void ListAttempts(Transaction& tx, CustomerId customer, EndpointId endpoint, AttemptPage page,
                  ReportsDone<Attempts> done) {
  // The id's day is the partition's, so both bounds leave partitions out.
  tx.Query(
      Statement{
          "SELECT a.id, a.message_id, a.messages, a.attempt, postrider.millis(a.started_at) AS "
          "started_at, a.duration_ms, a.outcome, a.status, a.tenants, "
          "CASE WHEN cardinality(a.tenants) > 0 AND NOT EXISTS (SELECT 1 FROM unnest(a.tenants) "
          "AS t (tenant) WHERE NOT EXISTS (SELECT 1 FROM postrider.grants g WHERE g.customer_id = "
          "$1::uuid AND g.tenant = t.tenant AND g.deleted_at IS NULL)) THEN a.response ELSE '' END "
          "AS response FROM postrider.attempts a WHERE a.customer_id = $1::uuid AND a.endpoint_id "
          "= $2::uuid AND a.day >= (now() AT TIME ZONE 'UTC')::date - $3::integer "
          "AND a.started_at > now() - make_interval(days => $3::integer) "
          "AND ($4::uuid IS NULL OR (a.day <= postrider.letter_day($4::uuid) AND a.id < "
          "$4::uuid)) ORDER BY a.id DESC LIMIT $5::integer",
          {SqlParam::Uuid(customer.bytes()), SqlParam::Uuid(endpoint.bytes()),
           SqlParam::Int(kAttemptDaysKept),
           page.after ? SqlParam::Uuid(page.after->bytes()) : SqlParam::Null(),
           SqlParam::Int(static_cast<int64_t>(page.limit) + 1)}},
      [customer, endpoint, limit = page.limit,
       done = std::move(done)](absl::StatusOr<QueryResult> result) mutable {
        if (!result.ok()) return std::move(done)(result.status());
        Attempts attempts;
        for (size_t i = 0; i < result->rows() && i < limit; ++i) {
          absl::StatusOr<AttemptReport> attempt = ReadAttempt(*result, i, customer, endpoint);
          if (!attempt.ok()) return std::move(done)(attempt.status());
          attempts.rows.push_back(*std::move(attempt));
        }
        if (result->rows() > limit && !attempts.rows.empty()) {
          attempts.next = attempts.rows.back().id;
        }
        std::move(done)(std::move(attempts));
      });
}

}  // namespace postrider::dlq
