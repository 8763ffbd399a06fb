#include "core/base/steady_wait.h"

#include <chrono>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(SteadyWaitTest, ReturnsAtOnceWhatHoldsAlready) {
  SteadyWait wait;
  absl::Mutex mutex;
  absl::MutexLock lock(&mutex);
  EXPECT_TRUE(wait.For(mutex, std::chrono::hours(1), [] { return true; }));
}

TEST(SteadyWaitTest, ReturnsWhenItsTimeHasPassed) {
  SteadyWait wait;
  absl::Mutex mutex;
  absl::MutexLock lock(&mutex);
  const auto begin = steady_clock::now();
  EXPECT_FALSE(wait.For(mutex, milliseconds(20), [] { return false; }));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(20));
  mutex.AssertHeld();
}

TEST(SteadyWaitTest, ReturnsWhenItIsToldAndLetsTheMutexGoMeanwhile) {
  SteadyWait wait;
  absl::Mutex mutex;
  bool waits = false;
  bool come = false;
  std::thread other([&] {
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&waits));
      come = true;
    }
    wait.Notify();
  });
  {
    absl::MutexLock lock(&mutex);
    waits = true;
    EXPECT_TRUE(wait.For(mutex, std::chrono::hours(1), [&] { return come; }));
  }
  other.join();
}

}  // namespace
}  // namespace postrider
