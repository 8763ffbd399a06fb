#include "core/base/stop_watchdog.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>

#include "gtest/gtest.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr int kStatus = 3;

[[noreturn]] void HangForEver() {
  while (true) ::pause();
}

TEST(StopWatchdogTest, EndsAProcessWhoseStopHangsAndSaysWhatHung) {
  EXPECT_EXIT(
      {
        StopWatchdog watchdog;
        watchdog.Arm(milliseconds(20), kStatus, [] { return "2 shards of the worker"; });
        HangForEver();
      },
      testing::ExitedWithCode(kStatus), "did not end within 20 ms.*2 shards of the worker");
}

TEST(StopWatchdogTest, EndsItAlsoWhenNobodyReadsWhatItSays) {
  EXPECT_EXIT(
      {
        int pipe[2];
        if (::pipe2(pipe, O_NONBLOCK) != 0) ::_exit(1);
        const char bytes[4096] = {};
        while (::write(pipe[1], bytes, sizeof bytes) > 0) continue;
        if (::fcntl(pipe[1], F_SETFL, 0) != 0) ::_exit(1);
        ::dup2(pipe[1], STDERR_FILENO);
        StopWatchdog watchdog;
        watchdog.Arm(milliseconds(1), kStatus, [] { return "nothing"; });
        HangForEver();
      },
      testing::ExitedWithCode(kStatus), "");
}

TEST(StopWatchdogTest, LeavesAProcessAloneThatHasStopped) {
  EXPECT_EXIT(
      {
        {
          StopWatchdog watchdog;
          watchdog.Arm(hours(1), kStatus, [] { return "nothing"; });
        }
        ::_exit(0);  // after it has joined its thread, not an hour later
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace postrider
