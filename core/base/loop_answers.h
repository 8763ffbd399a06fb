#pragma once

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/event_loop.h"

namespace postrider {

// Brings answers from other threads to the loops that asked. Each loop has a line of its own while
// it waits for some, in which whoever has asked has a place: no thread that answers waits for a
// loop, as it might for EventLoop::Post().
//
// Bounds:  an fd per loop that waits; the answers that were asked for, which their users bound.
class LoopAnswers {
 public:
  using Answer = absl::AnyInvocable<void() &&>;

  // A place in a loop's line.
  class Place {
   public:
    // Once: `answer` runs on the loop in one of its next turns. Threads: any.
    void Give(Answer&& answer);

   private:
    friend class LoopAnswers;
    struct Line;
    class Entry;
    explicit Place(std::shared_ptr<Line> line) : line_(std::move(line)) {}
    std::shared_ptr<Line> line_;
  };

  LoopAnswers();
  ~LoopAnswers();
  LoopAnswers(const LoopAnswers&) = delete;
  LoopAnswers& operator=(const LoopAnswers&) = delete;

  // Each is to be given an answer. kResourceExhausted: there is no descriptor left for the loop's
  // line. Threads: the loop's. It may go before the answer comes.
  absl::StatusOr<Place> Expect(EventLoop& loop);

 private:
  struct Lines;
  const std::shared_ptr<Lines> lines_;
};

}  // namespace postrider
