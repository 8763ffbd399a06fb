#include "core/stream/internal/shard_metrics.h"

#include "absl/strings/string_view.h"

namespace postrider::internal {
namespace {

struct Maker {
  Metrics& metrics;
  const std::string& job;
  std::string index;

  Gauge& MakeGauge(absl::string_view name, absl::string_view help) const {
    return metrics.AddGauge(name, help, {{"job", job}, {"shard", index}});
  }
  Gauge& Tasks(absl::string_view state) const {
    return metrics.AddGauge("postrider_stream_tasks", "Tasks of a shard by their state.",
                            {{"job", job}, {"shard", index}, {"state", state}});
  }
  Counter& MakeCounter(absl::string_view name, absl::string_view help) const {
    return metrics.AddCounter(name, help, {{"job", job}, {"shard", index}});
  }
  Counter& OutOfRange(absl::string_view side) const {
    return metrics.AddCounter("postrider_stream_out_of_range_total",
                              "Positions that the log could not serve, by the side they lay on.",
                              {{"job", job}, {"shard", index}, {"side", side}});
  }
};

ShardMetrics Make(const Maker& m) {
  return {
      m.Tasks("created"),
      m.Tasks("restoring"),
      m.Tasks("running"),
      m.Tasks("degraded"),
      m.Tasks("failed"),
      m.MakeGauge("postrider_stream_busy_ratio", "Share of the last second spent in callbacks."),
      m.MakeGauge("postrider_stream_idle_ratio", "Share of the last second spent waiting."),
      m.MakeGauge("postrider_stream_pressured_ratio",
                  "Share of the last second in which nothing was read because of a bound."),
      m.MakeGauge(
          "postrider_stream_commit_age_seconds",
          "Time since the last acknowledged commit was issued; of a partition that waits for "
          "its own, if that is longer. 0 where there is nothing to commit."),
      m.MakeGauge("postrider_stream_watermark_age_seconds",
                  "Age of the oldest pending record by its timestamp."),
      m.MakeGauge("postrider_stream_lag_records",
                  "Records that are not read yet: how far the ends of the partitions are away."),
      m.MakeGauge("postrider_stream_partitions_standing_still",
                  "Partitions with records of which none was read for 30 s though there was room."),
      m.MakeGauge("postrider_stream_holes", "Completed offsets above the watermarks."),
      m.MakeGauge("postrider_stream_holes_forgotten",
                  "Completed offsets that the last commits had no room for: a crash repeats them."),
      m.MakeGauge("postrider_stream_pending_records", "Records read and not complete."),
      m.MakeGauge("postrider_stream_pending_bytes", "Bytes of records read and not complete."),
      m.MakeGauge("postrider_stream_reachable", "1 while the log answers, else 0."),
      m.MakeCounter("postrider_stream_records_read_total", "Records given to functions."),
      m.MakeCounter("postrider_stream_records_skipped_total",
                    "Records not given to functions: complete already, or read before."),
      m.MakeCounter("postrider_stream_rebalances_total", "Assignments taken."),
      m.MakeCounter("postrider_stream_lost_total", "Assignments lost without a notice."),
      m.MakeCounter("postrider_stream_claims_failed_total", "Claims that had to be repeated."),
      m.MakeCounter("postrider_stream_commits_failed_total", "Commits of a partition that failed."),
      m.MakeCounter("postrider_stream_fenced_total",
                    "Commits refused because the group had moved on."),
      m.MakeCounter("postrider_stream_lease_lapses_total",
                    "Times that a shard stopped acting because no commit was acknowledged."),
      m.MakeCounter("postrider_stream_task_restarts_total", "Tasks that failed and began again."),
      m.MakeCounter("postrider_stream_tasks_kept_total",
                    "Tasks that came straight back and kept their memory."),
      m.MakeCounter("postrider_stream_metadata_unreadable_total",
                    "Commits found with metadata that is not ours."),
      m.MakeCounter("postrider_stream_commits_gone_total",
                    "Partitions found without a commit though the group had one."),
      m.OutOfRange("below_start"),
      m.OutOfRange("above_end"),
      m.MakeCounter("postrider_stream_trims_failed_total", "Trims that the log refused."),
      m.MakeGauge("postrider_stream_state_bytes",
                  "What durable states and their restores hold in memory beside the stores and "
                  "writes on their way."),
      m.MakeGauge("postrider_stream_restores_running",
                  "Changelog partitions that are being restored or wait for it."),
      m.MakeCounter("postrider_stream_restores_total", "Changelog partitions restored."),
      m.MakeCounter("postrider_stream_restore_seconds_total",
                    "Time from a restore's beginning to its end, summed."),
      m.MakeCounter("postrider_stream_restore_records_total", "Changelog records read back."),
      m.MakeCounter("postrider_stream_restores_failed_total",
                    "Restores that met a record that could not be taken."),
      m.MakeCounter("postrider_stream_operations_inherited_total",
                    "Operations in flight that tasks took over from a former owner."),
      m.MakeCounter("postrider_stream_results_appended_total",
                    "Results of operations that were appended for a new owner."),
      m.MakeCounter("postrider_stream_results_dropped_total",
                    "Results of operations that the log did not take."),
      m.MakeCounter("postrider_stream_results_received_total",
                    "Results of a former owner's operations."),
      m.MakeCounter("postrider_stream_results_unreadable_total",
                    "Results of a former owner's operations that could not be read."),
  };
}

}  // namespace

ShardMetrics MakeShardMetrics(Metrics& metrics, const std::string& job, int index) {
  return Make({metrics, job, std::to_string(index)});
}

}  // namespace postrider::internal
