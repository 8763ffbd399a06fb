#include "delivery/flight_result.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"

namespace postrider::delivery {
namespace {

constexpr uint8_t kVersion = 1;
// Versions up to this one are taken for those of a later program, all others for damage.
constexpr uint8_t kVersionPlausible = kVersion + 8;
constexpr uint8_t kUntried = 1;
constexpr uint8_t kParked = 2;
constexpr uint8_t kHolds = 4;
// A reader that does not know this one tries the whole batch again.
constexpr uint8_t kNamesFailed = 8;
constexpr uint8_t kFlags = kUntried | kParked | kHolds | kNamesFailed;
constexpr int64_t kHoldMsMax = 7LL * 24 * 3600 * 1000;
constexpr uint64_t kCountMax = 1'000'000;

absl::Status Damaged(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("delivery: a flight's result: ", why));
}

void AppendIds(const std::vector<IdBytes>& ids, ByteWriter& out) {
  out.Varint(ids.size());
  for (const IdBytes& id : ids) {
    out.Raw(absl::string_view(reinterpret_cast<const char*>(id.data()), id.size()));
  }
}

// False: more than `most`, or cut off.
bool ReadIds(ByteReader& in, size_t most, std::vector<IdBytes>& ids) {
  const uint64_t count = in.Varint();
  if (!in.ok() || count > most || count > in.rest().size() / sizeof(IdBytes)) return false;
  ids.resize(count);
  for (IdBytes& id : ids) {
    const absl::string_view raw = in.Raw(id.size());
    std::copy_n(raw.begin(), raw.size(), id.begin());
  }
  return true;
}

void AppendFields(const FlightResult& result, ByteWriter& out) {
  const Outcome& outcome = result.outcome;
  out.U8(kVersion);
  out.U8(static_cast<uint8_t>((result.untried ? kUntried : 0) | (result.parked ? kParked : 0) |
                              (outcome.hold ? kHolds : 0) |
                              (result.failed.empty() ? 0 : kNamesFailed)));
  out.U8(static_cast<uint8_t>(outcome.kind));
  out.U8(static_cast<uint8_t>(outcome.verdict));
  out.U8(static_cast<uint8_t>(outcome.charge));
  out.U8(static_cast<uint8_t>(outcome.window));
  // An outage of ours is not the reader's, and older ones know nothing of it.
  const bool outage = outcome.breaker == BreakerEffect::kOutage;
  out.U8(static_cast<uint8_t>(outage ? BreakerEffect::kNeutral : outcome.breaker));
  out.U8(static_cast<uint8_t>(outcome.give_up));
  out.Varint(static_cast<uint64_t>(outcome.status));
  if (outcome.hold) {
    const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(*outcome.hold).count();
    out.Varint(static_cast<uint64_t>(std::clamp<int64_t>(ms, 0, kHoldMsMax)));
  }
  out.Varint(result.attempts);
  out.Varint(result.tries);
  out.Zigzag(MillisSinceEpoch(result.first_try));
  AppendIds(result.parked_members, out);
  if (!result.failed.empty()) AppendIds(result.failed, out);
}

}  // namespace

std::string EncodeFlightResult(const FlightResult& result) {
  ByteWriter out;
  AppendFields(result, out);
  return out.Take();
}

absl::StatusOr<FlightResult> DecodeFlightResult(absl::string_view encoded) {
  ByteReader in(encoded);
  const uint8_t version = in.U8();
  if (!in.ok()) return Damaged("empty");
  if (version > kVersion && version <= kVersionPlausible) {
    return absl::UnimplementedError(absl::StrCat("delivery: a flight's result has version ",
                                                 version, ", this reads ", kVersion));
  }
  if (version != kVersion) return Damaged("its version was never written");
  const uint8_t flags = in.U8();
  const uint8_t kind = in.U8();
  const uint8_t verdict = in.U8();
  const uint8_t charge = in.U8();
  const uint8_t window = in.U8();
  const uint8_t breaker = in.U8();
  const absl::optional<dlq::DeadReason> reason = dlq::DeadReasonFromNumber(in.U8());
  const uint64_t status = in.Varint();
  if (!in.ok() || (flags & ~kFlags) != 0 || kind >= kOutcomeKinds ||
      verdict > static_cast<uint8_t>(Verdict::kKeep) ||
      charge > static_cast<uint8_t>(Charge::kFree) ||
      window > static_cast<uint8_t>(WindowEffect::kOne) ||
      breaker > static_cast<uint8_t>(BreakerEffect::kFailure) || !reason || status > 999) {
    return Damaged("a field is out of range");
  }
  FlightResult result;
  result.untried = (flags & kUntried) != 0;
  result.parked = (flags & kParked) != 0;
  result.outcome.kind = static_cast<OutcomeKind>(kind);
  result.outcome.verdict = static_cast<Verdict>(verdict);
  result.outcome.charge = static_cast<Charge>(charge);
  result.outcome.window = static_cast<WindowEffect>(window);
  result.outcome.breaker = static_cast<BreakerEffect>(breaker);
  result.outcome.give_up = *reason;
  if (result.outcome.kind == OutcomeKind::kGone) result.outcome.disable = DisableReason::kGone;
  result.outcome.status = static_cast<int>(status);
  if ((flags & kHolds) != 0) {
    const uint64_t ms = in.Varint();
    if (ms > static_cast<uint64_t>(kHoldMsMax)) return Damaged("it holds for too long");
    result.outcome.hold = std::chrono::milliseconds(static_cast<int64_t>(ms));
  }
  const uint64_t attempts = in.Varint();
  const uint64_t tries = in.Varint();
  result.first_try = WallTimeFromMillis(in.Zigzag());
  if (!in.ok() || attempts > kCountMax || tries > kCountMax) {
    return Damaged("a number is out of range");
  }
  result.attempts = static_cast<uint32_t>(attempts);
  result.tries = static_cast<uint32_t>(tries);
  if (!ReadIds(in, FlightResult::kMembersNamedMax, result.parked_members) ||
      ((flags & kNamesFailed) != 0 && !ReadIds(in, FlightResult::kFailedMax, result.failed))) {
    return Damaged("its messages are too many or cut off");
  }
  if (!in.done()) return Damaged("it is longer or shorter than it says");
  // A varint can be written longer than it needs: only what Encode writes is taken.
  if (EncodeFlightResult(result) != encoded) return Damaged("a number is padded");
  return result;
}

}  // namespace postrider::delivery
