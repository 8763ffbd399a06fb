#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/http/header_rules.h"

namespace postrider::delivery {

struct DeliveryHeaders {
  absl::string_view webhook_id;  // msg_... or bat_...
  int64_t timestamp_seconds = 0;
  absl::string_view signature;
  int attempt = 1;
  size_t batch_size = 1;
  uint32_t hops = 1;  // with this delivery
  absl::string_view content_type = "application/json";
  absl::string_view content_encoding;  // empty: none
  HttpHeaders event;                   // ce-...
  // Who we are; may be null. It takes the place of a line of the endpoint's own with its name.
  const std::pair<std::string, std::string>* auth = nullptr;
  const HttpHeaders* custom = nullptr;  // the endpoint's own, in their order; may be null
};

// The only place where header lines of a delivery are made: always the same lines in the same
// order, ours first. FailedPrecondition when one is unfit for the wire or would stand there twice,
// such as an endpoint's header that was put into the database past the API; it says which, never
// its value.
absl::StatusOr<HttpHeaders> MakeDeliveryHeaders(DeliveryHeaders input);

}  // namespace postrider::delivery
