#include "core/stream/blocking_writer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

constexpr std::chrono::milliseconds kTurn{100};

}  // namespace

struct BlockingWriter::Impl {
  explicit Impl(std::chrono::milliseconds silence) : silence_max(silence) {}

  // Turns the loop once, and gives up when nothing has been acknowledged for too long.
  absl::Status Turn(MonotonicTime& heard) {
    const uint64_t before = answered;
    loop->RunOnce(kTurn);
    if (answered != before) heard = loop->clock().Now();
    if (fault.ok() && loop->clock().Now() - heard >= silence_max) {
      fault = absl::DeadlineExceededError(absl::StrCat(
          "log: nothing that was written was acknowledged for ", silence_max.count(), " ms"));
    }
    return fault;
  }

  const std::chrono::milliseconds silence_max;
  std::unique_ptr<EventLoop> loop;
  absl::Status fault;
  uint64_t answered = 0;
  // Last: when it is closed, what waits is answered.
  std::unique_ptr<LogProducer> producer;
};

BlockingWriter::BlockingWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockingWriter::~BlockingWriter() = default;

absl::StatusOr<std::unique_ptr<BlockingWriter>> BlockingWriter::Open(
    Log& log, const Clock& clock, const BlockingWriterOptions& options) {
  auto impl = std::make_unique<Impl>(options.silence_max);
  ASSIGN_OR_RETURN(impl->loop, EventLoop::Create(clock));
  ASSIGN_OR_RETURN(impl->producer, log.OpenProducer(*impl->loop, options.producer));
  return std::unique_ptr<BlockingWriter>(new BlockingWriter(std::move(impl)));
}

absl::Status BlockingWriter::Append(AppendRecord&& record) {
  Impl* impl = impl_.get();
  RETURN_IF_ERROR(impl->fault);
  MonotonicTime heard = impl->loop->clock().Now();
  while (!impl->producer->Append(std::move(record), [impl](absl::StatusOr<int64_t> offset) {
    ++impl->answered;
    if (impl->fault.ok() && !offset.ok()) impl->fault = offset.status();
  })) {
    impl->producer->Flush();
    RETURN_IF_ERROR(impl->Turn(heard));
  }
  return absl::OkStatus();
}

absl::Status BlockingWriter::Flush() {
  impl_->producer->Flush();
  MonotonicTime heard = impl_->loop->clock().Now();
  while (impl_->producer->pending() > 0) RETURN_IF_ERROR(impl_->Turn(heard));
  return impl_->fault;
}

}  // namespace postrider
