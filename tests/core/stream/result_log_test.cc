#include "core/stream/internal/result_log.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/operation.h"
#include "gtest/gtest.h"
#include "tests/core/stream/narrow_producer.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::internal {
namespace {

class ResultLogTest : public ::testing::Test {
 protected:
  OperationResult Result(const std::string& key) { return {key, {}, {3}, "taken"}; }

  ManualClock clock_;
  Metrics metrics_;
  Counter& appended_ = metrics_.AddCounter("appended", "", {});
  Counter& dropped_ = metrics_.AddCounter("dropped", "", {});
  NarrowProducer producer_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  ResultLog log_{*loop_, producer_, appended_, dropped_};
};

TEST_F(ResultLogTest, AppendsToThePartitionUnderTheOperationsKey) {
  producer_.room = 1;
  log_.Append({"t", 5}, Result("k"));
  ASSERT_EQ(producer_.records.size(), 1u);
  const AppendRecord& record = producer_.records[0];
  EXPECT_EQ(record.topic, "t");
  EXPECT_EQ(record.partition, 5);
  EXPECT_EQ(record.key, "k");
  ASSERT_EQ(record.headers.size(), 1u);
  EXPECT_EQ(record.headers[0].first, kResultHeader);
  EXPECT_EQ(*DecodeOperationResult(record.value), Result("k"));
}

TEST_F(ResultLogTest, KeepsWhatThereIsNoRoomForInItsOrder) {
  log_.Append({"t", 0}, Result("a"));
  log_.Append({"t", 0}, Result("b"));
  producer_.room = 1;
  log_.Append({"t", 0}, Result("c"));
  EXPECT_EQ(log_.waiting(), 3u);
  log_.OnRoom();
  EXPECT_EQ(producer_.records.size(), 1u);
  EXPECT_EQ(producer_.records[0].key, "a");
  producer_.room = 5;
  log_.OnRoom();
  ASSERT_EQ(producer_.records.size(), 3u);
  EXPECT_EQ(producer_.records[2].key, "c");
  EXPECT_EQ(log_.waiting(), 0u);
}

TEST_F(ResultLogTest, DropsWhatHasWaitedForAMinute) {
  log_.Append({"t", 0}, Result("a"));
  clock_.Advance(std::chrono::seconds(30));
  log_.Append({"t", 0}, Result("b"));
  clock_.Advance(std::chrono::milliseconds(29'999));
  log_.Expire();
  EXPECT_EQ(log_.waiting(), 2u);
  clock_.Advance(std::chrono::milliseconds(1));
  log_.Expire();
  EXPECT_EQ(log_.waiting(), 1u);
  producer_.room = 1;
  log_.OnRoom();
  EXPECT_EQ(producer_.records[0].key, "b");
}

TEST_F(ResultLogTest, DropsTheOldestPastItsBound) {
  for (size_t i = 0; i <= ResultLog::kWaitingMax; ++i) log_.Append({"t", 0}, Result("k"));
  EXPECT_EQ(log_.waiting(), ResultLog::kWaitingMax);
}

}  // namespace
}  // namespace postrider::internal
