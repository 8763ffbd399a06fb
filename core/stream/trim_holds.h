#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/stream/control_record.h"
#include "core/stream/record.h"

namespace postrider {

// The savepoints that need records of a topic, by the records of the control topic: how far its
// owner may trim.
//
// Threads: owned by one; immutable once it is shared.
class TrimHolds {
 public:
  // What stands under the hold's key now; a null view: it was dropped. One that cannot be read (a
  // newer version's, say) holds everything of every pool until it is dropped: when it would have
  // expired is not known, and what was trimmed does not come back.
  void Set(absl::string_view pool, absl::string_view id, absl::string_view value);

  // The lowest offset of the partition that a hold of `group` needs at `now`; none: no limit.
  absl::optional<int64_t> LowestHeld(absl::string_view group, const TopicPartition& tp,
                                     WallTime now) const;

  // By (pool, id), expired ones too.
  using Key = std::pair<std::string, std::string>;
  const std::map<Key, SavepointHold>& holds() const { return holds_; }
  // The keys of those that cannot be read, and why.
  const std::map<Key, std::string>& unreadable() const { return unreadable_; }

 private:
  std::map<Key, SavepointHold> holds_;
  std::map<Key, std::string> unreadable_;
};

// All that the control topic says.
struct ControlState {
  TrimHolds holds;
  std::map<std::string, RestoreMark> restores;  // by pool
  absl::optional<IdBytes> log_identity;
  std::map<std::string, PoolRecord> pools;              // those that were ever rescaled
  std::map<std::string, std::string> pools_unreadable;  // and why: nobody may work on these

  // The next record of the topic.
  void Apply(const LogRecord& record);
};

}  // namespace postrider
