#include "core/embedded_log/internal/partition_reader.h"

#include <utility>

#include "absl/synchronization/mutex.h"

namespace postrider::embedded_log_internal {

EmbeddedReader::EmbeddedReader(Core& core, Fetcher& fetcher, WakeFd wake,
                               const ReaderOptions& options, ReadHandler& handler)
    : core_(core),
      handler_(handler),
      cursors_(core, fetcher, std::move(wake), CursorSet::Outside::kClamped,
               options.prefetch_bytes) {}

void EmbeddedReader::Add(const StartPosition& position) {
  absl::MutexLock lock(&core_.mutex);
  cursors_.Add(position);
}

void EmbeddedReader::Remove(const TopicPartition& tp) {
  absl::MutexLock lock(&core_.mutex);
  cursors_.Remove(tp);
}

size_t EmbeddedReader::Poll(size_t records_max) {
  {
    absl::MutexLock lock(&core_.mutex);
    cursors_.BeginPoll();
  }
  size_t records = 0;
  while (true) {
    CursorSet::News news;
    {
      absl::MutexLock lock(&core_.mutex);
      news = cursors_.Next(records < records_max);
      if (news.kind == CursorSet::News::Kind::kNone) {
        // What was left out for want of room is there for the next call.
        if (records >= records_max) cursors_.Wake();
        return records;
      }
    }
    if (news.kind == CursorSet::News::Kind::kPartitionEnd) {
      handler_.OnPartitionEnd(news.cursor->start.tp, news.offset);
    } else {
      records += cursors_.Pass(news.cursor, records_max - records,
                               [this](const LogRecord& record) { handler_.OnRecord(record); });
    }
  }
}

}  // namespace postrider::embedded_log_internal
