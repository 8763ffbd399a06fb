#include "core/embedded_log/internal/group_coordinator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/stream/group_topics.h"

namespace postrider::embedded_log_internal {

const GroupCoordinator::Group* GroupCoordinator::Find(const std::string& name) const {
  const auto found = groups_.find(name);
  return found == groups_.end() ? nullptr : &found->second;
}

std::vector<std::string> GroupCoordinator::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, group] : groups_) {
    if (!group.members.empty() || !group.committed.empty()) names.push_back(name);
  }
  return names;
}

GroupCoordinator::Member* GroupCoordinator::FindMember(const std::string& name, uint64_t id) {
  Group& mine = group(name);
  const auto found = mine.members.find(id);
  return found == mine.members.end() ? nullptr : &found->second;
}

uint64_t GroupCoordinator::AddMember(const GroupOptions& options, std::function<void()> wake,
                                     const Topics& topics, MonotonicTime now) {
  Group& mine = group(options.group);
  Member member;
  member.id = next_member_++;
  member.options = options;
  member.wake = std::move(wake);
  member.joined = true;
  member.last_poll = now;
  const uint64_t id = member.id;
  mine.members.emplace(id, std::move(member));
  StartRebalance(mine, topics, now);
  return id;
}

void GroupCoordinator::RemoveMember(const std::string& name, uint64_t id, const Topics& topics,
                                    MonotonicTime now) {
  Group& mine = group(name);
  if (mine.members.erase(id) == 0) return;
  StartRebalance(mine, topics, now);
}

void GroupCoordinator::Rejoin(const std::string& name, Member& member, const Topics& topics,
                              MonotonicTime now) {
  member.joined = true;
  StartRebalance(group(name), topics, now);
}

void GroupCoordinator::StartRebalance(Group& group, const Topics& topics, MonotonicTime now) {
  if (!group.rebalancing) {
    group.rebalancing = true;
    group.rebalance_began = now;
    for (auto& [id, member] : group.members) {
      // Who has not taken its last assignment has nothing to give back.
      if (member.has_assignment) {
        member.has_assignment = false;
        member.joined = true;
      }
    }
  }
  CompleteIfAllJoined(group, topics);
  for (auto& [id, member] : group.members) member.wake();
}

void GroupCoordinator::CompleteIfAllJoined(Group& group, const Topics& topics) {
  for (const auto& [id, member] : group.members) {
    if (!member.joined) return;
  }
  group.rebalancing = false;
  ++group.generation;
  Assign(group, topics);
  for (auto& [id, member] : group.members) {
    member.joined = false;
    member.has_assignment = true;
  }
}

void GroupCoordinator::Assign(Group& group, const Topics& topics) {
  for (auto& [id, member] : group.members) {
    member.assignment.clear();
    member.nothing_matches = true;
  }
  size_t turn = 0;
  for (const auto& [name, topic] : topics) {
    std::vector<Member*> subscribed;
    for (auto& [id, member] : group.members) {
      if (!Subscribes(member.options, name)) continue;
      member.nothing_matches = false;
      subscribed.push_back(&member);
    }
    if (subscribed.empty()) continue;
    const size_t count = topic->partitions.size();
    const size_t share = count / subscribed.size();
    const size_t extra = count % subscribed.size();
    size_t next = 0;
    for (size_t i = 0; i < subscribed.size(); ++i) {
      if (subscribed[i]->options.strategy != AssignmentStrategy::kRange) break;
      for (size_t left = share + (i < extra ? 1 : 0); left > 0; --left) {
        subscribed[i]->assignment.push_back({name, static_cast<int32_t>(next++)});
      }
    }
    while (next < count) {
      subscribed[turn++ % subscribed.size()]->assignment.push_back(
          {name, static_cast<int32_t>(next++)});
    }
  }
}

void GroupCoordinator::TopicChanged(const std::string& topic, const Topics& topics,
                                    MonotonicTime now) {
  for (auto& [name, group] : groups_) {
    for (const auto& [id, member] : group.members) {
      if (!Subscribes(member.options, topic)) continue;
      StartRebalance(group, topics, now);
      break;
    }
  }
}

void GroupCoordinator::ForgetTopic(const std::string& topic) {
  for (auto& [name, group] : groups_) {
    std::erase_if(group.committed, [&](const auto& entry) { return entry.first.topic == topic; });
  }
}

std::vector<std::pair<std::string, TopicPartition>> GroupCoordinator::PositionsOf(
    const std::string& topic) const {
  std::vector<std::pair<std::string, TopicPartition>> positions;
  for (const auto& [name, group] : groups_) {
    for (const auto& [tp, position] : group.committed) {
      if (tp.topic == topic) positions.emplace_back(name, tp);
    }
  }
  return positions;
}

void GroupCoordinator::ExpireSilent(const std::string& name, const Topics& topics,
                                    MonotonicTime now) {
  Group& mine = group(name);
  std::vector<uint64_t> gone;
  for (const auto& [id, member] : mine.members) {
    const bool stuck = now - member.last_poll >= member.options.poll_interval_max;
    const bool late = mine.rebalancing && !member.joined &&
                      now - mine.rebalance_began >= member.options.poll_interval_max;
    if (stuck || late) gone.push_back(id);
  }
  for (const uint64_t id : gone) RemoveMember(name, id, topics, now);
}

}  // namespace postrider::embedded_log_internal
