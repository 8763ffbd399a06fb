#include "delivery/outcome.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr Duration kRetryAfterMax = hours(24);

Outcome Make(OutcomeKind kind, Verdict verdict, Charge charge, BreakerEffect breaker,
             WindowEffect window) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.verdict = verdict;
  outcome.charge = charge;
  outcome.breaker = breaker;
  outcome.window = window;
  return outcome;
}

Outcome Failed(OutcomeKind kind, WindowEffect window = WindowEffect::kHold) {
  return Make(kind, Verdict::kRetry, Charge::kCharged, BreakerEffect::kFailure, window);
}

Outcome OurOutage(OutcomeKind kind) {
  return Make(kind, Verdict::kRetry, Charge::kFree, BreakerEffect::kOutage, WindowEffect::kHold);
}

Outcome Rejected(const OutcomeContext& context) {
  const bool batch = context.batch_size > 1;
  Outcome outcome =
      Make(OutcomeKind::kRejected, batch ? Verdict::kBisect : Verdict::kDeadLetter,
           batch ? Charge::kFree : Charge::kCharged, BreakerEffect::kNeutral, WindowEffect::kHold);
  outcome.give_up = dlq::DeadReason::kRejectedByReceiver;
  return outcome;
}

Outcome Gone() {
  Outcome outcome = Make(OutcomeKind::kGone, Verdict::kKeep, Charge::kFree, BreakerEffect::kNeutral,
                         WindowEffect::kHold);
  outcome.disable = DisableReason::kGone;
  outcome.give_up = dlq::DeadReason::kGone;
  return outcome;
}

Outcome Throttled(absl::optional<Duration> retry_after, const OutcomeContext& context) {
  Outcome outcome = Make(OutcomeKind::kThrottled, Verdict::kRetry, Charge::kFree,
                         BreakerEffect::kNeutral, WindowEffect::kHalve);
  if (retry_after) outcome.hold = std::min(*retry_after, context.horizon / 4);
  return outcome;
}

Outcome Answered(const HttpResult& result, const OutcomeContext& context) {
  // It says of each message what became of it, and we cannot read what.
  if (result.status == 207 && context.ack == AckReading::kUnreadable) {
    return Failed(OutcomeKind::kProtocol);
  }
  return Make(OutcomeKind::kDelivered, Verdict::kDone, Charge::kCharged, BreakerEffect::kSuccess,
              WindowEffect::kGrow);
}

Outcome ClassifyStatus(const HttpResult& result, const OutcomeContext& context) {
  const int status = result.status;
  if (status >= 200 && status <= 299) return Answered(result, context);
  const absl::optional<Duration> retry_after =
      status == 429 || status == 503 ? ParseRetryAfter(result.retry_after, result.date, context.now)
                                     : absl::nullopt;
  switch (status) {
    case 400:
    case 413:
    case 422:
      return Rejected(context);
    case 410:
      return Gone();
    case 429:
      return Throttled(retry_after, context);
    case 503:
      if (retry_after) return Throttled(retry_after, context);
      return Failed(OutcomeKind::kTemporaryStatus, WindowEffect::kHalve);
    case 408:
    case 425:
    case 502:
    case 504:
      return Failed(OutcomeKind::kTemporaryStatus, WindowEffect::kHalve);
    default:
      return Failed(OutcomeKind::kOtherStatus);
  }
}

bool IsNetworkFailure(HttpFailure failure) {
  switch (failure) {
    case HttpFailure::kDns:
    case HttpFailure::kConnect:
    case HttpFailure::kTls:
    case HttpFailure::kReset:
    case HttpFailure::kTimeout:
      return true;
    default:
      return false;
  }
}

// -1: no month.
int MonthNumber(absl::string_view name) {
  constexpr absl::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto* found = std::find(std::begin(kMonths), std::end(kMonths), name);
  return found == std::end(kMonths) ? -1 : static_cast<int>(found - std::begin(kMonths)) + 1;
}

absl::optional<int> Number(absl::string_view text, size_t digits) {
  int value = 0;
  if (text.size() != digits ||
      !std::all_of(text.begin(), text.end(),
                   [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) ||
      !absl::SimpleAtoi(text, &value)) {
    return absl::nullopt;
  }
  return value;
}

absl::optional<WallTime> MakeTime(absl::optional<int> year, int month, absl::optional<int> day,
                                  absl::string_view clock) {
  if (clock.size() != 8 || clock[2] != ':' || clock[5] != ':') return absl::nullopt;
  const absl::optional<int> hour = Number(clock.substr(0, 2), 2);
  const absl::optional<int> minute = Number(clock.substr(3, 2), 2);
  const absl::optional<int> second = Number(clock.substr(6, 2), 2);
  if (!year || month < 1 || !day || !hour || !minute || !second || *hour > 23 || *minute > 59 ||
      *second > 60) {
    return absl::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return absl::nullopt;
  return WallTime(std::chrono::sys_days(date) + hours(*hour) + std::chrono::minutes(*minute) +
                  seconds(*second));
}

// Two digits of a year: the one that lies less than 50 years ahead (RFC 9110).
int FullYear(int two_digits, WallTime now) {
  const std::chrono::year_month_day today(std::chrono::floor<std::chrono::days>(now));
  const int this_year = static_cast<int>(today.year());
  const int year = this_year - this_year % 100 + two_digits;
  return year > this_year + 50 ? year - 100 : year;
}

absl::optional<Duration> ParseSeconds(absl::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      })) {
    return absl::nullopt;
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value > 86'400) return kRetryAfterMax;
  return seconds(static_cast<int64_t>(value));
}

}  // namespace

absl::string_view OutcomeName(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::kDelivered:
      return "delivered";
    case OutcomeKind::kRejected:
      return "rejected";
    case OutcomeKind::kGone:
      return "gone";
    case OutcomeKind::kThrottled:
      return "throttled";
    case OutcomeKind::kTemporaryStatus:
      return "temporary_status";
    case OutcomeKind::kOtherStatus:
      return "other_status";
    case OutcomeKind::kDns:
      return "dns";
    case OutcomeKind::kConnect:
      return "connect";
    case OutcomeKind::kTls:
      return "tls";
    case OutcomeKind::kReset:
      return "reset";
    case OutcomeKind::kProtocol:
      return "protocol";
    case OutcomeKind::kTimeout:
      return "timeout";
    case OutcomeKind::kAddressRefused:
      return "address_not_allowed";
    case OutcomeKind::kConfiguration:
      return "configuration";
    case OutcomeKind::kAborted:
      return "aborted";
    case OutcomeKind::kPartlyDelivered:
      return "partly_delivered";
    case OutcomeKind::kProxy:
      return "proxy";
    case OutcomeKind::kNoToken:
      return "no_token";
  }
  return "unknown";
}

Outcome Classify(const HttpResult& result, const OutcomeContext& context) {
  Outcome outcome;
  switch (result.failure) {
    case HttpFailure::kNone:
      outcome = ClassifyStatus(result, context);
      break;
    case HttpFailure::kAddressRefused:
      outcome = Failed(OutcomeKind::kAddressRefused);
      break;
    case HttpFailure::kDns:
      outcome = Failed(OutcomeKind::kDns);
      break;
    case HttpFailure::kConnect:
      outcome = Failed(OutcomeKind::kConnect);
      break;
    case HttpFailure::kTls:
      outcome = Failed(OutcomeKind::kTls);
      break;
    case HttpFailure::kTimeout:
      outcome = Failed(OutcomeKind::kTimeout, WindowEffect::kOne);
      break;
    case HttpFailure::kReset:
      outcome = Failed(OutcomeKind::kReset);
      break;
    case HttpFailure::kProtocol:
    case HttpFailure::kHeadersTooLarge:
      outcome = Failed(OutcomeKind::kProtocol);
      break;
    case HttpFailure::kProxy:
      outcome = OurOutage(OutcomeKind::kProxy);
      break;
    case HttpFailure::kOwnLimit:
      // As if it had not been tried, but not again at once.
      outcome = OurOutage(OutcomeKind::kAborted);
      break;
    case HttpFailure::kBadRequest:
      outcome = Failed(OutcomeKind::kConfiguration);
      break;
    case HttpFailure::kAborted:
      outcome = Make(OutcomeKind::kAborted, Verdict::kRetry, Charge::kFree, BreakerEffect::kNeutral,
                     WindowEffect::kHold);
      break;
  }
  if (context.own_outage && !result.request_sent && IsNetworkFailure(result.failure)) {
    outcome.charge = Charge::kFree;
    outcome.breaker = BreakerEffect::kOutage;
    outcome.window = WindowEffect::kHold;
  }
  outcome.status = result.status;
  return outcome;
}

absl::optional<WallTime> ParseHttpDate(absl::string_view text, WallTime now) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ', absl::SkipEmpty());
  if (parts.size() == 6 && parts[0].size() == 4 && parts[0][3] == ',' && parts[5] == "GMT") {
    return MakeTime(Number(parts[3], 4), MonthNumber(parts[2]), Number(parts[1], 2), parts[4]);
  }
  if (parts.size() == 4 && absl::EndsWith(parts[0], "day,") && parts[3] == "GMT") {
    const std::vector<absl::string_view> date = absl::StrSplit(parts[1], '-');
    if (date.size() != 3) return absl::nullopt;
    absl::optional<int> year = Number(date[2], 2);
    if (year) year = FullYear(*year, now);
    return MakeTime(year, MonthNumber(date[1]), Number(date[0], 2), parts[2]);
  }
  if (parts.size() == 5 && parts[0].size() == 3) {
    const absl::optional<int> day = Number(parts[2], parts[2].size() == 1 ? 1 : 2);
    return MakeTime(Number(parts[4], 4), MonthNumber(parts[1]), day, parts[3]);
  }
  return absl::nullopt;
}

absl::optional<Duration> ParseRetryAfter(const std::vector<std::string>& values,
                                         const absl::optional<std::string>& date, WallTime now) {
  absl::optional<Duration> longest;
  for (const std::string& value : values) {
    const absl::string_view text = absl::StripAsciiWhitespace(value);
    absl::optional<Duration> wait = ParseSeconds(text);
    if (!wait) {
      const absl::optional<WallTime> until = ParseHttpDate(text, now);
      if (!until) continue;
      const absl::optional<WallTime> sent = date ? ParseHttpDate(*date, now) : absl::nullopt;
      // In milliseconds: centuries would not fit into nanoseconds.
      const std::chrono::milliseconds ahead = *until - (sent ? *sent : now);
      if (ahead <= std::chrono::milliseconds::zero()) continue;
      wait = ahead > hours(24) ? kRetryAfterMax : Duration(ahead);
    }
    if (*wait > Duration::zero() && (!longest || *wait > *longest)) longest = *wait;
  }
  return longest;
}

}  // namespace postrider::delivery
