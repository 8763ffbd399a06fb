#include "core/stream/internal/append_gatherer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "gtest/gtest.h"
#include "tests/core/stream/narrow_producer.h"
#include "tests/fakes/manual_clock.h"

namespace postrider::internal {
namespace {

using std::chrono::milliseconds;

class AppendGathererTest : public ::testing::Test {
 protected:
  AppendGathererTest() {
    producer_.room = 100'000;
    gatherer_.SetGathering(true);
  }

  bool Append(const std::string& key, size_t bytes = 1) {
    AppendRecord record;
    record.topic = "t";
    record.key = key;
    record.value = std::string(bytes, 'v');
    const bool taken =
        gatherer_.Append(std::move(record), [this, key](const absl::StatusOr<int64_t>& offset) {
          answers_.push_back(offset.ok() ? absl::StrCat(key, "@", *offset)
                                         : absl::StrCat(key, " ", offset.status().ToString()));
        });
    // As it was, when it was not taken.
    EXPECT_EQ(record.key, taken ? "" : key);
    return taken;
  }
  void Pass(milliseconds time) {
    clock_.Advance(time);
    loop_->RunOnce(milliseconds(0));
  }
  std::vector<std::string> Keys() const {
    std::vector<std::string> keys;
    for (const AppendRecord& record : producer_.records) keys.push_back(record.key);
    return keys;
  }

  ManualClock clock_;
  NarrowProducer producer_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  std::vector<std::string> answers_;
  AppendGatherer gatherer_{*loop_, producer_, milliseconds(50)};
};

TEST_F(AppendGathererTest, HandsOnTogetherWhenTheFirstHasWaited) {
  ASSERT_TRUE(Append("a"));
  Pass(milliseconds(30));
  ASSERT_TRUE(Append("b"));
  EXPECT_TRUE(producer_.records.empty());
  EXPECT_EQ(gatherer_.waiting(), 2u);
  Pass(milliseconds(19));
  EXPECT_TRUE(producer_.records.empty());
  Pass(milliseconds(1));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(gatherer_.waiting(), 0u);
  EXPECT_EQ(gatherer_.pending(), 2u);
  std::move(producer_.answers[0])(7);
  std::move(producer_.answers[1])(8);
  EXPECT_EQ(answers_, (std::vector<std::string>{"a@7", "b@8"}));

  // The next one waits anew.
  ASSERT_TRUE(Append("c"));
  Pass(milliseconds(49));
  EXPECT_EQ(producer_.records.size(), 2u);
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 3u);
}

TEST_F(AppendGathererTest, WaitsTheLongerTheMorePartitionsItIsFor) {
  AppendGatherer gatherer(*loop_, producer_, milliseconds(20), std::chrono::microseconds(2'000));
  gatherer.SetGathering(true);
  const auto append = [&](const std::string& topic, int32_t partition) {
    AppendRecord record;
    record.topic = topic;
    record.partition = partition;
    record.key = absl::StrCat(topic, partition);
    return gatherer.Append(std::move(record), [](const absl::StatusOr<int64_t>&) {});
  };
  // One alone is there after its own share, and so are several for the same partition.
  ASSERT_TRUE(append("t", 1));
  ASSERT_TRUE(append("t", 1));
  Pass(milliseconds(1));
  EXPECT_TRUE(producer_.records.empty());
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 2u);

  // Each other partition adds its share, counted from the first one's arrival.
  ASSERT_TRUE(append("t", 1));
  Pass(milliseconds(1));
  ASSERT_TRUE(append("t", 2));
  ASSERT_TRUE(append("u", 2));
  Pass(milliseconds(4));
  EXPECT_EQ(producer_.records.size(), 2u);
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 5u);

  // However many they are, none waits longer than the bound.
  for (int32_t partition = 0; partition < 100; ++partition) ASSERT_TRUE(append("t", partition));
  Pass(milliseconds(19));
  EXPECT_EQ(producer_.records.size(), 5u);
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 105u);
}

TEST_F(AppendGathererTest, PatientOnesWaitLongerButKeepNobodyWaiting) {
  AppendGatherer gatherer(*loop_, producer_, milliseconds(50), std::chrono::microseconds(0),
                          milliseconds(200));
  gatherer.SetGathering(true);
  const auto append = [&](const std::string& key, bool patient) {
    AppendRecord record;
    record.topic = "t";
    record.key = key;
    record.patient = patient;
    return gatherer.Append(std::move(record), [](const absl::StatusOr<int64_t>&) {});
  };
  ASSERT_TRUE(append("a", true));
  Pass(milliseconds(100));
  ASSERT_TRUE(append("b", true));
  Pass(milliseconds(99));
  EXPECT_TRUE(producer_.records.empty());
  Pass(milliseconds(1));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b"}));

  // One that is in more of a hurry takes along those before it, and those that come meanwhile.
  ASSERT_TRUE(append("c", true));
  Pass(milliseconds(10));
  ASSERT_TRUE(append("d", false));
  Pass(milliseconds(20));
  ASSERT_TRUE(append("e", false));
  ASSERT_TRUE(append("f", true));
  Pass(milliseconds(29));
  EXPECT_EQ(producer_.records.size(), 2u);
  Pass(milliseconds(1));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f"}));

  // It does not make the patient ones wait anew.
  ASSERT_TRUE(append("g", true));
  Pass(milliseconds(180));
  ASSERT_TRUE(append("h", false));
  Pass(milliseconds(19));
  EXPECT_EQ(producer_.records.size(), 6u);
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 8u);

  // What hurried is gone: the next one is as patient as it says.
  ASSERT_TRUE(append("i", true));
  Pass(milliseconds(199));
  EXPECT_EQ(producer_.records.size(), 8u);
  Pass(milliseconds(1));
  EXPECT_EQ(producer_.records.size(), 9u);
}

TEST_F(AppendGathererTest, FlushHandsOnAtOnceAndFlushesTheProducer) {
  ASSERT_TRUE(Append("a"));
  gatherer_.Flush();
  EXPECT_EQ(Keys(), std::vector<std::string>{"a"});
  EXPECT_EQ(producer_.flushes, 1);
}

TEST_F(AppendGathererTest, WithoutGatheringNothingWaits) {
  ASSERT_TRUE(Append("a"));
  gatherer_.SetGathering(false);
  ASSERT_TRUE(Append("b"));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b"}));
  producer_.room = 0;
  EXPECT_FALSE(Append("c"));
  EXPECT_EQ(gatherer_.waiting(), 0u);
}

TEST_F(AppendGathererTest, HandsOnAtHalfOfItsBounds) {
  for (size_t i = 0; i + 1 < AppendGatherer::kRecordsMax / 2; ++i) ASSERT_TRUE(Append("k"));
  EXPECT_TRUE(producer_.records.empty());
  ASSERT_TRUE(Append("k"));
  EXPECT_EQ(producer_.records.size(), AppendGatherer::kRecordsMax / 2);
  producer_.records.clear();
  ASSERT_TRUE(Append("large", AppendGatherer::kBytesMax / 2));
  EXPECT_EQ(producer_.records.size(), 1u);
}

TEST_F(AppendGathererTest, KeepsWhatTheProducerHasNoRoomForInItsOrder) {
  producer_.room = 1;
  ASSERT_TRUE(Append("a"));
  ASSERT_TRUE(Append("b"));
  Pass(milliseconds(50));
  EXPECT_EQ(Keys(), std::vector<std::string>{"a"});
  // Not past those that wait, whether it gathers or not.
  producer_.room = 1;
  gatherer_.SetGathering(false);
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b"}));
  ASSERT_FALSE(Append("c"));
  gatherer_.SetGathering(true);
  ASSERT_TRUE(Append("c"));
  ASSERT_TRUE(Append("d"));
  Pass(milliseconds(50));
  producer_.room = 2;
  gatherer_.OnRoom();
  EXPECT_EQ(Keys(), (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST_F(AppendGathererTest, RefusesAtItsBoundsAndTellsOfRoom) {
  int rooms = 0;
  gatherer_.SetRoomCallback([&] { ++rooms; });
  producer_.room = 0;
  for (size_t i = 0; i < AppendGatherer::kRecordsMax; ++i) ASSERT_TRUE(Append("k"));
  EXPECT_FALSE(Append("one more"));
  gatherer_.OnRoom();
  EXPECT_EQ(rooms, 0);
  producer_.room = 100'000;
  gatherer_.OnRoom();
  EXPECT_EQ(rooms, 1);
  EXPECT_EQ(producer_.records.size(), AppendGatherer::kRecordsMax);
  ASSERT_TRUE(Append("one more"));

  producer_.room = 0;
  Pass(milliseconds(50));
  ASSERT_TRUE(Append("large", AppendGatherer::kBytesMax - 1'000));
  EXPECT_FALSE(Append("another", 10'000));
}

TEST_F(AppendGathererTest, OneThatIsLargerThanTheBoundIsTaken) {
  ASSERT_TRUE(Append("large", 2 * AppendGatherer::kBytesMax));
  EXPECT_EQ(Keys(), std::vector<std::string>{"large"});
}

TEST_F(AppendGathererTest, MakesRoomForALargeOneWhereTheProducerHasSome) {
  ASSERT_TRUE(Append("waits", AppendGatherer::kBytesMax / 2 - 1'000));
  ASSERT_TRUE(Append("large", AppendGatherer::kBytesMax / 2 + 1'000));
  EXPECT_EQ(Keys(), (std::vector<std::string>{"waits", "large"}));
}

TEST_F(AppendGathererTest, AnswersWhatItNeverHandedOn) {
  {
    AppendGatherer other(*loop_, producer_, milliseconds(50));
    other.SetGathering(true);
    AppendRecord record;
    record.topic = "t";
    record.key = "a";
    ASSERT_TRUE(other.Append(std::move(record), [this](const absl::StatusOr<int64_t>& offset) {
      answers_.push_back(offset.status().ToString());
    }));
  }
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].rfind("ABORTED", 0), 0u) << answers_[0];
  Pass(milliseconds(50));  // its timer is gone with it
  EXPECT_TRUE(producer_.records.empty());
}

}  // namespace
}  // namespace postrider::internal
