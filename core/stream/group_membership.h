#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "absl/functional/any_invocable.h"
#include "core/stream/group_coordinator.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// One member's way through the generations of its group: what it has, and what its GroupHandler is
// to be told next. For the GroupConsumer of a log with a GroupCoordinator.
//
//   joining --assigned--> assigned --revoked or lost--> revoked --Release()--> joining
//      '--leaving--> left
//
// A member that is dropped by its group learns of it in Next(), and joins anew after Release().
//
// Threads: as the coordinator's.
class GroupMembership {
 public:
  // What is to be told; after kRevoked and kLost nothing is read until the next kAssigned.
  struct Event {
    enum class Kind { kNone, kAssigned, kNothingMatches, kRevoked, kLost, kLeft };
    Kind kind = Kind::kNone;
    Assignment assignment;
    absl::AnyInvocable<void() &&> left;
  };

  // Joins. `wake` is called when Next() may have something; the coordinator outlives it.
  GroupMembership(GroupCoordinator& coordinator, const GroupOptions& options,
                  std::function<void()> wake);
  // Stays in the group, and its `wake` with it: whoever destroys it says with Drop(), or by way of
  // the coordinator, what is to become of that.
  ~GroupMembership() = default;
  GroupMembership(const GroupMembership&) = delete;
  GroupMembership& operator=(const GroupMembership&) = delete;

  Event Next();
  void Polled();
  // After kRevoked or kLost. Rejoin() follows, else the next call of Next() joins.
  void Release();
  void Rejoin();
  // Next() gives back what is assigned, then tells of the end with `done`.
  void Leave(absl::AnyInvocable<void() &&> done);
  // Out of the group at once.
  void Drop();

  uint64_t id() const { return id_; }
  bool reads() const { return state_ == State::kAssigned; }
  // Assigned and not released.
  bool has(const TopicPartition& tp) const { return assigned_.count(tp) == 1; }
  // The one of its assignment.
  int64_t generation() const { return generation_; }
  // Whether the group has moved on without it, so that it may commit nothing.
  bool fenced() const;

 private:
  enum class State {
    kJoining,   // nothing is assigned
    kAssigned,  // kAssigned was told
    kRevoked,   // kRevoked or kLost was told, Release() not yet called
    kLeft,
  };
  GroupCoordinator::Member* Find() const { return coordinator_.FindMember(options_.group, id_); }
  Event TakeAssignment(GroupCoordinator::Member& member);

  GroupCoordinator& coordinator_;
  const GroupOptions options_;
  const std::function<void()> wake_;
  uint64_t id_ = 0;
  int64_t generation_ = -1;
  State state_ = State::kJoining;
  bool leaving_ = false;
  absl::AnyInvocable<void() &&> left_;
  std::set<TopicPartition> assigned_;
};

}  // namespace postrider
