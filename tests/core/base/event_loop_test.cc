#include "core/base/event_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::StatusIs;

// Two connected stream sockets.
class SocketPair {
 public:
  SocketPair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_), 0); }
  ~SocketPair() {
    CloseNear();
    CloseFar();
  }
  int near() const { return fds_[0]; }
  void WriteFar() { EXPECT_EQ(write(fds_[1], "x", 1), 1); }
  void CloseNear() { Close(&fds_[0]); }
  void CloseFar() { Close(&fds_[1]); }

 private:
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  int fds_[2] = {-1, -1};
};

class EventLoopTest : public ::testing::Test {
 protected:
  EventLoopTest() {
    auto loop = EventLoop::Create(clock_);
    EXPECT_OK(loop);
    loop_ = *std::move(loop);
  }
  EventLoop::Callback Note(int number) {
    return [this, number] { ran_.push_back(number); };
  }
  size_t Turn() { return loop_->RunOnce(Duration::zero()); }

  ManualClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<int> ran_;
};

TEST_F(EventLoopTest, RunsATimerWhenItsTimeIsReachedAndNotBefore) {
  loop_->CallAfter(milliseconds(1000), Note(1));
  clock_.Advance(milliseconds(1000) - nanoseconds(1));
  EXPECT_EQ(Turn(), 0u);
  clock_.Advance(nanoseconds(1));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_EQ(Turn(), 0u);
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(EventLoopTest, RunsTimersInOrderOfTimeAndThenOfTheCalls) {
  const MonotonicTime now = clock_.Now();
  loop_->CallAt(now + seconds(2), Note(3));
  loop_->CallAt(now + seconds(1), Note(1));
  loop_->CallAt(now + seconds(1), Note(2));
  loop_->CallAt(now - seconds(1), Note(0));
  clock_.Advance(seconds(2));
  EXPECT_EQ(Turn(), 4u);
  EXPECT_THAT(ran_, ElementsAre(0, 1, 2, 3));
}

TEST_F(EventLoopTest, CancelsATimerOnce) {
  const TimerId id = loop_->CallAfter(seconds(1), Note(1));
  EXPECT_TRUE(loop_->CancelTimer(id));
  EXPECT_FALSE(loop_->CancelTimer(id));
  EXPECT_FALSE(loop_->CancelTimer(0));
  clock_.Advance(seconds(1));
  EXPECT_EQ(Turn(), 0u);
}

TEST_F(EventLoopTest, DoesNotCancelATimerThatHasRun) {
  const TimerId id = loop_->CallAfter(seconds(0), Note(1));
  Turn();
  EXPECT_FALSE(loop_->CancelTimer(id));
}

TEST_F(EventLoopTest, CancelsATimerThatIsDueInTheSameTurn) {
  TimerId second = 0;
  loop_->CallAfter(seconds(1), [&] { EXPECT_TRUE(loop_->CancelTimer(second)); });
  second = loop_->CallAfter(seconds(1), Note(2));
  clock_.Advance(seconds(1));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(EventLoopTest, LeavesATimerThatATimerSetsForNowToTheNextTurn) {
  std::function<void()> again = [&] {
    ran_.push_back(static_cast<int>(ran_.size()));
    loop_->CallAt(clock_.Now() - seconds(5), again);
  };
  loop_->CallAfter(seconds(0), again);
  EXPECT_EQ(Turn(), 1u);
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(0, 1));
}

TEST_F(EventLoopTest, KeepsATimerAtTheEndOfTime) {
  loop_->CallAfter(Duration::max(), Note(1));
  loop_->CallAfter(Duration::min(), Note(0));
  clock_.Advance(hours(24 * 365));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(0));
}

TEST_F(EventLoopTest, KeepsEveryLivingTimerWhenManyAreCancelled) {
  std::vector<TimerId> ids;
  for (int i = 0; i < 10'000; ++i) ids.push_back(loop_->CallAfter(milliseconds(i), Note(i)));
  for (int i = 0; i < 10'000; ++i) {
    if (i % 100 == 0) continue;
    EXPECT_TRUE(loop_->CancelTimer(ids[static_cast<size_t>(i)]));
  }
  clock_.Advance(seconds(10));
  EXPECT_EQ(Turn(), 100u);
  for (size_t i = 0; i < ran_.size(); ++i) EXPECT_EQ(ran_[i], static_cast<int>(i) * 100);
}

TEST_F(EventLoopTest, ReportsAReadableFdUntilItIsRead) {
  SocketPair pair;
  ASSERT_OK(loop_->Watch(pair.near(), kFdReadable,
                         [this](uint32_t events) { ran_.push_back(static_cast<int>(events)); }));
  EXPECT_EQ(Turn(), 0u);
  pair.WriteFar();
  EXPECT_EQ(Turn(), 1u);
  EXPECT_EQ(Turn(), 1u);
  char byte;
  EXPECT_EQ(read(pair.near(), &byte, 1), 1);
  EXPECT_EQ(Turn(), 0u);
  EXPECT_THAT(ran_, ElementsAre(kFdReadable, kFdReadable));
  loop_->Unwatch(pair.near());
}

TEST_F(EventLoopTest, ChangesWhatAnFdIsWatchedFor) {
  SocketPair pair;
  ASSERT_OK(loop_->Watch(pair.near(), kFdReadable,
                         [this](uint32_t events) { ran_.push_back(static_cast<int>(events)); }));
  loop_->SetEvents(pair.near(), kFdReadable | kFdWritable);
  EXPECT_EQ(Turn(), 1u);
  loop_->SetEvents(pair.near(), kFdNone);
  EXPECT_EQ(Turn(), 0u);
  EXPECT_THAT(ran_, ElementsAre(kFdWritable));
  loop_->Unwatch(pair.near());
}

TEST_F(EventLoopTest, ReportsAHangUpThatNobodyAskedFor) {
  SocketPair pair;
  ASSERT_OK(loop_->Watch(pair.near(), kFdNone,
                         [this](uint32_t events) { ran_.push_back(static_cast<int>(events)); }));
  pair.CloseFar();
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(kFdError));
  loop_->Unwatch(pair.near());
}

TEST_F(EventLoopTest, WatchesAnFdOnce) {
  SocketPair pair;
  ASSERT_OK(loop_->Watch(pair.near(), kFdReadable, [](uint32_t) {}));
  EXPECT_THAT(loop_->Watch(pair.near(), kFdReadable, [](uint32_t) {}),
              StatusIs(absl::StatusCode::kAlreadyExists));
  loop_->Unwatch(pair.near());
  EXPECT_OK(loop_->Watch(pair.near(), kFdReadable, [](uint32_t) {}));
  loop_->Unwatch(pair.near());
}

TEST_F(EventLoopTest, RefusesAnFdThatCannotBeWatched) {
  EXPECT_THAT(loop_->Watch(-1, kFdReadable, [](uint32_t) {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  SocketPair pair;
  const int closed = pair.near();
  pair.CloseNear();
  EXPECT_FALSE(loop_->Watch(closed, kFdReadable, [](uint32_t) {}).ok());
}

TEST_F(EventLoopTest, ForgetsAnFdInsideItsOwnCallback) {
  SocketPair pair;
  pair.WriteFar();
  auto owned = std::make_unique<int>(7);
  ASSERT_OK(
      loop_->Watch(pair.near(), kFdReadable, [this, &pair, owned = std::move(owned)](uint32_t) {
        loop_->Unwatch(pair.near());
        ran_.push_back(*owned);
      }));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_EQ(Turn(), 0u);
  EXPECT_THAT(ran_, ElementsAre(7));
}

TEST_F(EventLoopTest, DropsAnEventThatWasCollectedForAnFdUnwatchedMeanwhile) {
  SocketPair first, second;
  first.WriteFar();
  second.WriteFar();
  const auto forget_both = [&](uint32_t) {
    loop_->Unwatch(first.near());
    loop_->Unwatch(second.near());
    ran_.push_back(1);
  };
  ASSERT_OK(loop_->Watch(first.near(), kFdReadable, forget_both));
  ASSERT_OK(loop_->Watch(second.near(), kFdReadable, forget_both));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(EventLoopTest, GivesANewWatchOfTheSameFdNoOldEvent) {
  SocketPair first, second;
  first.WriteFar();
  second.WriteFar();
  const auto watch_anew = [&](uint32_t) {
    ran_.push_back(1);
    for (const SocketPair* pair : {&first, &second}) {
      loop_->Unwatch(pair->near());
      EXPECT_OK(loop_->Watch(pair->near(), kFdReadable, [this](uint32_t) { ran_.push_back(2); }));
    }
  };
  ASSERT_OK(loop_->Watch(first.near(), kFdReadable, watch_anew));
  ASSERT_OK(loop_->Watch(second.near(), kFdReadable, watch_anew));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(1));
  EXPECT_EQ(Turn(), 2u);
  EXPECT_THAT(ran_, ElementsAre(1, 2, 2));
}

TEST_F(EventLoopTest, RunsPostedCallsInOrderInTheNextTurn) {
  EXPECT_TRUE(loop_->Post(Note(1)));
  EXPECT_TRUE(loop_->Post([this] {
    ran_.push_back(2);
    EXPECT_TRUE(loop_->Post(Note(3)));
  }));
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_EQ(Turn(), 2u);
  EXPECT_THAT(ran_, ElementsAre(1, 2));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(1, 2, 3));
}

TEST_F(EventLoopTest, RefusesAPostWhenFullAndLeavesItUntouched) {
  for (size_t i = 0; i < EventLoop::kPostedMax; ++i) ASSERT_TRUE(loop_->Post([] {}));
  EventLoop::Callback more = Note(1);
  EXPECT_FALSE(loop_->Post(std::move(more)));
  EXPECT_TRUE(more != nullptr);
  EXPECT_EQ(Turn(), EventLoop::kPostedMax);
  EXPECT_TRUE(loop_->Post(std::move(more)));
  EXPECT_EQ(Turn(), 1u);
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(EventLoopTest, WakesForAPostOfAnotherThread) {
  std::thread other([this] { EXPECT_TRUE(loop_->Post(Note(1))); });
  while (ran_.empty()) loop_->RunOnce(seconds(60));
  other.join();
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(EventLoopTest, StopsFromAnotherThreadAndCanRunAgain) {
  for (int round = 0; round < 2; ++round) {
    std::thread other([this] { loop_->Stop(); });
    loop_->Run();
    other.join();
  }
  EXPECT_TRUE(loop_->Post([this] {
    ran_.push_back(1);
    loop_->Stop();
  }));
  loop_->Run();
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(EventLoopTest, CallsTheTurnsEndAfterAllElse) {
  loop_->SetTurnEnd([this] { ran_.push_back(9); });
  EXPECT_TRUE(loop_->Post(Note(1)));
  loop_->CallAfter(seconds(0), Note(2));
  EXPECT_EQ(Turn(), 2u);
  EXPECT_THAT(ran_, ElementsAre(1, 2, 9));
  loop_->SetTurnEnd(nullptr);
  EXPECT_EQ(Turn(), 0u);
  EXPECT_THAT(ran_, ElementsAre(1, 2, 9));
}

TEST_F(EventLoopTest, LetsTheTurnsEndReplaceItself) {
  auto owned = std::make_unique<int>(5);
  loop_->SetTurnEnd([this, owned = std::move(owned)] {
    loop_->SetTurnEnd(nullptr);
    ran_.push_back(*owned);
  });
  Turn();
  Turn();
  EXPECT_THAT(ran_, ElementsAre(5));
}

TEST_F(EventLoopTest, RemembersWhenTheLastTurnEnded) {
  clock_.Advance(seconds(3));
  EXPECT_EQ(loop_->last_turn(), clock_.Now() - seconds(3));
  Turn();
  EXPECT_EQ(loop_->last_turn(), clock_.Now());
}

TEST_F(EventLoopTest, MayBeCalledByWhatItsCallbacksOwnWhileItIsDestroyed) {
  struct Guard {
    ~Guard() {
      loop->CancelTimer(timer);
      loop->Unwatch(fd);
    }
    EventLoop* loop;
    TimerId timer;
    int fd;
  };
  SocketPair pair;
  const TimerId timer = loop_->CallAfter(seconds(1), Note(1));
  auto guard = std::unique_ptr<Guard>(new Guard{loop_.get(), timer, pair.near()});
  auto guard2 = std::unique_ptr<Guard>(new Guard{loop_.get(), timer, pair.near()});
  ASSERT_OK(loop_->Watch(pair.near(), kFdReadable, [guard = std::move(guard)](uint32_t) {}));
  loop_->CallAfter(seconds(2), [guard2 = std::move(guard2)] {});
  loop_.reset();
  EXPECT_THAT(ran_, IsEmpty());
}

TEST(EventLoopSystemClockTest, SleepsUntilTheNextTimerAndNotShorter) {
  const SystemClock clock;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock));
  const MonotonicTime due = clock.Now() + microseconds(2500);
  bool ran = false;
  loop->CallAt(due, [&] {
    ran = true;
    EXPECT_GE(clock.Now(), due);
  });
  int turns = 0;
  while (!ran) {
    loop->RunOnce(seconds(60));
    ++turns;
  }
  EXPECT_LE(turns, 3);
  EXPECT_GE(loop->idle_time(), milliseconds(1));
}

TEST(EventLoopSystemClockTest, WaitsNoLongerThanItIsTold) {
  const SystemClock clock;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock));
  const TimerId far = loop->CallAfter(hours(1), [] {});
  const MonotonicTime start = clock.Now();
  EXPECT_EQ(loop->RunOnce(milliseconds(2)), 0u);
  EXPECT_GE(clock.Now(), start + milliseconds(2));
  EXPECT_LT(clock.Now(), start + seconds(60));
  EXPECT_TRUE(loop->CancelTimer(far));
  EXPECT_EQ(loop->RunOnce(seconds(-1)), 0u);
}

}  // namespace
}  // namespace postrider
