#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/http/address_guard.h"
#include "core/stream/control_follower.h"
#include "core/stream/log.h"
#include "core/stream/pool_plan.h"
#include "delivery/worker_role.h"
#include "serve/program_options.h"
#include "subscriptions/matching/matcher_role.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider {

// The matcher and the worker, those of them that the process has: they work on the topics of one
// generation of their pool, so they start, drain, stop and change to others as the control topic
// says (PlanFor()), once there is a snapshot.
//
// Threads: the loop's.
class PoolRoles {
 public:
  struct Parts {
    const ProgramOptions& options;
    EventLoop& loop;
    Log& log;
    const Clock& clock;
    Metrics& metrics;
    // All that a worker is given but where its topics may be trimmed.
    std::function<delivery::WorkerParts()> make_worker_parts;
    // A role cannot go on: the process ends at once.
    std::function<void(absl::Status)> fail;
    // The process is to drain, for this reason.
    std::function<void(absl::Status)> drain;
    // After Stop(): a role has stopped.
    std::function<void()> stopped;
  };

  // What `parts` refers to outlives it.
  PoolRoles(Parts parts, std::shared_ptr<const AddressRules> rules)
      : parts_(std::move(parts)), options_(parts_.options), rules_(std::move(rules)) {}

  // Begins to follow the control topic.
  absl::Status Start();
  void SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot);
  void SetAddressRules(std::shared_ptr<const AddressRules> rules);

  // Of how many roles Stop() will say that they have stopped.
  int running() const;
  void Stop();
  // Threads did not end that stand on what is destroyed next.
  bool left_behind() const;

  // Why a role is not at work that should be, if its pool says so.
  absl::Status MatcherStatus() const;
  absl::Status WorkerStatus() const;

 private:
  // A role that works on the topics of one generation of its pool.
  template <typename Role>
  struct Slot {
    std::unique_ptr<Role> role;
    uint64_t generation = 0;
    bool stopping = false;  // is to be gone when its stop is through
    std::thread disposer;
  };

  bool BeingRestored() const;
  PoolPlan Plan() const;
  void OnControl();
  void FollowPlan();
  void LookAgainIn(Duration delay);
  absl::Status FollowWithMatcher();
  void AskWhetherWritten();
  absl::Status FollowWithWorker();
  delivery::WorkerParts MakeWorkerParts();
  void SetDraining(bool draining);
  void StopWorkerWhenIdle();
  template <typename Role>
  void StopRole(Slot<Role>& slot);
  template <typename Role>
  void Dispose(Slot<Role>& slot);
  template <typename Role>
  void Disposed(Slot<Role>& slot);
  template <typename Role>
  absl::Status SlotStatus(const Slot<Role>& slot) const;
  void LookAtMemory();

  const Parts parts_;
  const ProgramOptions& options_;
  std::shared_ptr<const AddressRules> rules_;
  std::unique_ptr<ControlFollower> control_;
  Slot<delivery::WorkerRole> worker_;
  Slot<subscriptions::MatcherRole> matcher_;
  std::shared_ptr<const subscriptions::Snapshot> snapshot_;  // the newest
  PoolPlan plan_;                                            // followed last
  TimerId plan_timer_ = 0;
  // Whether anything was ever written to the dispatch topic, once that is known.
  absl::optional<bool> written_;
  bool asks_whether_written_ = false;
  absl::optional<MonotonicTime> draining_since_;  // of the worker
  bool looks_at_memory_ = false;
  bool left_behind_ = false;  // threads of a role
  bool stopping_ = false;
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
};

}  // namespace postrider
