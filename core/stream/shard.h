#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "core/stream/job.h"
#include "core/stream/log.h"

namespace postrider {

// One thread's part of a job, driven by its loop: takes part in the group, claims what it is assigned, runs a task
// per partition, commits, and gives back. A test drives it by RunOnce(0) and a manual clock.
//
//   idle --assigned--> claiming --claim acknowledged--> running --revoked--> draining
//   draining --results in or revoke_wait_max--> committing --acknowledged--> released --assigned--> claiming
//   any --lost--> released (no commit)
//
// Threads: the loop's.
class Shard {
 public:
  static absl::StatusOr<std::unique_ptr<Shard>> Create(Log& log, EventLoop& loop, Metrics& metrics,
                                                       const JobOptions& options, int index,
                                                       uint64_t seed, ShardProgramFactory& factory);
  virtual ~Shard() = default;

  virtual ShardProgram& program() = 0;
  // Drains, commits and leaves the group, then `done`.
  virtual void Stop(std::function<void()> done) = 0;
  virtual JobStatus status() const = 0;
};

}  // namespace postrider
