#include "delivery/headers.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace postrider::delivery {

absl::StatusOr<HttpHeaders> MakeDeliveryHeaders(const DeliveryHeaders& input) {
  HttpHeaders headers;
  const size_t custom = input.custom == nullptr ? 0 : input.custom->size();
  headers.reserve(7 + custom);
  headers.emplace_back("content-type", std::string(input.content_type));
  headers.emplace_back("user-agent", "Postrider/" POSTRIDER_VERSION);
  headers.emplace_back("webhook-id", std::string(input.webhook_id));
  headers.emplace_back("webhook-timestamp", absl::StrCat(input.timestamp_seconds));
  headers.emplace_back("webhook-signature", std::string(input.signature));
  headers.emplace_back("webhook-attempt", absl::StrCat(input.attempt));
  headers.emplace_back("webhook-batch-size", absl::StrCat(input.batch_size));
  for (const auto& [name, value] : headers) {
    if (value.empty() || !IsHeaderValue(value)) {
      return absl::FailedPreconditionError(
          absl::StrCat("delivery: the value of ", name, " is unfit for a header"));
    }
  }
  if (custom > 0) {
    if (const absl::optional<HeaderFault> fault = FindHeaderFault(*input.custom)) {
      return absl::FailedPreconditionError(
          absl::StrCat("delivery: header ", fault->index + 1, " of the endpoint: ", fault->detail));
    }
    headers.insert(headers.end(), input.custom->begin(), input.custom->end());
  }
  return headers;
}

}  // namespace postrider::delivery
