#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/embedded_log/internal/database.h"
#include "core/embedded_log/internal/run.h"
#include "core/stream/record.h"

namespace postrider::embedded_log_internal {

struct Cursor;

// As Apache Kafka's.
inline constexpr size_t kTopicNameBytesMax = 249;
inline constexpr int32_t kPartitionsMax = 100'000;

// What a topic's settings ask for, by the names and the defaults of Apache Kafka.
struct TopicPolicy {
  bool compacted = false;
  bool deleted = true;  // by age and size
  int64_t retention_ms = 604'800'000;
  int64_t retention_bytes = -1;
  bool says_retention = false;        // of time or size; or it is compacted only
  int64_t tombstone_ms = 86'400'000;  // delete.retention.ms
  int64_t compaction_lag_ms = 0;
  double dirty_ratio = 0.5;
};
TopicPolicy PolicyOf(const std::vector<std::pair<std::string, std::string>>& settings);

// How far a compacted partition has been gone through.
struct Cleaned {
  int64_t until = 0;   // each key is there once below it
  uint64_t bytes = 0;  // what was left of it
  // Tombstones below `tombstones` go from `tombstones_ms` + delete.retention.ms on: whoever began
  // to read before they were the last word on their keys has had so long to come past them.
  int64_t tombstones = 0;
  int64_t tombstones_ms = 0;
};

// One partition in memory. What is said to be the writer's only its thread touches.
struct Partition {
  Partition(PartitionId partition_id, TopicPartition topic_partition)
      : id(partition_id), tp(std::move(topic_partition)) {}

  const PartitionId id;
  const TopicPartition tp;

  // The writer's: where the next record goes, which is ahead of `end` while a group is written.
  int64_t next = 0;
  int64_t high_ms = 0;
  uint64_t next_bytes = 0;
  RunBuilder builder;
  std::vector<RunPtr> fresh;  // of the group that is being written
  bool touched = false;
  int64_t deleted_until = 0;  // runs before this base have been deleted

  // Of the core's mutex.
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t end_bytes = 0;   // of all runs that it ever had
  bool gone = false;        // its topic is deleted
  std::deque<RunPtr> tail;  // the latest runs, without a gap up to `end`
  std::vector<Cursor*> cursors;
  Cleaned cleaned;
};
using PartitionPtr = std::shared_ptr<Partition>;

struct Topic {
  std::string name;
  uint32_t id = 0;
  int64_t created_ms = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  TopicPolicy policy;
  std::vector<PartitionPtr> partitions;
  bool frozen = false;  // the writer's
};
using TopicPtr = std::shared_ptr<Topic>;

// The entries of the database. Their keys:
//   n                                    the next topic's number
//   t <topic>                            a topic
//   b <topic's number, partition>        where the partition begins
//   c <topic's number, partition>        how far it was compacted
//   e <topic's number, partition>        where it goes on at least: what lay before was lost
//   g <group> 0 <topic> 0 <partition>    a group's position
std::string TopicKey(const std::string& name);
std::string EncodeTopic(const Topic& topic);
// Null: it is damaged.
TopicPtr DecodeTopic(absl::string_view name, absl::string_view bytes);
std::string BeginKey(PartitionId id);
std::string CleanedKey(PartitionId id);
std::string LeastEndKey(PartitionId id);
std::string EncodeCleaned(const Cleaned& cleaned);
bool DecodeCleaned(absl::string_view bytes, Cleaned* cleaned);
std::string EncodeNumber(uint64_t number);
bool DecodeNumber(absl::string_view bytes, uint64_t* number);
inline constexpr char kNextTopicKey[] = "n";
std::string PositionKey(const std::string& group, const TopicPartition& tp);
bool DecodePositionKey(absl::string_view key, std::string* group, TopicPartition* tp);

}  // namespace postrider::embedded_log_internal
