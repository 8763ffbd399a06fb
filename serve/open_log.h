#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/kafka/kafka_log.h"
#include "core/stream/log.h"
#include "serve/program_options.h"

namespace postrider {

// The log in this process, made when there is none. `clock` and `metrics` outlive it.
absl::StatusOr<std::unique_ptr<Log>> OpenEmbeddedLog(const ProgramOptions& options,
                                                     const Clock& clock, Metrics& metrics);

// The log that the process stands on.
struct ProcessLog {
  std::unique_ptr<Log> log;
  KafkaLog* kafka = nullptr;  // `log`, when it is that
};

// As the options say. kResourceExhausted: the disk of the embedded log is full.
absl::StatusOr<ProcessLog> OpenProcessLog(const ProgramOptions& options, const Clock& clock,
                                          Metrics& metrics);

}  // namespace postrider
