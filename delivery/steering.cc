#include "delivery/steering.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "subscriptions/registry/endpoint.h"

namespace postrider::delivery {
namespace {

using subscriptions::BatchSettings;
using subscriptions::LimitSettings;

constexpr size_t kDigitsMax = 9;
constexpr size_t kFractionDigitsMax = 3;

bool AreDigits(absl::string_view text, size_t digits_max) {
  return !text.empty() && text.size() <= digits_max &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

absl::optional<int64_t> ParseCount(absl::string_view text) {
  int64_t value = 0;
  if (!AreDigits(text, kDigitsMax) || !absl::SimpleAtoi(text, &value)) return absl::nullopt;
  if (value < BatchSettings::kEventsLeast) return absl::nullopt;
  return std::min(value, BatchSettings::kEventsMost);
}

absl::optional<double> ParseRate(absl::string_view text) {
  const size_t point = text.find('.');
  const bool plain = point == absl::string_view::npos;
  if (!AreDigits(text.substr(0, point), kDigitsMax)) return absl::nullopt;
  if (!plain && !AreDigits(text.substr(point + 1), kFractionDigitsMax)) return absl::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || value < LimitSettings::kRateLeast) return absl::nullopt;
  return std::min(value, LimitSettings::kRateMost);
}

template <typename T>
void TakeSmaller(const absl::optional<T>& value, absl::optional<T>& smallest) {
  if (value && (!smallest || *value < *smallest)) smallest = value;
}

template <typename T>
bool Set(absl::optional<T>& field, absl::optional<T> value) {
  if (field == value) return false;
  field = value;
  return true;
}

}  // namespace

Steering ReadSteering(const HttpHeaders& lines) {
  Steering steering;
  for (const auto& [name, value] : lines) {
    const absl::string_view text = absl::StripAsciiWhitespace(value);
    if (name == kBatchMaxHeader) TakeSmaller(ParseCount(text), steering.events_max);
    if (name == kRateHeader) TakeSmaller(ParseRate(text), steering.messages_per_second);
  }
  return steering;
}

bool LearnedLimits::Learn(const Steering& steering, MonotonicTime now) {
  bool changed = false;
  if (steering.events_max) {
    events_until = now + kLearnedFor;
    changed = Set(events_max, steering.events_max);
  }
  if (steering.messages_per_second) {
    rate_until = now + kLearnedFor;
    changed = Set(messages_per_second, steering.messages_per_second) || changed;
  }
  return changed;
}

bool LearnedLimits::LearnTooLarge(size_t bytes, MonotonicTime now) {
  const int64_t half = std::max(static_cast<int64_t>(bytes / 2), BatchSettings::kBytesLeast);
  bytes_until = now + kLearnedFor;
  if (bytes_max && *bytes_max <= half) return false;
  bytes_max = half;
  return true;
}

bool LearnedLimits::Expire(MonotonicTime now) {
  bool changed = false;
  if (events_max && now >= events_until) changed = Set<int64_t>(events_max, absl::nullopt);
  if (bytes_max && now >= bytes_until) changed = Set<int64_t>(bytes_max, absl::nullopt) || changed;
  if (messages_per_second && now >= rate_until) {
    changed = Set<double>(messages_per_second, absl::nullopt) || changed;
  }
  return changed;
}

}  // namespace postrider::delivery
