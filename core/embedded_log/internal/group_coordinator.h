#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/embedded_log/internal/partition.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

// The groups of one process: who is in them, what each member is given, and what they have
// committed. It behaves as Apache Kafka does with eager groups: a change takes everything back, a
// generation begins when all have released what they had, and fences the commits of those who
// missed it. A member that is destroyed is known to be gone at once; one that does not poll for
// its poll_interval_max is dropped.
//
//   joined --all have joined--> has_assignment --it takes it--> (reads) --a change--> joined
//
// Threads: all under one mutex, which is its owner's.
class GroupCoordinator {
 public:
  using Topics = std::map<std::string, TopicPtr>;

  struct Member {
    uint64_t id = 0;
    GroupOptions options;
    std::function<void()> wake;
    bool joined = false;          // waits for the generation to be complete
    bool has_assignment = false;  // has not taken it yet
    bool nothing_matches = false;
    std::vector<TopicPartition> assignment;
    MonotonicTime last_poll;
  };
  struct Group {
    int64_t generation = 0;
    bool rebalancing = false;
    MonotonicTime rebalance_began;
    std::map<uint64_t, Member> members;
    std::map<TopicPartition, CommittedPosition> committed;
  };

  Group& group(const std::string& name) { return groups_[name]; }
  std::vector<std::string> Names() const;
  // Null: there is none.
  const Group* Find(const std::string& name) const;
  // Null: the group has dropped it.
  Member* FindMember(const std::string& name, uint64_t id);

  uint64_t AddMember(const GroupOptions& options, std::function<void()> wake, const Topics& topics,
                     MonotonicTime now);
  void RemoveMember(const std::string& name, uint64_t id, const Topics& topics, MonotonicTime now);
  // It has released what it had and waits for the next generation.
  void Rejoin(const std::string& name, Member& member, const Topics& topics, MonotonicTime now);
  // Drops the members of a group that are stuck.
  void ExpireSilent(const std::string& name, const Topics& topics, MonotonicTime now);
  // A topic has come or gone.
  void TopicChanged(const std::string& topic, const Topics& topics, MonotonicTime now);
  void ForgetTopic(const std::string& topic);
  // The groups that have committed something for it.
  std::vector<std::pair<std::string, TopicPartition>> PositionsOf(const std::string& topic) const;

 private:
  void StartRebalance(Group& group, const Topics& topics, MonotonicTime now);
  void CompleteIfAllJoined(Group& group, const Topics& topics);
  static void Assign(Group& group, const Topics& topics);

  std::map<std::string, Group> groups_;
  uint64_t next_member_ = 1;
};

}  // namespace postrider::embedded_log_internal
