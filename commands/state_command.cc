#include "commands/state_command.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/stream/control_record.h"
#include "core/stream/log.h"
#include "core/stream/pool_plan.h"
#include "core/stream/state_upgrade.h"
#include "delivery/worker_role.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;

// How long a first answer of the log is waited for, and each later one.
constexpr milliseconds kPing{10'000};
constexpr milliseconds kSilenceMax{30'000};

}  // namespace

absl::Status RunStateUpgrade(const std::string& pool, bool finish, Log& log, const Clock& clock,
                             const std::string& prefix) {
  RETURN_IF_ERROR(log.Ping(kPing));
  // All of them are looked at before anything is written.
  std::vector<std::pair<std::string, std::vector<StateUpgrade>>> found;
  ASSIGN_OR_RETURN(const uint64_t generation,
                   ReadGeneration(log, clock, ControlTopicName(prefix), pool));
  const std::string topics = GenerationName(pool, generation);
  for (const TopicSpec& topic : delivery::WorkerRole::Topics(prefix, topics, 1, 1)) {
    ASSIGN_OR_RETURN(std::vector<StateUpgrade> upgrades,
                     FindStateUpgrades(log, clock, topic.name, kSilenceMax));
    if (!upgrades.empty()) found.emplace_back(topic.name, std::move(upgrades));
  }
  if (found.empty()) {
    std::printf("nothing to finish: every state is written in the version that is read\n");
    return absl::OkStatus();
  }
  for (const auto& [changelog, upgrades] : found) {
    if (finish) {
      RETURN_IF_ERROR(FinishStateUpgrades(log, clock, changelog, upgrades, kSilenceMax));
    }
    for (const StateUpgrade& upgrade : upgrades) {
      std::printf("%s  %s: version %u\n", finish ? "finished" : "can be finished",
                  upgrade.state.c_str(), upgrade.version);
    }
  }
  std::printf(finish ? "the workers write them from their next start on; the binary before refuses "
                       "this pool\n"
                     : "with --finish the workers write them, and the binary before refuses this "
                       "pool\n");
  return absl::OkStatus();
}

}  // namespace postrider
