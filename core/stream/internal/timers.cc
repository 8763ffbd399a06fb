#include "core/stream/internal/timers.h"

#include <utility>

namespace postrider::internal {

void Timers::Set(absl::string_view key, uint32_t tag, MonotonicTime time) {
  const auto [found, added] = by_key_.try_emplace(Key(std::string(key), tag));
  if (!added) by_time_.erase(found->second);
  found->second = {time, next_++};
  by_time_.emplace(found->second, &found->first);
}

void Timers::Cancel(absl::string_view key, uint32_t tag) {
  const auto found = by_key_.find(Key(std::string(key), tag));
  if (found == by_key_.end()) return;
  by_time_.erase(found->second);
  by_key_.erase(found);
}

absl::optional<MonotonicTime> Timers::Earliest() const {
  if (by_time_.empty()) return absl::nullopt;
  return by_time_.begin()->first.first;
}

absl::optional<Timers::Due> Timers::PopDue(MonotonicTime now, uint64_t mark) {
  for (auto place = by_time_.begin(); place != by_time_.end() && place->first.first <= now;
       ++place) {
    if (place->first.second >= mark) continue;
    const auto found = by_key_.find(*place->second);
    Due due{found->first.first, found->first.second, place->first.first};
    by_time_.erase(place);
    by_key_.erase(found);
    return due;
  }
  return absl::nullopt;
}

void Timers::Clear() {
  by_time_.clear();
  by_key_.clear();
}

}  // namespace postrider::internal
