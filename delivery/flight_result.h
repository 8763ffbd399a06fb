#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "delivery/outcome.h"

namespace postrider::delivery {

// What a request came to whose key group had moved meanwhile, as the `result` record carries it to
// the new owner (OperationResult::outcome).
struct FlightResult {
  Outcome outcome;
  // It never reached the wire: as if it had not been tried.
  bool untried = false;
  // As they stood while it was in flight: charged attempts before it, tries with it.
  uint32_t attempts = 0;
  uint32_t tries = 0;
  WallTime first_try;
  // Some of the batch's members were in the backlog; those are named as long as they are few.
  bool parked = false;
  std::vector<IdBytes> parked_members;

  // The messages that a partial acknowledgement lists as failed; the rest is done.
  std::vector<IdBytes> failed;

  static constexpr size_t kMembersNamedMax = 200;
  static constexpr size_t kFailedMax = 5'000;
};

// A version byte, then the fields. Errors: kUnimplemented (a newer version wrote it), kDataLoss (it
// was never written).
std::string EncodeFlightResult(const FlightResult& result);
absl::StatusOr<FlightResult> DecodeFlightResult(absl::string_view encoded);

}  // namespace postrider::delivery
