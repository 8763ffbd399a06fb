#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace postrider {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// One `key=value` of a line. Strings are quoted and escaped where logfmt asks for it.
class LogField {
 public:
  LogField(absl::string_view key, absl::string_view value);
  LogField(absl::string_view key, const std::string& value)
      : LogField(key, absl::string_view(value)) {}
  LogField(absl::string_view key, const char* value) : LogField(key, absl::string_view(value)) {}
  LogField(absl::string_view key, bool value);
  LogField(absl::string_view key, double value);
  template <typename T>
    requires std::is_integral_v<T>
  LogField(absl::string_view key, T value) : LogField(key, static_cast<int64_t>(value), 0) {}
  template <typename Rep, typename Period>
  LogField(absl::string_view key, std::chrono::duration<Rep, Period> value)
      : LogField(key, std::chrono::duration<double, std::milli>(value).count()) {}

  const std::string& text() const { return text_; }

 private:
  LogField(absl::string_view key, int64_t value, int);
  std::string text_;
};

namespace internal {
// At most ten lines in a row from one place, then one each 10 s; `suppressed=` tells how many
// were left out. Threads: any.
class LogSite {
 public:
  // False: say nothing this time. `suppressed` is set when it returns true.
  bool Admit(int64_t* suppressed);
  // The same at a time of the caller's, in ms of any clock that never goes back.
  bool AdmitAt(int64_t now_ms, int64_t* suppressed);

 private:
  std::atomic<int64_t> window_start_ms_{0};
  std::atomic<int64_t> in_window_{0};
  std::atomic<int64_t> suppressed_{0};
};
void WriteLog(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields,
              LogSite& site);
bool LogEnabled(LogLevel level);
}  // namespace internal

// Starts the process's log: logfmt lines to standard error. Call once, from main.
void StartLog(LogLevel least);
// Parses debug, info, warn, error; false for anything else.
bool ParseLogLevel(absl::string_view text, LogLevel* level);

}  // namespace postrider

// POSTRIDER_LOG(kInfo, "worker assigned", {"key_groups", n}, {"epoch", epoch});
// Never payloads, secrets, signatures or query strings.
#define POSTRIDER_LOG(level, event, ...)                                                     \
  do {                                                                                       \
    if (::postrider::internal::LogEnabled(::postrider::LogLevel::level)) {                   \
      static ::postrider::internal::LogSite log_site_;                                       \
      ::postrider::internal::WriteLog(::postrider::LogLevel::level, event, {__VA_ARGS__},    \
                                      log_site_);                                            \
    }                                                                                        \
  } while (false)
