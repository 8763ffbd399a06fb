#include "core/embedded_log/internal/core.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/embedded_log/internal/cursor_set.h"

namespace postrider::embedded_log_internal {

LogMetrics::LogMetrics(Metrics& metrics)
    : appends(metrics.AddCounter("postrider_embedded_log_appends_total",
                                 "Records that were appended and are on the disk")),
      append_bytes(metrics.AddCounter("postrider_embedded_log_append_bytes_total",
                                      "Bytes of keys and values that were appended")),
      groups(metrics.AddCounter("postrider_embedded_log_writes_total",
                                "Groups of changes that were written and synced together")),
      write_seconds(metrics.AddHistogram(
          "postrider_embedded_log_write_seconds", "How long a group took to be on the disk",
          {0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5})),
      write_failures(metrics.AddCounter("postrider_embedded_log_write_failures_total",
                                        "Writes that failed and are tried again")),
      damage(metrics.AddCounter("postrider_embedded_log_damage_total",
                                "Places that were found damaged, each told of in the log")),
      cold_reads(metrics.AddCounter("postrider_embedded_log_cold_reads_total",
                                    "Reads that went to the database, not to the latest records")),
      compacted_records(
          metrics.AddCounter("postrider_embedded_log_compacted_records_total",
                             "Records that compaction by key or the age of tombstones removed")),
      writable(metrics.AddGauge("postrider_embedded_log_writable",
                                "1 while writes go through, 0 while the disk is full, fails or "
                                "hangs")),
      takes_events(metrics.AddGauge("postrider_embedded_log_takes_events",
                                    "1 while there is room for events, 0 while the disk is nearly "
                                    "full and they are refused")),
      disk_bytes(metrics.AddGauge("postrider_embedded_log_disk_bytes",
                                  "Bytes of the log's tables on the disk")),
      memory_bytes(metrics.AddGauge("postrider_embedded_log_memory_bytes",
                                    "Bytes of cached blocks and memtables")) {
  writable.Set(1);
  takes_events.Set(1);
}

PartitionPtr Core::FindPartition(const TopicPartition& tp) const {
  const auto found = topics.find(tp.topic);
  if (found == topics.end() || tp.partition < 0 ||
      static_cast<size_t>(tp.partition) >= found->second->partitions.size()) {
    return nullptr;
  }
  return found->second->partitions[static_cast<size_t>(tp.partition)];
}

void Core::Publish(const std::vector<PartitionPtr>& touched) {
  for (const PartitionPtr& partition : touched) {
    for (RunPtr& run : partition->fresh) {
      tail_bytes_ += run->bytes.size();
      tail_order_.push_back({partition, run->bytes.size()});
      partition->end = run->next;
      partition->tail.push_back(std::move(run));
    }
    partition->fresh.clear();
    partition->end_bytes = partition->next_bytes;
    for (Cursor* cursor : partition->cursors) cursor->set->MakeReady(*cursor);
  }
  while (tail_bytes_ > tail_bytes_max && !tail_order_.empty()) {
    tail_bytes_ -= tail_order_.front().bytes;
    tail_order_.front().partition->tail.pop_front();
    tail_order_.pop_front();
  }
}

void Core::AddTopic(TopicPtr topic) {
  const std::string name = topic->name;
  const auto partitions = static_cast<int32_t>(topic->partitions.size());
  topics[name] = std::move(topic);
  for (CursorSet* set : sets) set->LookForPartitions(name);
  groups.AddTopic(name, partitions);
}

void Core::RemoveTopic(const std::string& name) {
  const auto found = topics.find(name);
  if (found == topics.end()) return;
  for (const PartitionPtr& partition : found->second->partitions) {
    partition->gone = true;
    for (Cursor* cursor : std::vector<Cursor*>(partition->cursors)) cursor->set->Lose(*cursor);
  }
  topics.erase(found);
  groups.RemoveTopic(name);
}

void Core::SetBegin(Partition& partition, int64_t begin) {
  partition.begin = std::max(partition.begin, begin);
  for (Cursor* cursor : partition.cursors) cursor->set->MakeReady(*cursor);
}

void KeepEntryCopy(Core& core) {
  const absl::Status kept = core.database->CopyEntries();
  if (kept.ok()) return;
  POSTRIDER_LOG(kWarn, "no new copy of the embedded log's entries could be kept",
                {"why", kept.message()});
}

void Core::SetWritable(const absl::Status& why) {
  writable = why;
  metrics.writable.Set(why.ok() ? 1 : 0);
  for (CursorSet* set : sets) set->Wake();
}

}  // namespace postrider::embedded_log_internal
