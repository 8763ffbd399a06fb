#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/http/http_sink.h"
#include "dlq/letters/dead_letter_record.h"

namespace postrider::delivery {

// What an attempt came to: the closed set of names in logs, metrics, attempts and letters.
enum class OutcomeKind : uint8_t {
  kDelivered,        // 2xx
  kRejected,         // 400, 413, 422
  kGone,             // 410
  kThrottled,        // 429; 503 with a Retry-After
  kTemporaryStatus,  // 408, 425, 502, 503, 504
  kOtherStatus,      // every other status
  kDns,
  kConnect,
  kTls,
  kReset,
  kProtocol,  // also: too many or too large headers
  kTimeout,
  kAddressRefused,  // by us; the customer sees "address_not_allowed"
  kConfiguration,   // unfit for the wire: a broken header in the database
  kAborted,         // by us; as if it had not been tried
  // Written in durable state and in results: add at the end, never renumber.
  kPartlyDelivered,  // 2xx that lists some as failed (partial_ack.h)
  kProxy,            // our own egress proxy: an outage of ours
  kNoToken,          // the endpoint's OAuth2 provider gave no token
};
inline constexpr int kOutcomeKinds = 18;
absl::string_view OutcomeName(OutcomeKind kind);

enum class Verdict : uint8_t {
  kDone,
  kRetry,
  kDeadLetter,
  kBisect,  // a batch: sent again at once in smaller pieces, see bisection.h
  kKeep,    // waits in the backlog, whatever its age, until its endpoint is enabled again
};
enum class Charge : uint8_t { kCharged, kFree };  // does it use up one of the message's attempts
enum class WindowEffect : uint8_t { kGrow, kHold, kHalve, kOne };
enum class BreakerEffect : uint8_t {
  kSuccess,
  kNeutral,
  kFailure,
  kOutage,  // our own: neutral, but a probe is not followed by another at once
};
// Why an endpoint is disabled without a person's doing. Written in durable state: add at the end.
enum class DisableReason : uint8_t {
  kNone,
  kGone,     // it said so
  kFailing,  // for long, see endpoint_health.h
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kAborted;
  int status = 0;
  Verdict verdict = Verdict::kRetry;
  Charge charge = Charge::kFree;
  WindowEffect window = WindowEffect::kHold;
  BreakerEffect breaker = BreakerEffect::kNeutral;
  // The endpoint rests for so long from now, capped; the next try is never before the normal
  // backoff either.
  absl::optional<Duration> hold;
  DisableReason disable = DisableReason::kNone;
  // With kDeadLetter: why. Else: why when the attempts are used up.
  dlq::DeadReason give_up = dlq::DeadReason::kAttemptsExhausted;
};

// What a receiver's body says of the messages one by one.
enum class AckReading : uint8_t {
  kNotAsked,    // the endpoint has no partial_ack: the status alone counts
  kReadable,    // it lists those that failed, or says that none did
  kUnreadable,  // it says nothing, or was cut off
};

struct OutcomeContext {
  size_t batch_size = 1;
  WallTime now;        // when the result came in; for Retry-After dates without a Date header
  Duration horizon{};  // of the endpoint
  AckReading ack = AckReading::kNotAsked;
  // Most hosts cannot be reached from here: what failed before it was sent is charged to nobody.
  bool own_outage = false;
};

// What each outcome means for the message, the window and the breaker: one table, row by row. Which
// messages of an answer with `kReadable` have failed is not its matter.
//
// A Retry-After holds the endpoint for at most 24 h and a quarter of the horizon; the messages are
// tried after it however old they are.
Outcome Classify(const HttpResult& result, const OutcomeContext& context);

// The longest valid one of Retry-After's values, at most 24 h: seconds, or one of the three dates
// of RFC 9110 relative to `date` (the answer's Date header) or else `now`. No value when there is
// none that lies ahead.
absl::optional<Duration> ParseRetryAfter(const std::vector<std::string>& values,
                                         const absl::optional<std::string>& date, WallTime now);
// The dates of RFC 9110 (IMF-fixdate, RFC 850, asctime).
absl::optional<WallTime> ParseHttpDate(absl::string_view text, WallTime now);

}  // namespace postrider::delivery
