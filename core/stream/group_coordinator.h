#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// The groups of a log that keeps them by itself, in one process: who is in them, what each member
// is given, and what they have committed. It behaves as Apache Kafka does with eager groups: a
// change takes everything back, a generation begins when all have released what they had, and
// fences the commits of those who missed it. A member that does not poll for its poll_interval_max
// is dropped, as is one that does not release within it.
//
//   joined --all have joined--> has_assignment --it takes it--> (reads) --a change--> joined
//
// What a member makes of it is GroupMembership's; what is stored of positions is the log's.
//
// Threads: all under one mutex, which is its owner's; `wake` is called under it.
class GroupCoordinator {
 public:
  struct Member {
    uint64_t id = 0;
    GroupOptions options;
    std::function<void()> wake;   // null: nobody listens any more
    bool joined = false;          // waits for the generation to be complete
    bool has_assignment = false;  // has not taken it yet
    bool nothing_matches = false;
    std::vector<TopicPartition> assignment;
    MonotonicTime last_poll;
    // When its heartbeats ended, after which it has its session's time; max(): they come. Only a
    // log that members may lose touch with sets it.
    MonotonicTime silent_since = MonotonicTime::max();
  };
  struct Group {
    int64_t generation = 0;
    bool rebalancing = false;
    MonotonicTime rebalance_began;
    std::map<uint64_t, Member> members;  // the oldest first
    std::map<TopicPartition, CommittedPosition> committed;
  };

  // `clock` outlives it.
  explicit GroupCoordinator(const Clock& clock) : clock_(clock) {}

  void AddTopic(const std::string& topic, int32_t partitions);
  // With everything that groups have committed for it.
  void RemoveTopic(const std::string& topic);

  Group& group(const std::string& name) { return groups_[name]; }
  // Null: there is none.
  const Group* Find(const std::string& name) const;
  // Those that have members or positions.
  std::vector<std::string> Names() const;
  // The groups that have committed something for it.
  std::vector<std::pair<std::string, TopicPartition>> PositionsOf(const std::string& topic) const;

  // Null: the group has dropped it.
  Member* FindMember(const std::string& group, uint64_t id);
  uint64_t AddMember(const GroupOptions& options, std::function<void()> wake);
  void RemoveMember(const std::string& group, uint64_t id);
  // It has released what it had and waits for the next generation.
  void Rejoin(const std::string& group, Member& member);
  // Its poll_interval_max begins anew.
  void Polled(const std::string& group, uint64_t id);
  // Drops the members of a group, or of all, whose time is over.
  void Expire(const std::string& group);
  void ExpireAll();
  // The log was away: everybody's time begins now.
  void RestartTimes();

 private:
  void TopicChanged(const std::string& topic);
  void StartRebalance(Group& group);
  void CompleteIfAllJoined(Group& group);
  void Assign(Group& group) const;

  const Clock& clock_;
  std::map<std::string, int32_t> topics_;  // how many partitions
  std::map<std::string, Group> groups_;
  uint64_t next_member_ = 1;
};

}  // namespace postrider
