#include "core/embedded_log/internal/run_key.h"

#include <cstdint>
#include <string>

namespace postrider::embedded_log_internal {
namespace {

void PutBigEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

std::string PartitionKey(PartitionId id) {
  std::string key;
  key.reserve(kRunKeyBytes);
  PutBigEndian(key, id.topic, 4);
  PutBigEndian(key, id.partition, 4);
  return key;
}

std::string PartitionEndKey(PartitionId id) {
  std::string key = PartitionKey(id);
  key.append(8, '\xff');
  return key;
}

std::string RunKey(PartitionId id, int64_t base) {
  std::string key = PartitionKey(id);
  PutBigEndian(key, static_cast<uint64_t>(base), 8);
  return key;
}

PartitionId PartitionOf(absl::string_view key) {
  uint64_t both = 0;
  for (const char byte : key.substr(0, kPartitionKeyBytes)) {
    both = both << 8 | static_cast<uint8_t>(byte);
  }
  return {static_cast<uint32_t>(both >> 32), static_cast<uint32_t>(both)};
}

int64_t BaseOf(absl::string_view key) {
  uint64_t base = 0;
  for (const char byte : key.substr(kPartitionKeyBytes, kRunKeyBytes - kPartitionKeyBytes)) {
    base = base << 8 | static_cast<uint8_t>(byte);
  }
  return static_cast<int64_t>(base);
}

}  // namespace postrider::embedded_log_internal
