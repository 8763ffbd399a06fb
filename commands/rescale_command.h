#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/kafka/kafka_log.h"

namespace postrider {

// `postrider rescale ...`: what main.cc has read of the command line.
struct RescaleCommand {
  std::string pool;
  int64_t key_groups = 0;  // 0: not given
  bool keep_old = false;
  bool abort = false;
  std::string spool;       // a directory; empty: the system's for temporary files
  std::string drain_wait;  // durations such as 5m; empty: the defaults
  std::string lease;
};

// Does it, telling on stderr how it goes, and prints what came of it. Blocks.
absl::Status RunRescaleCommand(const RescaleCommand& command, const KafkaOptions& kafka);

}  // namespace postrider
