#include "delivery/file_budget.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace postrider::delivery {
namespace {

// Brokers, the database, the log, libraries.
constexpr int64_t kProcess = 512;
// A database of a key group, while it is small and at most.
constexpr int64_t kStoreLeast = 16;
constexpr int64_t kStoreMost = 64;
// Kept idle per shard, whatever happens: below it nearly each request opens a connection.
constexpr int64_t kIdleLeast = 64;

}  // namespace

absl::StatusOr<int64_t> IdleConnectionsWithin(const FileDemand& demand) {
  const int64_t smallest = kProcess + demand.others + demand.key_groups * kStoreLeast +
                           demand.shards * (demand.requests_max + kIdleLeast);
  if (demand.limit < smallest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the limit of open files (ulimit -n) is ", demand.limit,
        ", which is too small for worker.shards = ", demand.shards, " with worker.requests_max = ",
        demand.requests_max, "; the smallest that works is ", smallest));
  }
  const int64_t left = demand.limit - kProcess - demand.others - demand.key_groups * kStoreMost;
  return std::min(demand.connections_max,
                  std::max(kIdleLeast, left / demand.shards - demand.requests_max));
}

}  // namespace postrider::delivery
