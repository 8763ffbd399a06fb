#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "subscriptions/registry/field_fault.h"
#include "subscriptions/registry/ids.h"

namespace postrider::subscriptions {

enum class EndpointMode { kBatch, kStreaming };

absl::string_view EndpointModeName(EndpointMode mode);
absl::optional<EndpointMode> ParseEndpointMode(absl::string_view name);

// A batch is closed by whichever comes first.
struct BatchSettings {
  static constexpr int64_t kEventsLeast = 1;
  static constexpr int64_t kEventsMost = 5000;
  static constexpr int64_t kBytesLeast = 1024;
  static constexpr int64_t kBytesMost = 10'485'760;
  static constexpr std::chrono::milliseconds kWaitMost{60'000};

  int64_t events_max = 1000;
  int64_t bytes_max = 1'048'576;
  std::chrono::milliseconds wait_max{1000};

  friend bool operator==(const BatchSettings&, const BatchSettings&) = default;
};

struct RetrySettings {
  static constexpr int kAttemptsMost = 50;
  static constexpr std::chrono::milliseconds kHorizonLeast{1000};
  static constexpr std::chrono::milliseconds kHorizonMost = std::chrono::hours(24 * 7);
  static constexpr std::chrono::milliseconds kFirstDelayLeast{10};
  static constexpr double kFactorMost = 10;
  static constexpr std::chrono::milliseconds kCapMost = std::chrono::hours(24);

  int attempts = 10;
  std::chrono::milliseconds horizon = std::chrono::hours(24);
  std::chrono::milliseconds first_delay{5000};
  double factor = 2;
  std::chrono::milliseconds cap = std::chrono::hours(1);

  friend bool operator==(const RetrySettings&, const RetrySettings&) = default;
};

// What a customer sets.
struct EndpointSettings {
  static constexpr int kWindowMost = 256;
  static constexpr std::chrono::milliseconds kTimeoutLeast{1000};
  static constexpr std::chrono::milliseconds kTimeoutMost{30'000};
  static constexpr size_t kDescriptionBytesMax = 1000;

  std::string url;
  std::string description;
  EndpointMode mode = EndpointMode::kBatch;
  BatchSettings batch;
  std::vector<std::pair<std::string, std::string>> headers;  // core/http/header_rules.h
  RetrySettings retry;
  int window_max = 32;
  std::chrono::milliseconds timeout{15'000};
  bool enabled = true;

  friend bool operator==(const EndpointSettings&, const EndpointSettings&) = default;
};

// Every field that is out of its bounds. Looks at the URL's form only; whether its address may be
// reached is the address guard's matter, and depends on options.
FieldFaults Validate(const EndpointSettings& settings);

// An endpoint as it is kept.
struct Endpoint {
  EndpointId id;
  CustomerId customer;
  EndpointSettings settings;
  std::string secrets_sealed;  // see endpoint_secrets.h
  uint64_t generation = 0;
  uint64_t changed_xid = 0;
  WallTime created_at;
  WallTime updated_at;
};

}  // namespace postrider::subscriptions
