#include "core/embedded_log/internal/cursor_set.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/log.h"

namespace postrider::embedded_log_internal {
namespace {

// So many records of one partition come in a row.
constexpr size_t kRowMax = 100;
constexpr int64_t kFetchBytesMin = 64 << 10;
constexpr int64_t kFetchBytesMax = 1 << 20;

}  // namespace

CursorSet::CursorSet(Core& core, Fetcher& fetcher, WakeFd wake, Outside outside,
                     int64_t prefetch_bytes)
    : core_(core),
      fetcher_(fetcher),
      outside_(outside),
      prefetch_bytes_(prefetch_bytes),
      wake_(std::move(wake)) {
  absl::MutexLock lock(&core_.mutex);
  core_.sets.push_back(this);
}

CursorSet::~CursorSet() {
  absl::MutexLock lock(&core_.mutex);
  Clear();
  std::erase(core_.sets, this);
}

void CursorSet::Add(const StartPosition& position) {
  Remove(position.tp);
  auto cursor = std::make_shared<Cursor>();
  cursor->set = this;
  cursor->start = position;
  cursors_[position.tp] = cursor;
  Resolve(*cursor);
  MakeReady(*cursor);
}

void CursorSet::Remove(const TopicPartition& tp) {
  const auto found = cursors_.find(tp);
  if (found == cursors_.end()) return;
  Kill(*found->second);
  cursors_.erase(found);
  FeedHungry();
}

void CursorSet::Clear() {
  for (auto& [tp, cursor] : cursors_) Kill(*cursor);
  cursors_.clear();
  line_.clear();
  hungry_.clear();
}

void CursorSet::Kill(Cursor& cursor) {
  cursor.dead = true;
  if (cursor.partition != nullptr) std::erase(cursor.partition->cursors, &cursor);
  cursor.partition = nullptr;
  cursor.fetched.clear();
  Hold(cursor, -cursor.held_bytes);
  Unfeed(cursor);
}

void CursorSet::Hold(Cursor& cursor, int64_t bytes) {
  cursor.held_bytes += bytes;
  held_bytes_ += bytes;
}

// But not what is asked for, nor the run that is being read.
void CursorSet::DropFetched(Cursor& cursor) {
  for (const RunPtr& run : cursor.fetched) Hold(cursor, -static_cast<int64_t>(run->bytes.size()));
  cursor.fetched.clear();
}

int64_t CursorSet::FetchBytes() const {
  const auto count = static_cast<int64_t>(cursors_.size());
  return std::clamp(prefetch_bytes_ / std::max<int64_t>(count, 1), kFetchBytesMin, kFetchBytesMax);
}

bool CursorSet::HasRoom() const {
  if (held_bytes_ == 0 && fed_ == 0) return true;
  return held_bytes_ + (fed_ + 1) * (FetchBytes() + kFetchRunBytes) <= prefetch_bytes_;
}

void CursorSet::Unfeed(Cursor& cursor) {
  if (std::exchange(cursor.fed, false)) --fed_;
}

void CursorSet::FeedHungry() {
  while (!hungry_.empty() && HasRoom()) {
    const std::shared_ptr<Cursor> cursor = hungry_.front();
    hungry_.pop_front();
    cursor->hungry = false;
    if (cursor->dead) continue;
    cursor->fed = true;
    ++fed_;
    MakeReady(*cursor);
  }
}

void CursorSet::Ask(const std::shared_ptr<Cursor>& cursor) {
  if (cursor->fetching || cursor->hungry) return;
  const bool its_turn = cursor->fed || hungry_.empty();
  Unfeed(*cursor);
  if (!its_turn || !HasRoom()) {
    cursor->hungry = true;
    hungry_.push_back(cursor);
    return;
  }
  const int64_t bytes = FetchBytes();
  cursor->fetching = true;
  Hold(*cursor, bytes + kFetchRunBytes);
  fetcher_.Fetch({cursor, cursor->partition, cursor->position, cursor->partition->end,
                  static_cast<size_t>(bytes), bytes + kFetchRunBytes});
}

void CursorSet::TakeFetched(Cursor& cursor, const PartitionPtr& partition, int64_t asked_bytes,
                            std::vector<RunPtr> runs) {
  if (cursor.dead) return;
  cursor.fetching = false;
  Hold(cursor, -asked_bytes);
  if (cursor.partition == partition && !cursor.out_of_range) {
    for (RunPtr& run : runs) {
      Hold(cursor, static_cast<int64_t>(run->bytes.size()));
      cursor.fetched.push_back(std::move(run));
    }
  }
  MakeReady(cursor);
}

void CursorSet::MakeReady(Cursor& cursor) {
  if (!cursor.ready) {
    const auto found = cursors_.find(cursor.start.tp);
    POSTRIDER_CHECK(found != cursors_.end() && found->second.get() == &cursor);
    cursor.ready = true;
    line_.push_back(found->second);
  }
  Wake();
}

void CursorSet::LookForPartitions(const std::string& topic) {
  for (auto& [tp, cursor] : cursors_) {
    if (tp.topic == topic && cursor->partition == nullptr) MakeReady(*cursor);
  }
}

void CursorSet::Lose(Cursor& cursor) {
  if (cursor.partition != nullptr) std::erase(cursor.partition->cursors, &cursor);
  cursor.partition = nullptr;
  DropFetched(cursor);
  Hold(cursor, -std::exchange(cursor.run_bytes, 0));
  FeedHungry();
}

bool CursorSet::Resolve(Cursor& cursor) {
  if (cursor.partition == nullptr) {
    cursor.partition = core_.FindPartition(cursor.start.tp);
    if (cursor.partition == nullptr) return false;
    cursor.partition->cursors.push_back(&cursor);
    cursor.run = nullptr;
    cursor.end_told = -1;
  }
  if (cursor.position >= 0) return true;
  switch (cursor.start.at) {
    case StartPosition::At::kOffset:
      cursor.position = cursor.start.offset;
      break;
    case StartPosition::At::kLogStart:
      cursor.position = cursor.partition->begin;
      break;
    case StartPosition::At::kLogEnd:
      cursor.position = cursor.partition->end;
      break;
  }
  return true;
}

CursorSet::News CursorSet::Next(bool records) {
  News news;
  FeedHungry();
  // Each that stands in the line is looked at once at most.
  for (size_t left = line_.size(); left > 0;) {
    const std::shared_ptr<Cursor> cursor = line_.front();
    const Step step = cursor->dead ? Step::kNothing : Look(cursor, records, &news);
    if (step == Step::kAgain) continue;
    // Who was fed and needs nothing leaves the room to the next.
    Unfeed(*cursor);
    line_.pop_front();
    if (step == Step::kTell) {
      line_.push_back(cursor);
      return news;
    }
    --left;
    const bool waits = !records && cursor->run != nullptr && !cursor->dead;
    if (waits) {
      line_.push_back(cursor);
    } else {
      cursor->ready = false;
    }
  }
  FeedHungry();
  return news;
}

// What one cursor has to tell; kNothing takes it out of the line until it is made ready again.
CursorSet::Step CursorSet::Look(const std::shared_ptr<Cursor>& cursor, bool records, News* news) {
  if (!Resolve(*cursor) || cursor->out_of_range) return Step::kNothing;
  const Partition& partition = *cursor->partition;
  news->cursor = cursor;
  if (cursor->position < partition.begin || cursor->position > partition.end) {
    cursor->run = nullptr;
    Hold(*cursor, -std::exchange(cursor->run_bytes, 0));
    if (outside_ == Outside::kTold) {
      DropFetched(*cursor);
      cursor->out_of_range = true;
      news->kind = News::Kind::kOutOfRange;
      news->offset = partition.begin;
      return Step::kTell;
    }
    cursor->position = std::clamp(cursor->position, partition.begin, partition.end);
  }
  if (cursor->run == nullptr) return TakeRun(cursor, news);
  if (!records) return Step::kNothing;
  news->kind = News::Kind::kRecords;
  return Step::kTell;
}

CursorSet::Step CursorSet::TakeRun(const std::shared_ptr<Cursor>& cursor, News* news) {
  Partition& partition = *cursor->partition;
  // The one before has been read.
  Hold(*cursor, -std::exchange(cursor->run_bytes, 0));
  RunPtr run;
  while (!cursor->fetched.empty() && run == nullptr) {
    const auto bytes = static_cast<int64_t>(cursor->fetched.front()->bytes.size());
    if (cursor->fetched.front()->next > cursor->position &&
        cursor->fetched.front()->base <= cursor->position) {
      run = cursor->fetched.front();
      cursor->run_bytes = bytes;
    } else {
      Hold(*cursor, -bytes);
    }
    cursor->fetched.pop_front();
  }
  if (run == nullptr && cursor->position == partition.end) {
    if (cursor->end_told == cursor->position) return Step::kNothing;
    cursor->end_told = cursor->position;
    news->kind = News::Kind::kPartitionEnd;
    news->offset = cursor->position;
    return Step::kTell;
  }
  if (run == nullptr && !partition.tail.empty() &&
      partition.tail.front()->base <= cursor->position) {
    const auto behind =
        std::upper_bound(partition.tail.begin(), partition.tail.end(), cursor->position,
                         [](int64_t position, const RunPtr& one) { return position < one->next; });
    if (behind != partition.tail.end()) run = *behind;
  }
  if (run == nullptr) {
    Ask(cursor);
    return Step::kNothing;
  }
  cursor->run = std::move(run);
  cursor->reader = RunReader(*cursor->run);
  if (cursor->run->bytes.empty()) {
    cursor->position = cursor->run->next;
    cursor->run = nullptr;
  }
  return Step::kAgain;
}

size_t CursorSet::Pass(const std::shared_ptr<Cursor>& cursor, size_t records_max,
                       absl::FunctionRef<void(const LogRecord&)> to) {
  const RunPtr run = cursor->run;
  const size_t most = std::min(records_max, kRowMax);
  size_t passed = 0;
  LogRecord record;
  record.topic = cursor->start.tp.topic;
  record.partition = cursor->start.tp.partition;
  while (passed < most && !cursor->dead) {
    if (!cursor->reader.Next(&record)) {
      if (cursor->reader.damaged()) {
        core_.metrics.damage.Increment();
        POSTRIDER_LOG(kError, "the embedded log is damaged",
                      {"partition", cursor->start.tp.ToString()}, {"run", run->base},
                      {"unreadable_from", cursor->position}, {"unreadable_to", run->next});
      }
      cursor->position = std::max(cursor->position, run->next);
      cursor->run = nullptr;
      break;
    }
    if (record.offset < cursor->position) continue;
    cursor->position = record.offset + 1;
    ++passed;
    to(record);
  }
  return passed;
}

}  // namespace postrider::embedded_log_internal
