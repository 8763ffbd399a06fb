#include "delivery/outcome.h"

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// 2030-01-01T00:00:00Z
const WallTime kNow = WallTimeFromMillis(1'893'456'000'000);

OutcomeContext Context(size_t batch_size = 1) {
  return {batch_size, kNow, std::chrono::minutes(1)};
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

void ExpectRow(const Outcome& outcome, OutcomeKind kind, Verdict verdict, Charge charge,
               BreakerEffect breaker, WindowEffect window) {
  EXPECT_EQ(outcome.kind, kind) << outcome.status;
  EXPECT_EQ(outcome.verdict, verdict) << outcome.status;
  EXPECT_EQ(outcome.charge, charge) << outcome.status;
  EXPECT_EQ(outcome.breaker, breaker) << outcome.status;
  EXPECT_EQ(outcome.window, window) << outcome.status;
}

// HTTP-11, HTTP-01
TEST(OutcomeTest, EveryStatusHasItsRow) {
  const std::set<int> temporary = {408, 425, 502, 503, 504};
  for (int status = 100; status <= 999; ++status) {
    const Outcome outcome = OfStatus(status);
    EXPECT_EQ(outcome.status, status);
    if (status >= 200 && status <= 299) {
      ExpectRow(outcome, OutcomeKind::kDelivered, Verdict::kDone, Charge::kCharged,
                BreakerEffect::kSuccess, WindowEffect::kGrow);
    } else if (status == 400 || status == 413 || status == 422) {
      ExpectRow(outcome, OutcomeKind::kRejected, Verdict::kDeadLetter, Charge::kCharged,
                BreakerEffect::kNeutral, WindowEffect::kHold);
      EXPECT_EQ(outcome.give_up, dlq::DeadReason::kRejectedByReceiver);
    } else if (status == 410) {
      EXPECT_EQ(outcome.kind, OutcomeKind::kGone);
      EXPECT_EQ(outcome.verdict, Verdict::kDeadLetter);
      EXPECT_EQ(outcome.give_up, dlq::DeadReason::kGone);
    } else if (status == 429) {
      ExpectRow(outcome, OutcomeKind::kThrottled, Verdict::kRetry, Charge::kFree,
                BreakerEffect::kNeutral, WindowEffect::kHalve);
      EXPECT_FALSE(outcome.hold);
    } else if (temporary.contains(status)) {
      ExpectRow(outcome, OutcomeKind::kTemporaryStatus, Verdict::kRetry, Charge::kCharged,
                BreakerEffect::kFailure, WindowEffect::kHalve);
    } else {
      ExpectRow(outcome, OutcomeKind::kOtherStatus, Verdict::kRetry, Charge::kCharged,
                BreakerEffect::kFailure, WindowEffect::kHold);
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
    ExpectRow(OfFailure(failure), kind, Verdict::kRetry, Charge::kCharged, BreakerEffect::kFailure,
              WindowEffect::kHold);
  }
  ExpectRow(OfFailure(HttpFailure::kTimeout), OutcomeKind::kTimeout, Verdict::kRetry,
            Charge::kCharged, BreakerEffect::kFailure, WindowEffect::kOne);
  ExpectRow(OfFailure(HttpFailure::kAborted), OutcomeKind::kAborted, Verdict::kRetry, Charge::kFree,
            BreakerEffect::kNeutral, WindowEffect::kHold);
}

TEST(OutcomeTest, ARefusedBatchIsTriedAgainUntilItsAttemptsAreUsedUp) {
  for (const int status : {400, 413, 422}) {
    const Outcome outcome = OfStatus(status, 2);
    ExpectRow(outcome, OutcomeKind::kRejected, Verdict::kRetry, Charge::kCharged,
              BreakerEffect::kNeutral, WindowEffect::kHold);
    EXPECT_EQ(outcome.give_up, dlq::DeadReason::kRejectedByReceiver);
  }
}

TEST(OutcomeTest, RetryAfterHoldsTheEndpointFree) {
  for (const int status : {429, 503}) {
    const Outcome outcome = OfStatus(status, 1, {"7"});
    ExpectRow(outcome, OutcomeKind::kThrottled, Verdict::kRetry, Charge::kFree,
              BreakerEffect::kNeutral, WindowEffect::kHalve);
    EXPECT_EQ(outcome.hold, seconds(7));
  }
  // At most a quarter of the horizon.
  EXPECT_EQ(OfStatus(429, 1, {"16"}).hold, seconds(15));
  EXPECT_EQ(OfStatus(429, 1, {"60"}).verdict, Verdict::kRetry);
  const Outcome past = OfStatus(429, 1, {"61"});
  EXPECT_EQ(past.verdict, Verdict::kDeadLetter);
  EXPECT_EQ(past.give_up, dlq::DeadReason::kHorizon);
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
