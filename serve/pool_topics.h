#pragma once

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/pool_plan.h"
#include "serve/program_options.h"
#include "subscriptions/matching/matcher_role.h"

namespace postrider {

// The topics that the roles of this process need, whatever its pool works on.
std::vector<TopicSpec> OwnTopics(const ProgramOptions& options);

// Those that it works on.
std::vector<TopicSpec> PoolTopics(const ProgramOptions& options, const PoolPlan& plan);

// What a matcher writes to while `plan` holds.
subscriptions::MatcherTarget TargetOf(const ProgramOptions& options, const PoolPlan& plan);

// The first start of a pool makes its topics; a rescale makes those of later generations. Blocks.
absl::Status EnsurePoolTopics(const ProgramOptions& options, Log& log, const Clock& clock,
                              std::chrono::milliseconds timeout);

}  // namespace postrider
