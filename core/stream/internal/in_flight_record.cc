#include "core/stream/internal/in_flight_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/stream/state_key.h"

namespace postrider::internal {
namespace {

StateDescriptor Descriptor() {
  StateDescriptor descriptor;
  descriptor.id = kInFlightStateId;
  descriptor.name = "postrider.in-flight";
  return descriptor;
}

// The bytes carry a version and a checksum of their own.
StateSerializer<std::string> Bytes() {
  StateSerializer<std::string> serializer;
  serializer.encode = [](const std::string& value, uint32_t) { return value; };
  serializer.decode = [](absl::string_view bytes, uint32_t) {
    return absl::optional<std::string>(std::string(bytes));
  };
  return serializer;
}

}  // namespace

InFlightRecord::InFlightRecord(StateBackend& backend, const Clock& clock)
    : state_(backend, clock, Descriptor(), Bytes()) {}

absl::StatusOr<std::vector<Operation>> InFlightRecord::Inherited() const {
  ASSIGN_OR_RETURN(const absl::optional<std::string> encoded, state_.Get(""));
  if (!encoded) return std::vector<Operation>();
  absl::StatusOr<std::vector<Operation>> operations = DecodeOperations(*encoded);
  if (absl::IsUnimplemented(operations.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the in-flight record: ", operations.status().message()));
  }
  return operations;
}

bool InFlightRecord::Write(const std::vector<Operation>& operations) {
  if (!operations.empty()) return state_.Put("", EncodeOperations(operations));
  const absl::StatusOr<std::vector<Operation>> before = Inherited();
  if (!before.ok() || before->empty()) return true;
  return state_.Clear("");
}

}  // namespace postrider::internal
