#include "tests/fakes/memory_log_reader.h"

#include <algorithm>
#include <utility>

namespace postrider {

using memory_log_internal::Partition;
using memory_log_internal::Pass;
using memory_log_internal::RecordPtr;

const Partition* MemoryLog::Reader::Resolve(Reading& reading) {
  const Partition* partition = log_.FindPartition(reading.start.tp);
  if (partition == nullptr || reading.position >= 0) return partition;
  switch (reading.start.at) {
    case StartPosition::At::kOffset:
      reading.position = reading.start.offset;
      break;
    case StartPosition::At::kLogStart:
      reading.position = partition->begin;
      break;
    case StartPosition::At::kLogEnd:
      reading.position = partition->end;
      break;
  }
  return partition;
}

absl::optional<MemoryLog::Reader::Event> MemoryLog::Reader::NextOf(const TopicPartition& tp,
                                                                   Reading& reading, bool records) {
  const Partition* partition = Resolve(reading);
  if (partition == nullptr) return absl::nullopt;
  reading.position = std::clamp(reading.position, partition->begin, partition->end);
  RecordPtr record = partition->Find(reading.position);
  if (record != nullptr) {
    if (!records) return absl::nullopt;
    reading.position = record->offset + 1;
    return Event{tp, std::move(record), reading.position};
  }
  reading.position = partition->end;
  if (reading.end_told == reading.position) return absl::nullopt;
  reading.end_told = reading.position;
  return Event{tp, nullptr, reading.position};
}

absl::optional<MemoryLog::Reader::Event> MemoryLog::Reader::Next(bool records) {
  if (!log_.reachable) return absl::nullopt;
  for (auto& [tp, reading] : reading_) {
    absl::optional<Event> event = NextOf(tp, reading, records);
    if (event.has_value()) return event;
  }
  return absl::nullopt;
}

size_t MemoryLog::Reader::Poll(size_t records_max) {
  wake_.Clear();
  size_t records = 0;
  while (true) {
    absl::optional<Event> event;
    {
      absl::MutexLock lock(&log_.mutex);
      event = Next(records < records_max);
    }
    if (!event.has_value()) {
      // What was left out for want of room is there for the next call.
      if (records >= records_max) wake_.Wake();
      return records;
    }
    if (event->record == nullptr) {
      handler_.OnPartitionEnd(event->tp, event->next);
      continue;
    }
    ++records;
    Pass(event->tp, *event->record, [this](const LogRecord& record) { handler_.OnRecord(record); });
  }
}

}  // namespace postrider
