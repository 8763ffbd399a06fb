#include <string>

#include "absl/time/time.h"
#include "core/base/check.h"
#include "core/json/time_text.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

constexpr int64_t kFirst = -62'167'219'200'000;     // 0000-01-01
constexpr int64_t kPastLast = 253'402'300'800'000;  // 10000-01-01

// Abseil's reader, which takes more than we do, gives the same time.
void CompareWithAbseil(absl::string_view text, WallTime parsed) {
  std::string normal(text);
  normal[10] = 'T';
  if (normal.back() == 'z') normal.back() = 'Z';
  absl::Time time;
  POSTRIDER_CHECK(absl::ParseTime(absl::RFC3339_full, normal, &time, nullptr));
  POSTRIDER_CHECK(absl::ToUnixMillis(time) == MillisSinceEpoch(parsed));
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view text = View(data, size);
  if (const absl::optional<WallTime> parsed = ParseRfc3339(text)) {
    POSTRIDER_CHECK(MillisSinceEpoch(*parsed) >= kFirst && MillisSinceEpoch(*parsed) < kPastLast);
    POSTRIDER_CHECK(ParseRfc3339(FormatRfc3339(*parsed)) == *parsed);
    CompareWithAbseil(text, *parsed);
  }
  // Any number of milliseconds is written; what can be said comes back.
  const int64_t millis = Input(data, size).Signed();
  const std::string written = FormatRfc3339(WallTimeFromMillis(millis));
  POSTRIDER_CHECK(written.size() == 24);
  const int64_t held = millis < kFirst ? kFirst : millis >= kPastLast ? kPastLast - 1 : millis;
  POSTRIDER_CHECK(ParseRfc3339(written) == WallTimeFromMillis(held));
  POSTRIDER_CHECK(absl::FormatTime("%E4Y-%m-%d%ET%H:%M:%E3SZ", absl::FromUnixMillis(held),
                                   absl::UTCTimeZone()) == written);
  return 0;
}
