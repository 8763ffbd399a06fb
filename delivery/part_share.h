#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::delivery {

// What one part of an endpoint may have of the endpoint's limits. The parts below the endpoint's
// parallelism share them so that their sum is the limit: rates exactly, whole numbers with the
// remainder going to the first parts. A number below that of the parts, which is not accepted,
// would give each part 1.
//
// A part that is left over from a greater parallelism counts itself and all parts before it: while
// it drains, the sum is above the limit by so much, and never by more than one such part's share
// each.
class PartShare {
 public:
  PartShare() = default;
  PartShare(uint32_t part, int parallelism)
      : part_(part), parts_(std::max<int64_t>({parallelism, int64_t{part} + 1, 1})) {}

  uint32_t part() const { return part_; }
  int64_t parts() const { return parts_; }

  int64_t Of(int64_t limit) const {
    return std::max<int64_t>(limit / parts_ + (part_ < limit % parts_ ? 1 : 0), 1);
  }
  int Of(int limit) const { return static_cast<int>(Of(static_cast<int64_t>(limit))); }
  absl::optional<double> Of(const absl::optional<double>& per_second) const {
    if (!per_second) return absl::nullopt;
    return *per_second / static_cast<double>(parts_);
  }
  // Between two things of which the endpoint does one at a time.
  Duration Between(Duration interval) const { return interval * parts_; }

  friend bool operator==(const PartShare&, const PartShare&) = default;

 private:
  uint32_t part_ = 0;
  int64_t parts_ = 1;
};

}  // namespace postrider::delivery
