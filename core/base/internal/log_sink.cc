#include "core/base/internal/log_sink.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <string>

namespace postrider {
namespace {

// The one thing in the process that is global: everything logs, and before main has options too.
std::atomic<LogLevel> least_level{LogLevel::kInfo};

// Never destroyed, so that destructors at exit may still log.
spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("postrider", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("time=%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::trace);
    // When standard error cannot be written there is nobody to tell.
    made->set_error_handler([](const std::string&) {});
    return made;
  }();
  return *logger;
}

}  // namespace

void StartLog(LogLevel least) {
  least_level.store(least);
  Logger();
}

namespace internal {

bool LogEnabled(LogLevel level) { return level >= least_level.load(std::memory_order_relaxed); }

absl::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

void WriteLogLine(absl::string_view line) {
  Logger().log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace internal
}  // namespace postrider
