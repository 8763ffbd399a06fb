#include "core/stream/internal/append_gatherer.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

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
  if (per_partition_.count() > 0) {
    partitions_.insert(absl::HashOf(absl::string_view(record.topic), record.partition));
  }
  const bool patient = record.patient;
  waiting_.push_back({std::move(record), std::move(done), bytes});
  bytes_ += bytes;
  if (!gathering_ || waiting_.size() >= kRecordsMax / 2 || bytes_ >= kBytesMax / 2) {
    HandOn();
    return true;
  }
  const bool first = timer_ == 0;
  const bool first_impatient = !patient && !first_impatient_;
  if (first || first_impatient) {
    const MonotonicTime now = loop_.clock().Now();
    if (first) first_ = now;
    if (first_impatient) first_impatient_ = now;
    loop_.CancelTimer(timer_);
    ArmTimer();
  }
  return true;
}

MonotonicTime AppendGatherer::Due() const {
  const MonotonicTime patient = first_ + patience_;
  if (!first_impatient_) return patient;
  const Duration gather = per_partition_.count() == 0
                              ? Duration(gather_)
                              : std::min<Duration>(gather_, per_partition_ * partitions_.size());
  return std::min(patient, *first_impatient_ + gather);
}

void AppendGatherer::ArmTimer() {
  timer_ = loop_.CallAt(Due(), [this] {
    timer_ = 0;
    // Others have come meanwhile, for partitions that nothing waited for.
    if (loop_.clock().Now() < Due()) return ArmTimer();
    HandOn();
  });
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
  first_impatient_.reset();
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (!producer_.Append(std::move(first.record), std::move(first.done))) return;
    bytes_ -= first.bytes;
    waiting_.pop_front();
  }
  partitions_.clear();
}

}  // namespace postrider::internal
