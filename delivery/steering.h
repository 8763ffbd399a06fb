#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/http/header_rules.h"

namespace postrider::delivery {

// Header lines by which a receiver steers what it is sent, with any answer:
//
//   webhook-batch-max: 250    no more messages in a batch
//   webhook-rate: 12.5        no more messages per second, on the average
//
// They hold for 24 h or until the endpoint is changed; the next answer that has one replaces it.
// They only ever narrow what the endpoint's settings allow.
inline constexpr absl::string_view kSteeringPrefix = "webhook-";
inline constexpr absl::string_view kBatchMaxHeader = "webhook-batch-max";
inline constexpr absl::string_view kRateHeader = "webhook-rate";
inline constexpr std::chrono::hours kLearnedFor{24};

struct Steering {
  absl::optional<int64_t> events_max;          // 1 to 5,000
  absl::optional<double> messages_per_second;  // 0.001 to 1e9
};
// Reads the lines of an answer, their names in lower case. Of several valid ones of a name the
// smallest counts; what is no plain decimal number (a count: up to 9 digits; a rate: up to 9, with
// up to 3 more behind a point) or is below its least is as if it were not there. What is above its
// most is cut to it.
Steering ReadSteering(const HttpHeaders& lines);

// What an endpoint's receiver has taught: by 413 (a batch was too large) and by steering.
struct LearnedLimits {
  absl::optional<int64_t> events_max;
  absl::optional<int64_t> bytes_max;
  absl::optional<double> messages_per_second;
  MonotonicTime events_until{};
  MonotonicTime bytes_until{};
  MonotonicTime rate_until{};

  // Each returns whether what holds has changed.
  bool Learn(const Steering& steering, MonotonicTime now);
  // A batch whose body had so many bytes, at most, was too large: half of that is tried.
  bool LearnTooLarge(size_t bytes, MonotonicTime now);
  bool Expire(MonotonicTime now);
  bool any() const { return events_max || bytes_max || messages_per_second; }
};

}  // namespace postrider::delivery
