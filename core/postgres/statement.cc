#include "core/postgres/statement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace postrider {

SqlParam SqlParam::Double(double value) { return SqlParam(absl::StrFormat("%.17g", value)); }

SqlParam SqlParam::TextArray(absl::Span<const std::string> values) {
  return SqlParam(FormatTextArray(values));
}

SqlParam SqlParam::Time(WallTime value) {
  const std::chrono::sys_days day = std::chrono::floor<std::chrono::days>(value);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(value - day);
  return SqlParam(absl::StrFormat(
      "%04d-%02d-%02d %02d:%02d:%02d.%03d+00", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
      static_cast<int>(time.seconds().count()), static_cast<int>(time.subseconds().count())));
}

std::string FormatTextArray(absl::Span<const std::string> values) {
  std::string out = "{";
  for (const std::string& value : values) {
    if (out.size() > 1) out.push_back(',');
    out.push_back('"');
    for (const char c : value) {
      if (c == '"' || c == '\\') out.push_back('\\');
      out.push_back(c);
    }
    out.push_back('"');
  }
  out.push_back('}');
  return out;
}

}  // namespace postrider
