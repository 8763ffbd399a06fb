#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::dlq {

// Stored and sent as numbers: add at the end, never renumber.
enum class EndpointHealthState : uint8_t {
  kHealthy = 1,
  kDegraded = 2,  // fails; nothing but a probe is sent after a rest
  kProbing = 3,   // the probe is under way, or the slow start after it
  kPaused = 4,    // by a person
  kDisabled = 5,  // by a person, or by us: see auto_disabled_generation
};
absl::string_view EndpointHealthStateName(EndpointHealthState state);

// What a worker has observed of an endpoint (RULES 1), or of one part of an endpoint that is spread
// over several key groups.
struct EndpointStatus {
  static constexpr size_t kReasonBytesMax = 100;

  subscriptions::CustomerId customer;
  subscriptions::EndpointId endpoint;
  uint32_t part = 0;
  WallTime observed_at;
  EndpointHealthState state = EndpointHealthState::kHealthy;
  std::string reason;  // a word of a closed set, as `gone`; empty: none
  absl::optional<WallTime> held_until;
  absl::optional<WallTime> failing_since;
  // The generation of the endpoint that was disabled automatically; 0: it is not. A higher one
  // overrules that.
  uint64_t auto_disabled_generation = 0;
  uint64_t backlog_messages = 0;
  uint64_t backlog_bytes = 0;
  uint32_t window = 0;  // requests that may be in flight now
  // What the receiver has taught us; 0: nothing.
  uint64_t learned_events_max = 0;
  uint64_t learned_bytes_max = 0;
  uint64_t learned_messages_per_1000_seconds = 0;
  // Of the last attempt; empty: there was none in this worker's memory.
  std::string last_outcome;
  uint32_t last_status = 0;
  absl::optional<WallTime> last_attempt_at;
  absl::optional<WallTime> last_success_at;

  friend bool operator==(const EndpointStatus&, const EndpointStatus&) = default;
};

std::string EncodeEndpointStatus(const EndpointStatus& status);
// kDataLoss for anything that Encode would not have written, or of a newer version.
absl::StatusOr<EndpointStatus> DecodeEndpointStatus(absl::string_view bytes);
// Into the topic of reports, to the partition of its customer.
AppendRecord MakeStatusAppend(absl::string_view prefix, const EndpointStatus& status);

}  // namespace postrider::dlq
