#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/kafka/kafka_log.h"

namespace postrider {

// `postrider log list|read|verify|export`, on the embedded log of a service that is stopped,
// `export --wait` of one that runs: what main.cc has read of the command line.
struct LogCommand {
  enum class Verb { kList, kRead, kVerify, kExport };
  Verb verb = Verb::kList;
  std::string directory;  // of the log
  bool json = false;
  std::string topic;
  int32_t partition = 0;
  int64_t from = 0;
  int64_t records_max = 0;  // 0: all
  // kExport; see log_export/log_export_command.h.
  std::string to;  // empty: kafka.brokers
  int64_t fillers_max = 200'000'000;
  bool wait = false;
};

// Prints what it finds; changes nothing in the log. False: the log is damaged. Blocks.
absl::StatusOr<bool> RunLogCommand(const LogCommand& command, const KafkaOptions& kafka);

}  // namespace postrider
