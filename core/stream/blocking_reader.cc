#include "core/stream/blocking_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

// In one call of the reader.
constexpr size_t kPollRecords = 1'000;
constexpr std::chrono::milliseconds kTurn{100};

}  // namespace

struct BlockingReader::Impl final : ReadHandler {
  Impl(Log& of, const BlockingReaderOptions& with) : log(of), options(with) {}
  ~Impl() override {
    if (reader != nullptr) loop->Unwatch(reader->wake_fd());
  }

  void OnRecord(const LogRecord& record) override {
    if (tp == nullptr || record.topic != tp->topic || record.partition != tp->partition) return;
    heard = true;
    if (done || !fault.ok()) return;
    if (record.offset >= end) {
      done = true;
      return;
    }
    fault = (*visit)(record);
    if (record.offset + 1 >= end) done = true;
  }
  void OnPartitionEnd(const TopicPartition& of, int64_t next) override {
    if (tp == nullptr || of != *tp) return;
    heard = true;
    if (next >= end) done = true;
  }

  void Poll() {
    while (reader->Poll(kPollRecords) == kPollRecords && !done && fault.ok()) {
    }
  }

  Log& log;
  const BlockingReaderOptions options;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<PartitionReader> reader;

  // Of the call of Read() that runs.
  const TopicPartition* tp = nullptr;
  int64_t end = 0;
  absl::FunctionRef<absl::Status(const LogRecord&)>* visit = nullptr;
  absl::Status fault;
  bool done = false;
  bool heard = false;
};

BlockingReader::BlockingReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockingReader::~BlockingReader() = default;

absl::StatusOr<std::unique_ptr<BlockingReader>> BlockingReader::Open(
    Log& log, const Clock& clock, const BlockingReaderOptions& options) {
  auto impl = std::make_unique<Impl>(log, options);
  ASSIGN_OR_RETURN(impl->loop, EventLoop::Create(clock));
  ReaderOptions reader;
  reader.prefetch_bytes = options.prefetch_bytes;
  ASSIGN_OR_RETURN(impl->reader, log.OpenReader(*impl->loop, reader, *impl));
  RETURN_IF_ERROR(impl->loop->Watch(impl->reader->wake_fd(), kFdReadable,
                                    [raw = impl.get()](uint32_t) { raw->Poll(); }));
  return std::unique_ptr<BlockingReader>(new BlockingReader(std::move(impl)));
}

absl::Status BlockingReader::Read(const TopicPartition& tp, int64_t end,
                                  absl::FunctionRef<absl::Status(const LogRecord&)> visit) {
  return ReadFrom(tp, 0, end, visit);
}

absl::Status BlockingReader::ReadFrom(const TopicPartition& tp, int64_t begin, int64_t end,
                                      absl::FunctionRef<absl::Status(const LogRecord&)> visit) {
  ASSIGN_OR_RETURN(const Log::Range range, impl_->log.Offsets(tp, impl_->options.silence_max));
  begin = std::max(begin, range.begin);
  if (begin >= end) return absl::OkStatus();
  impl_->tp = &tp;
  impl_->end = end;
  impl_->visit = &visit;
  impl_->fault = absl::OkStatus();
  impl_->done = false;
  StartPosition start;
  start.tp = tp;
  start.at = StartPosition::At::kOffset;
  start.offset = begin;
  impl_->reader->Add(start);
  const Clock& clock = impl_->loop->clock();
  MonotonicTime heard = clock.Now();
  while (!impl_->done && impl_->fault.ok()) {
    impl_->heard = false;
    impl_->loop->RunOnce(kTurn);
    // What was fetched ahead is there without news of it.
    if (!impl_->done && impl_->fault.ok()) impl_->Poll();
    if (impl_->heard) heard = clock.Now();
    if (clock.Now() - heard >= impl_->options.silence_max) {
      impl_->fault =
          absl::DeadlineExceededError(absl::StrCat("log: nothing of ", tp.ToString(), " came for ",
                                                   impl_->options.silence_max.count(), " ms"));
    }
  }
  impl_->reader->Remove(tp);
  impl_->tp = nullptr;
  return impl_->fault;
}

absl::Status BlockingReader::ReadAll(const TopicPartition& tp,
                                     absl::FunctionRef<absl::Status(const LogRecord&)> visit) {
  ASSIGN_OR_RETURN(const Log::Range range, impl_->log.Offsets(tp, impl_->options.silence_max));
  return Read(tp, range.end, visit);
}

}  // namespace postrider
