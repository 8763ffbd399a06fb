#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "core/kafka/kafka_log.h"

namespace postrider {

// `postrider savepoint ...`: what main.cc has read of the command line.
struct SavepointCommand {
  enum class Verb { kCreate, kInspect, kVerify, kRestore, kAbandon, kDrop, kList };
  Verb verb = Verb::kList;
  std::string pool;
  std::string directory;
  std::string id;
  std::string keep;  // a duration such as 24h; empty: the default
  bool accept_loss = false;
};

// Does it, and prints what came of it. Blocks.
absl::Status RunSavepointCommand(const SavepointCommand& command, const KafkaOptions& kafka);

}  // namespace postrider
