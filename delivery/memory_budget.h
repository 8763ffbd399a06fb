#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace postrider::delivery {

// What a worker's memory is divided by.
struct MemoryDemand {
  int64_t limit_bytes = 0;  // memory.limit
  int64_t shards = 1;
  int64_t key_groups = 64;   // of the pool; a worker that is left alone has them all
  int64_t messages_max = 0;  // per shard
  int64_t requests_max = 0;  // per shard
};

// The parts of a worker's memory, in bytes; together at most the limit. Each is the bound of
// something that refuses what is more, so that none can take another's: a shard that is full of
// messages still parks them and appends dead letters.
struct MemoryBudget {
  // The program, the snapshot and what no other part counts.
  int64_t process = 0;
  // A tenth of the limit, which no bound is made of: for what is copied while messages are parked
  // and dead letters appended, for what a full shard takes in at a rebalance, and the allocator's.
  int64_t reserve = 0;
  // Per shard. Messages: their records, and about as much again for the bodies of requests.
  int64_t messages = 0;
  int64_t backlog_room = 0;      // read back from the backlog, and requests made of that
  int64_t waiting = 0;           // batches that wait for their next try
  int64_t prefetch = 0;          // fetched from the dispatch topic and not yet read
  int64_t producer = 0;          // appends that are not acknowledged
  int64_t restore_prefetch = 0;  // fetched from changelogs and not yet read
  int64_t connections = 0;       // open ones to receivers
  // For all shards together.
  int64_t overlays = 0;        // writes of durable state that the stores have not taken yet
  int64_t identities = 0;      // of the messages that key groups met last
  int64_t state_index = 0;     // what states keep beside their stores, and what restores do
  int64_t endpoint_state = 0;  // the stores of endpoint state
  int64_t backlog_store = 0;   // blocks and memtables, or all of the backlog when it is on the heap

  // The bounds that follow from them, per shard.
  int64_t pending_bytes_max = 0;
  int64_t pending_records_max = 0;  // at most MemoryDemand::messages_max
  int64_t connections_max = 0;      // kept open when they are idle
  int64_t connection_pools = 0;
};

// kInvalidArgument: the limit is too small for so many shards, requests and key groups; it names
// the smallest limit that works.
absl::StatusOr<MemoryBudget> DivideMemory(const MemoryDemand& demand);

// The smallest limit that DivideMemory() takes for all else that is demanded.
int64_t SmallestMemoryLimit(const MemoryDemand& demand);

}  // namespace postrider::delivery
