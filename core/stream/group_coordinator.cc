#include "core/stream/group_coordinator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/stream/group_topics.h"

namespace postrider {

void GroupCoordinator::AddTopic(const std::string& topic, int32_t partitions) {
  topics_[topic] = partitions;
  TopicChanged(topic);
}

void GroupCoordinator::RemoveTopic(const std::string& topic) {
  topics_.erase(topic);
  for (auto& [name, group] : groups_) {
    std::erase_if(group.committed, [&](const auto& entry) { return entry.first.topic == topic; });
  }
  TopicChanged(topic);
}

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

GroupCoordinator::Member* GroupCoordinator::FindMember(const std::string& group, uint64_t id) {
  const auto mine = groups_.find(group);
  if (mine == groups_.end()) return nullptr;
  const auto found = mine->second.members.find(id);
  return found == mine->second.members.end() ? nullptr : &found->second;
}

uint64_t GroupCoordinator::AddMember(const GroupOptions& options, std::function<void()> wake) {
  Group& mine = group(options.group);
  Member member;
  member.id = next_member_++;
  member.options = options;
  member.wake = std::move(wake);
  member.joined = true;
  member.last_poll = clock_.Now();
  const uint64_t id = member.id;
  mine.members.emplace(id, std::move(member));
  StartRebalance(mine);
  return id;
}

void GroupCoordinator::RemoveMember(const std::string& group, uint64_t id) {
  const auto mine = groups_.find(group);
  if (mine == groups_.end()) return;
  const auto found = mine->second.members.find(id);
  if (found == mine->second.members.end()) return;
  if (found->second.wake) found->second.wake();
  mine->second.members.erase(found);
  StartRebalance(mine->second);
}

void GroupCoordinator::Rejoin(const std::string& group, Member& member) {
  member.joined = true;
  StartRebalance(this->group(group));
}

void GroupCoordinator::Polled(const std::string& group, uint64_t id) {
  if (Member* member = FindMember(group, id)) member->last_poll = clock_.Now();
}

void GroupCoordinator::StartRebalance(Group& group) {
  if (!group.rebalancing) {
    group.rebalancing = true;
    group.rebalance_began = clock_.Now();
    for (auto& [id, member] : group.members) {
      // Who has not taken its last assignment has nothing to give back.
      if (member.has_assignment) {
        member.has_assignment = false;
        member.joined = true;
      }
    }
  }
  CompleteIfAllJoined(group);
  for (auto& [id, member] : group.members) {
    if (member.wake) member.wake();
  }
}

void GroupCoordinator::CompleteIfAllJoined(Group& group) {
  for (const auto& [id, member] : group.members) {
    if (!member.joined) return;
  }
  group.rebalancing = false;
  ++group.generation;
  Assign(group);
  for (auto& [id, member] : group.members) {
    member.joined = false;
    member.has_assignment = true;
  }
}

void GroupCoordinator::Assign(Group& group) const {
  for (auto& [id, member] : group.members) {
    member.assignment.clear();
    member.nothing_matches = true;
  }
  size_t turn = 0;
  for (const auto& [name, partitions] : topics_) {
    std::vector<Member*> subscribed;
    for (auto& [id, member] : group.members) {
      if (!Subscribes(member.options, name)) continue;
      member.nothing_matches = false;
      subscribed.push_back(&member);
    }
    if (subscribed.empty()) continue;
    const auto count = static_cast<size_t>(partitions);
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

void GroupCoordinator::TopicChanged(const std::string& topic) {
  for (auto& [name, group] : groups_) {
    for (const auto& [id, member] : group.members) {
      if (!Subscribes(member.options, topic)) continue;
      StartRebalance(group);
      break;
    }
  }
}

void GroupCoordinator::Expire(const std::string& group) {
  const auto mine = groups_.find(group);
  if (mine == groups_.end()) return;
  const MonotonicTime now = clock_.Now();
  std::vector<uint64_t> gone;
  for (const auto& [id, member] : mine->second.members) {
    const bool heard = member.silent_since == MonotonicTime::max();
    const bool silent = !heard && now - member.silent_since >= member.options.session_timeout;
    const bool stuck = heard && now - member.last_poll >= member.options.poll_interval_max;
    const bool late = mine->second.rebalancing && !member.joined &&
                      now - mine->second.rebalance_began >= member.options.poll_interval_max;
    if (silent || stuck || late) gone.push_back(id);
  }
  for (const uint64_t id : gone) RemoveMember(group, id);
}

void GroupCoordinator::ExpireAll() {
  for (const auto& [name, group] : groups_) Expire(name);
}

void GroupCoordinator::RestartTimes() {
  const MonotonicTime now = clock_.Now();
  for (auto& [name, group] : groups_) {
    group.rebalance_began = now;
    for (auto& [id, member] : group.members) {
      member.last_poll = now;
      if (member.silent_since != MonotonicTime::max()) member.silent_since = now;
    }
  }
}

}  // namespace postrider
