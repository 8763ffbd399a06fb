#include "delivery/outcome.h"

#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// 2030-01-01T00:00:00Z
const WallTime kNow = WallTimeFromMillis(1'893'456'000'000);

OutcomeContext Context(size_t batch_size = 1) {
  OutcomeContext context;
  context.batch_size = batch_size;
  context.now = kNow;
  context.horizon = std::chrono::minutes(1);
  return context;
}

Outcome OfStatus(int status, size_t batch_size = 1, std::vector<std::string> retry_after = {}) {
  HttpResult result;
  result.status = status;
  result.request_sent = true;
  result.retry_after = std::move(retry_after);
  return Classify(result, Context(batch_size));
}

Outcome OfFailure(HttpFailure failure) {
  HttpResult result;
  result.failure = failure;
  return Classify(result, Context());
}

// One row of the table of outcomes.
struct Row {
  OutcomeKind kind;
  Verdict verdict;
  Charge charge;
  BreakerEffect breaker;
  WindowEffect window;
};

void ExpectRow(const Outcome& outcome, const Row& row, const std::string& what) {
  EXPECT_EQ(outcome.kind, row.kind) << what;
  EXPECT_EQ(outcome.verdict, row.verdict) << what;
  EXPECT_EQ(outcome.charge, row.charge) << what;
  EXPECT_EQ(outcome.breaker, row.breaker) << what;
  EXPECT_EQ(outcome.window, row.window) << what;
  EXPECT_EQ(outcome.disable,
            row.kind == OutcomeKind::kGone ? DisableReason::kGone : DisableReason::kNone)
      << what;
}

constexpr Row kDelivered = {OutcomeKind::kDelivered, Verdict::kDone, Charge::kCharged,
                            BreakerEffect::kSuccess, WindowEffect::kGrow};
constexpr Row kBisected = {OutcomeKind::kRejected, Verdict::kBisect, Charge::kFree,
                           BreakerEffect::kNeutral, WindowEffect::kHold};
constexpr Row kRejected = {OutcomeKind::kRejected, Verdict::kDeadLetter, Charge::kCharged,
                           BreakerEffect::kNeutral, WindowEffect::kHold};
constexpr Row kGone = {OutcomeKind::kGone, Verdict::kKeep, Charge::kFree, BreakerEffect::kNeutral,
                       WindowEffect::kHold};
constexpr Row kThrottled = {OutcomeKind::kThrottled, Verdict::kRetry, Charge::kFree,
                            BreakerEffect::kNeutral, WindowEffect::kHalve};
constexpr Row kTemporary = {OutcomeKind::kTemporaryStatus, Verdict::kRetry, Charge::kCharged,
                            BreakerEffect::kFailure, WindowEffect::kHalve};
constexpr Row kOther = {OutcomeKind::kOtherStatus, Verdict::kRetry, Charge::kCharged,
                        BreakerEffect::kFailure, WindowEffect::kHold};

Row FailureRow(OutcomeKind kind) {
  Row row = kOther;
  row.kind = kind;
  return row;
}

Row WantedOfStatus(int status, size_t batch_size, bool retry_after) {
  if (status >= 200 && status <= 299) return kDelivered;
  switch (status) {
    case 400:
    case 413:
    case 422:
      return batch_size > 1 ? kBisected : kRejected;
    case 410:
      return kGone;
    case 429:
      return kThrottled;
    case 503:
      return retry_after ? kThrottled : kTemporary;
    case 408:
    case 425:
    case 502:
    case 504:
      return kTemporary;
    default:
      return kOther;
  }
}

// HTTP-11, HTTP-01, HTTP-04: every status, alone and in a batch, with Retry-After and without.
TEST(OutcomeTest, EveryStatusHasItsRow) {
  for (int status = 100; status <= 999; ++status) {
    for (const size_t batch_size : {1, 2, 5000}) {
      for (const bool retry_after : {false, true}) {
        const Outcome outcome =
            OfStatus(status, batch_size,
                     retry_after ? std::vector<std::string>{"7"} : std::vector<std::string>{});
        EXPECT_EQ(outcome.status, status);
        ExpectRow(outcome, WantedOfStatus(status, batch_size, retry_after),
                  std::to_string(status) + " of " + std::to_string(batch_size));
        const bool held = retry_after && (status == 429 || status == 503);
        EXPECT_EQ(outcome.hold.has_value(), held) << status;
        if (status == 400 || status == 413 || status == 422) {
          EXPECT_EQ(outcome.give_up, dlq::DeadReason::kRejectedByReceiver);
        }
      }
    }
  }
}

// HTTP-11
TEST(OutcomeTest, EveryFailureHasItsRow) {
  const std::pair<HttpFailure, OutcomeKind> rows[] = {
      {HttpFailure::kAddressRefused, OutcomeKind::kAddressRefused},
      {HttpFailure::kDns, OutcomeKind::kDns},
      {HttpFailure::kConnect, OutcomeKind::kConnect},
      {HttpFailure::kTls, OutcomeKind::kTls},
      {HttpFailure::kReset, OutcomeKind::kReset},
      {HttpFailure::kProtocol, OutcomeKind::kProtocol},
      {HttpFailure::kHeadersTooLarge, OutcomeKind::kProtocol},
      {HttpFailure::kBadRequest, OutcomeKind::kConfiguration},
  };
  for (const auto& [failure, kind] : rows) {
    ExpectRow(OfFailure(failure), FailureRow(kind), std::string(OutcomeName(kind)));
  }
  Row timeout = FailureRow(OutcomeKind::kTimeout);
  timeout.window = WindowEffect::kOne;
  ExpectRow(OfFailure(HttpFailure::kTimeout), timeout, "timeout");
  ExpectRow(OfFailure(HttpFailure::kProxy),
            {OutcomeKind::kProxy, Verdict::kRetry, Charge::kFree, BreakerEffect::kOutage,
             WindowEffect::kHold},
            "proxy");
  ExpectRow(OfFailure(HttpFailure::kOwnLimit),
            {OutcomeKind::kAborted, Verdict::kRetry, Charge::kFree, BreakerEffect::kOutage,
             WindowEffect::kHold},
            "own limit");
  ExpectRow(OfFailure(HttpFailure::kAborted),
            {OutcomeKind::kAborted, Verdict::kRetry, Charge::kFree, BreakerEffect::kNeutral,
             WindowEffect::kHold},
            "aborted");
}

// With partial_ack the body decides what a 207 means; of every other 2xx it only says which failed.
TEST(OutcomeTest, A207WhoseBodyCannotBeReadIsAFailureOfTheWhole) {
  for (const int status : {200, 201, 202, 204, 206, 207, 299}) {
    for (const AckReading ack :
         {AckReading::kNotAsked, AckReading::kReadable, AckReading::kUnreadable}) {
      HttpResult result;
      result.status = status;
      OutcomeContext context = Context(3);
      context.ack = ack;
      const bool fails = status == 207 && ack == AckReading::kUnreadable;
      ExpectRow(Classify(result, context), fails ? FailureRow(OutcomeKind::kProtocol) : kDelivered,
                std::to_string(status));
    }
  }
}

// In our own outage nobody is charged for what failed before it was sent, and for nothing else.
TEST(OutcomeTest, OurOwnOutageChargesNobody) {
  OutcomeContext context = Context();
  context.own_outage = true;
  for (int i = 0; i < kHttpFailures; ++i) {
    const auto failure = static_cast<HttpFailure>(i);
    if (failure == HttpFailure::kNone || failure == HttpFailure::kAborted) continue;
    // Ours whatever else is known.
    if (failure == HttpFailure::kProxy || failure == HttpFailure::kOwnLimit) continue;
    const bool ours = failure != HttpFailure::kAddressRefused &&
                      failure != HttpFailure::kBadRequest && failure != HttpFailure::kProtocol &&
                      failure != HttpFailure::kHeadersTooLarge;
    HttpResult result;
    result.failure = failure;
    Outcome outcome = Classify(result, context);
    EXPECT_EQ(outcome.charge, ours ? Charge::kFree : Charge::kCharged) << i;
    EXPECT_EQ(outcome.breaker, ours ? BreakerEffect::kOutage : BreakerEffect::kFailure) << i;
    if (ours) {
      EXPECT_EQ(outcome.window, WindowEffect::kHold) << i;
    }
    result.request_sent = true;
    outcome = Classify(result, context);
    EXPECT_EQ(outcome.charge, Charge::kCharged) << i;
    EXPECT_EQ(outcome.breaker, BreakerEffect::kFailure) << i;
  }
  HttpResult answered;
  answered.status = 500;
  ExpectRow(Classify(answered, context), kOther, "500");
}

TEST(OutcomeTest, RetryAfterHoldsTheEndpointFree) {
  for (const int status : {429, 503}) EXPECT_EQ(OfStatus(status, 1, {"7"}).hold, seconds(7));
  // At most a quarter of the horizon.
  EXPECT_EQ(OfStatus(429, 1, {"16"}).hold, seconds(15));
  EXPECT_EQ(OfStatus(429, 1, {"3600"}).hold, seconds(15));
  // Unreadable: as if it were not there.
  EXPECT_EQ(OfStatus(503, 1, {"soon"}).kind, OutcomeKind::kTemporaryStatus);
  EXPECT_EQ(OfStatus(503, 1, {"0"}).charge, Charge::kCharged);
  EXPECT_FALSE(OfStatus(429, 1, {"-5"}).hold);
  // Of no meaning elsewhere.
  EXPECT_EQ(OfStatus(500, 1, {"7"}).charge, Charge::kCharged);
}

TEST(OutcomeTest, NamesAreDistinct) {
  std::set<std::string> names;
  for (int i = 0; i < kOutcomeKinds; ++i) {
    names.insert(std::string(OutcomeName(static_cast<OutcomeKind>(i))));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kOutcomeKinds));
  EXPECT_FALSE(names.contains("unknown"));
}

absl::optional<Duration> RetryAfter(std::vector<std::string> values,
                                    absl::optional<std::string> date = {}) {
  return ParseRetryAfter(values, date, kNow);
}

// RETRY-01
TEST(RetryAfterTest, ReadsSeconds) {
  EXPECT_EQ(RetryAfter({"120"}), seconds(120));
  EXPECT_EQ(RetryAfter({" 120 "}), seconds(120));
  EXPECT_EQ(RetryAfter({"0"}), absl::nullopt);
  for (const std::string text : {"-5", "1.5", "1e3", "12abc", "", "+5", "0x10"}) {
    EXPECT_EQ(RetryAfter({text}), absl::nullopt) << text;
  }
  EXPECT_EQ(RetryAfter({"86400"}), hours(24));
  EXPECT_EQ(RetryAfter({"86401"}), hours(24));
  EXPECT_EQ(RetryAfter({"999999999999999999999"}), hours(24));
}

// RETRY-01
TEST(RetryAfterTest, ReadsTheThreeDates) {
  EXPECT_EQ(RetryAfter({"Tue, 01 Jan 2030 00:02:00 GMT"}), seconds(120));
  EXPECT_EQ(RetryAfter({"Tuesday, 01-Jan-30 00:02:00 GMT"}), seconds(120));
  EXPECT_EQ(RetryAfter({"Tue Jan  1 00:02:00 2030"}), seconds(120));
  EXPECT_EQ(RetryAfter({"Mon, 31 Dec 2029 23:00:00 GMT"}), absl::nullopt);
  EXPECT_EQ(RetryAfter({"Tue, 01 Jan 2030 00:00:00 GMT"}), absl::nullopt);
  EXPECT_EQ(RetryAfter({"Wed, 01 Jan 9999 00:00:00 GMT"}), hours(24));
  EXPECT_EQ(RetryAfter({"Mon, 01 Jan 0001 00:00:00 GMT"}), absl::nullopt);
  for (const std::string text :
       {"Tue, 32 Jan 2030 00:02:00 GMT", "Tue, 01 Foo 2030 00:02:00 GMT",
        "Tue, 01 Jan 2030 24:02:00 GMT", "Tue, 01 Jan 2030 00:02:00", "2030-01-01T00:02:00Z",
        "Tue, 01 Jan 2030 0:02:00 GMT", "Tuesday, 01-Jan 00:02:00 GMT"}) {
    EXPECT_EQ(RetryAfter({text}), absl::nullopt) << text;
  }
}

// RETRY-01
TEST(RetryAfterTest, ADateIsRelativeToTheAnswersOwnClock) {
  EXPECT_EQ(RetryAfter({"Tue, 01 Jan 2030 05:02:00 GMT"}, "Tue, 01 Jan 2030 05:00:00 GMT"),
            seconds(120));
  EXPECT_EQ(RetryAfter({"Tue, 01 Jan 2030 00:02:00 GMT"}, "nonsense"), seconds(120));
}

// RETRY-01
TEST(RetryAfterTest, OfManyTheLongestValidOneCounts) {
  EXPECT_EQ(RetryAfter({"30", "120", "soon"}), seconds(120));
  EXPECT_EQ(RetryAfter({"Tue, 01 Jan 2030 00:02:00 GMT", "7"}), seconds(120));
  EXPECT_EQ(RetryAfter({}), absl::nullopt);
}

TEST(RetryAfterTest, TwoDigitYearsLieLessThan50YearsAhead) {
  EXPECT_EQ(ParseHttpDate("Sunday, 06-Nov-94 08:49:37 GMT", kNow),
            WallTimeFromMillis(784'111'777'000));
  EXPECT_EQ(ParseHttpDate("Sunday, 06-Nov-79 00:00:00 GMT", kNow).value() > kNow, true);
}

}  // namespace
}  // namespace postrider::delivery
