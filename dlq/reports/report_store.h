#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/postgres/transaction.h"
#include "dlq/reports/attempt_report.h"
#include "dlq/reports/endpoint_status.h"
#include "subscriptions/registry/ids.h"

// What the API reads of what workers have reported. Every call runs in a transaction begun as the
// customer; every statement names the customer besides. The transaction outlives the callback,
// which runs on its loop.
namespace postrider::dlq {

// Attempts older than this are not shown, and soon gone.
inline constexpr int kAttemptDaysKept = 14;

template <typename T>
using ReportsDone = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

// One per part that has ever reported, by part; none: no worker has had it yet.
void GetEndpointStatus(Transaction& tx, subscriptions::CustomerId customer,
                       subscriptions::EndpointId endpoint,
                       ReportsDone<std::vector<EndpointStatus>> done);

struct AttemptPage {
  absl::optional<AttemptId> after;  // the last one of the page before
  size_t limit = 100;
};
struct Attempts {
  // The newest first; without the answer's text where a tenant is not granted any more.
  std::vector<AttemptReport> rows;
  absl::optional<AttemptId> next;  // for the page after; none: there is none
};
void ListAttempts(Transaction& tx, subscriptions::CustomerId customer,
                  subscriptions::EndpointId endpoint, AttemptPage page, ReportsDone<Attempts> done);

}  // namespace postrider::dlq
