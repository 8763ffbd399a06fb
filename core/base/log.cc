#include "core/base/log.h"

#include <charconv>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/internal/log_sink.h"

namespace postrider {
namespace {

constexpr int64_t kBurstMax = 10;
constexpr int64_t kWindowMs = 10'000;
// A longer value is cut: a line must not grow with what the outside sends.
constexpr size_t kValueBytesMax = 4096;

// How many bytes at the start of `text` are one valid UTF-8 character that may be printed; 0 for
// a control character (C1 too, for terminals obey them) and for a fault.
size_t PrintableSize(absl::string_view text) {
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool bad = (first == 0xc2 && at(1) < 0xa0) ||  // C1
                   (first == 0xe0 && at(1) < 0xa0) ||  // overlong
                   (first == 0xed && at(1) > 0x9f) ||  // surrogates
                   (first == 0xf0 && at(1) < 0x90) ||  // overlong
                   (first == 0xf4 && at(1) > 0x8f);    // past U+10FFFF
  return bad ? 0 : size;
}

bool IsBare(char c) { return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\'; }

void AppendEscaped(std::string* out, char c) {
  switch (c) {
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      absl::StrAppend(out, "\\x", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
  }
}

std::string Quoted(absl::string_view value) {
  std::string out;
  const bool cut = value.size() > kValueBytesMax;
  if (cut) value = value.substr(0, kValueBytesMax);
  bool bare = !value.empty() && !cut;
  for (const char c : value) bare = bare && IsBare(c);
  if (bare) return std::string(value);
  out.push_back('"');
  while (!value.empty()) {
    const size_t size = PrintableSize(value);
    if (size == 0) {
      AppendEscaped(&out, value[0]);
    } else {
      if (value[0] == '"' || value[0] == '\\') out.push_back('\\');
      absl::StrAppend(&out, value.substr(0, size));
    }
    value.remove_prefix(size == 0 ? 1 : size);
  }
  absl::StrAppend(&out, cut ? "..." : "", "\"");
  return out;
}

std::string FormatDouble(double value) {
  char buffer[64];
  const auto format =
      std::fabs(value) < 1e15 ? std::chars_format::fixed : std::chars_format::general;
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  if (error != std::errc()) return "0";
  return std::string(buffer, end);
}

}  // namespace

LogField::LogField(absl::string_view key, absl::string_view value)
    : text_(absl::StrCat(key, "=", Quoted(value))) {}
LogField::LogField(absl::string_view key, bool value)
    : text_(absl::StrCat(key, "=", value ? "true" : "false")) {}
LogField::LogField(absl::string_view key, double value)
    : text_(absl::StrCat(key, "=", FormatDouble(value))) {}
LogField::LogField(absl::string_view key, int64_t value, int)
    : text_(absl::StrCat(key, "=", value)) {}

bool ParseLogLevel(absl::string_view text, LogLevel* level) {
  for (const LogLevel candidate :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    if (text == internal::LogLevelName(candidate)) {
      *level = candidate;
      return true;
    }
  }
  return false;
}

namespace internal {

bool LogSite::Admit(int64_t* suppressed) {
  const auto now = SystemClock().Now().time_since_epoch();
  return AdmitAt(std::chrono::duration_cast<std::chrono::milliseconds>(now).count(), suppressed);
}

// Ten lines fill a window; then each window that follows has room for one line, until a window
// passed in which nothing was left out.
bool LogSite::AdmitAt(int64_t now_ms, int64_t* suppressed) {
  int64_t start = window_start_ms_.load();
  if (now_ms - start >= kWindowMs && window_start_ms_.compare_exchange_strong(start, now_ms)) {
    *suppressed = suppressed_.exchange(0);
    in_window_.store(*suppressed > 0 ? kBurstMax : 1);
    return true;
  }
  if (in_window_.fetch_add(1) < kBurstMax) {
    *suppressed = 0;
    return true;
  }
  suppressed_.fetch_add(1);
  return false;
}

void WriteLog(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields,
              LogSite& site) {
  int64_t suppressed = 0;
  if (!site.Admit(&suppressed)) return;
  std::string line = absl::StrCat("level=", LogLevelName(level), " msg=", Quoted(event));
  for (const LogField& field : fields) absl::StrAppend(&line, " ", field.text());
  if (suppressed > 0) absl::StrAppend(&line, " suppressed=", suppressed);
  WriteLogLine(line);
}

}  // namespace internal
}  // namespace postrider
