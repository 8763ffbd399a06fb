#include "core/embedded_log/internal/fetcher.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/thread_name.h"
#include "core/embedded_log/internal/cursor_set.h"
#include "core/embedded_log/internal/run.h"

namespace postrider::embedded_log_internal {
namespace {

// While the database is being opened anew, reads are tried again so often.
constexpr std::chrono::milliseconds kAgain{50};

}  // namespace

Fetcher::Fetcher(Core& core)
    : core_(core), thread_([this] {
        NameThread("log-fetcher");
        Run();
      }) {}

Fetcher::~Fetcher() { Stop(); }

void Fetcher::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wait_.Notify();
  if (thread_.joinable()) thread_.join();
}

void Fetcher::Fetch(Request request) {
  absl::MutexLock lock(&mutex_);
  line_.emplace_back(std::move(request));
}

void Fetcher::Call(absl::AnyInvocable<void() &&> work) {
  absl::MutexLock lock(&mutex_);
  line_.emplace_back(std::move(work));
}

void Fetcher::Run() {
  while (true) {
    std::variant<Request, absl::AnyInvocable<void() &&>> next;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Fetcher* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
            return self->stopping_ || !self->line_.empty();
          },
          this));
      if (line_.empty()) return;
      next = std::move(line_.front());
      line_.pop_front();
    }
    if (auto* request = std::get_if<Request>(&next)) {
      Serve(std::move(*request));
    } else {
      std::move(std::get<absl::AnyInvocable<void() &&>>(next))();
    }
  }
}

void Fetcher::Serve(Request request) {
  core_.metrics.cold_reads.Increment();
  absl::StatusOr<std::vector<RunPtr>> runs = core_.database->ReadRuns(
      request.partition->id, request.from, request.until, request.bytes_max);
  if (!runs.ok()) {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    wait_.For(mutex_, kAgain, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
    line_.emplace_back(std::move(request));
    return;
  }
  absl::MutexLock lock(&core_.mutex);
  Cursor& cursor = *request.cursor;
  // Its set may be gone else.
  if (cursor.dead) return;
  cursor.set->TakeFetched(cursor, request.partition, request.held_bytes, *std::move(runs));
}

absl::StatusOr<int64_t> Fetcher::OffsetForTime(const PartitionPtr& partition, WallTime time) {
  int64_t begin = 0;
  int64_t end = 0;
  {
    absl::MutexLock lock(&core_.mutex);
    begin = partition->begin;
    end = partition->end;
  }
  const int64_t ms = MillisSinceEpoch(time);
  auto place = core_.database->FirstRunWhere(
      partition->id, begin, end, [ms](const RunPlace& run) { return run.header.high_ms >= ms; });
  if (!place.ok()) return place.status();
  if (!place->has_value()) return end;
  auto runs = core_.database->ReadRuns(partition->id, (*place)->base, (*place)->header.next, 1);
  if (!runs.ok()) return runs.status();
  for (const RunPtr& run : *runs) {
    RunReader reader(*run);
    LogRecord record;
    while (reader.Next(&record)) {
      if (record.timestamp >= time && record.offset >= begin) return record.offset;
    }
  }
  // Compaction has dropped the record that was so late, or the clock had been set back when they
  // were appended.
  return std::max(begin, (*place)->base);
}

}  // namespace postrider::embedded_log_internal
