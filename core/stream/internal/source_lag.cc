#include "core/stream/internal/source_lag.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"

namespace postrider::internal {
namespace {

constexpr std::chrono::seconds kAskInterval{5};
// When some ends are not known the question was dear.
constexpr std::chrono::seconds kAskAgainAfterFault{15};

}  // namespace

void SourceLag::Look(const std::vector<Place>& places, bool ask) {
  const MonotonicTime now = loop_.clock().Now();
  std::map<TopicPartition, Seen> before = std::exchange(seen_, {});
  records_ = 0;
  standing_still_ = 0;
  for (const Place& place : places) {
    Seen& seen = seen_[place.tp];
    const auto old = before.find(place.tp);
    if (old != before.end()) seen = std::move(old->second);
    LookAt(place, seen, now);
  }
  if (ask && !asking_ && now >= next_ask_) Ask(now);
}

void SourceLag::LookAt(const Place& place, Seen& seen, MonotonicTime now) {
  if (place.next && seen.end) records_ += std::max<int64_t>(0, *seen.end - *place.next);
  const bool behind = !place.next || seen.end_unknown || (seen.end && *seen.end > *place.next);
  const bool moved = std::exchange(seen.next, place.next) != place.next;
  if (!behind || moved || !place.reads) {
    seen.still_since.reset();
    seen.told = false;
    return;
  }
  if (!seen.still_since) seen.still_since = now;
  if (now - *seen.still_since < kStandsStill) return;
  ++standing_still_;
  if (std::exchange(seen.told, true)) return;
  POSTRIDER_LOG(kError, "nothing is read from a partition though there is something",
                {"partition", place.tp.ToString()}, {"position", place.next.value_or(-1)},
                {"end", seen.end_unknown ? -1 : seen.end.value_or(-1)});
}

void SourceLag::Ask(MonotonicTime now) {
  std::vector<TopicPartition> partitions;
  partitions.reserve(seen_.size());
  for (const auto& [tp, seen] : seen_) partitions.push_back(tp);
  next_ask_ = now + kAskInterval;
  if (partitions.empty()) return;
  asking_ = true;
  std::vector<TopicPartition> asked = partitions;
  log_.Ends(loop_, std::move(asked),
            [this, alive = std::weak_ptr<const int>(alive_),
             partitions = std::move(partitions)](const std::vector<absl::optional<int64_t>>& ends) {
              if (!alive.expired()) OnEnds(partitions, ends);
            });
}

void SourceLag::OnEnds(const std::vector<TopicPartition>& partitions,
                       const std::vector<absl::optional<int64_t>>& ends) {
  asking_ = false;
  for (size_t i = 0; i < partitions.size(); ++i) {
    if (!ends[i]) next_ask_ = loop_.clock().Now() + kAskAgainAfterFault;
    const auto found = seen_.find(partitions[i]);
    if (found == seen_.end()) continue;
    found->second.end_unknown = !ends[i].has_value();
    if (ends[i]) found->second.end = ends[i];
  }
}

}  // namespace postrider::internal
