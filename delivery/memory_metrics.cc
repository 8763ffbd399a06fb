#include "delivery/memory_metrics.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/metrics.h"

namespace postrider::delivery {
namespace {

Gauge& UsedBytes(Metrics& metrics, absl::string_view part) {
  return metrics.AddGauge("postrider_delivery_memory_used_bytes",
                          "What a part of memory.limit holds now.", {{"part", part}});
}

void SetLimit(Metrics& metrics, absl::string_view part, int64_t bytes) {
  metrics
      .AddGauge("postrider_delivery_memory_limit_bytes",
                "What a part of memory.limit may hold, all shards together; `all`: the limit.",
                {{"part", part}})
      .Set(static_cast<double>(bytes));
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryMetrics::MemoryMetrics(Metrics& metrics, absl::string_view job, int64_t limit_bytes,
                             int64_t shards, const MemoryBudget& budget)
    : messages_(UsedBytes(metrics, "messages")),
      overlays_(UsedBytes(metrics, "overlays")),
      identities_(UsedBytes(metrics, "identities")),
      state_index_(UsedBytes(metrics, "state_index")),
      endpoint_state_(UsedBytes(metrics, "endpoint_state")),
      backlog_(UsedBytes(metrics, "backlog")),
      process_(metrics.AddGauge("postrider_delivery_process_resident_bytes",
                                "Memory of the whole process, other roles too.")) {
  SetLimit(metrics, "all", limit_bytes);
  SetLimit(metrics, "process", budget.process);
  SetLimit(metrics, "reserve", budget.reserve);
  SetLimit(metrics, "messages", budget.messages * shards);
  SetLimit(metrics, "backlog_room", budget.backlog_room * shards);
  SetLimit(metrics, "waiting", budget.waiting * shards);
  SetLimit(metrics, "prefetch", budget.prefetch * shards);
  SetLimit(metrics, "producer", budget.producer * shards);
  SetLimit(metrics, "restore_prefetch", budget.restore_prefetch * shards);
  SetLimit(metrics, "connections", budget.connections * shards);
  SetLimit(metrics, "overlays", budget.overlays);
  SetLimit(metrics, "identities", budget.identities);
  SetLimit(metrics, "state_index", budget.state_index);
  SetLimit(metrics, "endpoint_state", budget.endpoint_state);
  SetLimit(metrics, "backlog", budget.backlog_store);
  for (int64_t shard = 0; shard < shards; ++shard) {
    const auto of_shard = [&](absl::string_view name, absl::string_view help) {
      return &metrics.AddGauge(name, help, {{"job", job}, {"shard", absl::StrCat(shard)}});
    };
    pending_.push_back(
        of_shard("postrider_stream_pending_bytes", "Bytes of records read and not complete."));
    state_.push_back(of_shard("postrider_stream_state_bytes",
                              "What durable states and their restores hold in memory beside the "
                              "stores and writes on their way."));
  }
}

void MemoryMetrics::Set(const Used& used) {
  const auto sum = [](const std::vector<const Gauge*>& gauges) {
    double bytes = 0;
    for (const Gauge* gauge : gauges) bytes += gauge->value();
    return bytes;
  };
  messages_.Set(sum(pending_));
  state_index_.Set(sum(state_));
  identities_.Set(static_cast<double>(used.identities));
  overlays_.Set(static_cast<double>(used.overlays));
  endpoint_state_.Set(static_cast<double>(used.endpoint_state));
  backlog_.Set(static_cast<double>(used.backlog));
  process_.Set(ResidentBytes());
}

}  // namespace postrider::delivery
