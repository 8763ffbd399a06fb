#include "core/stream/internal/append_gatherer.h"

#include <utility>

#include "absl/status/status.h"

namespace postrider::internal {

AppendGatherer::~AppendGatherer() {
  loop_.CancelTimer(timer_);
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    std::move(waiting.done)(absl::AbortedError("the append was not handed on: its task has ended"));
  }
}

bool AppendGatherer::Append(AppendRecord&& record, AppendDone&& done) {
  if (waiting_.empty() && !gathering_) {
    refused_ = !producer_.Append(std::move(record), std::move(done));
    return !refused_;
  }
  const size_t bytes = sizeof(Waiting) + record.key.size() + record.value.size();
  // One always fits, so that one above the bound does not wait for ever.
  const auto full = [&] {
    return waiting_.size() >= kRecordsMax || (!waiting_.empty() && bytes_ + bytes > kBytesMax);
  };
  // Refused only where the producer has refused, which tells of room then.
  if (full()) HandOn();
  if (full()) {
    refused_ = true;
    return false;
  }
  waiting_.push_back({std::move(record), std::move(done), bytes});
  bytes_ += bytes;
  if (!gathering_ || waiting_.size() >= kRecordsMax / 2 || bytes_ >= kBytesMax / 2) {
    HandOn();
  } else if (timer_ == 0) {
    timer_ = loop_.CallAfter(gather_, [this] {
      timer_ = 0;
      HandOn();
    });
  }
  return true;
}

void AppendGatherer::OnRoom() {
  HandOn();
  if (!refused_ || !waiting_.empty()) return;
  refused_ = false;
  if (room_ != nullptr) room_();
}

void AppendGatherer::Flush() {
  HandOn();
  producer_.Flush();
}

void AppendGatherer::SetGathering(bool gathering) {
  gathering_ = gathering;
  if (!gathering) HandOn();
}

void AppendGatherer::HandOn() {
  loop_.CancelTimer(timer_);
  timer_ = 0;
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (!producer_.Append(std::move(first.record), std::move(first.done))) return;
    bytes_ -= first.bytes;
    waiting_.pop_front();
  }
}

}  // namespace postrider::internal
