#include "core/embedded_log/internal/key_compaction.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"

namespace postrider::embedded_log_internal {
namespace {

constexpr size_t kReadBytes = 1 << 20;
// A run of which this much is left stands alone.
constexpr size_t kRunBytes = 96 << 10;

absl::Status Stopped() { return absl::AbortedError("compaction was told to stop"); }

}  // namespace

KeyCompaction::KeyHash KeyCompaction::HashOf(absl::string_view key) {
  return {absl::HashOf(key), absl::HashOf(0x9e3779b97f4a7c15ULL, key)};
}

absl::StatusOr<Cleaned> KeyCompaction::Run() {
  if (absl::Status status = LearnKeys(); !status.ok()) return status;
  drop_tombstones_ = before.tombstones > 0 && now_ms - before.tombstones_ms >= tombstone_ms;
  if (absl::Status status = Rewrite(); !status.ok()) return status;
  Cleaned after = before;
  after.until = std::max(before.until, until_);
  after.bytes = left_bytes_;
  if (drop_tombstones_ || before.tombstones == 0) {
    after.tombstones = after.until;
    after.tombstones_ms = now_ms;
  }
  return after;
}

// From where the last round ended: everything below has each key once.
absl::Status KeyCompaction::LearnKeys() {
  int64_t at = std::max(begin, before.until);
  until_ = at;
  while (at < end && latest_.size() < keys_max) {
    if (stopping()) return Stopped();
    auto runs = database_.ReadRuns(id_, at, end, kReadBytes);
    if (!runs.ok()) return runs.status();
    for (const RunPtr& run : *runs) {
      // What is appended next may be put beside the last run in memory.
      if (run->next >= end || latest_.size() >= keys_max) return absl::OkStatus();
      RunReader reader(*run);
      LogRecord record;
      while (reader.Next(&record)) {
        if (MillisSinceEpoch(record.timestamp) > now_ms - lag_ms && lag_ms > 0) {
          return absl::OkStatus();
        }
        if (!record.key.empty()) latest_[HashOf(record.key)] = record.offset;
      }
      at = run->next;
      until_ = at;
    }
  }
  return absl::OkStatus();
}

bool KeyCompaction::Stays(const LogRecord& record) const {
  if (record.key.empty()) return true;
  const auto found = latest_.find(HashOf(record.key));
  if (found != latest_.end() && record.offset < found->second) return false;
  const bool tombstone = record.value.data() == nullptr;
  return !(drop_tombstones_ && tombstone && record.offset < before.tombstones);
}

absl::Status KeyCompaction::Rewrite() {
  int64_t at = begin;
  while (at < until_) {
    if (stopping()) return Stopped();
    auto runs = database_.ReadRuns(id_, at, until_, kReadBytes);
    if (!runs.ok()) return runs.status();
    for (const RunPtr& run : *runs) {
      if (run->next > until_) {
        at = until_;
        break;
      }
      at = run->next;
      if (run->bytes.empty()) continue;
      if (absl::Status status = TakeRun(run); !status.ok()) return status;
    }
  }
  return PutTogether();
}

absl::Status KeyCompaction::TakeRun(const RunPtr& run) {
  const absl::optional<RunHeader> header = ReadRunHeader(run->bytes);
  RunReader reader(*run);
  LogRecord record;
  uint32_t stay = 0;
  while (reader.Next(&record)) stay += Stays(record) ? 1 : 0;
  // A damaged run is left as it is: what can be read of it is served.
  const bool whole = reader.damaged() || !header.has_value() || stay == header->records;
  if (whole && (reader.damaged() || run->bytes.size() >= kRunBytes)) {
    left_bytes_ += run->bytes.size();
    return PutTogether();
  }
  if (bases_.empty()) bytes_before_ = header->bytes_before;
  bases_.push_back(run->base);
  next_ = run->next;
  high_ms_ = std::max(high_ms_, header->high_ms);
  changed_ = changed_ || !whole;
  dropped_ += header->records - stay;
  reader = RunReader(*run);
  while (stay > 0 && reader.Next(&record)) {
    if (!Stays(record)) continue;
    const int64_t ms = MillisSinceEpoch(record.timestamp);
    if (builder_.empty()) builder_.Begin(bases_.front(), ms);
    builder_.Add(record.offset, ms, record);
  }
  return builder_.bytes() >= kRunBytes ? PutTogether() : absl::OkStatus();
}

absl::Status KeyCompaction::PutTogether() {
  Step step;
  const bool worth_it = changed_ || bases_.size() > 1;
  if (!bases_.empty()) step.first = bases_.front();
  if (builder_.empty()) {
    step.drop = std::move(bases_);
  } else {
    std::shared_ptr<postrider::embedded_log_internal::Run> run =
        builder_.Finish(next_, high_ms_, bytes_before_);
    left_bytes_ += run->bytes.size();
    step.drop.assign(bases_.begin() + 1, bases_.end());
    step.put = std::move(run);
  }
  bases_.clear();
  changed_ = false;
  if (!worth_it || (step.drop.empty() && step.put == nullptr)) return absl::OkStatus();
  return change(std::move(step));
}

}  // namespace postrider::embedded_log_internal
