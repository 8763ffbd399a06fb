#include "serve/pool_topics.h"

#include <cstdint>
#include <utility>

#include "core/base/status_macros.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "delivery/worker_role.h"
#include "dlq/letters/dead_letter_log.h"
#include "dlq/reports/report_record.h"

namespace postrider {
namespace {

constexpr int16_t kReplication = 3;

}  // namespace

std::vector<TopicSpec> OwnTopics(const ProgramOptions& options) {
  return {dlq::DeadLetterTopic(options.kafka.prefix, kReplication),
          dlq::ReportTopic(options.kafka.prefix, kReplication),
          ControlTopic(options.kafka.prefix, kReplication)};
}

subscriptions::MatcherTarget TargetOf(const ProgramOptions& options, const PoolPlan& plan) {
  subscriptions::MatcherTarget target;
  target.topic_prefix = options.kafka.prefix;
  target.pool = options.worker.pool;
  target.key_groups = plan.key_groups;
  target.generation = plan.generation;
  return target;
}

std::vector<TopicSpec> PoolTopics(const ProgramOptions& options, const PoolPlan& plan) {
  std::vector<TopicSpec> topics =
      subscriptions::MatcherRole::Topics(TargetOf(options, plan), kReplication);
  for (TopicSpec& topic : delivery::WorkerRole::Topics(
           options.kafka.prefix, GenerationName(options.worker.pool, plan.generation),
           plan.key_groups, kReplication)) {
    topics.push_back(std::move(topic));
  }
  return topics;
}

absl::Status EnsurePoolTopics(const ProgramOptions& options, Log& log, const Clock& clock,
                              std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const ControlState control,
                   ReadControl(log, clock, ControlTopicName(options.kafka.prefix)));
  if (control.pools_unreadable.contains(options.worker.pool)) return absl::OkStatus();
  const PoolPlan plan = PlanFor(control, options.worker.pool,
                                static_cast<int32_t>(options.worker.key_groups), clock.Wall());
  return log.EnsureTopics(PoolTopics(options, plan), timeout);
}

}  // namespace postrider
