#include "log_export/log_export_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTimeout{120'000};
// At once: a log takes a bounded number of calls that wait.
constexpr size_t kTrimsMax = 64;
constexpr absl::Duration kAgain = absl::Milliseconds(200);

TopicPartition At(const LogInspector::TopicState& topic, size_t partition) {
  return {topic.name, static_cast<int32_t>(partition)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogExportTarget>> LogExportTarget::Open(Log& to,
                                                                       const Clock& clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock));
  return std::unique_ptr<LogExportTarget>(new LogExportTarget(to, clock, std::move(loop)));
}

absl::StatusOr<bool> LogExportTarget::Has(const std::string& topic) {
  const absl::StatusOr<int32_t> there = to_.Partitions(topic, kTimeout);
  if (absl::IsNotFound(there.status())) return false;
  RETURN_IF_ERROR(there.status());
  return true;
}

absl::StatusOr<bool> LogExportTarget::HasRecords(const TopicState& topic) {
  const absl::StatusOr<int32_t> there = to_.Partitions(topic.name, kTimeout);
  if (absl::IsNotFound(there.status())) return false;
  RETURN_IF_ERROR(there.status());
  if (static_cast<size_t>(*there) != topic.partitions.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("log export: topic ", topic.name, " is in Kafka already, with ", *there,
                     " partitions and not ", topic.partitions.size()));
  }
  for (size_t i = 0; i < topic.partitions.size(); ++i) {
    ASSIGN_OR_RETURN(const Log::Range range, Offsets(At(topic, i)));
    if (range.end > 0) return true;
  }
  return false;
}

absl::Status LogExportTarget::CheckGroups(const Groups& groups, Positions allowed) {
  for (const auto& [group, entries] : groups) {
    std::vector<TopicPartition> partitions;
    for (const CommitEntry& entry : entries) {
      ASSIGN_OR_RETURN(const bool there, Has(entry.tp.topic));
      if (there) partitions.push_back(entry.tp);
    }
    ASSIGN_OR_RETURN(const Log::GroupState state, to_.DescribeGroup(group, partitions, kTimeout));
    bool ran = state.members > 0;
    for (const AssignedPartition& one : state.partitions) {
      const auto entry =
          std::find_if(entries.begin(), entries.end(),
                       [&one](const CommitEntry& mine) { return mine.tp == one.tp; });
      const bool same = entry != entries.end() && one.committed == entry->position;
      ran = ran || (one.committed.has_value() && !(same && allowed == Positions::kTheSame));
    }
    if (!ran) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("log export: group ", group,
                     " has members or positions in Kafka already: a service has run there"));
  }
  return absl::OkStatus();
}

absl::Status LogExportTarget::Settle(const std::vector<TopicState>& topics, milliseconds settle) {
  std::map<TopicPartition, int64_t> before;
  const MonotonicTime end = clock_.Now() + kTimeout;
  while (true) {
    std::map<TopicPartition, int64_t> ends;
    for (const TopicState& topic : topics) {
      ASSIGN_OR_RETURN(const bool there, Has(topic.name));
      if (!there) continue;
      for (size_t i = 0; i < topic.partitions.size(); ++i) {
        ASSIGN_OR_RETURN(const Log::Range range, Offsets(At(topic, i)));
        ends[At(topic, i)] = range.end;
      }
    }
    if (ends == before) return absl::OkStatus();
    if (clock_.Now() >= end) {
      return absl::UnavailableError(
          "log export: something else writes to the topics in Kafka that are being copied");
    }
    before = std::move(ends);
    absl::SleepFor(absl::FromChrono(settle));
  }
}

// Topics that were just made may not have settled everywhere.
absl::StatusOr<Log::Range> LogExportTarget::Offsets(const TopicPartition& tp) {
  const MonotonicTime end = clock_.Now() + kTimeout;
  while (true) {
    absl::StatusOr<Log::Range> range = to_.Offsets(tp, kTimeout);
    if (!absl::IsUnavailable(range.status())) return range;
    if (clock_.Now() >= end) return absl::DeadlineExceededError(range.status().message());
    absl::SleepFor(kAgain);
  }
}

absl::Status LogExportTarget::Trim(const std::map<TopicPartition, int64_t>& begins) {
  size_t left = 0;
  absl::Status fault;
  for (const auto& [tp, offset] : begins) {
    while (left >= kTrimsMax) loop_->RunOnce(seconds(1));
    ++left;
    to_.Trim(*loop_, tp, offset, [&left, &fault](absl::Status status) {
      --left;
      if (!status.ok()) fault = std::move(status);
    });
  }
  while (left > 0) loop_->RunOnce(seconds(1));
  return fault;
}

absl::Status LogExportTarget::SetPositions(const Groups& groups) {
  for (const auto& [group, entries] : groups) {
    RETURN_IF_ERROR(to_.ResetGroup(group, entries, kTimeout));
    std::vector<TopicPartition> partitions;
    for (const CommitEntry& entry : entries) partitions.push_back(entry.tp);
    ASSIGN_OR_RETURN(const Log::GroupState state, to_.DescribeGroup(group, partitions, kTimeout));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i < state.partitions.size() && state.partitions[i].committed == entries[i].position) {
        continue;
      }
      return absl::InternalError(absl::StrCat("log export: the position of group ", group, " at ",
                                              entries[i].tp.ToString(), " is another in Kafka"));
    }
  }
  return absl::OkStatus();
}

}  // namespace postrider
