#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/wake_fd.h"
#include "tests/fakes/memory_log.h"
#include "tests/fakes/memory_log_impl.h"

namespace postrider {

class MemoryLog::Producer final : public LogProducer {
 public:
  Producer(Impl& log, EventLoop& loop, const ProducerOptions& options)
      : log_(log), loop_(loop), options_(options) {
    const absl::Status watched =
        loop_.Watch(wake_.get(), kFdReadable, [this](uint32_t) { Poll(); });
    POSTRIDER_CHECK(watched.ok());
    absl::MutexLock lock(&log_.mutex);
    log_.producers.insert(this);
  }
  ~Producer() override {
    loop_.Unwatch(wake_.get());
    {
      absl::MutexLock lock(&log_.mutex);
      log_.producers.erase(this);
      log_.unanswered -= queue_.size();
    }
    while (!queue_.empty()) {
      Pending pending = std::move(queue_.front());
      queue_.pop_front();
      std::move(pending.done)(absl::AbortedError("memory log: the producer was closed"));
    }
  }

  bool Append(AppendRecord&& record, AppendDone&& done) override {
    const auto bytes = static_cast<int64_t>(record.key.size() + record.value.size());
    if (static_cast<int64_t>(queue_.size()) >= options_.queue_records_max ||
        (!queue_.empty() && queue_bytes_ + bytes > options_.queue_bytes_max)) {
      wants_room_ = true;
      return false;
    }
    queue_bytes_ += bytes;
    queue_.push_back(
        {std::move(record), std::move(done), bytes, false, absl::StatusOr<int64_t>(0)});
    absl::MutexLock lock(&log_.mutex);
    ++log_.unanswered;
    WriteAll();
    wake_.Wake();
    return true;
  }
  void SetRoomCallback(absl::AnyInvocable<void()> room) override { room_ = std::move(room); }
  size_t pending() const override { return queue_.size(); }

  void Poll() override {
    wake_.Clear();
    size_t answered = 0;
    {
      absl::MutexLock lock(&log_.mutex);
      WriteAll();
      if (!log_.reachable || log_.hold_appends) return;
      while (answered < queue_.size() && queue_[answered].written) ++answered;
    }
    // What a callback appends waits for the next call.
    for (size_t left = answered; left > 0; --left) {
      Pending pending = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= pending.bytes;
      std::move(pending.done)(std::move(pending.result));
    }
    {
      absl::MutexLock lock(&log_.mutex);
      log_.unanswered -= answered;
    }
    const bool half_empty = static_cast<int64_t>(queue_.size()) <= options_.queue_records_max / 2 &&
                            queue_bytes_ <= options_.queue_bytes_max / 2;
    if (wants_room_ && half_empty) {
      wants_room_ = false;
      if (room_ != nullptr) room_();
    }
  }
  void Flush() override {}

  void Wake() { wake_.Wake(); }

 private:
  using Partition = memory_log_internal::Partition;
  struct Pending {
    AppendRecord record;
    AppendDone done;
    int64_t bytes;
    bool written;
    absl::StatusOr<int64_t> result;
  };

  void WriteAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_.mutex) {
    if (!log_.reachable) return;
    const auto says_nothing = [](const AppendRecord& record) {
      return record.key.empty() && record.value.empty() && record.headers.empty();
    };
    bool stored = false;
    for (size_t i = FirstUnwritten(); i < queue_.size(); ++i) {
      Pending& pending = queue_[i];
      pending.written = true;
      Partition* partition = log_.FindPartition({pending.record.topic, pending.record.partition});
      if (partition == nullptr) {
        pending.result = absl::NotFoundError(absl::StrCat(
            "memory log: no partition ", pending.record.topic, "/", pending.record.partition));
      } else if (log_.topics[pending.record.topic].frozen) {
        pending.result = absl::FailedPreconditionError(
            absl::StrCat("memory log: ", pending.record.topic, " is frozen"));
      } else if (static_cast<size_t>(pending.bytes) > kRecordBytesMax) {
        pending.result = absl::InvalidArgumentError("memory log: the record is too large");
      } else if (says_nothing(pending.record)) {
        pending.result = absl::InvalidArgumentError("memory log: the record says nothing");
      } else {
        pending.result = partition->end;
        log_.Store(*partition,
                   {0, WallTime(), std::move(pending.record.key), std::move(pending.record.value),
                    std::move(pending.record.headers), pending.record.tombstone});
        stored = true;
      }
    }
    if (stored) log_.WakeAll();
  }
  size_t FirstUnwritten() const {
    size_t i = queue_.size();
    while (i > 0 && !queue_[i - 1].written) --i;
    return i;
  }

  Impl& log_;
  EventLoop& loop_;
  const ProducerOptions options_;
  WakeFd wake_ = *WakeFd::Create();
  std::deque<Pending> queue_;
  int64_t queue_bytes_ = 0;
  bool wants_room_ = false;
  absl::AnyInvocable<void()> room_;
};

}  // namespace postrider
