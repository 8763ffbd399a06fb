#include "delivery/endpoint_reporting.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "core/crypto/random.h"

namespace postrider::delivery {

void EndpointReportingOptions::Register(Options& options) {
  options.AddDuration("reports.status_interval", &status_interval, std::chrono::seconds(1),
                      std::chrono::minutes(10),
                      "How often an endpoint's figures are told to the API; a change of its state "
                      "is told at once.");
  options.Add("reports.success_sample", &success_sample, 0, 1'000'000,
              "One successful attempt in so many is kept to be looked at; 0: none. All failed ones "
              "are.");
}

ReportingMetrics::ReportingMetrics(Metrics& metrics)
    : statuses(metrics.AddCounter("postrider_delivery_reports_total",
                                  "Reports to the topic of reports, by kind",
                                  {{"kind", "status"}})),
      attempts(metrics.AddCounter("postrider_delivery_reports_total",
                                  "Reports to the topic of reports, by kind",
                                  {{"kind", "attempt"}})),
      attempts_dropped(metrics.AddCounter("postrider_delivery_attempts_dropped_total",
                                          "Attempts that were not reported for want of room")),
      failures(metrics.AddCounter("postrider_delivery_report_failures_total",
                                  "Reports that the log did not take")) {}

namespace {

// Without an answer its time is that of the whole second: the customer reads it, and it would tell
// how long a connection took to fail (RULES 4).
dlq::AttemptId NewAttemptId(bool answered, const Clock& clock) {
  IdBytes bytes = NewIdBytes(clock);
  if (answered) return dlq::AttemptId(bytes);
  int64_t ms = 0;
  for (size_t i = 0; i < 6; ++i) ms = ms << 8 | bytes[i];
  ms -= ms % 1'000;
  for (size_t i = 6; i-- > 0; ms >>= 8) bytes[i] = static_cast<uint8_t>(ms & 0xff);
  return dlq::AttemptId(bytes);
}

}  // namespace

dlq::AttemptReport MakeAttemptReport(subscriptions::EndpointId endpoint, AttemptFacts facts,
                                     size_t messages, int tries, const HttpResult& result,
                                     const Outcome& outcome, const Clock& clock) {
  dlq::AttemptReport report;
  report.id = NewAttemptId(result.status > 0, clock);
  report.customer = facts.customer;
  report.endpoint = endpoint;
  report.message_id = std::move(facts.webhook_id);
  report.messages = static_cast<uint32_t>(messages);
  report.attempt = static_cast<uint32_t>(tries);
  report.started_at = facts.started_at;
  report.outcome = std::string(OutcomeName(outcome.kind));
  report.tenants = std::move(facts.tenants);
  // Of an address that we refuse nothing else is told, not even how long it took to know (RULES 4).
  if (outcome.kind == OutcomeKind::kAddressRefused) return report;
  report.duration_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(result.timings.total).count());
  report.status = static_cast<uint32_t>(std::max(result.status, 0));
  report.response = result.body_excerpt.substr(0, dlq::AttemptReport::kResponseBytesMax);
  return report;
}

EndpointReporting::EndpointReporting(const EndpointReportingOptions& options,
                                     std::string topic_prefix, ReportingMetrics& metrics,
                                     Random& random)
    : options_(options),
      topic_prefix_(std::move(topic_prefix)),
      metrics_(metrics),
      random_(random) {}

MonotonicTime EndpointReporting::TellAt(const Told& told, dlq::EndpointHealthState state,
                                        absl::string_view reason,
                                        uint64_t auto_disabled_generation) const {
  if (!told.at || told.state != state || told.reason != reason ||
      told.auto_disabled_generation != auto_disabled_generation) {
    return MonotonicTime{};
  }
  return *told.at + options_.status_interval;
}

bool EndpointReporting::TellStatus(TaskContext& ctx, const dlq::EndpointStatus& status,
                                   Told* told) {
  if (!ctx.Emit(dlq::MakeStatusAppend(topic_prefix_, status), CountFailure())) return false;
  metrics_.statuses.Increment();
  told->at = ctx.clock().Now();
  told->state = status.state;
  told->reason = status.reason;
  told->auto_disabled_generation = status.auto_disabled_generation;
  return true;
}

bool EndpointReporting::WantsAttempt(const Outcome& outcome) {
  if (outcome.kind != OutcomeKind::kDelivered) return true;
  return options_.success_sample > 0 &&
         random_.Below(static_cast<uint64_t>(options_.success_sample)) == 0;
}

void EndpointReporting::TellAttempt(TaskContext& ctx, const dlq::AttemptReport& report) {
  Count(ctx.Emit(dlq::MakeAttemptAppend(topic_prefix_, report), CountFailure()));
}

void EndpointReporting::TellAttempt(LogProducer& producer, const dlq::AttemptReport& report) {
  Count(producer.Append(dlq::MakeAttemptAppend(topic_prefix_, report), CountFailure()));
}

void EndpointReporting::Count(bool taken) {
  (taken ? metrics_.attempts : metrics_.attempts_dropped).Increment();
}

LogProducer::AppendDone EndpointReporting::CountFailure() {
  return [&failures = metrics_.failures](absl::StatusOr<int64_t> appended) {
    if (!appended.ok()) failures.Increment();
  };
}

}  // namespace postrider::delivery
