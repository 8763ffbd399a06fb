#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "core/stream/trim_holds.h"

namespace postrider {

// Follows the control topic for a whole process: reads it on one loop and shares what it says as
// immutable snapshots.
//
// Threads: Open and the destructor: the loop's; the readers: any.
class ControlFollower final : private ReadHandler {
 public:
  // `changed` is called on the loop's thread when the topic was read to its end for the first time,
  // and after each change since. `log` and `loop` outlive it; the topic exists.
  static absl::StatusOr<std::unique_ptr<ControlFollower>> Open(Log& log, EventLoop& loop,
                                                               const std::string& topic,
                                                               std::function<void()> changed = {});
  ~ControlFollower() override;
  ControlFollower(const ControlFollower&) = delete;
  ControlFollower& operator=(const ControlFollower&) = delete;

  // Null until the topic was read to its end.
  std::shared_ptr<const ControlState> state() const;

  // What JobOptions::trim_limit wants: the partition must not be trimmed past that offset. Nothing
  // may be trimmed until the topic was read to its end.
  absl::optional<int64_t> TrimLimit(absl::string_view group, const TopicPartition& tp) const;

 private:
  ControlFollower(EventLoop& loop, std::function<void()> changed)
      : loop_(loop), changed_(std::move(changed)) {}
  void OnRecord(const LogRecord& record) override;
  void OnPartitionEnd(const TopicPartition& tp, int64_t next) override;
  void Poll();

  EventLoop& loop_;
  const std::function<void()> changed_;
  std::unique_ptr<PartitionReader> reader_;
  ControlState now_;
  bool ended_ = false;
  bool fresh_ = false;  // now_ is newer than shared_
  mutable absl::Mutex mutex_;
  std::shared_ptr<const ControlState> shared_ ABSL_GUARDED_BY(mutex_);
};

// What the topic says now; blocks. For the command line.
absl::StatusOr<ControlState> ReadControl(Log& log, const Clock& clock, const std::string& topic);

}  // namespace postrider
