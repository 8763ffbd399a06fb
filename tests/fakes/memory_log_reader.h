#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/wake_fd.h"
#include "tests/fakes/memory_log.h"
#include "tests/fakes/memory_log_impl.h"

namespace postrider {

class MemoryLog::Reader final : public PartitionReader {
 public:
  Reader(Impl& log, ReadHandler& handler) : log_(log), handler_(handler) {
    absl::MutexLock lock(&log_.mutex);
    log_.readers.insert(this);
  }
  ~Reader() override {
    absl::MutexLock lock(&log_.mutex);
    log_.readers.erase(this);
  }

  int wake_fd() const override { return wake_.get(); }
  size_t Poll(size_t records_max) override;
  void Add(const StartPosition& position) override {
    absl::MutexLock lock(&log_.mutex);
    Reading& reading = reading_[position.tp];
    reading = Reading();
    reading.start = position;
    Resolve(reading);
    wake_.Wake();
  }
  void Remove(const TopicPartition& tp) override {
    absl::MutexLock lock(&log_.mutex);
    reading_.erase(tp);
  }
  void Wake() { wake_.Wake(); }

 private:
  using Partition = memory_log_internal::Partition;
  using RecordPtr = memory_log_internal::RecordPtr;
  struct Reading {
    StartPosition start;
    int64_t position = -1;  // not known before the partition exists
    int64_t end_told = -1;
  };
  struct Event {
    TopicPartition tp;
    RecordPtr record;  // null: the end
    int64_t next = 0;
  };

  const Partition* Resolve(Reading& reading) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  absl::optional<Event> Next(bool records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);
  absl::optional<Event> NextOf(const TopicPartition& tp, Reading& reading, bool records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex);

  Impl& log_;
  ReadHandler& handler_;
  WakeFd wake_ = *WakeFd::Create();
  std::map<TopicPartition, Reading> reading_;
};

}  // namespace postrider
