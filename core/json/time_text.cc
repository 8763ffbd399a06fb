#include "core/json/time_text.h"

#include <algorithm>
#include <chrono>

namespace postrider {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::sys_days;
using std::chrono::year_month_day;

constexpr WallTime kFirst = sys_days(std::chrono::year(0) / 1 / 1);
constexpr WallTime kPastLast = sys_days(std::chrono::year(10000) / 1 / 1);

void AppendDigits(unsigned value, int width, std::string* out) {
  char text[4];
  for (int i = width; i-- > 0; value /= 10) text[i] = static_cast<char>('0' + value % 10);
  out->append(text, static_cast<size_t>(width));
}

// Takes fixed parts off the front; after the first fault everything fails.
class Scanner {
 public:
  explicit Scanner(absl::string_view text) : rest_(text) {}
  int Digits(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      if (rest_.empty() || rest_[0] < '0' || rest_[0] > '9') {
        ok_ = false;
        return 0;
      }
      value = value * 10 + (rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    return value;
  }
  bool Next(absl::string_view any_of) {
    if (rest_.empty() || any_of.find(rest_[0]) == absl::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Expect(absl::string_view any_of) { ok_ = Next(any_of) && ok_; }
  bool at_digit() const { return !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace

void AppendRfc3339(WallTime time, std::string* out) {
  time = std::clamp(time, kFirst, kPastLast - milliseconds(1));
  const auto day = std::chrono::floor<days>(time);
  const year_month_day date(day);
  const std::chrono::hh_mm_ss<milliseconds> of_day(time - day);
  AppendDigits(static_cast<unsigned>(static_cast<int>(date.year())), 4, out);
  out->push_back('-');
  AppendDigits(static_cast<unsigned>(date.month()), 2, out);
  out->push_back('-');
  AppendDigits(static_cast<unsigned>(date.day()), 2, out);
  out->push_back('T');
  AppendDigits(static_cast<unsigned>(of_day.hours().count()), 2, out);
  out->push_back(':');
  AppendDigits(static_cast<unsigned>(of_day.minutes().count()), 2, out);
  out->push_back(':');
  AppendDigits(static_cast<unsigned>(of_day.seconds().count()), 2, out);
  out->push_back('.');
  AppendDigits(static_cast<unsigned>(of_day.subseconds().count()), 3, out);
  out->push_back('Z');
}

std::string FormatRfc3339(WallTime time) {
  std::string out;
  AppendRfc3339(time, &out);
  return out;
}

absl::optional<WallTime> ParseRfc3339(absl::string_view text) {
  Scanner scan(text);
  const int year = scan.Digits(4);
  scan.Expect("-");
  const int month = scan.Digits(2);
  scan.Expect("-");
  const int day = scan.Digits(2);
  scan.Expect("Tt ");
  const int hour = scan.Digits(2);
  scan.Expect(":");
  const int minute = scan.Digits(2);
  scan.Expect(":");
  const int second = scan.Digits(2);
  int millis = 0;
  if (scan.Next(".")) {
    if (!scan.at_digit()) return absl::nullopt;
    for (int scale = 100; scan.at_digit(); scale /= 10) millis += scale * scan.Digits(1);
  }
  minutes offset{0};
  if (!scan.Next("Zz")) {
    const bool west = scan.Next("-");
    if (!west) scan.Expect("+");
    const int offset_hours = scan.Digits(2);
    scan.Expect(":");
    const int offset_minutes = scan.Digits(2);
    if (offset_hours > 23 || offset_minutes > 59) return absl::nullopt;
    offset = hours(offset_hours) + minutes(offset_minutes);
    if (west) offset = -offset;
  }
  if (!scan.done() || hour > 23 || minute > 59 || second > 60) return absl::nullopt;
  const year_month_day date(std::chrono::year(year),
                            std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return absl::nullopt;
  if (second == 60) millis = 0;
  const WallTime time = WallTime(sys_days(date)) + hours(hour) + minutes(minute) + seconds(second) +
                        milliseconds(millis) - offset;
  if (time < kFirst || time >= kPastLast) return absl::nullopt;
  return time;
}

}  // namespace postrider
