#include "delivery/endpoint_reporting.h"

#include <utility>

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

bool EndpointReporting::WantsAttempt(Success success) {
  if (success == Success::kNo) return true;
  return options_.success_sample > 0 &&
         random_.Below(static_cast<uint64_t>(options_.success_sample)) == 0;
}

void EndpointReporting::TellAttempt(TaskContext& ctx, const dlq::AttemptReport& report) {
  if (ctx.Emit(dlq::MakeAttemptAppend(topic_prefix_, report), CountFailure())) {
    metrics_.attempts.Increment();
  } else {
    metrics_.attempts_dropped.Increment();
  }
}

LogProducer::AppendDone EndpointReporting::CountFailure() {
  return [&failures = metrics_.failures](absl::StatusOr<int64_t> appended) {
    if (!appended.ok()) failures.Increment();
  };
}

}  // namespace postrider::delivery
