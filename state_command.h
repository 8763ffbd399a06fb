#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/kafka/kafka_log.h"

namespace postrider {

// `postrider state upgrade [--finish]`: says which states of the pool's workers can be brought to a
// newer version, and with `finish` lets the workers write it from their next start on: the binary
// before cannot run from then on. Blocks.
absl::Status RunStateUpgrade(const std::string& pool, bool finish, const KafkaOptions& kafka);

}  // namespace postrider
