#include "serve/open_log.h"

#include <cstddef>
#include <utility>

#include "core/base/status_macros.h"
#include "core/embedded_log/embedded_log.h"

namespace postrider {

absl::StatusOr<std::unique_ptr<Log>> OpenEmbeddedLog(const ProgramOptions& options,
                                                     const Clock& clock, Metrics& metrics) {
  EmbeddedLogOptions embedded;
  embedded.directory = options.EmbeddedLogDirectory();
  embedded.memory_bytes = static_cast<size_t>(options.log.memory_bytes);
  embedded.sync_interval = options.log.sync_interval;
  embedded.retention = options.log.retention;
  embedded.reserve_bytes = static_cast<uint64_t>(options.log.reserve_bytes);
  embedded.retention_bytes = options.log.retention_bytes == 0 ? -1 : options.log.retention_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedLog> log, EmbeddedLog::Open(embedded, clock, metrics));
  return std::unique_ptr<Log>(std::move(log));
}

absl::StatusOr<ProcessLog> OpenProcessLog(const ProgramOptions& options, const Clock& clock,
                                          Metrics& metrics) {
  ProcessLog opened;
  if (options.log.embedded()) {
    ASSIGN_OR_RETURN(opened.log, OpenEmbeddedLog(options, clock, metrics));
    return opened;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<KafkaLog> kafka, KafkaLog::Open(options.kafka, clock, metrics));
  opened.kafka = kafka.get();
  opened.log = std::move(kafka);
  return opened;
}

}  // namespace postrider
