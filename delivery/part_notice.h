#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "delivery/outcome.h"

namespace postrider::delivery {

// The header that marks a record of the dispatch topic as a notice: what one part of an endpoint
// tells another. Its key is that of the part that is told.
inline constexpr absl::string_view kPartNoticeHeader = "postrider-part-notice";

// The endpoint was disabled automatically: all of its parts stop.
struct PartNotice {
  DisableReason disabled = DisableReason::kGone;  // never kNone
  uint64_t generation = 0;                        // of the endpoint, when it was
  WallTime disabled_at;
  friend bool operator==(const PartNotice&, const PartNotice&) = default;
};

// The first byte is one that programs without notices take for a later version of a message, which
// they leave to others.
std::string EncodePartNotice(const PartNotice& notice);
// kUnimplemented: a newer version wrote it. kDataLoss: it was never written.
absl::StatusOr<PartNotice> DecodePartNotice(absl::string_view encoded);

}  // namespace postrider::delivery
