#pragma once

#include <atomic>
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

// What the shards of one job in one process know together. Threads: any.
struct ShardSiblings {
  // When one of them was assigned partitions of a group without any commit, ns of MonotonicTime.
  // Their claims are the group's first commits, and must not make it look established to the
  // others.
  std::atomic<int64_t> fresh_group_at{0};
};

// One thread's part of a job, driven by its loop: takes part in the group, claims what it is
// assigned, runs a task per partition, commits, and gives back. A test drives it by RunOnce(0) and
// a manual clock.
//
//   idle --assigned--> claiming --claim acknowledged--> running --revoked--> draining
//   draining --results in, or revoke_wait_max--> the last commit --answered--> released
//   released --assigned--> claiming
//   any --lost--> released (no commit)
//
// Threads: the loop's.
class Shard {
 public:
  // `seed` makes the id that its commits carry: it must differ in each shard and each start. All
  // that is passed outlives the shard, but for `factory`, which is called once. `siblings` may be
  // null. A shard that is destroyed before Stop() is done has crashed, as far as others can see.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(Log& log, EventLoop& loop, Metrics& metrics,
                                                       const JobOptions& options, int index,
                                                       uint64_t seed, ShardProgramFactory& factory,
                                                       ShardSiblings* siblings = nullptr);
  virtual ~Shard() = default;

  virtual ShardProgram& program() = 0;
  // Drains, commits and leaves the group, then `done`, within stop_wait_max and a few seconds
  // whatever the log does.
  virtual void Stop(std::function<void()> done) = 0;
  virtual JobStatus status() const = 0;
};

}  // namespace postrider
