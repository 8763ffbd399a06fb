#include <memory>
#include <string>

#include "core/base/check.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/positions.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

namespace log = embedded_log_internal;

// What decodes is what we would have written.
void Decode(absl::string_view bytes) {
  const log::TopicPtr topic = log::DecodeTopic("t", bytes);
  if (topic != nullptr) {
    POSTRIDER_CHECK(!topic->partitions.empty());
    POSTRIDER_CHECK(topic->partitions.size() <= static_cast<size_t>(log::kPartitionsMax));
    POSTRIDER_CHECK(topic->policy.dirty_ratio >= 0 && topic->policy.dirty_ratio <= 1);
    POSTRIDER_CHECK(log::EncodeTopic(*topic) == bytes);
  }
  log::Cleaned cleaned;
  if (log::DecodeCleaned(bytes, &cleaned)) {
    log::Cleaned again;
    POSTRIDER_CHECK(log::DecodeCleaned(log::EncodeCleaned(cleaned), &again));
    POSTRIDER_CHECK(again.until == cleaned.until && again.bytes == cleaned.bytes);
    POSTRIDER_CHECK(again.tombstones == cleaned.tombstones);
    POSTRIDER_CHECK(again.tombstones_ms == cleaned.tombstones_ms);
  }
  CommittedPosition position;
  if (log::DecodePosition(bytes, &position)) {
    POSTRIDER_CHECK(log::CheckPosition(position).ok());
  }
  std::string group;
  TopicPartition tp;
  if (log::DecodePositionKey(bytes, &group, &tp)) {
    std::string group_again;
    TopicPartition again;
    POSTRIDER_CHECK(log::DecodePositionKey(log::PositionKey(group, tp), &group_again, &again));
    POSTRIDER_CHECK(group_again == group && again == tp);
  }
}

void EncodeAndDecode(Input in) {
  log::Topic topic;
  topic.name = "t";
  topic.id = static_cast<uint32_t>(in.UpTo(UINT32_MAX));
  topic.created_ms = in.Signed();
  topic.frozen = in.Flag();
  for (uint64_t left = 1 + in.UpTo(20); left > 0; --left) {
    topic.partitions.push_back(
        std::make_shared<log::Partition>(log::PartitionId{}, TopicPartition{}));
  }
  for (int left = in.Byte() % 8; left > 0; --left) {
    const std::string name(in.Text());
    topic.settings.emplace_back(name, std::string(in.Text()));
  }
  const std::string bytes = log::EncodeTopic(topic);
  const log::TopicPtr decoded = log::DecodeTopic("t", bytes);
  POSTRIDER_CHECK(decoded != nullptr);
  POSTRIDER_CHECK(decoded->id == topic.id && decoded->created_ms == topic.created_ms);
  POSTRIDER_CHECK(decoded->frozen == topic.frozen && decoded->settings == topic.settings);
  POSTRIDER_CHECK(decoded->partitions.size() == topic.partitions.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    POSTRIDER_CHECK(log::DecodeTopic("t", absl::string_view(bytes).substr(0, size)) == nullptr);
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  EncodeAndDecode(Input(data, size));
  return 0;
}
