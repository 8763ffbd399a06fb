#include "core/embedded_log/internal/writer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/thread_name.h"

namespace postrider::embedded_log_internal {
namespace {

// A run is what is read at once: as large as a few hundred records.
constexpr size_t kRunBytesMax = 128 << 10;
// With so much waiting the next group begins at once.
constexpr size_t kManyBytes = 256 << 10;
constexpr size_t kHeadersMax = 1'000;
// A flush that is behind is waited for as long before it counts as a failure.
constexpr std::chrono::seconds kFlushPatience{2};
constexpr std::chrono::milliseconds kFlushLook{5};
// After so much that was written what is free on the disk is asked for, besides now and then.
constexpr uint64_t kLookAtSpaceBytes = 4 << 20;

size_t BytesOf(const AppendRecord& record) {
  size_t bytes = record.key.size() + record.value.size();
  for (const auto& [name, value] : record.headers) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

void AnswerBox::Leave(Answers answers) {
  absl::MutexLock lock(&mutex_);
  if (answers_.empty()) {
    answers_ = std::move(answers);
    wake_.Wake();
    return;
  }
  for (auto& answer : answers) answers_.push_back(std::move(answer));
}

AnswerBox::Answers AnswerBox::Take() {
  absl::MutexLock lock(&mutex_);
  wake_.Clear();
  return std::exchange(answers_, Answers());
}

Writer::Writer(Core& core, const Options& options) : core_(core), options_(options) {}

Writer::~Writer() { Stop(); }

void Writer::Start() {
  LookAtSpace();
  watch_ = std::thread([this] {
    NameThread("log-watch");
    Watch();
  });
  thread_ = std::thread([this] {
    NameThread("log-writer");
    Run();
  });
}

void Writer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wait_.Notify();
  watch_wait_.Notify();
  if (thread_.joinable()) thread_.join();
  if (watch_.joinable()) watch_.join();
}

void Writer::Append(const std::shared_ptr<AnswerBox>& box, AppendRecord&& record) {
  const size_t bytes = BytesOf(record);
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({box, std::move(record)});
  waiting_bytes_ += bytes;
  if (waiting_bytes_ >= kManyBytes && waiting_bytes_ - bytes < kManyBytes) wait_.Notify();
}

void Writer::Submit(Change change) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      changes_.push_back(std::move(change));
      return;
    }
  }
  std::move(change.done)(absl::AbortedError("embedded log: it is closed"));
}

void Writer::Run() {
  while (Gather()) {
    Compose();
    if (!set_.empty() && !WriteUntilDone()) break;
    AnswerAll();
  }
  // What was not written is not answered for as if it were.
  std::vector<Change> left;
  {
    absl::MutexLock lock(&mutex_);
    left = std::move(changes_);
  }
  for (Change& change : group_changes_) left.push_back(std::move(change));
  for (Change& change : left) {
    if (change.done != nullptr) {
      std::move(change.done)(absl::AbortedError("embedded log: it is closed"));
    }
  }
}

bool Writer::Gather() {
  absl::MutexLock lock(&mutex_);
  const auto something = [](Writer* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
    return self->stopping_ || self->next_item_ < self->items_.size() || !self->waiting_.empty() ||
           !self->changes_.empty();
  };
  mutex_.Await(absl::Condition(+something, this));
  const auto since = std::chrono::steady_clock::now() - synced_;
  if (since < options_.sync_interval) {
    wait_.For(mutex_, options_.sync_interval - since, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return stopping_ || next_item_ < items_.size() || waiting_bytes_ >= kManyBytes;
    });
  }
  if (next_item_ >= items_.size()) {
    items_.clear();
    next_item_ = 0;
    items_.swap(waiting_);
    waiting_bytes_ = 0;
  }
  group_changes_.clear();
  group_changes_.swap(changes_);
  return !items_.empty() || !group_changes_.empty() || !stopping_;
}

void Writer::LookAtSpace() {
  if (!space_mutex_.TryLock()) return;  // the other one is at it
  TakeSpace();
  space_mutex_.Unlock();
}

void Writer::TakeSpace() {
  const std::filesystem::space_info space = options_.space();
  if (space.available == static_cast<uintmax_t>(-1)) return;  // unknown
  const uint64_t reserve = std::min<uint64_t>(options_.reserve_bytes, space.capacity / 8);
  // A quarter more, so that it does not come and go.
  const bool before = core_.nearly_full;
  const bool nearly_full = space.available < (before ? reserve / 4 * 5 : reserve);
  if (nearly_full == before) return;
  core_.nearly_full = nearly_full;
  core_.metrics.takes_events.Set(nearly_full ? 0 : 1);
  if (nearly_full) {
    POSTRIDER_LOG(kError, "the disk of the embedded log is nearly full: events are refused",
                  {"free_mb", space.available >> 20}, {"reserve_mb", reserve >> 20});
  } else {
    POSTRIDER_LOG(kInfo, "the disk of the embedded log has room again",
                  {"free_mb", space.available >> 20});
  }
}

void Writer::Compose() {
  if (bytes_since_look_ >= kLookAtSpaceBytes) {
    bytes_since_look_ = 0;
    LookAtSpace();
  }
  set_.Clear();
  touched_.clear();
  answers_.clear();
  change_status_.clear();
  group_records_ = 0;
  group_bytes_ = 0;
  const WallTime wall = core_.clock.Wall();
  const WallTime age = core_.AgeTime();
  const int64_t ms = MillisSinceEpoch(wall);
  // A clock that was set back makes no record old.
  const int64_t age_ms = age - wall > kClockOffMax ? MillisSinceEpoch(age) : ms;
  for (; next_item_ < items_.size() && group_bytes_ < kGroupBytesMax; ++next_item_) {
    Item& item = items_[next_item_];
    auto mine = std::find_if(answers_.begin(), answers_.end(),
                             [&item](const auto& one) { return one.first == item.box; });
    if (mine == answers_.end()) mine = answers_.insert(mine, {item.box, {}});
    mine->second.push_back(Place(item.record, ms, age_ms));
    item.box = nullptr;
  }
  for (const PartitionPtr& partition : touched_) {
    CutRun(partition);
    partition->touched = false;
    for (const RunPtr& run : partition->fresh) set_.PutRun(partition->id, *run);
  }
  for (Change& change : group_changes_) change_status_.push_back(change.prepare(set_));
}

absl::StatusOr<int64_t> Writer::Place(AppendRecord& record, int64_t ms, int64_t age_ms) {
  const size_t bytes = BytesOf(record);
  const auto found = topics_.find(record.topic);
  if (found == topics_.end() || record.partition < 0 ||
      static_cast<size_t>(record.partition) >= found->second->partitions.size()) {
    return absl::NotFoundError(
        absl::StrCat("embedded log: no partition ", record.topic, "/", record.partition));
  }
  const Topic& topic = *found->second;
  if (topic.frozen) {
    return absl::FailedPreconditionError(absl::StrCat("embedded log: ", topic.name, " is frozen"));
  }
  if (bytes > kRecordBytesMax || record.headers.size() > kHeadersMax) {
    return absl::InvalidArgumentError("embedded log: the record is too large");
  }
  if (record.key.empty() && record.value.empty() && record.headers.empty()) {
    return absl::InvalidArgumentError("embedded log: the record says nothing");
  }
  if (core_.nearly_full && !topic.policy.says_retention && !topic.policy.compacted) {
    return absl::ResourceExhaustedError(
        "embedded log: its disk is nearly full; make room, or lower log.retention or "
        "log.retention_bytes");
  }
  const PartitionPtr& partition = topic.partitions[static_cast<size_t>(record.partition)];
  if (!partition->touched) {
    partition->touched = true;
    touched_.push_back(partition);
  }
  const int64_t offset = partition->next++;
  if (partition->builder.empty()) partition->builder.Begin(offset, ms);
  partition->builder.Add(offset, ms, record.key, record.value, record.tombstone, record.headers);
  partition->high_ms = std::max(partition->high_ms, age_ms);
  if (partition->builder.bytes() >= kRunBytesMax) CutRun(partition);
  ++group_records_;
  group_bytes_ += bytes;
  return offset;
}

void Writer::CutRun(const PartitionPtr& partition) {
  if (partition->builder.empty()) return;
  RunPtr run =
      partition->builder.Finish(partition->next, partition->high_ms, partition->next_bytes);
  partition->next_bytes += run->bytes.size();
  partition->fresh.push_back(std::move(run));
}

bool Writer::WriteUntilDone() {
  bool told = false;
  const auto began = std::chrono::steady_clock::now();
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    synced_ = begin;
    absl::Status status;
    if (told) status = core_.database->Recover();
    if (status.ok()) status = Write();
    if (status.ok()) {
      core_.metrics.write_seconds.Observe(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      break;
    }
    Duration wait = options_.retry_interval;
    if (absl::IsAborted(status) && begin - began < kFlushPatience) {
      wait = kFlushLook;
    } else {
      TellFailure(status);
      told = true;
    }
    absl::MutexLock lock(&mutex_);
    const auto stopping = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; };
    if (wait_.For(mutex_, wait, stopping)) return false;
  }
  absl::MutexLock lock(&core_.mutex);
  if (core_.writable.ok()) return true;
  POSTRIDER_LOG(kInfo, "the embedded log is written again");
  core_.SetWritable(absl::OkStatus());
  return true;
}

absl::Status Writer::Write() {
  {
    absl::MutexLock lock(&core_.mutex);
    write_began_ = std::chrono::steady_clock::now();
  }
  absl::Status status = core_.database->Write(set_);
  absl::MutexLock lock(&core_.mutex);
  write_began_.reset();
  return status;
}

void Writer::Watch() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto stopping = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; };
      if (watch_wait_.For(mutex_, options_.slow_after / 3, stopping)) return;
    }
    absl::Status slow;
    absl::optional<std::chrono::steady_clock::time_point> began;
    {
      absl::MutexLock lock(&core_.mutex);
      began = write_began_;
    }
    // A disk that hangs may not even say how much is free.
    if (!began) {
      LookAtSpace();
      continue;
    }
    {
      absl::MutexLock lock(&core_.mutex);
      if (!write_began_ || !core_.writable.ok()) continue;
      const auto took = std::chrono::steady_clock::now() - *write_began_;
      if (took < options_.slow_after) continue;
      slow = absl::UnavailableError(
          absl::StrCat("embedded log: a write has not ended for ",
                       std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), " ms"));
      core_.SetWritable(slow);
    }
    POSTRIDER_LOG(kError, "the disk of the embedded log hangs", {"why", slow.message()});
  }
}

void Writer::TellFailure(const absl::Status& status) {
  core_.metrics.write_failures.Increment();
  POSTRIDER_LOG(kError, "the embedded log cannot be written; it is tried again",
                {"why", status.message()});
  absl::MutexLock lock(&core_.mutex);
  core_.SetWritable(status);
}

void Writer::AnswerAll() {
  {
    absl::MutexLock lock(&core_.mutex);
    core_.Publish(touched_);
  }
  core_.metrics.groups.Increment();
  core_.metrics.appends.Add(static_cast<double>(group_records_));
  core_.metrics.append_bytes.Add(static_cast<double>(group_bytes_));
  bytes_since_look_ += group_bytes_;
  for (auto& [box, answers] : answers_) box->Leave(std::move(answers));
  answers_.clear();
  std::vector<Change> changes = std::move(group_changes_);
  group_changes_.clear();
  for (size_t i = 0; i < changes.size(); ++i) std::move(changes[i].done)(change_status_[i]);
}

}  // namespace postrider::embedded_log_internal
