#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/base/random.h"
#include "core/http/http_sink.h"
#include "core/stream/function.h"
#include "core/stream/log.h"
#include "delivery/outcome.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

struct EndpointReportingOptions {
  // How often the status of an endpoint is told that has changed in its figures only. A change of
  // its state is told at once.
  std::chrono::milliseconds status_interval{5000};
  // One successful attempt in so many is told; 0: none. Failures are told all.
  int64_t success_sample = 100;

  void Register(Options& options);
};

struct ReportingMetrics {
  explicit ReportingMetrics(Metrics& metrics);

  Counter& statuses;
  Counter& attempts;
  Counter& attempts_dropped;
  Counter& failures;
};

// What an attempt's report needs of the request, noted when it is made: what was sent is not kept
// until the answer is there.
struct AttemptFacts {
  subscriptions::CustomerId customer;
  std::string webhook_id;
  std::vector<std::string> tenants;  // each once, at most one more than a report may name
  WallTime started_at;
};

// The report of one request, `tries` counting it, that came to this just now.
dlq::AttemptReport MakeAttemptReport(subscriptions::EndpointId endpoint, AttemptFacts facts,
                                     size_t messages, int tries, const HttpResult& result,
                                     const Outcome& outcome, const Clock& clock);

// Tells the topic of reports what is observed of endpoints and what became of attempts. It never
// slows delivery: what the shard's producer has no room for is dropped and counted (an attempt), or
// told later (a status). Nothing waits for an acknowledgement, and one that fails is counted.
//
// Threads: the shard's. Bounds: it keeps nothing itself.
class EndpointReporting {
 public:
  // `metrics` and `random` outlive it.
  EndpointReporting(const EndpointReportingOptions& options, std::string topic_prefix,
                    ReportingMetrics& metrics, Random& random);

  // What was told of an endpoint last; kept beside the endpoint by whoever owns that.
  struct Told {
    absl::optional<MonotonicTime> at;
    dlq::EndpointHealthState state = dlq::EndpointHealthState::kHealthy;
    std::string reason;
    uint64_t auto_disabled_generation = 0;
  };
  // When this is to be told: a time that has come for a change of state, reason or automatic
  // disabling and for what was never told, else status_interval after the last time.
  MonotonicTime TellAt(const Told& told, dlq::EndpointHealthState state, absl::string_view reason,
                       uint64_t auto_disabled_generation) const;
  // Tells it. False: there is no room, `told` is as it was; try again later.
  bool TellStatus(TaskContext& ctx, const dlq::EndpointStatus& status, Told* told);

  // Whether this attempt is one of those that are told: ask before making a report of it.
  bool WantsAttempt(const Outcome& outcome);
  void TellAttempt(TaskContext& ctx, const dlq::AttemptReport& report);
  // Of a request that has outlived its task here: past the task, by the shard's producer.
  void TellAttempt(LogProducer& producer, const dlq::AttemptReport& report);

 private:
  void Count(bool taken);
  LogProducer::AppendDone CountFailure();

  const EndpointReportingOptions options_;
  const std::string topic_prefix_;
  ReportingMetrics& metrics_;
  Random& random_;
};

}  // namespace postrider::delivery
