#include "delivery/headers.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {

absl::StatusOr<HttpHeaders> MakeDeliveryHeaders(DeliveryHeaders input) {
  HttpHeaders headers;
  const size_t custom = input.custom == nullptr ? 0 : input.custom->size();
  headers.reserve(10 + input.event.size() + custom);
  headers.emplace_back("content-type", std::string(input.content_type));
  if (!input.content_encoding.empty()) {
    headers.emplace_back("content-encoding", std::string(input.content_encoding));
  }
  headers.emplace_back("user-agent", "Postrider/" POSTRIDER_VERSION);
  headers.emplace_back("webhook-id", std::string(input.webhook_id));
  headers.emplace_back("webhook-timestamp", absl::StrCat(input.timestamp_seconds));
  headers.emplace_back("webhook-signature", std::string(input.signature));
  headers.emplace_back("webhook-attempt", absl::StrCat(input.attempt));
  headers.emplace_back("webhook-batch-size", absl::StrCat(input.batch_size));
  headers.emplace_back(std::string(subscriptions::kHopsHeader), absl::StrCat(input.hops));
  const bool has_event = !input.event.empty();
  headers.insert(headers.end(), std::make_move_iterator(input.event.begin()),
                 std::make_move_iterator(input.event.end()));
  if (input.auth != nullptr) headers.push_back(*input.auth);
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
    // The reserved ones are refused by FindHeaderFault(); those of the event are ours only here.
    for (const auto& [name, value] : *input.custom) {
      if (has_event && absl::StartsWithIgnoreCase(name, "ce-")) {
        return absl::FailedPreconditionError(
            "delivery: a header of the endpoint begins with ce-, as the event's do");
      }
    }
    for (const auto& line : *input.custom) {
      if (input.auth != nullptr && absl::EqualsIgnoreCase(line.first, input.auth->first)) continue;
      headers.push_back(line);
    }
  }
  return headers;
}

}  // namespace postrider::delivery
