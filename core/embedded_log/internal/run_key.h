#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace postrider::embedded_log_internal {

// A partition in the database. Numbers of topics are never used twice.
struct PartitionId {
  uint32_t topic = 0;
  uint32_t partition = 0;
  friend bool operator==(const PartitionId&, const PartitionId&) = default;
};

// The keys of runs: topic's number, partition, first offset. Big-endian, so that they sort as the
// numbers do.
inline constexpr size_t kPartitionKeyBytes = 8;
inline constexpr size_t kRunKeyBytes = 16;

std::string PartitionKey(PartitionId id);
// The first key behind those of a partition.
std::string PartitionEndKey(PartitionId id);
std::string RunKey(PartitionId id, int64_t base);
// The partition of a run's key.
PartitionId PartitionOf(absl::string_view key);
// The first offset of a run's key, which has kRunKeyBytes.
int64_t BaseOf(absl::string_view key);

}  // namespace postrider::embedded_log_internal
