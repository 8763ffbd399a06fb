#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/base/check.h"
#include "delivery/outcome.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::Classify;
using delivery::Outcome;
using delivery::OutcomeContext;
using delivery::ParseHttpDate;
using delivery::ParseRetryAfter;
using std::chrono::hours;

// 2000-01-01 and 2050-01-01; two digits of a year are told by the half century around us.
constexpr int64_t kCentury = 946'684'800'000;
constexpr int64_t kHalfCentury = 2'524'608'000'000;

// The three forms of a date, as Abseil writes them, are read back.
void Dates(Input& in, WallTime now) {
  const int64_t second = in.Between(-62'167'219'200, 253'402'300'799);  // years 0 to 9999
  const absl::Time time = absl::FromUnixSeconds(second);
  const auto format = [&](absl::string_view form) {
    return absl::FormatTime(form, time, absl::UTCTimeZone());
  };
  const WallTime wanted = WallTimeFromMillis(second * 1'000);
  POSTRIDER_CHECK(ParseHttpDate(format("%a, %d %b %E4Y %H:%M:%S GMT"), now) == wanted);
  POSTRIDER_CHECK(ParseHttpDate(format("%a %b %e %H:%M:%S %E4Y"), now) == wanted);
  const auto year = [](absl::Time at) { return absl::ToCivilYear(at, absl::UTCTimeZone()).year(); };
  const auto ahead = year(time) - year(absl::FromUnixMillis(MillisSinceEpoch(now)));
  if (ahead > -50 && ahead <= 50) {
    POSTRIDER_CHECK(ParseHttpDate(format("%A, %d-%b-%y %H:%M:%S GMT"), now) == wanted);
  }
}

void RetryAfter(const HttpResult& result, WallTime now) {
  const absl::optional<Duration> wait = ParseRetryAfter(result.retry_after, result.date, now);
  absl::optional<Duration> longest;
  for (const std::string& value : result.retry_after) {
    const absl::optional<Duration> alone = ParseRetryAfter({value}, result.date, now);
    if (alone && (!longest || *alone > *longest)) longest = alone;
  }
  POSTRIDER_CHECK(wait == longest);
  if (wait) POSTRIDER_CHECK(*wait > Duration::zero() && *wait <= hours(24));
}

// The table of outcomes by its columns.
void Table(const HttpResult& result, const OutcomeContext& context) {
  using delivery::BreakerEffect;
  using delivery::Charge;
  using delivery::Verdict;
  using delivery::WindowEffect;
  const Outcome outcome = Classify(result, context);
  const bool answered = result.failure == HttpFailure::kNone;
  const int status = answered ? result.status : 0;
  const bool asked_to_wait =
      status == 429 ||
      (status == 503 && ParseRetryAfter(result.retry_after, result.date, context.now));
  const auto is_one_of = [status](std::initializer_list<int> list) {
    return std::find(list.begin(), list.end(), status) != list.end();
  };
  const bool delivered = answered && status / 100 == 2;
  const bool aborted = result.failure == HttpFailure::kAborted;
  const bool refused = is_one_of({400, 413, 422});
  const bool unreadable = status == 207 && context.ack == delivery::AckReading::kUnreadable;
  const bool batch = context.batch_size > 1;
  const bool of_network =
      result.failure == HttpFailure::kDns || result.failure == HttpFailure::kConnect ||
      result.failure == HttpFailure::kTls || result.failure == HttpFailure::kReset ||
      result.failure == HttpFailure::kTimeout;
  const bool ours = (context.own_outage && !result.request_sent && of_network) ||
                    result.failure == HttpFailure::kProxy ||
                    result.failure == HttpFailure::kOwnLimit;
  POSTRIDER_CHECK(outcome.status == result.status);
  POSTRIDER_CHECK(delivery::OutcomeName(outcome.kind) != "unknown");
  const bool done = delivered && !unreadable;
  POSTRIDER_CHECK((outcome.verdict == Verdict::kDone) == done);
  POSTRIDER_CHECK((outcome.breaker == BreakerEffect::kSuccess) == done);
  POSTRIDER_CHECK((outcome.window == WindowEffect::kGrow) == done);
  POSTRIDER_CHECK((outcome.charge == Charge::kFree) ==
                  (asked_to_wait || aborted || ours || status == 410 || (refused && batch)));
  POSTRIDER_CHECK((outcome.window == WindowEffect::kOne) ==
                  (result.failure == HttpFailure::kTimeout && !ours));
  POSTRIDER_CHECK((outcome.window == WindowEffect::kHalve) ==
                  (asked_to_wait || is_one_of({408, 425, 502, 503, 504})));
  POSTRIDER_CHECK((outcome.breaker == BreakerEffect::kNeutral) ==
                  (asked_to_wait || aborted || refused || status == 410));
  POSTRIDER_CHECK((outcome.breaker == BreakerEffect::kOutage) == ours);
  POSTRIDER_CHECK((outcome.verdict == Verdict::kDeadLetter) == (refused && !batch));
  POSTRIDER_CHECK((outcome.verdict == Verdict::kBisect) == (refused && batch));
  POSTRIDER_CHECK((outcome.verdict == Verdict::kKeep) == (status == 410));
  POSTRIDER_CHECK((outcome.disable == delivery::DisableReason::kGone) == (status == 410));
  if (outcome.hold) {
    POSTRIDER_CHECK(asked_to_wait && *outcome.hold > Duration::zero());
    POSTRIDER_CHECK(*outcome.hold <= hours(24) && *outcome.hold <= context.horizon / 4);
  }
}

}  // namespace
}  // namespace postrider::fuzz

// The clock, a date, the kind of answer, then counted texts: Date and the values of Retry-After.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  Input in(data, size);
  const WallTime now = WallTimeFromMillis(in.Between(kCentury, kHalfCentury - 1));
  Dates(in, now);
  HttpResult result;
  result.failure = static_cast<HttpFailure>(in.Byte() % kHttpFailures);
  result.status = in.Flag() ? static_cast<int>(in.Between(0, 999))
                            : std::vector<int>{429, 503, 200, 413, 410, 408}[in.Byte() % 6u];
  OutcomeContext context;
  context.batch_size = 1 + in.Byte() % 2u;
  context.now = now;
  context.horizon = std::chrono::milliseconds(in.Between(1'000, 86'400'000));
  context.ack = static_cast<delivery::AckReading>(in.Byte() % 3u);
  context.own_outage = in.Flag();
  result.request_sent = in.Flag();
  if (in.Flag()) result.date = std::string(in.Text());
  while (!in.empty() && result.retry_after.size() < 4) {
    result.retry_after.emplace_back(in.Text());
  }
  RetryAfter(result, now);
  Table(result, context);
  ParseHttpDate(View(data, size), now);
  return 0;
}
