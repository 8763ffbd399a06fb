#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "delivery/backlog_state.h"
#include "delivery/flight_result.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::DecodeFlightResult;
using delivery::EncodeFlightResult;
using delivery::FlightResult;

void Decode(absl::string_view bytes) {
  const absl::StatusOr<FlightResult> decoded = DecodeFlightResult(bytes);
  if (decoded.ok()) {
    POSTRIDER_CHECK(EncodeFlightResult(*decoded) == bytes);
    POSTRIDER_CHECK(delivery::OutcomeName(decoded->outcome.kind) != "unknown");
  } else {
    POSTRIDER_CHECK(absl::IsDataLoss(decoded.status()) || absl::IsUnimplemented(decoded.status()));
  }
}

template <typename T>
void DecodeState(const StateSerializer<T>& serializer, absl::string_view bytes) {
  for (uint32_t version = 1; version <= serializer.version_max; ++version) {
    const absl::optional<T> value = serializer.decode(bytes, version);
    if (!value) continue;
    POSTRIDER_CHECK(serializer.decode(serializer.encode(*value, version), version) == value);
  }
}

void EncodeAndDecode(Input in) {
  FlightResult result;
  result.outcome.kind = static_cast<delivery::OutcomeKind>(in.UpTo(delivery::kOutcomeKinds - 1));
  result.outcome.verdict = static_cast<delivery::Verdict>(in.UpTo(4));
  result.outcome.charge = static_cast<delivery::Charge>(in.UpTo(1));
  result.outcome.window = static_cast<delivery::WindowEffect>(in.UpTo(3));
  result.outcome.breaker = static_cast<delivery::BreakerEffect>(in.UpTo(2));
  result.outcome.give_up = static_cast<dlq::DeadReason>(in.Between(1, 6));
  result.outcome.status = static_cast<int>(in.UpTo(999));
  if (in.Flag()) result.outcome.hold = std::chrono::milliseconds(in.Between(0, 86'400'000));
  result.untried = in.Flag();
  result.parked = in.Flag();
  result.attempts = static_cast<uint32_t>(in.UpTo(1'000'000));
  result.tries = static_cast<uint32_t>(in.UpTo(1'000'000));
  result.first_try = WallTimeFromMillis(in.Signed());
  for (uint64_t left = in.UpTo(FlightResult::kMembersNamedMax); left > 0; --left) {
    result.parked_members.push_back(in.Id());
  }
  for (uint64_t left = in.UpTo(20); left > 0; --left) result.failed.push_back(in.Id());
  const std::string bytes = EncodeFlightResult(result);
  const absl::StatusOr<FlightResult> decoded = DecodeFlightResult(bytes);
  POSTRIDER_CHECK(decoded.ok());
  POSTRIDER_CHECK(decoded->outcome.hold == result.outcome.hold);
  POSTRIDER_CHECK(decoded->first_try == result.first_try);
  POSTRIDER_CHECK(decoded->parked_members == result.parked_members);
  POSTRIDER_CHECK(decoded->failed == result.failed);
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(!DecodeFlightResult(absl::string_view(bytes).substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  DecodeState(postrider::delivery::BatchMembersSerializer(), View(data, size));
  DecodeState(postrider::delivery::BatchAttemptsSerializer(), View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
