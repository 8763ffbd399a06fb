// Reading, and its bounds.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/log.h"
#include "core/stream/hole_map.h"
#include "core/stream/internal/shard_impl.h"

namespace postrider::internal {
namespace {

// Records that one turn of the loop reads, and one poll of it: bounds are looked at between polls.
constexpr size_t kRecordsPerTurn = 1'000;
constexpr size_t kRecordsPerPoll = 100;
// From so much on the completed set is soon longer than a commit can name.
constexpr size_t kMetadataNearlyFull = kCommitMetadataTextMax / 10 * 9;

}  // namespace

size_t ShardImpl::ReadRoom() const {
  const int64_t records = options_.pending_records_max - pending_records_;
  const int64_t bytes = (options_.pending_bytes_max - pending_bytes_) / largest_record_;
  const int64_t room = std::min({records, bytes, static_cast<int64_t>(kRecordsPerPoll)});
  return static_cast<size_t>(std::max<int64_t>(room, 1));
}

void ShardImpl::Read() {
  if (Gone()) return;
  last_poll_ = Now();
  size_t taken = 0;
  bool more = true;
  while (more && taken < kRecordsPerTurn && !Holding() && !Gone()) {
    const size_t asked = ReadRoom();
    const size_t got = consumer_->Poll(asked);
    taken += got;
    more = got >= asked;
    CheckPressure();
  }
  UpdateWatch();
  loop_.CancelTimer(read_timer_);
  if (more && !Holding() && !Gone()) {
    read_timer_ = loop_.CallAfter(Duration::zero(), [this] { Read(); });
  }
}

void ShardImpl::OnRecord(const LogRecord& record) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(record.topic, record.partition);
  if (task == nullptr) return;
  if (!task->located()) return LocateFresh(*task, record.offset);
  // What is still fetched for a former life of it comes before Restart(): it is read again then.
  if (!task->running() || !task->reading) return;
  if (task->behind || (full_ && AtLeast(8, 9))) {
    task->behind = true;  // read again when there is room
    return;
  }
  largest_record_ = std::max(largest_record_, static_cast<int64_t>(record.bytes()));
  if (task->OnRecord(record)) {
    metrics_.records_read.Increment();
  } else {
    metrics_.records_skipped.Increment();
  }
}

void ShardImpl::OnPartitionEnd(const TopicPartition& tp, int64_t next) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(tp);
  if (task == nullptr) return;
  if (!task->located()) return LocateFresh(*task, next);
  // One that was passed over for want of room comes before the end.
  if (!task->running() || !task->reading || task->behind) return;
  task->ended_at = next;
  task->OnPartitionEnd(next);
}

void ShardImpl::OnOutOfRange(const TopicPartition& tp, int64_t log_start) {
  if (phase_ != Phase::kRunning || stopping_) return;
  Task* task = Find(tp);
  if (task == nullptr) return;
  if (!task->located()) return consumer_->Restart(tp, log_start);
  if (!task->running() || !task->reading) return;  // told again when it reads again
  const int64_t position = task->tracker().next_offset();
  if (position < log_start) {
    // What was read and pends goes on; what was not read is gone.
    metrics_.below_log_start.Increment();
    POSTRIDER_LOG(kError, "records were lost: the log was trimmed above the position",
                  {"job", options_.name}, {"partition", tp.ToString()}, {"position", position},
                  {"log_start", log_start}, {"lost_at_most", log_start - position});
    task->SkipTo(log_start);
  } else {
    // Another log stands under this name (or its end was cut off): its offsets name other records.
    metrics_.above_log_end.Increment();
    POSTRIDER_LOG(kError, "position is past the log's end: all of the log is read anew",
                  {"job", options_.name}, {"partition", tp.ToString()}, {"position", position},
                  {"log_start", log_start}, {"pending", task->tracker().pending()});
    task->Close(TaskState::kCreated);
    task->set_incarnation_ms(WallMillis());
    task->Locate(log_start, OffsetSet());
    task->ForceDirty();
    return BeginAnew(*task, log_start);
  }
  consumer_->Restart(tp, log_start);
}

// What pends is at least this part of a bound.
bool ShardImpl::AtLeast(int64_t denominator, int64_t numerator) const {
  const auto reaches = [=](int64_t value, int64_t max) {
    return value >= max / denominator * numerator + max % denominator;
  };
  return reaches(pending_records_, options_.pending_records_max) ||
         reaches(pending_bytes_, options_.pending_bytes_max) ||
         reaches(tracked_, options_.tracked_records_max);
}

void ShardImpl::TellOfPressure() {
  for (auto& [tp, task] : tasks_) {
    if (task->running()) task->function().OnPressure(*task);
  }
}

void ShardImpl::TellOfHoles() {
  for (auto& [tp, task] : tasks_) {
    if (!task->running()) continue;
    const CompletionTracker& tracker = task->tracker();
    const bool many = tracker.holes() >= options_.holes_max ||
                      static_cast<int64_t>(tracker.hole_bytes()) >= options_.hole_bytes_max ||
                      (tracker.holes() > 0 && task->metadata_bytes >= kMetadataNearlyFull);
    if (many) task->function().OnHoles(*task, tracker.MiddleOfHoles());
  }
}

void ShardImpl::CheckPressure() {
  if (!full_ && AtLeast(1, 1)) {
    full_ = true;
    was_full_ = true;
    load_.SetFull(true);
    TellOfPressure();
    return;
  }
  if (!full_ || pending_records_ > options_.pending_records_max / 2 ||
      pending_bytes_ > options_.pending_bytes_max / 2 ||
      tracked_ > options_.tracked_records_max / 2) {
    return;
  }
  full_ = false;
  load_.SetFull(false);
  for (auto& [tp, task] : tasks_) {
    if (!std::exchange(task->behind, false)) continue;
    if (phase_ == Phase::kRunning && task->running()) {
      consumer_->Restart(tp, task->tracker().next_offset());
    }
  }
}

void ShardImpl::UpdateWatch() {
  if (Gone()) return;
  const uint32_t wanted = Holding() ? kFdNone : kFdReadable;
  if (wanted == watched_) return;
  watched_ = wanted;
  loop_.SetEvents(consumer_->wake_fd(), wanted);
}

}  // namespace postrider::internal
