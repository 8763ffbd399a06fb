#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/embedded_log/inspect.h"
#include "core/kafka/kafka_log.h"
#include "core/kafka/partition_copier.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "log_export/log_export_marks.h"
#include "log_export/log_export_target.h"

namespace postrider {

struct LogExportOptions {
  // Records that only keep the place of what is gone already, so that every offset stays what it
  // is; past so many it is not begun.
  int64_t fillers_max = 200'000'000;
  // After a run that was interrupted: so long nothing comes to Kafka, and all that was on its way
  // then is there.
  std::chrono::milliseconds settle{2'000};
  // A round ends after it: files that the service deletes meanwhile keep their room until then.
  std::chrono::milliseconds round_max{60'000};
};

// Copies an embedded log to Kafka: topics with their settings, records with their times at their
// offsets, positions of groups. CopyRound() copies what there is of a log that a service goes on
// writing, as often as one likes; Finish() the rest, of one that no service has.
//
// State (topics that are compacted and that no group has a position in) begins at offset 0. What
// compaction removes between two rounds is not missed: tombstones stay for delete.retention.ms, and
// when half of that has gone by since all of it was there, it is copied anew. So it is by another
// process, and when the log was opened anew.
//
// It may be ended at any time and begun anew by another process, which goes on behind the last
// record that is there, once it has compared the last ones of each partition with the log. What
// does not fit is never gone on with: the topic is marked as spoiled.
//
// Threads: owned by one; all calls block. Bounds: the copier's, and a digest of the last records.
class LogExport {
 public:
  // What this run has done for one topic.
  struct TopicReport {
    int64_t records = 0;
    int64_t last = 0;     // of these by Finish()
    int64_t fillers = 0;  // in place of what had been there before the first record
    int64_t missing = 0;  // offsets without a record: damage, if it is not compacted
    bool renumbered = false;
  };
  struct Round {
    int64_t records = 0;
    int64_t unread = 0;  // partitions that could not be read to their end
    bool cut = false;    // it took round_max: there is more
  };

  // All outlive it. `tick` is called now and then while something is copied.
  LogExport(const LogExportOptions& options, const KafkaOptions& kafka, Log& to, const Clock& clock,
            absl::AnyInvocable<void()> tick);

  // kFailedPrecondition: Kafka has something of others, or of this log and spoiled, or the export
  // has come to its end; kAborted: another run has taken it over. Nothing was harmed.
  // kDeadlineExceeded: Kafka does not answer; LeaveKafka(), then another round may be tried.
  absl::StatusOr<Round> CopyRound(LogInspector& from);
  // What was on its way there may come or not: the next round looks.
  void LeaveKafka();
  // kAlreadyExists: this very log was exported before; nothing was to be done.
  // `close` is called when all records are there, before anybody could go on from the positions.
  absl::Status Finish(LogInspector& from, absl::FunctionRef<absl::Status()> close);

  // Records that are not copied yet; of compacted topics some of them may be gone.
  int64_t BehindOf(const LogInspector& from) const;

  const std::map<std::string, TopicReport>& reports() const { return reports_; }
  int64_t copied() const { return copied_; }

 private:
  using GroupPosition = LogInspector::GroupPosition;
  using PartitionState = LogInspector::PartitionState;
  using TopicState = LogInspector::TopicState;
  enum class Step { kRound, kLast };
  struct StateCopy {
    int64_t at = 0;           // of the log: all below was put
    MonotonicTime was_whole;  // it began, or was last at the end
  };

  bool RoundIsOver() const;
  // What was compared says nothing of a log that was opened anew: that may have lost its end and
  // gone on otherwise.
  void CompareAnewIfReopened(const LogInspector& from);
  absl::Status OpenTarget();
  absl::Status Begin(const LogInspector& from);
  absl::Status TakeTopics(const LogInspector& from);
  absl::Status CheckSameLog(const std::vector<TopicState>& topics) const;
  absl::Status CheckFillers(const LogInspector& from);
  void NoteFarthest(const LogInspector& from);
  absl::Status RemakeState(const LogInspector& from);
  absl::Status Remake(const TopicState& topic);

  absl::Status CopyAsItIs(LogInspector& from, const TopicState& topic, size_t number, Step step);
  absl::Status CopyRenumbered(LogInspector& from, const TopicState& topic, size_t number,
                              Step step);
  absl::StatusOr<int64_t> NextOf(LogInspector& from, const TopicState& topic,
                                 const TopicPartition& tp, int64_t begin, int64_t end);
  absl::Status CheckTail(LogInspector& from, const TopicState& topic, const TopicPartition& tp,
                         int64_t low, int64_t end);
  // Until all is acknowledged; then trims.
  absl::Status EndCopy();
  absl::Status CheckEnds();

  absl::Status Fault(const absl::Status& status);
  absl::Status Spoil(const std::string& topic, absl::string_view why);

  const LogExportOptions options_;
  const KafkaOptions& kafka_;
  Log& to_;
  const Clock& clock_;
  absl::AnyInvocable<void()> tick_;
  LogExportMarks marks_;
  bool begun_ = false;
  std::string opening_;        // of the log, when it was looked at last
  MonotonicTime round_began_;  // or the last step
  MonotonicTime round_end_;
  MonotonicTime checked_;  // that no other run has taken it over
  std::set<std::string> taken_;
  std::unique_ptr<LogExportTarget> target_;
  std::unique_ptr<PartitionCopier> copier_;
  std::unique_ptr<BlockingReader> reader_;
  std::map<TopicPartition, int64_t> farthest_;  // position of any group
  // Of Kafka: where it goes on, and where it begins.
  std::map<TopicPartition, int64_t> next_;
  std::map<TopicPartition, int64_t> begin_;
  std::map<TopicPartition, StateCopy> state_;
  // Put and not acknowledged yet, and what to trim then.
  std::map<TopicPartition, int64_t> put_;
  std::map<TopicPartition, int64_t> trim_;
  std::set<TopicPartition> touched_;
  std::map<std::string, TopicReport> reports_;
  int64_t copied_ = 0;
};

}  // namespace postrider
