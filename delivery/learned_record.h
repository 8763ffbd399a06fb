#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/stream/keyed_state.h"
#include "delivery/steering.h"

namespace postrider::delivery {

// What of LearnedLimits outlives its worker's memory, in durable endpoint state. A stale one costs
// a batch that is refused as too large, or a few messages above the rate that was asked for.
struct LearnedRecord {
  uint64_t generation = 0;  // of the endpoint, when it was learned: it says nothing of another one
  // 0: none.
  int64_t events_max = 0;
  int64_t bytes_max = 0;
  int64_t messages_per_1000_seconds = 0;
  // When each is forgotten.
  WallTime events_until;
  WallTime bytes_until;
  WallTime rate_until;
  friend bool operator==(const LearnedRecord&, const LearnedRecord&) = default;
};
StateSerializer<LearnedRecord> LearnedSerializer();

// The default record when nothing was learned.
LearnedRecord RecordOf(const LearnedLimits& learned, uint64_t generation, MonotonicTime now,
                       WallTime wall);
// What still holds of it; none for longer than kLearnedFor from now, whatever the clock was.
LearnedLimits LimitsOf(const LearnedRecord& record, MonotonicTime now, WallTime wall);
// Whether `record` says more than what is stored: another limit, or one that holds for an hour
// longer. (A receiver may repeat its limits with every answer.)
bool WorthWriting(const LearnedRecord& record, const LearnedRecord& stored);

}  // namespace postrider::delivery
