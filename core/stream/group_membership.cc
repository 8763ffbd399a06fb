#include "core/stream/group_membership.h"

#include <utility>

#include "core/base/check.h"

namespace postrider {

GroupMembership::GroupMembership(GroupCoordinator& coordinator, const GroupOptions& options,
                                 std::function<void()> wake)
    : coordinator_(coordinator), options_(options), wake_(std::move(wake)) {
  id_ = coordinator_.AddMember(options_, wake_);
}

void GroupMembership::Polled() { coordinator_.Polled(options_.group, id_); }

bool GroupMembership::fenced() const {
  return Find() == nullptr || generation_ != coordinator_.group(options_.group).generation;
}

void GroupMembership::Release() {
  POSTRIDER_CHECK(state_ == State::kRevoked);
  assigned_.clear();
  state_ = State::kJoining;
}

void GroupMembership::Rejoin() {
  if (leaving_) return;  // Next() goes on
  if (GroupCoordinator::Member* member = Find()) {
    coordinator_.Rejoin(options_.group, *member);
  } else {
    id_ = coordinator_.AddMember(options_, wake_);
  }
}

void GroupMembership::Leave(absl::AnyInvocable<void() &&> done) {
  POSTRIDER_CHECK(!leaving_);
  leaving_ = true;
  left_ = std::move(done);
}

void GroupMembership::Drop() { coordinator_.RemoveMember(options_.group, id_); }

GroupMembership::Event GroupMembership::Next() {
  Event event;
  GroupCoordinator::Member* member = Find();
  const bool wanted_back = leaving_ || member == nullptr ||
                           (coordinator_.group(options_.group).rebalancing && !member->joined);
  if (state_ == State::kAssigned && wanted_back) {
    if (assigned_.empty()) {
      state_ = State::kJoining;
      Rejoin();
      return Next();
    }
    state_ = State::kRevoked;
    event.kind = member == nullptr ? Event::Kind::kLost : Event::Kind::kRevoked;
    return event;
  }
  if (state_ != State::kJoining) return event;
  if (leaving_) {
    Drop();
    state_ = State::kLeft;
    event.kind = Event::Kind::kLeft;
    event.left = std::move(left_);
    return event;
  }
  if (member == nullptr || (!member->joined && !member->has_assignment)) {
    Rejoin();
    member = Find();
  }
  if (member != nullptr && member->has_assignment) return TakeAssignment(*member);
  return event;
}

GroupMembership::Event GroupMembership::TakeAssignment(GroupCoordinator::Member& member) {
  Event event;
  const GroupCoordinator::Group& group = coordinator_.group(options_.group);
  member.has_assignment = false;
  state_ = State::kAssigned;
  generation_ = group.generation;
  assigned_.clear();
  event.kind = member.nothing_matches ? Event::Kind::kNothingMatches : Event::Kind::kAssigned;
  for (const TopicPartition& tp : member.assignment) {
    assigned_.insert(tp);
    AssignedPartition partition;
    partition.tp = tp;
    const auto committed = group.committed.find(tp);
    if (committed != group.committed.end()) partition.committed = committed->second;
    event.assignment.partitions.push_back(std::move(partition));
  }
  event.assignment.group_has_commits = !group.committed.empty();
  return event;
}

}  // namespace postrider
