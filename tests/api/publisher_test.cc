#include "api/publisher.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/postgres/pool.h"
#include "core/stream/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"

namespace postrider::api {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::seconds kPatience{20};

// Appends to a log in memory; the database is never asked.
class PublisherTest : public ::testing::Test {
 protected:
  PublisherTest() {
    log_.MakeTopic("events.a", 1);
    publisher_.emplace(*loop_, log_, pool_, PublishOptions());
  }
  absl::Status Append() {
    AppendRecord record;
    record.topic = "events.a";
    record.partition = 0;
    record.value = "{}";
    return publisher_->Append(
        std::move(record), ProducerOptions::Batches::kShared,
        [this](absl::StatusOr<int64_t> offset) { answers_.push_back(offset.status().code()); });
  }
  void RunUntilAnswered() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (answers_.empty() && std::chrono::steady_clock::now() < end) {
      loop_->RunOnce(std::chrono::milliseconds(10));
    }
  }

  ManualClock clock_;
  MemoryLog log_{clock_};
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  Pool pool_{*loop_, PoolOptions(), 1};
  absl::optional<Publisher> publisher_;
  std::vector<absl::StatusCode> answers_;
};

TEST_F(PublisherTest, AnswersOnceWhatTheLogDoesNotTakeForNowThoughItIsClosedThen) {
  log_.SetReachable(false);
  ASSERT_TRUE(Append().ok());
  clock_.Advance(std::chrono::seconds(1));
  RunUntilAnswered();
  EXPECT_THAT(answers_, ElementsAre(absl::StatusCode::kUnavailable));
  publisher_->Close();
  EXPECT_THAT(answers_, ElementsAre(absl::StatusCode::kUnavailable));
}

TEST_F(PublisherTest, AnswersOnceWhatTheLogTakesAfterAll) {
  log_.SetReachable(false);
  ASSERT_TRUE(Append().ok());
  clock_.Advance(std::chrono::seconds(1));
  RunUntilAnswered();
  log_.SetReachable(true);
  while (log_.Offsets({"events.a", 0}, std::chrono::seconds(1))->end == 0) {
    loop_->RunOnce(std::chrono::milliseconds(10));
  }
  loop_->RunOnce(std::chrono::milliseconds(0));
  EXPECT_THAT(answers_, ElementsAre(absl::StatusCode::kUnavailable));
}

TEST_F(PublisherTest, AnswersWhatWaitsWhenItIsClosed) {
  log_.SetReachable(false);
  ASSERT_TRUE(Append().ok());
  publisher_->Close();
  EXPECT_THAT(answers_, ElementsAre(absl::StatusCode::kAborted));
  EXPECT_EQ(Append(), absl::UnavailableError("api: closed"));
}

}  // namespace
}  // namespace postrider::api
