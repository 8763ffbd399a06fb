#include "core/embedded_log/internal/partition.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/bytes.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr uint8_t kTopicVersion = 1;

std::string IdKey(char kind, PartitionId id) {
  std::string key(1, kind);
  for (const uint32_t part : {id.topic, id.partition}) {
    for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(part >> shift));
  }
  return key;
}

}  // namespace

TopicPolicy PolicyOf(const std::vector<std::pair<std::string, std::string>>& settings) {
  TopicPolicy policy;
  for (const auto& [name, value] : settings) {
    int64_t number = 0;
    double part = 0;
    if (name == "cleanup.policy") {
      policy.compacted = false;
      policy.deleted = false;
      for (const absl::string_view word : absl::StrSplit(value, ',')) {
        if (word == "compact") policy.compacted = true;
        if (word == "delete") policy.deleted = true;
      }
    } else if (name == "min.cleanable.dirty.ratio") {
      if (absl::SimpleAtod(value, &part) && part >= 0) policy.dirty_ratio = std::min(part, 1.0);
    } else if (!absl::SimpleAtoi(value, &number)) {
      continue;
    } else if (name == "retention.ms") {
      policy.retention_ms = number;
      policy.says_retention = true;
    } else if (name == "retention.bytes") {
      policy.retention_bytes = number;
      policy.says_retention = true;
    } else if (name == "delete.retention.ms") {
      policy.tombstone_ms = number;
    } else if (name == "min.compaction.lag.ms") {
      policy.compaction_lag_ms = number;
    }
  }
  return policy;
}

std::string TopicKey(const std::string& name) { return absl::StrCat("t", name); }

std::string EncodeTopic(const Topic& topic) {
  ByteWriter out;
  out.U8(kTopicVersion);
  out.U32(topic.id);
  out.U32(static_cast<uint32_t>(topic.partitions.size()));
  out.Zigzag(topic.created_ms);
  out.U8(topic.frozen ? 1 : 0);
  out.Varint(topic.settings.size());
  for (const auto& [name, value] : topic.settings) {
    out.String(name);
    out.String(value);
  }
  return out.Take();
}

TopicPtr DecodeTopic(absl::string_view name, absl::string_view bytes) {
  ByteReader in(bytes);
  if (in.U8() != kTopicVersion) return nullptr;
  auto topic = std::make_shared<Topic>();
  topic->name = std::string(name);
  topic->id = in.U32();
  const uint32_t partitions = in.U32();
  topic->created_ms = in.Zigzag();
  const uint8_t frozen = in.U8();
  topic->frozen = frozen != 0;
  const uint64_t settings = in.Varint();
  for (uint64_t i = 0; i < settings && in.ok(); ++i) {
    std::string setting(in.String());
    topic->settings.emplace_back(std::move(setting), std::string(in.String()));
  }
  if (!in.done() || in.padded() || frozen > 1 || name.empty() || name.size() > kTopicNameBytesMax ||
      partitions < 1 || partitions > static_cast<uint32_t>(kPartitionsMax)) {
    return nullptr;
  }
  topic->policy = PolicyOf(topic->settings);
  for (uint32_t i = 0; i < partitions; ++i) {
    topic->partitions.push_back(std::make_shared<Partition>(
        PartitionId{topic->id, i}, TopicPartition{topic->name, static_cast<int32_t>(i)}));
  }
  return topic;
}

std::string BeginKey(PartitionId id) { return IdKey('b', id); }
std::string CleanedKey(PartitionId id) { return IdKey('c', id); }
std::string LeastEndKey(PartitionId id) { return IdKey('e', id); }

std::string EncodeCleaned(const Cleaned& cleaned) {
  ByteWriter out;
  out.Zigzag(cleaned.until);
  out.Varint(cleaned.bytes);
  out.Zigzag(cleaned.tombstones);
  out.Zigzag(cleaned.tombstones_ms);
  return out.Take();
}

bool DecodeCleaned(absl::string_view bytes, Cleaned* cleaned) {
  ByteReader in(bytes);
  cleaned->until = in.Zigzag();
  cleaned->bytes = in.Varint();
  cleaned->tombstones = in.Zigzag();
  cleaned->tombstones_ms = in.Zigzag();
  return in.done();
}

std::string EncodeNumber(uint64_t number) {
  ByteWriter out;
  out.Varint(number);
  return out.Take();
}

bool DecodeNumber(absl::string_view bytes, uint64_t* number) {
  ByteReader in(bytes);
  *number = in.Varint();
  return in.done();
}

std::string PositionKey(const std::string& group, const TopicPartition& tp) {
  return absl::StrCat("g", group, absl::string_view("\0", 1), tp.topic, absl::string_view("\0", 1),
                      tp.partition);
}

bool DecodePositionKey(absl::string_view key, std::string* group, TopicPartition* tp) {
  const std::vector<std::string> parts =
      absl::StrSplit(key.substr(std::min<size_t>(1, key.size())), '\0');
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[2], &tp->partition)) return false;
  *group = parts[0];
  tp->topic = parts[1];
  return true;
}

}  // namespace postrider::embedded_log_internal
