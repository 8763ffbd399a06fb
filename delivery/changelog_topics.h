#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/stream/log.h"

namespace postrider::delivery {

// The two changelogs of a pool: compacted topics with a partition per key group, from which the
// durable state of its workers is restored. Compaction runs once 0.3 of a partition is dirty, on
// segments of 64 MB or an hour; a removal is kept for 7 days, so that a restore sees it however
// slowly it reads.

// "<prefix>state.<pool>": what is known of endpoints; small, read before a key group delivers.
TopicSpec EndpointStateTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                             int16_t replication);
// "<prefix>backlog.<pool>": the messages that wait; large, read beside delivery.
TopicSpec BacklogTopic(absl::string_view prefix, absl::string_view pool, int32_t key_groups,
                       int16_t replication);

}  // namespace postrider::delivery
