#include "core/stream/internal/restorer.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace postrider::internal {
namespace {
constexpr std::chrono::milliseconds kFullRetry{200};

bool IsFirst(const ChangelogPart& part) { return part.when() == ChangelogOptions::Restore::kFirst; }
}  // namespace

Restorer::Restorer(Log& log, EventLoop& loop, int beside_max, int64_t prefetch_bytes,
                   int64_t bytes_max, ShardMetrics& metrics)
    : log_(log),
      loop_(loop),
      beside_max_(std::max(1, beside_max)),
      prefetch_bytes_(prefetch_bytes),
      bytes_max_(bytes_max),
      metrics_(metrics) {}

Restorer::~Restorer() {
  POSTRIDER_CHECK(restores_.empty());
  loop_.CancelTimer(read_timer_);
  if (reader_ != nullptr) loop_.Unwatch(reader_->wake_fd());
}

absl::Status Restorer::OpenReader() {
  if (reader_ != nullptr) return absl::OkStatus();
  ReaderOptions options;
  options.prefetch_bytes = prefetch_bytes_;
  ASSIGN_OR_RETURN(reader_, log_.OpenReader(loop_, options, *this));
  return loop_.Watch(reader_->wake_fd(), kFdReadable, [this](uint32_t) {
    if (read_timer_ == 0) Read();  // else it is this turn's, or the next one's
  });
}

void Restorer::Add(ChangelogPart& part) {
  POSTRIDER_CHECK(part.marker().has_value());
  if (const absl::Status opened = OpenReader(); !opened.ok()) return part.Fail(opened);
  Restore restore;
  restore.part = &part;
  restore.number = ++added_;
  restore.began = loop_.clock().Now();
  const bool added = restores_.emplace(part.partition(), std::move(restore)).second;
  POSTRIDER_CHECK(added);
  if (IsFirst(part)) ++first_;
  Schedule();
}

void Restorer::Remove(ChangelogPart& part) {
  const auto found = restores_.find(part.partition());
  if (found == restores_.end() || found->second.part != &part) return;
  Suspend(found->first, found->second);
  loop_.CancelTimer(found->second.retry);
  if (IsFirst(part)) --first_;
  last_ = restores_.end();
  restores_.erase(found);
  Schedule();
}

void Restorer::Schedule() {
  std::vector<Restores::iterator> beside;
  for (auto at = restores_.begin(); at != restores_.end(); ++at) {
    auto& [tp, restore] = *at;
    if (IsFirst(*restore.part)) {
      Begin(tp, restore);
    } else if (first_ > 0) {
      Suspend(tp, restore);
    } else {
      beside.push_back(at);
    }
  }
  std::sort(beside.begin(), beside.end(),
            [](const auto& a, const auto& b) { return a->second.number < b->second.number; });
  size_t left = static_cast<size_t>(beside_max_);
  // One that waits for its store leaves its turn to the next.
  bool one = false;
  for (const auto& at : beside) {
    auto& [tp, restore] = *at;
    const bool goes = left > 0 && !(full_ && one);
    if (left > 0) --left;
    if (!goes) {
      Suspend(tp, restore);
      continue;
    }
    Begin(tp, restore);
    one = one || restore.reading;
  }
}

void Restorer::LookAtMemory() {
  int64_t bytes = 0;
  for (const auto& [tp, restore] : restores_) {
    bytes += static_cast<int64_t>(restore.part->backend().restore_bytes());
  }
  if (std::exchange(full_, bytes > bytes_max_) != full_) Schedule();
}

void Restorer::Begin(const TopicPartition& tp, Restore& restore) {
  if (restore.reading || restore.refused) return;
  restore.reading = true;
  reader_->Add(restore.next ? StartPosition{tp, StartPosition::At::kOffset, *restore.next}
                            : StartPosition{tp, StartPosition::At::kLogStart, 0});
}

void Restorer::Suspend(const TopicPartition& tp, Restore& restore) {
  if (!restore.reading) return;
  restore.reading = false;
  reader_->Remove(tp);
}

void Restorer::Read() {
  size_t read = 0;
  do {
    const size_t got = reader_->Poll(kPollRecords);
    LookAtMemory();
    if (got < kPollRecords) return;
    read += got;
  } while (first_ > 0 && read < kFirstRecords);
  read_timer_ = loop_.CallAfter(Duration::zero(), [this] {
    read_timer_ = 0;
    Read();
  });
}

Restorer::Restores::iterator Restorer::Find(absl::string_view topic, int32_t partition) {
  if (last_ != restores_.end() && last_->first.partition == partition &&
      last_->first.topic == topic) {
    return last_;
  }
  last_ = restores_.find(TopicPartition{std::string(topic), partition});
  return last_;
}

void Restorer::OnRecord(const LogRecord& record) {
  const auto at = Find(record.topic, record.partition);
  if (at == restores_.end()) return;
  Restore& restore = at->second;
  if (!restore.reading || (restore.next && record.offset < *restore.next)) return;
  const absl::Status taken = restore.part->Restore(record.key, record.value);
  restore.next = record.offset + 1;
  if (absl::IsResourceExhausted(taken)) {
    restore.refused.emplace(std::string(record.key), std::string(record.value));
    Suspend(at->first, restore);
    POSTRIDER_LOG(kWarn, "a restore waits: its store is full", {"changelog", at->first.ToString()},
                  {"status", taken.ToString()});
    return WaitForRoom(at->first, restore);
  }
  if (!taken.ok()) return Fault(at, taken);
  Advance(at);
}

void Restorer::WaitForRoom(const TopicPartition& tp, Restore& restore) {
  restore.retry = loop_.CallAfter(kFullRetry, [this, tp] { Retry(tp); });
}

void Restorer::Retry(const TopicPartition& tp) {
  const auto at = restores_.find(tp);
  POSTRIDER_CHECK(at != restores_.end() && at->second.refused.has_value());
  Restore& restore = at->second;
  restore.retry = 0;
  const absl::Status taken = restore.part->Restore(restore.refused->first, restore.refused->second);
  if (absl::IsResourceExhausted(taken)) return WaitForRoom(tp, restore);
  restore.refused.reset();
  if (!taken.ok()) return Fault(at, taken);
  Advance(at);
  Schedule();
}

void Restorer::Advance(Restores::iterator at) {
  ++at->second.records;
  if (*at->second.next > *at->second.part->marker()) Finish(at);
}

void Restorer::OnPartitionEnd(const TopicPartition& tp, int64_t next) {
  const auto at = restores_.find(tp);
  if (at == restores_.end() || !at->second.reading) return;
  if (next > *at->second.part->marker()) Finish(at);
}

void Restorer::Finish(Restores::iterator at) {
  Restore& restore = at->second;
  ChangelogPart& part = *restore.part;
  const Duration took = loop_.clock().Now() - restore.began;
  metrics_.restores.Increment();
  metrics_.restore_seconds.Add(std::chrono::duration<double>(took).count());
  metrics_.restore_records.Add(static_cast<double>(restore.records));
  POSTRIDER_LOG(kInfo, "changelog restored", {"changelog", at->first.ToString()},
                {"records", restore.records}, {"ms", took});
  Remove(part);
  part.EndRestore();
}

void Restorer::Fault(Restores::iterator at, const absl::Status& why) {
  ChangelogPart& part = *at->second.part;
  const int64_t offset = *at->second.next - 1;
  metrics_.restores_failed.Increment();
  POSTRIDER_LOG(kError, "a changelog cannot be restored", {"changelog", at->first.ToString()},
                {"offset", offset}, {"status", why.ToString()});
  const absl::Status told(why.code(), absl::StrCat("restore of ", at->first.ToString(),
                                                   " at offset ", offset, ": ", why.message()));
  Remove(part);
  part.Fail(told);
}

}  // namespace postrider::internal
