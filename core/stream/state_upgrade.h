#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/stream/log.h"

namespace postrider {

// A state and the version that its values are to have from now on.
struct StateUpgrade {
  std::string state;
  uint32_t version = 0;
  friend bool operator==(const StateUpgrade&, const StateUpgrade&) = default;
};

// The upgrades that can be finished in `changelog`: the states whose owners read a higher version
// than is said to be finished in some partition. Reads all of the changelog.
//
// kFailedPrecondition: the owners of two partitions do not read the same, so a worker has the
// binary before, or has not restored yet. kDeadlineExceeded: the log was silent for `timeout`.
absl::StatusOr<std::vector<StateUpgrade>> FindStateUpgrades(Log& log, const Clock& clock,
                                                            const std::string& changelog,
                                                            std::chrono::milliseconds timeout);

// Ends the time in which one may go back to the binary before: says in every partition of
// `changelog` that each of these states is written in that version. It may run beside workers, and
// again, and once it has begun it should be brought to its end.
//
// A task learns of it when it is restored next. From then on it writes the new version, and a
// binary that does not read it refuses to restore that partition, naming the state
// (kFailedPrecondition); tasks that were restored before go on writing the version before, which
// the new binary reads. So it is run when every worker of the pool has the new binary, and takes
// effect with the next restart of each.
//
// Lowering a version does nothing. Errors: kInvalidArgument (no name, version 0), kNotFound (no
// such changelog), those of the log: some partitions may have been told, it is to be run again.
// Blocks about `timeout` at most. Threads: any that has no loop running.
absl::Status FinishStateUpgrades(Log& log, const Clock& clock, const std::string& changelog,
                                 const std::vector<StateUpgrade>& upgrades,
                                 std::chrono::milliseconds timeout);

}  // namespace postrider
