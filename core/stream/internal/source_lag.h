#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::internal {

// How far a shard is behind the ends of what it reads, and which of its partitions stand still:
// there is something to read, or the log cannot tell, and for kStandsStill nothing was read though
// there was room. It asks the log itself, so that a fetch that stalls cannot hide what it misses.
//
// Threads: the shard's.
// Bounds:  one question of the log at a time, one entry per partition of the shard.
class SourceLag {
 public:
  static constexpr Duration kStandsStill = std::chrono::seconds(30);

  // A partition as its task has it.
  struct Place {
    TopicPartition tp;
    absl::optional<int64_t> next;  // the offset that is read next; none: nothing has come yet
    bool reads = false;            // and there was room since the last look
  };

  // Both outlive it.
  SourceLag(Log& log, EventLoop& loop) : log_(log), loop_(loop) {}

  // Once a second. Partitions that are not among `places` are forgotten. `ask`: the log answers.
  void Look(const std::vector<Place>& places, bool ask);

  // As of the last look.
  int64_t records() const { return records_; }
  int64_t standing_still() const { return standing_still_; }

 private:
  struct Seen {
    absl::optional<int64_t> end;
    bool end_unknown = false;  // as the log said last
    absl::optional<int64_t> next;
    absl::optional<MonotonicTime> still_since;
    bool told = false;
  };
  void LookAt(const Place& place, Seen& seen, MonotonicTime now);
  void Ask(MonotonicTime now);
  void OnEnds(const std::vector<TopicPartition>& partitions,
              const std::vector<absl::optional<int64_t>>& ends);

  Log& log_;
  EventLoop& loop_;
  std::map<TopicPartition, Seen> seen_;
  bool asking_ = false;
  MonotonicTime next_ask_;
  int64_t records_ = 0;
  int64_t standing_still_ = 0;
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
};

}  // namespace postrider::internal
