#include "core/stream/internal/timers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/random.h"

namespace postrider::internal {
namespace {

TEST(TimersTest, HoldsAMillion) {
  constexpr uint32_t kTimers = 1'000'000;
  Timers timers;
  Random random(1);
  const MonotonicTime begin{};
  for (uint32_t i = 0; i < kTimers; ++i) {
    timers.Set(absl::string_view(reinterpret_cast<const char*>(&i), sizeof i), 0,
               begin + Duration(random.Below(1'000'000'000)));
  }
  EXPECT_EQ(timers.size(), kTimers);
  EXPECT_LT(timers.memory_bytes(), 110u << 20);
  MonotonicTime last = begin;
  for (uint32_t i = 0; i < 10'000; ++i) {
    const auto due = timers.PopDue(begin + std::chrono::seconds(1), timers.mark());
    ASSERT_TRUE(due);
    ASSERT_GE(due->time, last);
    last = due->time;
  }
  EXPECT_EQ(timers.size(), kTimers - 10'000);
}

}  // namespace
}  // namespace postrider::internal
