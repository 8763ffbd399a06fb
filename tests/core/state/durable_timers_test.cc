#include "core/stream/durable_timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/stream/changelog.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

struct Task {
  Task(const Clock& clock, ScriptedChangelog& changelog, uint64_t epoch)
      : store(MakeHeapStore({})),
        backend(StateBackendOptions{epoch}, *store, changelog,
                [this](absl::Status why) { fault = std::move(why); }),
        timers(backend, clock, 2, "timers", [this](MonotonicTime time) { alarm = time; }) {}

  std::unique_ptr<StateStore> store;
  absl::Status fault;
  absl::optional<MonotonicTime> alarm;
  StateBackend backend;
  DurableTimers timers;
};

class DurableTimersTest : public testing::Test {
 protected:
  // The task dies; its successor has read all of the log but not ended the restore.
  void BeginRestore() {
    changelog_.AnswerAll();
    replay_ = std::make_unique<ChangelogReplay>(++epoch_, ReplayRuleOf);
    task_ = std::make_unique<Task>(clock_, changelog_, epoch_);
    task_->backend.BeginRestore(*replay_);
  }
  void Read(size_t begin, size_t end) {
    const std::vector<EncodedChangelogRecord> log = changelog_.log;
    for (size_t i = begin; i < end; ++i) {
      ASSERT_THAT(task_->backend.RestoreRecord(log[i].key, log[i].value), tests::IsOk());
    }
  }
  void EndRestore() {
    task_->backend.EndRestore();
    changelog_.AnswerAll();
    ASSERT_THAT(task_->fault, tests::IsOk());
  }
  void Restart() {
    BeginRestore();
    Read(0, changelog_.log.size());
    EndRestore();
  }
  // Fires what the alarm says is due; "key/tag" of each, in their order.
  std::vector<std::string> Fire() {
    std::vector<std::string> fired;
    if (!task_->alarm || *task_->alarm > clock_.Now()) return fired;
    task_->timers.Fire(clock_.Now(), 1'000,
                       [&](absl::string_view key, uint32_t tag, MonotonicTime) {
                         fired.push_back(absl::StrCat(key, "/", tag));
                       });
    return fired;
  }
  // How long until the next one fires.
  Duration Wait() {
    const MonotonicTime begin = clock_.Now();
    while (Fire().empty()) {
      if (clock_.Now() - begin > hours(1'000)) return Duration::max();
      clock_.Advance(std::max<Duration>(*task_->alarm - clock_.Now(), milliseconds(1)));
    }
    return clock_.Now() - begin;
  }

  ManualClock clock_;
  ScriptedChangelog changelog_;
  uint64_t epoch_ = 1;
  std::unique_ptr<ChangelogReplay> replay_;
  std::unique_ptr<Task> task_ = std::make_unique<Task>(clock_, changelog_, 1);
};

TEST_F(DurableTimersTest, FiresAtItsTimeAndNotBefore) {
  ASSERT_TRUE(task_->timers.Set("k", 1, milliseconds(1'000)));
  ASSERT_TRUE(task_->timers.Set("k", 2, milliseconds(1'000)));
  ASSERT_TRUE(task_->timers.Set("early", 1, milliseconds(10)));
  EXPECT_EQ(task_->alarm, clock_.Now() + milliseconds(10));
  clock_.Advance(milliseconds(999));
  EXPECT_THAT(Fire(), ElementsAre("early/1"));
  EXPECT_THAT(Fire(), IsEmpty());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(Fire(), ElementsAre("k/1", "k/2"));
  EXPECT_EQ(task_->timers.size(), 0u);
}

TEST_F(DurableTimersTest, FiresAgainAfterARestartUntilItIsAcknowledged) {
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(1)));
  clock_.Advance(seconds(1));
  EXPECT_THAT(Fire(), ElementsAre("k/1"));
  Restart();
  EXPECT_THAT(Fire(), ElementsAre("k/1"));
  ASSERT_TRUE(task_->timers.Acknowledge("k", 1));
  Restart();
  EXPECT_THAT(Fire(), IsEmpty());
  EXPECT_EQ(task_->timers.size(), 0u);
}

TEST_F(DurableTimersTest, KeepsWhatWasSetAgainSinceItFired) {
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(1)));
  clock_.Advance(seconds(1));
  EXPECT_THAT(Fire(), ElementsAre("k/1"));
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(5)));
  ASSERT_TRUE(task_->timers.Acknowledge("k", 1));
  Restart();
  EXPECT_EQ(Wait(), seconds(5));
}

TEST_F(DurableTimersTest, WaitsForTheRestAfterARestart) {
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(60)));
  clock_.Advance(seconds(45));
  Restart();
  EXPECT_EQ(task_->alarm, clock_.Now() + seconds(15));
  clock_.Advance(milliseconds(14'999));
  EXPECT_THAT(Fire(), IsEmpty());
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(Fire(), ElementsAre("k/1"));
}

TEST_F(DurableTimersTest, RestoresWhatWasReplacedOrCancelledAsItWasLast) {
  ASSERT_TRUE(task_->timers.Set("a", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("b", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("c", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("a", 1, seconds(30)));
  ASSERT_TRUE(task_->timers.Cancel("b", 1));
  clock_.Advance(seconds(10));
  EXPECT_THAT(Fire(), ElementsAre("c/1"));
  ASSERT_TRUE(task_->timers.Set("c", 1, seconds(5)));
  Restart();
  EXPECT_EQ(task_->timers.size(), 2u);
  EXPECT_THAT(Fire(), IsEmpty());
  clock_.Advance(seconds(5));
  EXPECT_THAT(Fire(), ElementsAre("c/1"));
  clock_.Advance(seconds(15));
  EXPECT_THAT(Fire(), ElementsAre("a/1"));
}

TEST_F(DurableTimersTest, CountsTheMonotonicClockAloneWhileItLives) {
  for (const auto jump : {hours(1), hours(-1), hours(24), hours(-24)}) {
    ASSERT_TRUE(task_->timers.Set("k", 1, seconds(10)));
    clock_.SetWall(clock_.Wall() + jump);
    EXPECT_THAT(Fire(), IsEmpty());
    EXPECT_EQ(Wait(), seconds(10));
    ASSERT_TRUE(task_->timers.Acknowledge("k", 1));
  }
}

TEST_F(DurableTimersTest, WaitsNoLongerThanWasAskedForWhenTheClockWasSetBack) {
  for (const auto jump : {hours(1), hours(24)}) {
    ASSERT_TRUE(task_->timers.Set("k", 1, seconds(10)));
    clock_.SetWall(clock_.Wall() - jump);
    Restart();
    EXPECT_EQ(Wait(), seconds(10));
    ASSERT_TRUE(task_->timers.Acknowledge("k", 1));
  }
}

TEST_F(DurableTimersTest, FiresEarlyByNoMoreThanTheClockWasSetForward) {
  ASSERT_TRUE(task_->timers.Set("soon", 1, hours(1)));
  ASSERT_TRUE(task_->timers.Set("later", 1, hours(3)));
  clock_.SetWall(clock_.Wall() + hours(1));
  Restart();
  EXPECT_THAT(Fire(), ElementsAre("soon/1"));
  EXPECT_EQ(Wait(), hours(2));
}

TEST_F(DurableTimersTest, BeginsItsWaitAnewOnlyOnceHoweverOftenItRestarts) {
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(10)));
  clock_.Advance(seconds(4));
  clock_.SetWall(clock_.Wall() - hours(1));
  Restart();
  clock_.Advance(seconds(4));
  Restart();
  clock_.Advance(seconds(4));
  Restart();
  EXPECT_EQ(Wait(), seconds(2));
}

TEST_F(DurableTimersTest, FiresNothingOfALogThatIsNotReadToItsEnd) {
  ASSERT_TRUE(task_->timers.Set("moved", 1, seconds(1)));
  ASSERT_TRUE(task_->timers.Set("cancelled", 1, seconds(1)));
  ASSERT_TRUE(task_->timers.Set("stays", 1, seconds(1)));
  const size_t put = changelog_.log.size();
  ASSERT_TRUE(task_->timers.Set("moved", 1, seconds(60)));
  ASSERT_TRUE(task_->timers.Cancel("cancelled", 1));
  const size_t end = changelog_.log.size();
  clock_.Advance(seconds(2));
  BeginRestore();
  Read(0, put);
  ASSERT_TRUE(task_->timers.Set("live", 1, seconds(0)));
  EXPECT_THAT(Fire(), ElementsAre("live/1"));
  Read(put, end);
  EXPECT_THAT(Fire(), IsEmpty());
  EXPECT_EQ(task_->timers.size(), 2u);
  EndRestore();
  EXPECT_THAT(Fire(), ElementsAre("stays/1"));
  EXPECT_EQ(task_->timers.TimeOf("moved", 1), clock_.Now() + seconds(58));
}

TEST_F(DurableTimersTest, LetsWhatIsSetOrCancelledDuringARestoreStand) {
  ASSERT_TRUE(task_->timers.Set("a", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("b", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("c", 1, seconds(10)));
  ASSERT_TRUE(task_->timers.Set("d", 1, seconds(10)));
  const size_t end = changelog_.log.size();
  BeginRestore();
  Read(0, 3);  // the state's name, a and b
  ASSERT_TRUE(task_->timers.Set("a", 1, seconds(1)));
  ASSERT_TRUE(task_->timers.Cancel("b", 1));
  ASSERT_TRUE(task_->timers.Set("c", 1, seconds(2)));
  ASSERT_TRUE(task_->timers.Cancel("d", 1));
  Read(3, end);
  EndRestore();
  EXPECT_EQ(task_->timers.size(), 2u);
  EXPECT_EQ(Wait(), seconds(1));
  EXPECT_EQ(Wait(), seconds(1));
  Restart();
  EXPECT_EQ(task_->timers.size(), 2u);  // nothing was acknowledged
}

TEST_F(DurableTimersTest, FiresAFewAtATimeAndLeavesOutWhatIsSetMeanwhile) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(task_->timers.Set(absl::StrCat(i), 1, seconds(1)));
  clock_.Advance(seconds(1));
  int fired = 0;
  const auto again = [&](absl::string_view key, uint32_t tag, MonotonicTime) {
    ++fired;
    EXPECT_TRUE(task_->timers.Set(key, tag, seconds(0)));
  };
  EXPECT_EQ(task_->timers.Fire(clock_.Now(), 4, again), 4u);
  EXPECT_EQ(task_->alarm, clock_.Now());
  EXPECT_EQ(task_->timers.Fire(clock_.Now(), 100, again), 10u);
  EXPECT_EQ(fired, 14);
}

TEST_F(DurableTimersTest, ChangesNothingWithoutRoom) {
  ASSERT_TRUE(task_->timers.Set("k", 1, seconds(1)));
  changelog_.room = changelog_.waiting();
  EXPECT_FALSE(task_->timers.Set("k", 1, seconds(9)));
  EXPECT_FALSE(task_->timers.Set("l", 1, seconds(9)));
  EXPECT_FALSE(task_->timers.Cancel("k", 1));
  EXPECT_EQ(task_->timers.size(), 1u);
  EXPECT_EQ(Wait(), seconds(1));
}

TEST_F(DurableTimersTest, RefusesToRestoreWhatWasNeverWritten) {
  for (const std::string& bytes : {std::string(), std::string("\x02", 1),
                                   std::string("\x02\x01", 2), std::string("\x02\x02\x02", 3)}) {
    const EncodedChangelogRecord record =
        EncodeChangelogRecord({ChangelogKind::kPut, 1, EncodeStateKey(2, "k", "\x01"),
                               EncodeStatePayload(StatePayload{1, 0, 0, bytes})});
    BeginRestore();
    EXPECT_THAT(task_->backend.RestoreRecord(record.key, record.value),
                tests::StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("'timers'")));
  }
}

// Keys of their own with times in no order; every tenth was replaced, every tenth cancelled.
TEST_F(DurableTimersTest, RestoresAMillionAndFiresEachAtItsTime) {
#ifdef NDEBUG
  constexpr int kTimers = 1'000'000;
#else
  constexpr int kTimers = 20'000;
#endif
  // 7,919 is prime to the number, so each time comes once.
  const auto delay_of = [](int timer) {
    return milliseconds(1 + static_cast<int64_t>(timer) * 7'919 % kTimers);
  };
  for (int timer = 0; timer < kTimers; ++timer) {
    const std::string key = absl::StrCat("endpoint-", timer);
    if (timer % 10 == 1) {
      ASSERT_TRUE(task_->timers.Set(key, 1, hours(1)));
    }
    ASSERT_TRUE(task_->timers.Set(key, 1, delay_of(timer)));
    if (timer % 10 == 2) {
      ASSERT_TRUE(task_->timers.Cancel(key, 1));
    }
    if (timer % 1'000 == 0) changelog_.AnswerAll();
  }
  ASSERT_EQ(task_->timers.size(), kTimers / 10 * 9u);
  const MonotonicTime set_at = clock_.Now();
  clock_.Advance(milliseconds(kTimers / 4));
  Restart();
  ASSERT_EQ(task_->timers.size(), kTimers / 10 * 9u) << "none had fired";

  std::vector<bool> fired(kTimers);
  size_t total = 0;
  while (task_->timers.size() > 0) {
    ASSERT_TRUE(task_->alarm.has_value());
    clock_.Advance(std::max<Duration>(*task_->alarm - clock_.Now(), Duration::zero()));
    const Duration since = clock_.Now() - set_at;
    task_->timers.Fire(clock_.Now(), 1'000, [&](absl::string_view key, uint32_t, MonotonicTime) {
      int timer = 0;
      ASSERT_TRUE(absl::SimpleAtoi(key.substr(absl::string_view("endpoint-").size()), &timer));
      ASSERT_FALSE(fired[static_cast<size_t>(timer)]) << key << " twice";
      fired[static_cast<size_t>(timer)] = true;
      ASSERT_GE(since, delay_of(timer)) << key << " early";
      ASSERT_LE(since,
                std::max<Duration>(delay_of(timer) + milliseconds(1), milliseconds(kTimers / 4)))
          << key << " late";
      ++total;
    });
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_EQ(total, kTimers / 10 * 9u);
}

// Work at random against a map, with restarts and jumps of the clock between the lives: whatever is
// due fires, once per life, and nothing waits longer than was asked for after its last life began.
TEST(DurableTimersSimulation, LosesNoTimer) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    ManualClock clock;
    ScriptedChangelog changelog;
    uint64_t epoch = 1;
    auto task = std::make_unique<Task>(clock, changelog, epoch);
    std::map<std::string, std::pair<MonotonicTime, MonotonicTime>> model;  // not before, not after
    std::map<std::string, Duration> asked;
    for (int i = 0; i < 200; ++i) {
      const std::string key = absl::StrCat("k", random.Below(6));
      switch (random.Below(6)) {
        case 0:
        case 1: {
          const Duration delay = milliseconds(random.Below(5'000));
          ASSERT_TRUE(task->timers.Set(key, 0, delay));
          model[key] = {clock.Now() + delay, clock.Now() + delay};
          asked[key] = delay;
          break;
        }
        case 2:
          ASSERT_TRUE(task->timers.Cancel(key, 0));
          model.erase(key);
          break;
        case 3:
          while (changelog.waiting() > 0) changelog.Answer(random.Below(changelog.waiting()));
          break;
        case 4: {
          clock.Advance(milliseconds(random.Below(3'000)));
          task->timers.Fire(clock.Now(), 100,
                            [&](absl::string_view fired, uint32_t, MonotonicTime) {
                              const auto found = model.find(std::string(fired));
                              ASSERT_NE(found, model.end());
                              EXPECT_GE(clock.Now(), found->second.first);
                              model.erase(found);
                              ASSERT_TRUE(task->timers.Acknowledge(fired, 0));
                            });
          for (const auto& [waiting, times] : model)
            EXPECT_GT(times.second, clock.Now()) << waiting;
          break;
        }
        default: {
          if (random.Below(3) != 0) break;
          changelog.AnswerAll();
          const std::vector<EncodedChangelogRecord> log = changelog.log;
          const milliseconds jump =
              random.Below(2) == 0
                  ? milliseconds(0)
                  : milliseconds(static_cast<int64_t>(random.Below(4'000)) - 2'000);
          clock.SetWall(clock.Wall() + jump);
          task = std::make_unique<Task>(clock, changelog, ++epoch);
          ChangelogReplay replay(epoch, ReplayRuleOf);
          task->backend.BeginRestore(replay);
          for (const EncodedChangelogRecord& record : log) {
            ASSERT_THAT(task->backend.RestoreRecord(record.key, record.value), tests::IsOk());
          }
          task->backend.EndRestore();
          for (auto& [waiting, times] : model) {
            times.first -= std::max(jump, milliseconds(0)) + milliseconds(1);
            times.second = std::min(times.second - std::min(jump, milliseconds(0)),
                                    clock.Now() + asked[waiting]) +
                           milliseconds(1);
          }
          break;
        }
      }
      ASSERT_THAT(task->fault, tests::IsOk());
      ASSERT_EQ(task->timers.size(), model.size()) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace postrider
