#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::internal {

// The timers of one task: at most one per key and tag. It fires nothing by itself.
// Threads: owned by one task. Bounds: by the keys that its owner keeps.
class Timers {
 public:
  struct Due {
    std::string key;
    uint32_t tag = 0;
    MonotonicTime time;
  };

  void Set(absl::string_view key, uint32_t tag, MonotonicTime time);
  void Cancel(absl::string_view key, uint32_t tag);
  absl::optional<MonotonicTime> Earliest() const;
  // The number that the next Set() gets: PopDue() with it leaves out what is set from now on.
  uint64_t mark() const { return next_; }
  // Takes out the earliest one at or before `now` that was set before `mark`; equal times in the
  // order of Set().
  absl::optional<Due> PopDue(MonotonicTime now, uint64_t mark);
  void Clear();
  size_t size() const { return by_key_.size(); }

 private:
  using Key = std::pair<std::string, uint32_t>;
  using Place = std::pair<MonotonicTime, uint64_t>;

  absl::node_hash_map<Key, Place> by_key_;
  std::map<Place, const Key*> by_time_;  // the keys of by_key_
  uint64_t next_ = 0;
};

}  // namespace postrider::internal
