#pragma once

#include <string>

#include "core/base/metrics.h"

namespace postrider::internal {

// Everything that one shard measures; labels are the job and the shard's number.
struct ShardMetrics {
  Gauge& tasks_created;
  Gauge& tasks_restoring;
  Gauge& tasks_running;
  Gauge& tasks_degraded;
  Gauge& tasks_failed;
  Gauge& busy_ratio;
  Gauge& idle_ratio;
  Gauge& pressured_ratio;
  Gauge& commit_age_seconds;
  Gauge& watermark_age_seconds;
  Gauge& lag_records;
  Gauge& partitions_standing_still;
  Gauge& holes;
  Gauge& holes_forgotten;
  Gauge& pending_records;
  Gauge& pending_bytes;
  Gauge& reachable;
  Counter& records_read;
  Counter& records_skipped;
  Counter& rebalances;
  Counter& lost;
  Counter& claims_failed;
  Counter& commits_failed;
  Counter& fenced;
  Counter& lease_lapses;
  Counter& task_restarts;
  Counter& tasks_kept;
  Counter& metadata_unreadable;
  Counter& commits_gone;
  Counter& below_log_start;
  Counter& above_log_end;
  Counter& trims_failed;
  Gauge& state_bytes;
  Gauge& restores_running;
  Counter& restores;
  Counter& restore_seconds;
  Counter& restore_records;
  Counter& restores_failed;
  Counter& operations_inherited;
  Counter& results_appended;
  Counter& results_dropped;
  Counter& results_received;
  Counter& results_unreadable;
};

ShardMetrics MakeShardMetrics(Metrics& metrics, const std::string& job, int index);

}  // namespace postrider::internal
