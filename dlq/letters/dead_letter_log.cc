#include "dlq/letters/dead_letter_log.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/stream/key_groups.h"

namespace postrider::dlq {

std::string DeadLetterTopicName(absl::string_view prefix) {
  return absl::StrCat(prefix, "dead-letters");
}

TopicSpec DeadLetterTopic(absl::string_view prefix, int16_t replication) {
  TopicSpec topic;
  topic.name = DeadLetterTopicName(prefix);
  topic.partitions = kDeadLetterPartitions;
  topic.replication = replication;
  topic.settings = {
      {"retention.ms", "-1"}, {"retention.bytes", "-1"}, {"cleanup.policy", "delete"}};
  return topic;
}

AppendRecord MakeDeadLetterAppend(absl::string_view prefix, const DeadLetterRecord& record) {
  AppendRecord append;
  append.topic = DeadLetterTopicName(prefix);
  append.partition = KeyGroupOf(record.customer.view(), 0, kDeadLetterPartitions);
  append.key = std::string(record.customer.view());
  append.value = EncodeDeadLetter(record);
  return append;
}

}  // namespace postrider::dlq
