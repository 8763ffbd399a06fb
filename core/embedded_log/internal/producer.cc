#include "core/embedded_log/internal/producer.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/wake_fd.h"

namespace postrider::embedded_log_internal {

Producer::Producer(Core& core, Writer& writer, EventLoop& loop, const ProducerOptions& options)
    : core_(core), writer_(writer), loop_(loop), options_(options) {
  absl::MutexLock lock(&core_.mutex);
  ++core_.producers;
}

absl::Status Producer::Start() {
  ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  box_ = std::make_shared<AnswerBox>(std::move(wake));
  RETURN_IF_ERROR(loop_.Watch(box_->wake_fd(), kFdReadable, [this](uint32_t) { Poll(); }));
  watched_ = true;
  return absl::OkStatus();
}

Producer::~Producer() {
  if (watched_) loop_.Unwatch(box_->wake_fd());
  {
    absl::MutexLock lock(&core_.mutex);
    --core_.producers;
  }
  while (!queue_.empty()) {
    Pending pending = std::move(queue_.front());
    queue_.pop_front();
    std::move(pending.done)(absl::AbortedError("embedded log: the producer was closed"));
  }
}

bool Producer::Append(AppendRecord&& record, AppendDone&& done) {
  auto bytes = static_cast<int64_t>(record.key.size() + record.value.size());
  for (const auto& [name, value] : record.headers) {
    bytes += static_cast<int64_t>(name.size() + value.size());
  }
  if (static_cast<int64_t>(queue_.size()) >= options_.queue_records_max ||
      (!queue_.empty() && queue_bytes_ + bytes > options_.queue_bytes_max)) {
    wants_room_ = true;
    return false;
  }
  queue_bytes_ += bytes;
  queue_.push_back({std::move(done), bytes});
  writer_.Append(box_, std::move(record));
  return true;
}

void Producer::Poll() {
  // What a callback appends is answered in a later call.
  for (absl::StatusOr<int64_t>& answer : box_->Take()) {
    POSTRIDER_CHECK(!queue_.empty());
    Pending pending = std::move(queue_.front());
    queue_.pop_front();
    queue_bytes_ -= pending.bytes;
    std::move(pending.done)(std::move(answer));
  }
  const bool half_empty = static_cast<int64_t>(queue_.size()) <= options_.queue_records_max / 2 &&
                          queue_bytes_ <= options_.queue_bytes_max / 2;
  if (wants_room_ && half_empty) {
    wants_room_ = false;
    if (room_ != nullptr) room_();
  }
}

}  // namespace postrider::embedded_log_internal
