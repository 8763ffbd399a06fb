#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"

namespace postrider {

// What an fd is watched for, and what happened to it; bits.
enum FdEvents : uint32_t {
  kFdNone = 0,
  kFdReadable = 1,
  kFdWritable = 2,
  kFdError = 4,  // error or hang-up: always reported, never asked for
};

using TimerId = uint64_t;  // never reused; 0 names no timer

// One epoll loop: file descriptors, timers and posted calls, all run on the thread that calls
// Run() or RunOnce(). A shard owns one. Time comes from the Clock that it was made with, so with a
// manual clock RunOnce(0) fires exactly what is due.
//
// Threads: everything from the owner's thread, except Post() and Stop() (any thread).
// Bounds:  posted_max calls wait at most; timers and fds are bounded by their owners.
class EventLoop {
 public:
  using FdCallback = absl::AnyInvocable<void(uint32_t events)>;
  using Callback = absl::AnyInvocable<void() &&>;

  static constexpr size_t kPostedMax = 65'536;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(const Clock& clock);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  const Clock& clock() const;

  // Level-triggered. One watch per fd; the callback may change or remove any watch, its own too.
  absl::Status Watch(int fd, uint32_t events, FdCallback callback);
  // Changes what `fd` is watched for; it must be watched.
  void SetEvents(int fd, uint32_t events);
  // Before the fd is closed. No callback for it afterwards, not even one already collected.
  void Unwatch(int fd);

  // Runs `callback` once when the clock reaches `time`; equal times in the order of the calls.
  TimerId CallAt(MonotonicTime time, Callback callback);
  TimerId CallAfter(Duration delay, Callback callback);
  // False: it has run or was cancelled before.
  bool CancelTimer(TimerId id);

  // Runs `callback` in the next turn. False: kPostedMax calls wait, `callback` is untouched.
  [[nodiscard]] bool Post(Callback&& callback);

  // Called once at the end of each turn, for work that is best done in batches; empty for none.
  void SetTurnEnd(absl::AnyInvocable<void()> callback);

  // One turn: waits at most `wait_max` for an fd, a timer or a post, then runs what is due.
  // Returns how many callbacks ran.
  size_t RunOnce(Duration wait_max);
  // Turns until Stop().
  void Run();
  void Stop();

  // Real time spent in callbacks and waiting since the start, for busy and idle ratios.
  Duration busy_time() const;
  Duration idle_time() const;
  // When the last turn ended: a large gap means that this thread was stalled.
  MonotonicTime last_turn() const;

 private:
  struct Impl;
  explicit EventLoop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
