#include "delivery/memory_budget.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/stream/recent_identities.h"

namespace postrider::delivery {
namespace {

constexpr int64_t kMb = 1 << 20;
// A tenth stays free.
constexpr int64_t kReserveDivisor = 10;

// Least parts. Prefetch: 2 s of what one core delivers, about 16 MB/s; with less, fetching stops
// for whole seconds. The others: a few of the largest messages and requests.
constexpr int64_t kProcess = 64 * kMb;
constexpr int64_t kOverlays = 16 * kMb;
constexpr int64_t kStateIndex = 8 * kMb;
constexpr int64_t kEndpointState = 8 * kMb;
constexpr int64_t kBacklogStore = 32 * kMb;
// Of each key group, whose store has a block of memory from its first write on.
constexpr int64_t kEndpointStatePerKeyGroup = kMb / 16;
constexpr int64_t kBacklogStorePerKeyGroup = kMb / 2;
constexpr int64_t kMessages = 16 * kMb;
constexpr int64_t kBacklogRoom = 8 * kMb;
constexpr int64_t kWaiting = 4 * kMb;
constexpr int64_t kPrefetch = 32 * kMb;
constexpr int64_t kProducer = 8 * kMb;
constexpr int64_t kRestorePrefetch = 4 * kMb;
// Of those that more memory does not make faster.
constexpr int64_t kPrefetchMost = 64 * kMb;
constexpr int64_t kProducerMost = 64 * kMb;
constexpr int64_t kRestorePrefetchMost = 16 * kMb;
constexpr int64_t kOverlaysMost = 256 * kMb;
constexpr int64_t kStateIndexMost = 512 * kMb;
constexpr int64_t kEndpointStateMost = 1024 * kMb;

// An open TLS connection: 35 KB, and its share of the 0.8 MB of trusted certificates that each pool
// of connections keeps.
constexpr int64_t kConnectionBytes = 40 * 1024;
constexpr int64_t kPoolConnections = 256;
constexpr int64_t kPoolsMost = 64;
// What a message costs beside its record's bytes: its place in the batch, the tracker and the sets.
constexpr int64_t kMessageOverheadBytes = 512;

struct Floors {
  int64_t per_shard = 0;
  int64_t shared = 0;
};

int64_t LeastConnections(const MemoryDemand& demand) {
  return std::max(kPoolConnections, demand.requests_max) * kConnectionBytes;
}

int64_t LeastEndpointState(const MemoryDemand& demand) {
  return std::max(kEndpointState, demand.key_groups * kEndpointStatePerKeyGroup);
}

int64_t LeastBacklogStore(const MemoryDemand& demand) {
  return std::max(kBacklogStore, demand.key_groups * kBacklogStorePerKeyGroup);
}

// Neither less nor more.
int64_t Identities(const MemoryDemand& demand) {
  return demand.key_groups * static_cast<int64_t>(RecentIdentities::kBytesMax);
}

Floors FloorsOf(const MemoryDemand& demand) {
  Floors floors;
  floors.per_shard = kMessages + kBacklogRoom + kWaiting + kPrefetch + kProducer +
                     kRestorePrefetch + LeastConnections(demand);
  floors.shared = kProcess + kOverlays + kStateIndex + Identities(demand) +
                  LeastEndpointState(demand) + LeastBacklogStore(demand);
  return floors;
}

// The least part and what `percent` of the rest comes to, at most `most`.
int64_t Part(int64_t least, int64_t most, int64_t rest, int64_t percent) {
  return std::min(most, least + rest / 100 * percent);
}

}  // namespace

int64_t SmallestMemoryLimit(const MemoryDemand& demand) {
  const Floors floors = FloorsOf(demand);
  const int64_t parts = floors.shared + floors.per_shard * demand.shards;
  const int64_t limit = parts * kReserveDivisor / (kReserveDivisor - 1);
  return (limit + kMb) / kMb * kMb;
}

absl::StatusOr<MemoryBudget> DivideMemory(const MemoryDemand& demand) {
  const int64_t smallest = SmallestMemoryLimit(demand);
  if (demand.limit_bytes < smallest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option memory.limit: ", demand.limit_bytes / kMb, "MB is too small for worker.shards = ",
        demand.shards, " with worker.requests_max = ", demand.requests_max,
        " and worker.key_groups = ", demand.key_groups, "; the smallest that works is ",
        smallest / kMb, "MB"));
  }
  MemoryBudget budget;
  budget.reserve = demand.limit_bytes / kReserveDivisor;
  budget.process = kProcess;
  const Floors floors = FloorsOf(demand);
  const int64_t all = demand.limit_bytes - budget.reserve;
  const int64_t rest = all - floors.shared - floors.per_shard * demand.shards;
  const int64_t shard_rest = rest / demand.shards;

  // First those that have a most; what they leave over goes to the others.
  budget.prefetch = Part(kPrefetch, kPrefetchMost, shard_rest, 15);
  budget.producer = Part(kProducer, kProducerMost, shard_rest, 10);
  budget.restore_prefetch = Part(kRestorePrefetch, kRestorePrefetchMost, shard_rest, 5);
  budget.overlays = Part(kOverlays, kOverlaysMost, rest, 10);
  budget.state_index = Part(kStateIndex, kStateIndexMost, rest, 5);
  budget.identities = Identities(demand);
  budget.endpoint_state = Part(LeastEndpointState(demand), kEndpointStateMost, rest, 5);

  const int64_t per_shard = budget.prefetch + budget.producer + budget.restore_prefetch;
  const int64_t requests = LeastConnections(demand);
  const int64_t left = all - budget.process - budget.overlays - budget.state_index -
                       budget.identities - budget.endpoint_state - LeastBacklogStore(demand) -
                       (per_shard + kMessages + kBacklogRoom + kWaiting + requests) * demand.shards;
  budget.messages = kMessages + left / demand.shards / 100 * 35;
  budget.backlog_room = kBacklogRoom + left / demand.shards / 100 * 10;
  budget.waiting = kWaiting + left / demand.shards / 100 * 5;
  budget.connections = requests + left / demand.shards / 100 * 25;
  budget.backlog_store = LeastBacklogStore(demand) + left / 100 * 25;

  // Two fifths for the records, as much for the bodies made of them, the rest beside them.
  budget.pending_bytes_max = budget.messages / 5 * 2;
  budget.pending_records_max =
      std::min(demand.messages_max, budget.messages / 5 / kMessageOverheadBytes);
  budget.connections_max = budget.connections / kConnectionBytes;
  budget.connection_pools =
      std::clamp<int64_t>(budget.connections_max / kPoolConnections, 1, kPoolsMost);
  return budget;
}

}  // namespace postrider::delivery
