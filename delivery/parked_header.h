#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/id.h"
#include "delivery/backlog_state.h"

namespace postrider::delivery {

// The header of a dispatch record that was an entry of the backlog in an earlier generation of its
// pool's topics: it becomes one again as soon as it is read.
inline constexpr absl::string_view kParkedHeader = "postrider-parked";

struct ParkedHeader {
  // The batch that it was sent in. Its members follow each other in the partition, with none of the
  // same endpoint between them.
  struct Batch {
    IdBytes key{};
    uint32_t index = 0;  // of this one among those that are left
    uint32_t count = 1;  // of those
    BatchAttempts attempts;
    friend bool operator==(const Batch&, const Batch&) = default;
  };
  absl::optional<Batch> batch;  // none: it was never sent
  friend bool operator==(const ParkedHeader&, const ParkedHeader&) = default;
};

// A version byte and the fields.
std::string EncodeParkedHeader(const ParkedHeader& header);
// kUnimplemented: of a newer version. kDataLoss: anything else that Encode would not have written.
absl::StatusOr<ParkedHeader> DecodeParkedHeader(absl::string_view encoded);

}  // namespace postrider::delivery
