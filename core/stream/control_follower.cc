#include "core/stream/control_follower.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/stream/blocking_reader.h"

namespace postrider {
namespace {

constexpr size_t kPollRecords = 1'000;

}  // namespace

absl::StatusOr<std::unique_ptr<ControlFollower>> ControlFollower::Open(
    Log& log, EventLoop& loop, const std::string& topic, std::function<void()> changed) {
  std::unique_ptr<ControlFollower> follower(new ControlFollower(loop, std::move(changed)));
  ReaderOptions options;
  options.prefetch_bytes = 1 << 20;
  ASSIGN_OR_RETURN(follower->reader_, log.OpenReader(loop, options, *follower));
  ControlFollower* raw = follower.get();
  RETURN_IF_ERROR(
      loop.Watch(raw->reader_->wake_fd(), kFdReadable, [raw](uint32_t) { raw->Poll(); }));
  StartPosition start;
  start.tp = TopicPartition{topic, 0};
  start.at = StartPosition::At::kLogStart;
  raw->reader_->Add(start);
  return follower;
}

ControlFollower::~ControlFollower() {
  if (reader_ != nullptr) loop_.Unwatch(reader_->wake_fd());
}

void ControlFollower::Poll() {
  while (reader_->Poll(kPollRecords) == kPollRecords) {
  }
  if (!ended_ || !fresh_) return;
  fresh_ = false;
  for (const auto& [key, why] : now_.holds.unreadable()) {
    POSTRIDER_LOG(kWarn,
                  "a savepoint's hold cannot be read: nothing is trimmed until it is dropped",
                  {"pool", key.first}, {"savepoint", key.second}, {"why", why});
  }
  auto next = std::make_shared<const ControlState>(now_);
  {
    absl::MutexLock lock(&mutex_);
    shared_ = std::move(next);
  }
  if (changed_) changed_();
}

void ControlFollower::OnRecord(const LogRecord& record) {
  now_.Apply(record);
  fresh_ = true;
}

void ControlFollower::OnPartitionEnd(const TopicPartition&, int64_t) {
  if (!ended_) fresh_ = true;
  ended_ = true;
}

std::shared_ptr<const ControlState> ControlFollower::state() const {
  absl::MutexLock lock(&mutex_);
  return shared_;
}

absl::optional<int64_t> ControlFollower::TrimLimit(absl::string_view group,
                                                   const TopicPartition& tp) const {
  const std::shared_ptr<const ControlState> now = state();
  if (now == nullptr) return 0;
  return now->holds.LowestHeld(group, tp, loop_.clock().Wall());
}

absl::StatusOr<ControlState> ReadControl(Log& log, const Clock& clock, const std::string& topic) {
  ASSIGN_OR_RETURN(std::unique_ptr<BlockingReader> reader,
                   BlockingReader::Open(log, clock, BlockingReaderOptions()));
  ControlState state;
  RETURN_IF_ERROR(reader->ReadAll(TopicPartition{topic, 0}, [&](const LogRecord& record) {
    state.Apply(record);
    return absl::OkStatus();
  }));
  return state;
}

}  // namespace postrider
