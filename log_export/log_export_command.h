#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/kafka/kafka_log.h"

namespace postrider {

// `postrider log export --to BROKERS`: what main.cc has read of the command line.
struct LogExportCommand {
  std::string directory;  // of the embedded log
  // Records that only keep the place of what is gone already, so that every offset stays what it
  // is; past so many it is not begun.
  int64_t fillers_max = 200'000'000;
  bool json = false;
  // Copies while the service runs, and ends once that has been stopped.
  bool wait = false;
};

// Copies the embedded log to Kafka: topics with their settings, records with their times at their
// offsets, positions of groups. It may be interrupted and run again, and goes on where it was;
// topics that hold something of others are refused before anything is written, and so is a second
// run at the same time. The embedded log is left as it is, but
// for a file by which a service refuses to go on with it. Prints what came of it, and how far it
// is to standard error. Blocks; with `wait` until the service has been stopped.
//
// How far an export is, and of which log, stands in the topic log-export under kafka.prefix.
absl::Status RunLogExportCommand(const LogExportCommand& command, const KafkaOptions& kafka);

}  // namespace postrider
