#include "core/embedded_log/internal/damage_teller.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"

namespace postrider::embedded_log_internal {

void DamageTeller::TellOf(const std::string& what) const {
  if (mode_ != Mode::kEachTimeUnlogged) {
    POSTRIDER_LOG(kError, "the embedded log is damaged", {"what", what});
  }
  if (told_to_) told_to_(what);
}

void DamageTeller::Tell(const std::string& what) {
  if (mode_ == Mode::kOnce) {
    absl::MutexLock lock(&mutex_);
    if (places_ >= kPlacesMax || !told_.insert(what).second) return;
    ++places_;
  }
  TellOf(what);
}

void DamageTeller::TellLost(PartitionId id, int64_t from, int64_t to) {
  if (mode_ == Mode::kOnce) {
    absl::MutexLock lock(&mutex_);
    Ranges& ranges = lost_[{id.topic, id.partition}];
    auto at = ranges.upper_bound(from);
    if (at != ranges.begin() && std::prev(at)->second >= from) --at;
    bool known = false;
    int64_t begin = from;
    int64_t end = to;
    while (at != ranges.end() && at->first <= to) {
      known = true;
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges.erase(at);
    }
    if (!known && places_ >= kPlacesMax) return;
    ranges[begin] = end;
    if (known) return;
    ++places_;
  }
  TellOf(absl::StrCat("topic ", id.topic, " partition ", id.partition, ": records from ", from,
                      " to ", to, " cannot be read"));
}

}  // namespace postrider::embedded_log_internal
