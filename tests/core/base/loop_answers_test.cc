#include "core/base/loop_answers.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/no_descriptors.h"

namespace postrider::tests {
namespace {

using std::chrono::milliseconds;

class LoopAnswersTest : public testing::Test {
 protected:
  void RunUntil(const bool& done) {
    for (int i = 0; i < 10'000 && !done; ++i) loop_->RunOnce(milliseconds(10));
    ASSERT_TRUE(done);
  }
  ManualClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  LoopAnswers answers_;
};

TEST_F(LoopAnswersTest, RunsAnswersOnTheLoopInTheOrderInWhichTheyCame) {
  std::vector<LoopAnswers::Place> places;
  for (int i = 0; i < 3; ++i) places.push_back(*answers_.Expect(*loop_));
  std::vector<int> order;
  bool done = false;
  std::thread giver([&] {
    for (int i = 2; i >= 0; --i) {
      places[static_cast<size_t>(i)].Give([&order, &done, i] {
        order.push_back(i);
        done = order.size() == 3;
      });
    }
  });
  RunUntil(done);
  giver.join();
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
}

TEST_F(LoopAnswersTest, GivesThoughTheLoopTakesNoMorePosts) {
  while (loop_->Post([] {})) {
  }
  bool done = false;
  answers_.Expect(*loop_)->Give([&done] { done = true; });
  RunUntil(done);
}

TEST_F(LoopAnswersTest, TakesWhatAnAnswerAsksForInItsTurn) {
  int turns = 0;
  bool done = false;
  std::function<void()> again = [&] {
    done = ++turns == 3;
    if (!done) answers_.Expect(*loop_)->Give([&again] { again(); });
  };
  answers_.Expect(*loop_)->Give([&again] { again(); });
  RunUntil(done);
  EXPECT_EQ(turns, 3);
  // The line has ended with its last answer: another begins.
  done = false;
  answers_.Expect(*loop_)->Give([&done] { done = true; });
  RunUntil(done);
}

TEST_F(LoopAnswersTest, ForgetsALoopThatIsGone) {
  auto kept = std::make_shared<int>(1);
  LoopAnswers::Place place = *answers_.Expect(*loop_);
  loop_.reset();
  place.Give([kept] { FAIL() << "there is no loop to run it"; });
  EXPECT_EQ(kept.use_count(), 2);
  place = *answers_.Expect(*(loop_ = *EventLoop::Create(clock_)));
  EXPECT_EQ(kept.use_count(), 1) << "it went with its line";
  bool done = false;
  place.Give([&done] { done = true; });
  RunUntil(done);
}

TEST_F(LoopAnswersTest, RefusesAPlaceWhenThereIsNoDescriptorLeft) {
  {
    const NoDescriptors none;
    EXPECT_EQ(answers_.Expect(*loop_).status().code(), absl::StatusCode::kResourceExhausted);
  }
  bool done = false;
  answers_.Expect(*loop_)->Give([&done] { done = true; });
  RunUntil(done);
}

TEST_F(LoopAnswersTest, AnswersThoughWhoeverAnsweredIsGone) {
  bool done = false;
  {
    LoopAnswers answers;
    answers.Expect(*loop_)->Give([&done] { done = true; });
  }
  RunUntil(done);
}

}  // namespace
}  // namespace postrider::tests
