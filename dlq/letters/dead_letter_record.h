#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/log.h"
#include "subscriptions/registry/ids.h"

namespace postrider::dlq {

// Why a message was given up; the customer sees the word. Closed: add at the end, never renumber.
enum class DeadReason : uint8_t {
  kAttemptsExhausted = 1,   // every attempt that its endpoint's retry policy allows has failed
  kHorizon = 2,             // it is, or would be at its next attempt, too old
  kRejectedByReceiver = 3,  // the receiver said that it will never take it
  kGone = 4,                // the receiver said 410
  kHeldFull = 5,            // its endpoint held more than its share while the worker was full
  kMisconfigured = 6,       // no request can be made from the endpoint's settings
  kBacklogFull = 7,         // the oldest of a backlog at its bound of bytes
  kBacklogAge = 8,          // it has waited in the backlog for as long as its endpoint allows
  kSkippedOnResume = 9,     // who ended a pause wanted only what came later
  kEndpointDeleted = 10,    // who deleted its endpoint wanted what waited kept
};
inline constexpr DeadReason kDeadReasonLast = DeadReason::kEndpointDeleted;
absl::string_view DeadReasonName(DeadReason reason);
absl::optional<DeadReason> DeadReasonFromNumber(uint64_t number);

// A message given up, as the `dead-letters` topic carries it from a worker to the indexer.
struct DeadLetterRecord {
  subscriptions::LetterId letter;
  subscriptions::CustomerId customer;
  subscriptions::EndpointId endpoint;
  DeadReason reason = DeadReason::kAttemptsExhausted;
  uint32_t attempts = 0;
  int32_t last_status = 0;   // HTTP status of the last attempt, 0 for none
  std::string last_outcome;  // the word of the last attempt's outcome, empty for none
  std::string message_id;    // msg_...
  std::string event_id;
  std::string type;
  std::string tenant;
  absl::optional<std::string> department;
  WallTime event_time;
  WallTime given_up_at;
  std::string data;  // the event's JSON
};

// The same for the same message at every time: 48 bits of the dispatch time in ms, then 80 bits of
// `identity_digest` (of the message's identity with its replay number).
subscriptions::LetterId MakeLetterId(WallTime dispatch_time, const IdBytes& identity_digest);

std::string EncodeDeadLetter(const DeadLetterRecord& record);
// kDataLoss for anything that Encode would not have written, or of a newer version.
absl::StatusOr<DeadLetterRecord> DecodeDeadLetter(absl::string_view bytes);

}  // namespace postrider::dlq
