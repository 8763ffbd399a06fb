#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/stream/log.h"
#include "dlq/letters/dead_letter_record.h"

namespace postrider::dlq {

inline constexpr int32_t kDeadLetterPartitions = 8;

std::string DeadLetterTopicName(absl::string_view prefix);
// It has no time limit, for letters must not go while Postgres is away, however long: the indexer
// trims what it stored kDeadLetterKept ago.
inline constexpr std::chrono::hours kDeadLetterKept{24 * 7};
TopicSpec DeadLetterTopic(absl::string_view prefix, int16_t replication);

// The record to append for a letter: a customer's letters lie in one partition.
AppendRecord MakeDeadLetterAppend(absl::string_view prefix, const DeadLetterRecord& record);

}  // namespace postrider::dlq
