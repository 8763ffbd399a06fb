#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/steady_wait.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/partition.h"

namespace postrider::embedded_log_internal {

struct Cursor;

// A thread that reads the database for all readers, so that no loop waits for the disk.
//
// Bounds: one read per cursor, and what its users bound.
class Fetcher {
 public:
  explicit Fetcher(Core& core);
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  struct Request {
    std::shared_ptr<Cursor> cursor;
    PartitionPtr partition;
    int64_t from = 0;
    int64_t until = 0;
    size_t bytes_max = 0;
    int64_t held_bytes = 0;  // of the set's room, for what comes
  };
  // Reads runs for a cursor and makes it ready. Threads: any.
  void Fetch(Request request);
  // Runs `work` on the thread. Threads: any.
  void Call(absl::AnyInvocable<void() &&> work);
  // Ends the thread; what waits is run first, for it carries answers.
  void Stop();

  // The first offset whose record was appended at or after `time`, the end when there is none.
  // Reads the disk.
  absl::StatusOr<int64_t> OffsetForTime(const PartitionPtr& partition, WallTime time);

 private:
  void Run();
  void Serve(Request request);

  Core& core_;
  absl::Mutex mutex_;
  SteadyWait wait_;
  std::deque<std::variant<Request, absl::AnyInvocable<void() &&>>> line_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace postrider::embedded_log_internal
