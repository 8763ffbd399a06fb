#include "core/stream/internal/trimmer.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace postrider::internal {

void Trimmer::Trim(const TopicPartition& tp, int64_t watermark) {
  log_.OffsetForTime(loop_, tp, loop_.clock().Wall() - safety_,
                     [this, alive = std::weak_ptr<const int>(alive_), tp,
                      watermark](const absl::StatusOr<int64_t>& offset) {
                       if (!alive.expired()) OnOffset(tp, watermark, offset);
                     });
}

void Trimmer::OnOffset(const TopicPartition& tp, int64_t watermark,
                       const absl::StatusOr<int64_t>& offset) {
  if (!offset.ok()) return OnTrimmed(tp, offset.status());
  int64_t to = std::min(watermark, *offset);
  if (limit_) {
    if (const absl::optional<int64_t> limit = limit_(tp)) to = std::min(to, *limit);
  }
  const auto [trimmed, first] = trimmed_.try_emplace(tp, 0);
  if (to <= trimmed->second) return;
  trimmed->second = to;
  log_.Trim(loop_, tp, to,
            [this, alive = std::weak_ptr<const int>(alive_), tp](absl::Status status) {
              if (!alive.expired()) OnTrimmed(tp, status);
            });
}

void Trimmer::OnTrimmed(const TopicPartition& tp, const absl::Status& status) {
  if (status.ok()) return;
  trimmed_.erase(tp);
  failed_.Increment();
  POSTRIDER_LOG(kWarn, "trim failed", {"partition", tp.ToString()}, {"status", status.ToString()});
}

}  // namespace postrider::internal
