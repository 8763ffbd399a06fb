#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/trim_holds.h"

namespace postrider {

// What the roles of a pool are to do now, by the control topic.
struct PoolPlan {
  enum class Work {
    kRun,
    kDrain,  // workers park all that they have and begin nothing
    kStop,   // leave the group
  };
  uint64_t generation = 1;
  int32_t key_groups = 1;
  bool match = true;  // whether matchers run
  Work work = Work::kRun;
  std::string why;                    // nobody runs as usual; for people
  absl::optional<WallTime> again_at;  // the plan changes by itself then
  friend bool operator==(const PoolPlan&, const PoolPlan&) = default;
};

// `key_groups_first`: of a pool that was never rescaled.
PoolPlan PlanFor(const ControlState& control, absl::string_view pool, int32_t key_groups_first,
                 WallTime now);

// Which generation of its topics a pool works on, for commands that do something to it; blocks.
// kFailedPrecondition: it is being rescaled, or its record cannot be read.
absl::StatusOr<uint64_t> ReadGeneration(Log& log, const Clock& clock,
                                        const std::string& control_topic, absl::string_view pool);

}  // namespace postrider
