#include "core/stream/pool_plan.h"

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"

namespace postrider {

PoolPlan PlanFor(const ControlState& control, absl::string_view pool, int32_t key_groups_first,
                 WallTime now) {
  PoolPlan plan;
  plan.key_groups = key_groups_first;
  const std::string name(pool);
  if (const auto unreadable = control.pools_unreadable.find(name);
      unreadable != control.pools_unreadable.end()) {
    plan.match = false;
    plan.work = PoolPlan::Work::kStop;
    plan.why = absl::StrCat("pool ", pool, ": ", unreadable->second);
    return plan;
  }
  const auto found = control.pools.find(name);
  if (found == control.pools.end()) return plan;
  const PoolRecord& record = found->second;
  plan.generation = record.generation;
  plan.key_groups = record.key_groups;
  switch (record.phase) {
    case PoolRecord::Phase::kSteady:
      break;
    case PoolRecord::Phase::kDraining:
      if (record.lease_until <= now) break;
      plan.match = false;
      plan.work = PoolPlan::Work::kDrain;
      plan.again_at = record.lease_until;
      break;
    case PoolRecord::Phase::kMoving:
      plan.match = false;
      plan.work = PoolPlan::Work::kStop;
      break;
  }
  if (!plan.match) {
    plan.why = absl::StrCat("pool ", pool,
                            " is being rescaled: it goes on when `postrider rescale` has ended");
  }
  return plan;
}

absl::StatusOr<uint64_t> ReadGeneration(Log& log, const Clock& clock,
                                        const std::string& control_topic, absl::string_view pool) {
  constexpr std::chrono::milliseconds kTimeout{30'000};
  const absl::StatusOr<int32_t> partitions = log.Partitions(control_topic, kTimeout);
  // No process of this version has run yet.
  if (absl::IsNotFound(partitions.status())) return uint64_t{1};
  RETURN_IF_ERROR(partitions.status());
  ASSIGN_OR_RETURN(const ControlState control, ReadControl(log, clock, control_topic));
  const PoolPlan plan = PlanFor(control, pool, 1, clock.Wall());
  if (!plan.why.empty()) return absl::FailedPreconditionError(plan.why);
  return plan.generation;
}

}  // namespace postrider
