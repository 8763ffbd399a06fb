#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/metrics.h"
#include "delivery/memory_budget.h"

namespace postrider::delivery {

// What each part of a worker's memory may hold, and what it holds. Parts whose use nobody counts
// (what the Kafka client has fetched, connections) show in the memory of the whole process alone.
// Threads: one control thread.
class MemoryMetrics {
 public:
  // `job`: the label of the stream core's series, which has made them already.
  MemoryMetrics(Metrics& metrics, absl::string_view job, int64_t limit_bytes, int64_t shards,
                const MemoryBudget& budget);

  struct Used {
    uint64_t overlays = 0;
    uint64_t identities = 0;
    uint64_t endpoint_state = 0;
    uint64_t backlog = 0;
  };
  // The rest it looks up by itself.
  void Set(const Used& used);

 private:
  Gauge& messages_;
  Gauge& overlays_;
  Gauge& identities_;
  Gauge& state_index_;
  Gauge& endpoint_state_;
  Gauge& backlog_;
  Gauge& process_;
  // Of each shard.
  std::vector<const Gauge*> pending_;
  std::vector<const Gauge*> state_;
};

}  // namespace postrider::delivery
