#include "delivery/flight_result.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/stream/operation.h"

namespace postrider::delivery {
namespace {

FlightResult Sample() {
  FlightResult result;
  result.outcome.kind = OutcomeKind::kThrottled;
  result.outcome.status = 429;
  result.outcome.verdict = Verdict::kRetry;
  result.outcome.charge = Charge::kFree;
  result.outcome.window = WindowEffect::kHalve;
  result.outcome.hold = std::chrono::milliseconds(1'234);
  result.attempts = 2;
  result.tries = 3;
  result.first_try = WallTimeFromMillis(1'900'000'000'123);
  result.parked = true;
  IdBytes member{};
  member[3] = 7;
  result.parked_members = {member, IdBytes{}};
  return result;
}

TEST(FlightResultTest, SaysWhichMessagesOfAnAcknowledgedBatchHaveFailed) {
  FlightResult sample = Sample();
  const std::string without = EncodeFlightResult(sample);
  IdBytes failed{};
  failed[0] = 9;
  sample.failed = {failed, IdBytes{}};
  const std::string with = EncodeFlightResult(sample);
  const absl::StatusOr<FlightResult> decoded = DecodeFlightResult(with);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->failed, sample.failed);
  EXPECT_EQ(decoded->parked_members, sample.parked_members);
  // Readers that do not know the flag refuse it, and those that do nothing that lacks it.
  EXPECT_EQ(static_cast<uint8_t>(with[1]), static_cast<uint8_t>(without[1]) | 8);
  EXPECT_FALSE(DecodeFlightResult(without + with.substr(without.size())).ok());
  for (size_t size = 0; size < with.size(); ++size) {
    EXPECT_FALSE(DecodeFlightResult(with.substr(0, size)).ok()) << size;
  }
}

TEST(FlightResultTest, ComesBackAsItWasWritten) {
  const FlightResult sample = Sample();
  const absl::StatusOr<FlightResult> decoded = DecodeFlightResult(EncodeFlightResult(sample));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->outcome.kind, OutcomeKind::kThrottled);
  EXPECT_EQ(decoded->outcome.status, 429);
  EXPECT_EQ(decoded->outcome.verdict, Verdict::kRetry);
  EXPECT_EQ(decoded->outcome.charge, Charge::kFree);
  EXPECT_EQ(decoded->outcome.window, WindowEffect::kHalve);
  EXPECT_EQ(decoded->outcome.hold, sample.outcome.hold);
  EXPECT_EQ(decoded->attempts, 2u);
  EXPECT_EQ(decoded->tries, 3u);
  EXPECT_EQ(decoded->first_try, sample.first_try);
  EXPECT_TRUE(decoded->parked);
  EXPECT_FALSE(decoded->untried);
  EXPECT_EQ(decoded->parked_members, sample.parked_members);
}

TEST(FlightResultTest, FitsIntoAResultRecordWithAsManyMembersAsItNames) {
  FlightResult result = Sample();
  result.parked_members.assign(FlightResult::kMembersNamedMax, IdBytes{});
  const std::string encoded = EncodeFlightResult(result);
  EXPECT_LE(encoded.size(), kOutcomeBytesMax);
  EXPECT_TRUE(DecodeFlightResult(encoded).ok());
}

TEST(FlightResultTest, RefusesWhatWasNeverWrittenAndSaysOfANewerVersionThatItIs) {
  const std::string encoded = EncodeFlightResult(Sample());
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeFlightResult(encoded.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeFlightResult(encoded + '\0').status()));
  std::string newer = encoded;
  newer[0] = 2;
  EXPECT_TRUE(absl::IsUnimplemented(DecodeFlightResult(newer).status()));
  std::string flags = encoded;
  flags[1] = static_cast<char>(0x80);
  EXPECT_TRUE(absl::IsDataLoss(DecodeFlightResult(flags).status()));
}

}  // namespace
}  // namespace postrider::delivery
