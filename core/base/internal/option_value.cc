#include "core/base/internal/option_value.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace postrider::internal {
namespace {

struct Unit {
  absl::string_view name;
  int64_t size;
};

// From the smallest up.
constexpr Unit kByteUnits[] = {{"B", 1}, {"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}};
constexpr Unit kTimeUnits[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};

absl::optional<int64_t> Parse(absl::string_view text, absl::Span<const Unit> units) {
  text = absl::StripAsciiWhitespace(text);
  const auto unit_at = std::find_if(text.begin(), text.end(), [](char c) {
    return c != '-' && !absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  const auto digits = static_cast<size_t>(unit_at - text.begin());
  int64_t number = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &number)) return absl::nullopt;
  const absl::string_view name = absl::StripAsciiWhitespace(text.substr(digits));
  if (name.empty() && number == 0) return 0;
  for (const Unit& unit : units) {
    int64_t value = 0;
    if (name != unit.name) continue;
    if (__builtin_mul_overflow(number, unit.size, &value)) return absl::nullopt;
    return value;
  }
  return absl::nullopt;
}

std::string Format(int64_t value, absl::Span<const Unit> units) {
  if (value == 0) return "0";
  size_t i = units.size() - 1;
  while (i > 0 && value % units[i].size != 0) --i;
  return absl::StrCat(value / units[i].size, units[i].name);
}

}  // namespace

absl::optional<int64_t> ParseByteSize(absl::string_view text) { return Parse(text, kByteUnits); }
absl::optional<int64_t> ParseMillis(absl::string_view text) { return Parse(text, kTimeUnits); }
std::string FormatByteSize(int64_t bytes) { return Format(bytes, kByteUnits); }
std::string FormatMillis(int64_t millis) { return Format(millis, kTimeUnits); }

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    ++row[0];
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace postrider::internal
