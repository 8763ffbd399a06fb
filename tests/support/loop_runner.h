#pragma once

#include <chrono>
#include <utility>

#include "absl/functional/function_ref.h"
#include "core/base/event_loop.h"
#include "gtest/gtest.h"

namespace postrider::tests {

// Turns a loop with a real clock until `done` says so; false after `most`.
inline bool RunUntil(EventLoop& loop, absl::FunctionRef<bool()> done,
                     std::chrono::milliseconds most = std::chrono::seconds(20)) {
  const MonotonicTime end = loop.clock().Now() + most;
  while (!done()) {
    if (loop.clock().Now() >= end) return false;
    loop.RunOnce(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace postrider::tests
