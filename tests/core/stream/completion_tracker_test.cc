#include "core/stream/completion_tracker.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/stream/hole_map.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using Admission = CompletionTracker::Admission;

TEST(CompletionTrackerTest, WatermarkStandsAtTheLowestPendingRecord) {
  CompletionTracker tracker(10, {});
  EXPECT_EQ(tracker.Add(10, 100), Admission::kNew);
  EXPECT_EQ(tracker.Add(11, 50), Admission::kNew);
  EXPECT_EQ(tracker.Add(12, 7), Admission::kNew);
  EXPECT_EQ(tracker.pending_bytes(), 157u);
  tracker.Complete(11);
  EXPECT_EQ(tracker.watermark(), 10);
  EXPECT_EQ(tracker.holes(), 1);
  tracker.Complete(10);
  EXPECT_EQ(tracker.watermark(), 12);
  EXPECT_EQ(tracker.holes(), 0);
  EXPECT_EQ(tracker.next_offset(), 13);
  EXPECT_EQ(tracker.pending(), 1u);
  EXPECT_EQ(tracker.pending_bytes(), 7u);
}

TEST(CompletionTrackerTest, OffsetsThatNeverComeAreComplete) {
  CompletionTracker tracker(0, {});
  EXPECT_EQ(tracker.Add(5, 1), Admission::kNew);
  EXPECT_EQ(tracker.watermark(), 5);
  EXPECT_EQ(tracker.Add(1'000'000'000'000, 1), Admission::kNew);
  EXPECT_EQ(tracker.tracked(), 3u);
  tracker.Complete(5);
  EXPECT_EQ(tracker.watermark(), 1'000'000'000'000);
}

TEST(CompletionTrackerTest, WhatAPredecessorCompletedIsSkipped) {
  OffsetSet above;
  above.Append(11, 13);
  CompletionTracker tracker(10, above);
  EXPECT_EQ(tracker.holes(), 2);
  EXPECT_EQ(tracker.CompletedAbove(), above);
  EXPECT_EQ(tracker.Add(10, 1), Admission::kNew);
  EXPECT_EQ(tracker.Add(11, 1), Admission::kCompleted);
  EXPECT_EQ(tracker.Add(12, 1), Admission::kCompleted);
  EXPECT_EQ(tracker.Add(13, 1), Admission::kNew);
  EXPECT_EQ(tracker.CompletedAbove(), above);
  tracker.Complete(10);
  EXPECT_EQ(tracker.watermark(), 13);
  EXPECT_EQ(tracker.holes(), 0);
}

TEST(CompletionTrackerTest, RecordsBelowWhatWasReadAreStale) {
  CompletionTracker tracker(10, {});
  EXPECT_EQ(tracker.Add(9, 1), Admission::kStale);
  EXPECT_EQ(tracker.Add(10, 1), Admission::kNew);
  EXPECT_EQ(tracker.Add(10, 1), Admission::kStale);
  EXPECT_EQ(tracker.pending(), 1u);
}

TEST(CompletionTrackerTest, VersionRisesWithEachCompletionOnly) {
  CompletionTracker tracker(0, {});
  const uint64_t first = tracker.version();
  tracker.Add(0, 1);
  tracker.Add(1, 1);
  EXPECT_EQ(tracker.version(), first);
  tracker.Complete(1);
  EXPECT_GT(tracker.version(), first);
  const uint64_t second = tracker.version();
  tracker.Complete(0);
  EXPECT_GT(tracker.version(), second);
}

TEST(CompletionTrackerTest, AStretchOfCompletedRecordsCountsOnce) {
  OffsetSet above;
  above.Append(1, 100'001);
  CompletionTracker tracker(0, above);
  tracker.Add(0, 1);
  for (int64_t offset = 1; offset <= 100'000; ++offset) {
    ASSERT_EQ(tracker.Add(offset, 1), Admission::kCompleted);
  }
  EXPECT_EQ(tracker.tracked(), 2u);
  EXPECT_EQ(tracker.holes(), 100'000);
}

TEST(CompletionTrackerTest, TellsWhereHalfOfTheHolesLie) {
  CompletionTracker tracker(0, {});
  EXPECT_EQ(tracker.MiddleOfHoles(), 0);
  for (int64_t offset = 0; offset < 12; ++offset) tracker.Add(offset, 10);
  EXPECT_EQ(tracker.MiddleOfHoles(), 0) << "all pend";
  for (const int64_t offset : {1, 2, 3, 5, 7, 9}) tracker.Complete(offset);
  EXPECT_EQ(tracker.hole_bytes(), 60u);
  EXPECT_EQ(tracker.MiddleOfHoles(), 4);
  tracker.Complete(0);
  EXPECT_EQ(tracker.watermark(), 4);
  EXPECT_EQ(tracker.hole_bytes(), 30u);
  EXPECT_EQ(tracker.MiddleOfHoles(), 8);
}

TEST(CompletionTrackerTest, CountsTheBytesOfWhatAPredecessorCompletedOnceTheyAreRead) {
  OffsetSet above;
  above.Append(1, 4);
  CompletionTracker tracker(0, above);
  EXPECT_EQ(tracker.hole_bytes(), 0u);
  tracker.Add(0, 1);
  for (int64_t offset = 1; offset < 3; ++offset) tracker.Add(offset, 1'000);
  EXPECT_EQ(tracker.hole_bytes(), 2'000u);
  tracker.Add(3, size_t{1} << 40);
  EXPECT_EQ(tracker.hole_bytes(), UINT32_MAX);
  EXPECT_EQ(tracker.MiddleOfHoles(), 4);
  tracker.Complete(0);
  EXPECT_EQ(tracker.hole_bytes(), 0u);
}

TEST(CompletionTrackerDeathTest, CompletingTwiceStopsTheProcess) {
  CompletionTracker tracker(0, {});
  tracker.Add(0, 1);
  tracker.Add(1, 1);
  tracker.Complete(1);
  EXPECT_DEATH(tracker.Complete(1), "IsPending");
  EXPECT_DEATH(tracker.Complete(2), "IsPending");
}

// The naive model: every offset of its partition with its state.
struct Model {
  enum State { kUnread, kPending, kComplete };
  std::vector<State> state;
  int64_t next = 0;

  int64_t Watermark(int64_t from) const {
    int64_t at = from;
    while (at < next && state[static_cast<size_t>(at)] == kComplete) ++at;
    return at;
  }
};

TEST(CompletionTrackerTest, AgreesWithANaiveModelOverCrashes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    constexpr int64_t kEnd = 300;
    std::vector<bool> exists;
    for (int64_t offset = 0; offset < kEnd; ++offset) exists.push_back(random.Below(8) != 0);
    int64_t base = 0;
    OffsetSet above;
    std::map<int64_t, int> times_completed;

    for (int life = 0; life < 4; ++life) {
      CompletionTracker tracker(base, above);
      Model model{std::vector<Model::State>(kEnd, Model::kUnread), base};
      std::set<int64_t> pending;
      size_t bytes = 0;
      int64_t at = base;
      for (int step = 0; step < 250; ++step) {
        if (random.Below(2) == 0 && at < kEnd) {
          while (at < kEnd && !exists[static_cast<size_t>(at)]) ++at;
          if (at == kEnd) continue;
          for (int64_t gap = model.next; gap < at; ++gap) {
            model.state[static_cast<size_t>(gap)] = Model::kComplete;
          }
          const Admission admission = tracker.Add(at, static_cast<size_t>(at));
          if (above.Contains(at)) {
            ASSERT_EQ(admission, Admission::kCompleted);
            model.state[static_cast<size_t>(at)] = Model::kComplete;
          } else {
            ASSERT_EQ(admission, Admission::kNew);
            model.state[static_cast<size_t>(at)] = Model::kPending;
            pending.insert(at);
            bytes += static_cast<size_t>(at);
          }
          model.next = ++at;
        } else if (!pending.empty()) {
          auto victim = pending.begin();
          std::advance(victim, static_cast<long>(random.Below(pending.size())));
          tracker.Complete(*victim);
          bytes -= static_cast<size_t>(*victim);
          model.state[static_cast<size_t>(*victim)] = Model::kComplete;
          ++times_completed[*victim];
          pending.erase(victim);
        }
        ASSERT_EQ(tracker.watermark(), model.Watermark(base));
        ASSERT_EQ(tracker.next_offset(), model.next);
        ASSERT_EQ(tracker.pending(), pending.size());
        ASSERT_EQ(tracker.pending_bytes(), bytes);
        if (step % 8 != 0) continue;
        OffsetSet completed;
        for (int64_t offset = tracker.watermark(); offset < kEnd; ++offset) {
          const bool complete = offset < model.next
                                    ? model.state[static_cast<size_t>(offset)] == Model::kComplete
                                    : above.Contains(offset);
          if (complete) completed.Append(offset, offset + 1);
          ASSERT_EQ(tracker.IsPending(offset), pending.contains(offset));
        }
        ASSERT_EQ(tracker.CompletedAbove(), completed);
        ASSERT_EQ(tracker.holes(), completed.size());
      }
      // A crash right after a commit.
      base = tracker.watermark();
      above = tracker.CompletedAbove();
    }
    for (const auto& [offset, times] : times_completed) ASSERT_EQ(times, 1) << offset;
  }
}

}  // namespace
}  // namespace postrider
