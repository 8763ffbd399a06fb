#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/stream/changelog.h"
#include "core/stream/hole_map.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::simulation {

// What one changelog partition says, by the plain rules and everything that was ever written to it,
// in order; compaction is none of its business.
class ChangelogModel {
 public:
  struct Value {
    uint64_t epoch = 0;
    std::string payload;
    // A late write has its record key: compaction keeps that one, which is ignored, instead.
    bool shadowed = false;
    bool may_be_missing = false;
  };
  using Values = std::map<std::string, Value>;  // by identity

  void Append(absl::string_view key, absl::string_view value);
  void Compacted();
  uint64_t fence() const { return fence_; }
  const Values& values() const { return values_; }
  // What stood when the marker of `epoch` was written; null when it was not.
  const Values* At(uint64_t epoch) const;

 private:
  void Shadow(const ChangelogRecord& late);
  uint64_t fence_ = 0;
  Values values_;
  std::map<uint64_t, Values> at_marker_;
};

// What is true, whatever the shards believe, and whether they keep to it. Every call checks; the
// first fault is kept.
//
// Threads: owned by one.
class Oracle {
 public:
  static constexpr char kWork[] = "work";
  static constexpr char kState[] = "state";      // restored first
  static constexpr char kBacklog[] = "backlog";  // restored beside
  static constexpr char kLetters[] = "letters";
  static constexpr int kKeys = 4;               // "k0" and so on
  static constexpr uint16_t kBacklogId = 0x11;  // of the list of waiting records

  explicit Oracle(const Clock& clock) : clock_(clock) {}

  // The log.
  void Written(int32_t partition, int64_t offset) { records_[partition].insert(offset); }
  void Appended(const AppendRecord& record);
  void Compacted(const TopicPartition& tp) { models_[tp].Compacted(); }
  // A position is stored: nothing that it covers may be undone and not durable.
  void CommitStored(const CommitEntry& entry);
  // A shard has learned that it is stored: what it covers is over.
  void CommitAcknowledged(const CommitEntry& entry);

  // A task's life.
  void Element(const TopicPartition& tp, int64_t offset);
  void Completed(const TopicPartition& tp, int64_t offset);
  // What is complete is soon covered by an acknowledged commit: it bounds what a crash repeats.
  void CheckCommitAge(Duration age_max);
  // A request leaves a task that had it from a record, or from its backlog. `lease` is when the
  // right of its shard to act ends, by the commits that were acknowledged.
  void Sent(const TopicPartition& tp, uint64_t epoch, int64_t offset, MonotonicTime lease);
  // The receiver has taken it.
  void Delivered(int32_t partition, int64_t offset);
  // A task that reads its durable state for the first time.
  void CheckRestored(absl::string_view topic, int32_t partition, uint64_t epoch,
                     const std::map<std::string, std::string>& shown,
                     const std::set<uint16_t>& states, const std::set<std::string>& touched,
                     WallTime wall);
  // All that an owner had to write again stands under its own epoch.
  void CheckReasserted(absl::string_view topic, int32_t partition, uint64_t epoch);
  // An entry of the backlog was restored, and nothing wakes it.
  void CheckUnwoken(const TopicPartition& tp, uint64_t epoch, int64_t offset,
                    absl::string_view timer_identity);
  // An entry of the backlog is worked on.
  void BacklogSent(const TopicPartition& tp, uint64_t epoch, int64_t offset,
                   absl::string_view identity, bool put_in_this_life, bool removed_in_this_life);

  bool IsDone(int32_t partition, int64_t offset) const;
  // All is done, committed and gone from the backlogs. What is missing, else.
  absl::optional<std::string> Unfinished(
      const std::map<int32_t, absl::optional<CommittedPosition>>& committed) const;
  int64_t deliveries(int32_t partition, int64_t offset) const;
  int64_t repeats() const { return repeats_; }
  int64_t records() const;
  int64_t letters() const;

  // Every event is printed, for a person who looks for the cause of a fault.
  bool trace = false;
  void Note(absl::string_view what) const;

  const absl::optional<std::string>& fault() const { return fault_; }
  void Fault(std::string what);

 private:
  ChangelogModel& Model(absl::string_view topic, int32_t partition) {
    return models_[{std::string(topic), partition}];
  }
  bool InBacklog(int32_t partition, int64_t offset) const;

  const Clock& clock_;
  std::map<int32_t, std::set<int64_t>> records_;
  std::map<int32_t, std::map<int64_t, int64_t>> delivered_;
  std::map<int32_t, std::set<int64_t>> letters_;
  std::map<int32_t, std::set<int64_t>> over_;  // covered by an acknowledged commit
  std::map<int32_t, std::map<int64_t, MonotonicTime>> completed_;  // and not over
  std::map<int32_t, uint64_t> acted_;  // the highest epoch that has sent anything
  std::map<TopicPartition, ChangelogModel> models_;
  int64_t repeats_ = 0;
  absl::optional<std::string> fault_;
};

}  // namespace postrider::simulation
