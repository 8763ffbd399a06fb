#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::dlq {

struct AttemptTag {
  static constexpr absl::string_view kPrefix = "att_";
};
// Its first 48 bits are the time of the attempt in ms, as those of all our ids.
using AttemptId = Id<AttemptTag>;

// One request to an endpoint and what came of it.
struct AttemptReport {
  static constexpr size_t kResponseBytesMax = 2048;
  static constexpr size_t kTenantsMax = 16;

  AttemptId id;
  subscriptions::CustomerId customer;
  subscriptions::EndpointId endpoint;
  std::string message_id;  // webhook-id: msg_... or bat_...
  uint32_t messages = 1;   // in the request
  uint32_t attempt = 1;    // webhook-attempt
  WallTime started_at;
  uint32_t duration_ms = 0;
  std::string outcome;  // OutcomeName()
  uint32_t status = 0;  // 0: no head came
  // The beginning of the answer's body. Whoever reads it must be granted every tenant of `tenants`:
  // a receiver may repeat what it was sent. Empty when the request had more than kTenantsMax.
  std::string response;
  std::vector<std::string> tenants;  // each once, sorted

  friend bool operator==(const AttemptReport&, const AttemptReport&) = default;
};

// Longer responses are cut, and left out where there are too many tenants.
std::string EncodeAttemptReport(const AttemptReport& report);
// kDataLoss for anything that Encode would not have written, or of a newer version.
absl::StatusOr<AttemptReport> DecodeAttemptReport(absl::string_view bytes);
// Into the topic of reports, to the partition of its customer.
AppendRecord MakeAttemptAppend(absl::string_view prefix, const AttemptReport& report);

}  // namespace postrider::dlq
