#include "subscriptions/registry/endpoint.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/http/header_rules.h"
#include "core/http/url.h"
#include "subscriptions/registry/internal/text_rules.h"

namespace postrider::subscriptions {
namespace {

void Range(int64_t value, int64_t least, int64_t most, absl::string_view pointer,
           FieldFaults* faults) {
  if (value < least || value > most) {
    faults->push_back(
        {std::string(pointer), absl::StrCat("must be between ", least, " and ", most)});
  }
}

void Range(std::chrono::milliseconds value, std::chrono::milliseconds least,
           std::chrono::milliseconds most, absl::string_view pointer, FieldFaults* faults) {
  Range(value.count(), least.count(), most.count(), pointer, faults);
}

}  // namespace

absl::string_view EndpointModeName(EndpointMode mode) {
  switch (mode) {
    case EndpointMode::kBatch:
      return "batch";
    case EndpointMode::kStreaming:
      return "streaming";
  }
  POSTRIDER_CHECK(false);
}

absl::optional<EndpointMode> ParseEndpointMode(absl::string_view name) {
  if (name == "batch") return EndpointMode::kBatch;
  if (name == "streaming") return EndpointMode::kStreaming;
  return absl::nullopt;
}

FieldFaults Validate(const EndpointSettings& settings) {
  FieldFaults faults;
  if (const auto url = ParseHttpUrl(settings.url); !url.ok()) {
    faults.push_back({"/url", std::string(url.status().message())});
  }
  if (settings.description.size() > EndpointSettings::kDescriptionBytesMax) {
    faults.push_back(
        {"/description",
         absl::StrCat("must be at most ", EndpointSettings::kDescriptionBytesMax, " bytes long")});
  } else if (!internal::IsPlainText(settings.description)) {
    faults.push_back({"/description", "must be UTF-8 without control characters"});
  }
  const BatchSettings& batch = settings.batch;
  Range(batch.events_max, BatchSettings::kEventsLeast, BatchSettings::kEventsMost,
        "/batch/events_max", &faults);
  Range(batch.bytes_max, BatchSettings::kBytesLeast, BatchSettings::kBytesMost, "/batch/bytes_max",
        &faults);
  Range(batch.wait_max, std::chrono::milliseconds(0), BatchSettings::kWaitMost,
        "/batch/wait_max_ms", &faults);
  if (const auto fault = FindHeaderFault(settings.headers)) {
    if (fault->index < settings.headers.size() && settings.headers.size() <= kCustomHeadersMax) {
      // A JSON pointer escapes '~' and '/', and a token may hold the former.
      std::string name;
      for (const char c : settings.headers[fault->index].first) {
        if (c == '~') {
          name += "~0";
        } else if (c == '/') {
          name += "~1";
        } else {
          name.push_back(c);
        }
      }
      faults.push_back({absl::StrCat("/headers/", name), fault->detail});
    } else {
      faults.push_back({"/headers", fault->detail});
    }
  }
  const RetrySettings& retry = settings.retry;
  Range(retry.attempts, 1, RetrySettings::kAttemptsMost, "/retry/attempts", &faults);
  Range(retry.horizon, RetrySettings::kHorizonLeast, RetrySettings::kHorizonMost,
        "/retry/horizon_ms", &faults);
  Range(retry.first_delay, RetrySettings::kFirstDelayLeast, RetrySettings::kCapMost,
        "/retry/first_delay_ms", &faults);
  Range(retry.cap, RetrySettings::kFirstDelayLeast, RetrySettings::kCapMost, "/retry/cap_ms",
        &faults);
  // NaN is in no range.
  if (!(retry.factor >= 1 && retry.factor <= RetrySettings::kFactorMost)) {
    faults.push_back(
        {"/retry/factor", absl::StrCat("must be between 1 and ", RetrySettings::kFactorMost)});
  }
  Range(settings.window_max, 1, EndpointSettings::kWindowMost, "/window_max", &faults);
  Range(settings.timeout, EndpointSettings::kTimeoutLeast, EndpointSettings::kTimeoutMost,
        "/timeout_ms", &faults);
  return faults;
}

}  // namespace postrider::subscriptions
