#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/embedded_log/inspect.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider {

// The Kafka that an embedded log is copied to: what it has of the log's topics and groups. Where it
// does not answer, kDeadlineExceeded is said, for kUnavailable is what an embedded log says.
//
// Threads: owned by one; all calls block.
class LogExportTarget {
 public:
  using TopicState = LogInspector::TopicState;
  using Groups = std::map<std::string, std::vector<CommitEntry>>;
  enum class Positions { kNone, kTheSame };  // that a group may have there

  // Both outlive it.
  static absl::StatusOr<std::unique_ptr<LogExportTarget>> Open(Log& to, const Clock& clock);

  // Waits for topics that were just made.
  absl::StatusOr<Log::Range> Offsets(const TopicPartition& tp);
  absl::StatusOr<bool> Has(const std::string& topic);
  // Whether it ever had any. kFailedPrecondition: it has another number of partitions.
  absl::StatusOr<bool> HasRecords(const TopicState& topic);
  // kFailedPrecondition: one has members, or positions that are not allowed.
  absl::Status CheckGroups(const Groups& groups, Positions allowed);
  // Until the topics' ends stay where they are for so long: a run that was killed may have sent
  // what Kafka shows only now. kUnavailable: they do not.
  absl::Status Settle(const std::vector<TopicState>& topics, std::chrono::milliseconds settle);
  // Each to its offset.
  absl::Status Trim(const std::map<TopicPartition, int64_t>& begins);
  // Stores them, and looks that they are there.
  absl::Status SetPositions(const Groups& groups);

 private:
  LogExportTarget(Log& to, const Clock& clock, std::unique_ptr<EventLoop> loop)
      : to_(to), clock_(clock), loop_(std::move(loop)) {}

  Log& to_;
  const Clock& clock_;
  const std::unique_ptr<EventLoop> loop_;
};

}  // namespace postrider
