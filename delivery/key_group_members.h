#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {

// Which endpoints of a snapshot lie in which key group, by their first part: so that who looks at
// all endpoints of one key group need not go over those of all others.
//
// Threads: the shard's. Bounds: 4 bytes for each endpoint; anew when the snapshot's contents have
// changed since it was asked last.
class KeyGroupMembers {
 public:
  // Places in snapshot.endpoints(), ascending; none in a key group that there is not. Valid until
  // the next call.
  absl::Span<const uint32_t> Of(const subscriptions::Snapshot& snapshot, int32_t key_group,
                                int32_t key_groups);

 private:
  void Sort(const subscriptions::Snapshot& snapshot, int32_t key_groups);

  absl::optional<uint64_t> contents_;  // of the snapshot that it was made of
  std::vector<uint32_t> begins_;       // of each key group in members_, and the end
  std::vector<uint32_t> members_;
};

}  // namespace postrider::delivery
