#include "core/stream/internal/task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/stream/operation.h"

namespace postrider::internal {
namespace {
constexpr std::chrono::milliseconds kTimestampStep{100};
// Values whose time has passed that one call removes.
constexpr size_t kSweepMax = 1'000;
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
  ended_at = 0;
  covered_at.reset();
  timestamps_.clear();
}

absl::Status Task::OpenState() {
  POSTRIDER_CHECK(!open() && parts_.empty() && located());
  failure_.reset();
  refused_ = false;
  const std::vector<ChangelogOptions>& changelogs = host_.changelogs();
  for (size_t i = 0; i < changelogs.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<ChangelogPart> part,
                     ChangelogPart::Open(host_.changelog_producer(i), clock(), changelogs[i], i,
                                         tp_.partition, epoch_, *this));
    parts_.push_back(std::move(part));
  }
  if (!parts_.empty()) in_flight_.emplace(parts_.front()->backend(), clock());
  return absl::OkStatus();
}

absl::Status Task::Open(std::unique_ptr<KeyedProcessFunction> function) {
  POSTRIDER_CHECK(!open());
  function_ = std::move(function);
  life_ = std::make_shared<const Life>();
  resume_wanted_ = true;
  opened_at = clock().Now();
  state_ = parts_.empty() ? TaskState::kRunning : TaskState::kRestoring;
  absl::Status opened = function_->Open(*this);
  if (opened.ok()) host_.TaskWants();
  return opened;
}

// What is restored beside records waits until the task runs, so that functions hear of it last.
void Task::OnPartMarked(ChangelogPart& part) {
  if (failure_) return;
  if (part.when() == ChangelogOptions::Restore::kFirst || state_ == TaskState::kRunning) {
    host_.restorer().Add(part);
  }
}

void Task::OnPartRestored(ChangelogPart& part) {
  if (failure_) return;
  if (state_ == TaskState::kRunning) return function_->OnRestored(*this, part.index());
  const bool complete = std::all_of(parts_.begin(), parts_.end(), [](const auto& each) {
    return each->restored() || each->when() != ChangelogOptions::Restore::kFirst;
  });
  if (complete) BeginRunning();
}

void Task::BeginRunning() {
  absl::StatusOr<std::vector<Operation>> inherited = in_flight_->Inherited();
  if (!inherited.ok()) return Fail(inherited.status());
  for (const auto& part : parts_) {
    if (part->restored()) function_->OnRestored(*this, part->index());
    if (failure_) return;
  }
  if (!inherited->empty()) {
    host_.metrics().operations_inherited.Add(static_cast<double>(inherited->size()));
    function_->OnInherited(*this, *std::move(inherited));
    if (failure_) return;
  }
  state_ = TaskState::kRunning;
  resume_wanted_ = true;
  ArmTimer();
  for (const auto& part : parts_) {
    if (part->when() == ChangelogOptions::Restore::kBeside && part->marker()) {
      host_.restorer().Add(*part);
    }
  }
  host_.TaskRestored(*this);
  host_.TaskWants();
}

void Task::OnPartRoom() {
  if (open() && !failure_) function_->OnRoom(*this);
}

uint64_t Task::OwnerBefore() const {
  uint64_t before = 0;
  for (const auto& part : parts_) before = std::max(before, part->owner_before());
  return before;
}

void Task::RetryWrites() {
  for (const auto& part : parts_) part->Retry();
}

void Task::Sweep() {
  for (const auto& part : parts_) part->backend().Sweep(clock().Wall(), kSweepMax);
}

void Task::OnCommitAcknowledged(MonotonicTime issued) {
  for (const auto& part : parts_) part->OnCommitAcknowledged(issued);
}

void Task::NameOperations() {
  if (!in_flight_ || !running()) return;
  if (!in_flight_->Write(function_->Operations())) {
    POSTRIDER_LOG(kWarn, "no room to name what is in flight: it may be repeated",
                  {"partition", tp_.ToString()});
  }
}

size_t Task::StateBytes() const {
  size_t bytes = 0;
  for (const auto& part : parts_) {
    bytes += part->backend().memory_bytes() - part->backend().overlay_bytes();
  }
  return bytes;
}

bool Task::HasPendingWrites() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->pending() > 0; });
}

void Task::Close(TaskState state, KeyedProcessFunction::CloseReason reason) {
  state_ = state;
  failure_.reset();
  for (const auto& part : parts_) host_.restorer().Remove(*part);
  if (!open()) {
    in_flight_.reset();
    parts_.clear();
    return;
  }
  life_.reset();
  DisarmTimer();
  timers_.Clear();
  timestamps_.clear();
  function_->Close(*this, reason);
  function_.reset();
  in_flight_.reset();
  parts_.clear();
  Report();
}

bool Task::OnRecord(const LogRecord& record) {
  switch (tracker_->Add(record.offset, record.bytes())) {
    case CompletionTracker::Admission::kNew:
      NoteTimestamp(record.offset, record.timestamp);
      Report();
      if (IsResult(record)) {
        OnResultRecord(record);
      } else {
        function_->OnElement(*this, record);
      }
      return true;
    case CompletionTracker::Admission::kCompleted:
      Report();
      if (!IsResult(record)) function_->OnSkipped(*this, record);
      return false;
    case CompletionTracker::Admission::kStale:
      return false;
  }
  return false;
}

// Only topics of our own carry results: elsewhere the header is a stranger's.
bool Task::IsResult(const LogRecord& record) const {
  return !parts_.empty() && record.Header(kResultHeader).data() != nullptr;
}

// One that cannot be read costs the wait for the operation's deadline, and a repeat.
void Task::OnResultRecord(const LogRecord& record) {
  const absl::StatusOr<OperationResult> result = DecodeOperationResult(record.value);
  if (result.ok()) {
    host_.metrics().results_received.Increment();
    function_->OnResult(*this, *result);
  } else {
    host_.metrics().results_unreadable.Increment();
    POSTRIDER_LOG(kError, "a result record cannot be read", {"partition", tp_.ToString()},
                  {"offset", record.offset}, {"status", result.status().ToString()});
    if (absl::IsUnimplemented(result.status())) {
      return Fail(absl::FailedPreconditionError(absl::StrCat(
          "result record at offset ", record.offset, ": ", result.status().message())));
    }
  }
  if (!failure_) Complete(record.offset);
}

void Task::OnPartitionEnd(int64_t next) { function_->OnPartitionEnd(*this, next); }

void Task::SkipTo(int64_t log_start) {
  tracker_->SkipTo(log_start);
  Report();
}

void Task::OnRoomIfRefused() {
  if (!refused_ || !open() || failure_) return;
  refused_ = false;
  for (const auto& part : parts_) part->OnRoom();
  if (!failure_) function_->OnRoom(*this);
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
  if (host_.outputs().Append(std::move(record), std::move(answer))) return true;
  done = std::move(taken->done);
  refused_ = true;
  return false;
}

StateBackend& Task::state(size_t index) {
  POSTRIDER_CHECK(index < parts_.size());
  return parts_[index]->backend();
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
