#include "serve/pool_roles.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/stream/control_record.h"
#include "core/stream/trim_holds.h"
#include "serve/pool_topics.h"
#include "serve/role_status.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kMemoryInterval{2};
// Before a worker leaves topics that are rescaled its requests end; they do within their timeout.
constexpr seconds kInFlightWait{20};
constexpr milliseconds kInFlightLook{100};
constexpr seconds kWrittenLook{1};
// How long the threads of a role that has stopped may take to end.
constexpr seconds kDisposeWait{5};

}  // namespace

absl::Status PoolRoles::Start() {
  ASSIGN_OR_RETURN(control_, ControlFollower::Open(parts_.log, parts_.loop,
                                                   ControlTopicName(options_.kafka.prefix),
                                                   [this] { OnControl(); }));
  return absl::OkStatus();
}

bool PoolRoles::BeingRestored() const {
  const std::shared_ptr<const ControlState> control = control_->state();
  return control != nullptr && control->restores.contains(options_.worker.pool);
}

// Only when the topic was read to its end.
PoolPlan PoolRoles::Plan() const {
  return PlanFor(*control_->state(), options_.worker.pool,
                 static_cast<int32_t>(options_.worker.key_groups), parts_.clock.Wall());
}

void PoolRoles::OnControl() {
  if (stopping_) return;
  if (worker_.role != nullptr && BeingRestored()) {
    // It joined while the restore looked whether anybody was there.
    return parts_.drain(absl::UnavailableError(absl::StrCat(
        "pool ", options_.worker.pool, " is being restored: no worker of it may run meanwhile")));
  }
  FollowPlan();
}

void PoolRoles::SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  if (matcher_.role != nullptr) matcher_.role->SetSnapshot(snapshot);
  if (worker_.role != nullptr) worker_.role->SetSnapshot(snapshot);
  snapshot_ = std::move(snapshot);
  FollowPlan();
}

void PoolRoles::SetAddressRules(std::shared_ptr<const AddressRules> rules) {
  rules_ = std::move(rules);
  if (worker_.role != nullptr) worker_.role->SetAddressRules(rules_);
}

int PoolRoles::running() const {
  return (matcher_.role != nullptr || matcher_.stopping ? 1 : 0) +
         (worker_.role != nullptr || worker_.stopping ? 1 : 0);
}

void PoolRoles::Stop() {
  stopping_ = true;
  if (matcher_.role != nullptr && !matcher_.stopping) StopRole(matcher_);
  if (worker_.role != nullptr && !worker_.stopping) StopRole(worker_);
}

bool PoolRoles::left_behind() const {
  return left_behind_ || matcher_.disposer.joinable() || worker_.disposer.joinable();
}

// Has the roles do what the pool's plan says. They need a snapshot and what the control topic
// says; called again at every change of either.
void PoolRoles::FollowPlan() {
  if (stopping_ || snapshot_ == nullptr || control_->state() == nullptr) return;
  const PoolPlan plan = Plan();
  if (plan.why != plan_.why) {
    POSTRIDER_LOG(kInfo, plan.why.empty() ? "the pool is at work" : "the pool is not at work",
                  {"pool", options_.worker.pool}, {"generation", plan.generation},
                  {"key_groups", plan.key_groups}, {"why", plan.why});
  }
  plan_ = plan;
  if (plan.again_at) LookAgainIn(*plan.again_at - parts_.clock.Wall());
  absl::Status status = FollowWithMatcher();
  if (status.ok()) status = FollowWithWorker();
  if (!status.ok()) parts_.fail(std::move(status));
}

// Follows the plan again after a while: as soon as was asked for last.
void PoolRoles::LookAgainIn(Duration delay) {
  parts_.loop.CancelTimer(plan_timer_);
  plan_timer_ = parts_.loop.CallAfter(delay, [this] { FollowPlan(); });
}

absl::Status PoolRoles::FollowWithMatcher() {
  if (!options_.Has("matcher") || matcher_.stopping) return absl::OkStatus();
  if (matcher_.role != nullptr) {
    if (!plan_.match || matcher_.generation != plan_.generation) StopRole(matcher_);
    return absl::OkStatus();
  }
  if (!plan_.match) return absl::OkStatus();
  if (!written_) {
    AskWhetherWritten();
    return absl::OkStatus();
  }
  subscriptions::MatcherTarget target = TargetOf(options_, plan_);
  target.written = *written_;
  ASSIGN_OR_RETURN(matcher_.role, subscriptions::MatcherRole::Start(
                                      parts_.log, parts_.clock, parts_.metrics, options_.matcher,
                                      target, options_.snapshot.age_max));
  matcher_.generation = plan_.generation;
  matcher_.role->SetSnapshot(snapshot_);
  return absl::OkStatus();
}

absl::Status PoolRoles::FollowWithWorker() {
  if (!options_.Has("worker") || worker_.stopping) return absl::OkStatus();
  const bool run = plan_.work != PoolPlan::Work::kStop;
  if (worker_.role != nullptr) {
    const bool go_on = run && worker_.generation == plan_.generation;
    SetDraining(!go_on || plan_.work == PoolPlan::Work::kDrain);
    if (!go_on) StopWorkerWhenIdle();
    return absl::OkStatus();
  }
  if (!run) return absl::OkStatus();
  // While the pool is being restored it waits.
  if (BeingRestored()) {
    POSTRIDER_LOG(kWarn, "the worker waits until its pool is restored",
                  {"pool", options_.worker.pool});
    return absl::OkStatus();
  }
  delivery::WorkerOptions options = options_.worker;
  options.generation = plan_.generation;
  options.key_groups = plan_.key_groups;
  ASSIGN_OR_RETURN(worker_.role,
                   delivery::WorkerRole::Start(MakeWorkerParts(), options, options_.kafka.prefix,
                                               options_.snapshot.age_max, rules_, snapshot_));
  worker_.generation = plan_.generation;
  draining_since_ = absl::nullopt;
  SetDraining(plan_.work == PoolPlan::Work::kDrain);
  if (!std::exchange(looks_at_memory_, true)) LookAtMemory();
  return absl::OkStatus();
}

// Goes on with the plan when it is known. A partition that does not tell is asked again, unless
// another one has said enough.
void PoolRoles::AskWhetherWritten() {
  if (asks_whether_written_) return;
  asks_whether_written_ = true;
  const subscriptions::MatcherTarget target = TargetOf(options_, plan_);
  const std::string topic = subscriptions::MatcherRole::Topics(target, 1).front().name;
  std::vector<TopicPartition> partitions;
  for (int32_t i = 0; i < target.key_groups; ++i) partitions.push_back({topic, i});
  parts_.log.Ends(
      parts_.loop, std::move(partitions),
      [this,
       alive = std::weak_ptr<const int>(alive_)](const std::vector<absl::optional<int64_t>>& ends) {
        if (alive.expired()) return;
        asks_whether_written_ = false;
        const bool any = std::any_of(ends.begin(), ends.end(),
                                     [](const auto& end) { return end.value_or(0) > 0; });
        const bool all =
            std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end.has_value(); });
        if (!any && !all) return LookAgainIn(kWrittenLook);
        written_ = any;
        FollowPlan();
      });
}

void PoolRoles::SetDraining(bool draining) {
  if (draining == draining_since_.has_value()) return;
  if (draining) {
    draining_since_ = parts_.clock.Now();
  } else {
    draining_since_ = absl::nullopt;
  }
  worker_.role->SetDraining(draining);
}

// It begins none any more, but its shards must have heard of that.
void PoolRoles::StopWorkerWhenIdle() {
  const Duration waited = parts_.clock.Now() - *draining_since_;
  const bool idle = waited >= 2 * kInFlightLook && worker_.role->requests_in_flight() == 0;
  if (idle || waited >= kInFlightWait) return StopRole(worker_);
  LookAgainIn(kInFlightLook);
}

namespace {

// From another thread, which has nothing else to do: the loop may be full for a moment.
void PostSurely(EventLoop& loop, EventLoop::Callback call) {
  while (!loop.Post(std::move(call))) std::this_thread::yield();
}

}  // namespace

template <typename Role>
void PoolRoles::StopRole(Slot<Role>& slot) {
  slot.stopping = true;
  slot.role->Stop([this, &slot] {
    EventLoop::Callback gone = [this, &slot] { Dispose(slot); };
    PostSurely(parts_.loop, std::move(gone));
  });
}

// Not on this thread: librdkafka 2.0.2 does not always let go of a consumer whose topic was
// deleted while it was a member of its group, as a process finds that hung through a rescale.
template <typename Role>
void PoolRoles::Dispose(Slot<Role>& slot) {
  const TimerId timer = parts_.loop.CallAfter(kDisposeWait, [this, &slot] {
    POSTRIDER_LOG(kError, "a role's threads do not end: they stay until the process ends");
    left_behind_ = true;
    slot.disposer.detach();
    Disposed(slot);
  });
  slot.disposer = std::thread([this, &slot, timer, role = std::move(slot.role)]() mutable {
    role.reset();
    EventLoop::Callback disposed = [this, &slot, timer] {
      if (!parts_.loop.CancelTimer(timer)) return;
      slot.disposer.join();
      Disposed(slot);
    };
    PostSurely(parts_.loop, std::move(disposed));
  });
}

template <typename Role>
void PoolRoles::Disposed(Slot<Role>& slot) {
  slot.stopping = false;
  if (stopping_) return parts_.stopped();
  FollowPlan();
}

delivery::WorkerParts PoolRoles::MakeWorkerParts() {
  delivery::WorkerParts parts = parts_.make_worker_parts();
  parts.trim_limit =
      [this, group = delivery::WorkerRole::Group(options_.kafka.prefix, options_.worker.pool)](
          const TopicPartition& tp) { return control_->TrimLimit(group, tp); };
  return parts;
}

template <typename Role>
absl::Status PoolRoles::SlotStatus(const Slot<Role>& slot) const {
  if (!plan_.why.empty()) return absl::UnavailableError(plan_.why);
  if (slot.stopping) return absl::UnavailableError("it changes to other topics");
  return StatusOf(slot.role.get(), parts_.clock);
}

absl::Status PoolRoles::MatcherStatus() const { return SlotStatus(matcher_); }

absl::Status PoolRoles::WorkerStatus() const {
  if (worker_.role == nullptr && BeingRestored()) {
    return absl::UnavailableError(
        absl::StrCat("pool ", options_.worker.pool,
                     " is being restored: it starts when `postrider savepoint restore` has ended"));
  }
  return SlotStatus(worker_);
}

void PoolRoles::LookAtMemory() {
  if (stopping_) return;
  if (worker_.role != nullptr && !worker_.stopping) worker_.role->LookAtMemory();
  parts_.loop.CallAfter(kMemoryInterval, [this] { LookAtMemory(); });
}

}  // namespace postrider
