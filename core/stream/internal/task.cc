#include "core/stream/internal/task.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "core/base/check.h"

namespace postrider::internal {
namespace {
constexpr std::chrono::milliseconds kTimestampStep{100};
}  // namespace

Task::Task(TaskHost& host, TopicPartition tp, uint64_t epoch, int64_t incarnation_ms)
    : host_(host), tp_(std::move(tp)), epoch_(epoch), incarnation_ms_(incarnation_ms) {}

Task::~Task() {
  Close(TaskState::kClosed);
  if (reopen_timer != 0) host_.loop().CancelTimer(reopen_timer);
}

void Task::Locate(int64_t watermark, const OffsetSet& completed_above) {
  POSTRIDER_CHECK(!open());
  tracker_.emplace(watermark, completed_above);
  acknowledged_version_ = tracker_->version();
  ++lives_;
  timestamps_.clear();
}

absl::Status Task::Open(std::unique_ptr<KeyedProcessFunction> function) {
  POSTRIDER_CHECK(!open() && located());
  function_ = std::move(function);
  life_ = std::make_shared<const Life>();
  failure_.reset();
  refused_ = false;
  resume_wanted_ = true;
  opened_at = clock().Now();
  state_ = TaskState::kRunning;
  absl::Status opened = function_->Open(*this);
  if (opened.ok()) host_.TaskWants();
  return opened;
}

void Task::Close(TaskState state, KeyedProcessFunction::CloseReason reason) {
  state_ = state;
  failure_.reset();
  if (!open()) return;
  life_.reset();
  DisarmTimer();
  timers_.Clear();
  timestamps_.clear();
  function_->Close(*this, reason);
  function_.reset();
  Report();
}

bool Task::OnRecord(const LogRecord& record) {
  switch (tracker_->Add(record.offset, record.bytes())) {
    case CompletionTracker::Admission::kNew:
      NoteTimestamp(record.offset, record.timestamp);
      Report();
      function_->OnElement(*this, record);
      return true;
    case CompletionTracker::Admission::kCompleted:
      Report();
      function_->OnSkipped(*this, record);
      return false;
    case CompletionTracker::Admission::kStale:
      return false;
  }
  return false;
}

void Task::OnPartitionEnd(int64_t next) { function_->OnPartitionEnd(*this, next); }

void Task::SkipTo(int64_t log_start) {
  tracker_->SkipTo(log_start);
  Report();
}

void Task::OnRoomIfRefused() {
  if (!refused_ || !open() || failure_) return;
  refused_ = false;
  function_->OnRoom(*this);
}

void Task::ResumeIfWanted() {
  if (!resume_wanted_ || !running()) return;
  resume_wanted_ = false;
  function_->OnResume(*this);
}

void Task::NoteTimestamp(int64_t offset, WallTime timestamp) {
  if (!timestamps_.empty()) {
    const auto step = timestamp - timestamps_.back().second;
    if (step < kTimestampStep && step > -kTimestampStep) return;
  }
  timestamps_.emplace_back(offset, timestamp);
}

absl::optional<WallTime> Task::OldestPending() {
  if (!open() || tracker_->pending() == 0) {
    timestamps_.clear();
    return absl::nullopt;
  }
  while (timestamps_.size() > 1 && timestamps_[1].first <= tracker_->watermark()) {
    timestamps_.pop_front();
  }
  if (timestamps_.empty()) return absl::nullopt;
  return timestamps_.front().second;
}

void Task::Report() {
  const auto records = open() ? static_cast<int64_t>(tracker_->pending()) : 0;
  const auto bytes = open() ? static_cast<int64_t>(tracker_->pending_bytes()) : 0;
  const auto tracked = open() ? static_cast<int64_t>(tracker_->tracked()) : 0;
  host_.AddPending(records - reported_records_, bytes - reported_bytes_,
                   tracked - reported_tracked_);
  reported_records_ = records;
  reported_bytes_ = bytes;
  reported_tracked_ = tracked;
}

CommittedPosition Task::Position(const IdBytes& writer, int64_t* left_out) const {
  CommitMetadata metadata;
  metadata.writer = writer;
  metadata.epoch = epoch_;
  metadata.incarnation_ms = incarnation_ms_;
  metadata.completed = tracker_->CompletedAbove();
  EncodedMetadata encoded = EncodeCommitMetadata(metadata, tracker_->watermark());
  *left_out = encoded.forgotten;
  return {tracker_->watermark(), std::move(encoded.text)};
}

void Task::Acknowledged(const CommittedPosition& position, uint64_t version) {
  acknowledged_ = position;
  acknowledged_version_ = version;
  unanswered_.clear();
}

void Task::Unanswered(const CommittedPosition& position) {
  // To forget one costs this task's memory at worst.
  if (unanswered_.size() >= kUnansweredMax) unanswered_.erase(unanswered_.begin());
  unanswered_.push_back(position);
}

bool Task::IsOurs(const CommittedPosition& position) const {
  return (acknowledged_ && *acknowledged_ == position) ||
         std::find(unanswered_.begin(), unanswered_.end(), position) != unanswered_.end();
}

// ---- TaskContext ----

void Task::Complete(int64_t offset) {
  tracker_->Complete(offset);
  Report();
}

bool Task::Emit(AppendRecord&& record, LogProducer::AppendDone&& done) {
  struct Emission {
    std::weak_ptr<const Life> life;
    Task* task;  // there as long as its function's life
    LogProducer::AppendDone done;
  };
  auto emission = std::make_unique<Emission>(Emission{life_, this, std::move(done)});
  Emission* const taken = emission.get();
  LogProducer::AppendDone answer =
      [emission = std::move(emission)](absl::StatusOr<int64_t> offset) mutable {
        if (emission->life.expired() || emission->task->failure_) return;
        std::move(emission->done)(std::move(offset));
      };
  if (host_.producer().Append(std::move(record), std::move(answer))) return true;
  done = std::move(taken->done);
  refused_ = true;
  return false;
}

StateBackend& Task::state(size_t) {
  POSTRIDER_CHECK(false);
  std::abort();
}

void Task::SetTimer(absl::string_view key, uint32_t tag, MonotonicTime time) {
  timers_.Set(key, tag, time);
  ArmTimer();
}

void Task::CancelTimer(absl::string_view key, uint32_t tag) { timers_.Cancel(key, tag); }

// A loop timer that is too early finds nothing due and arms again.
void Task::ArmTimer() {
  if (!running() || !host_.TimersRun()) return;
  const absl::optional<MonotonicTime> earliest = timers_.Earliest();
  if (!earliest || (armed_for_ && *armed_for_ <= *earliest)) return;
  DisarmTimer();
  armed_for_ = earliest;
  loop_timer_ = host_.loop().CallAt(*earliest, [this] { FireTimers(); });
}

void Task::DisarmTimer() {
  if (armed_for_) host_.loop().CancelTimer(loop_timer_);
  armed_for_.reset();
}

void Task::FireTimers() {
  armed_for_.reset();
  const MonotonicTime now = clock().Now();
  const uint64_t mark = timers_.mark();
  while (running() && host_.TimersRun()) {
    const absl::optional<Timers::Due> due = timers_.PopDue(now, mark);
    if (!due) break;
    function_->OnTimer(*this, due->key, due->tag, due->time);
  }
  ArmTimer();
}

bool Task::MayAct() const {
  if (running() && host_.ShardMayAct()) return true;
  resume_wanted_ = true;
  host_.TaskWants();
  return false;
}

absl::AnyInvocable<void() &&> Task::Guard(absl::AnyInvocable<void() &&> callback) {
  return [life = std::weak_ptr<const Life>(life_), this, callback = std::move(callback)]() mutable {
    if (life.expired() || failure_) return;
    std::move(callback)();
  };
}

void Task::Fail(absl::Status why) {
  if (failure_) return;
  failure_ = std::move(why);
  host_.TaskWants();
}

}  // namespace postrider::internal
