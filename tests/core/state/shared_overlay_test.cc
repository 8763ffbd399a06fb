// What the overlays of several tasks hold together.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/state/heap_store.h"
#include "core/stream/keyed_state.h"
#include "core/stream/memory_account.h"
#include "core/stream/state_backend.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"
#include "tests/fakes/state_serializers.h"

namespace postrider {
namespace {

struct Task {
  Task(const Clock& clock, MemoryAccount& account)
      : store(MakeHeapStore({})),
        backend(Options(account), *store, changelog, [](absl::Status) {}),
        value(backend, clock, {2, "value", std::chrono::milliseconds{0}}, TextSerializer()) {
    backend.SetRoomCallback([this] { ++rooms; });
  }
  static StateBackendOptions Options(MemoryAccount& account) {
    StateBackendOptions options;
    options.epoch = 1;
    options.overlay_bytes_max = 1 << 20;
    options.overlays = &account;
    options.floor_bytes = 0;
    return options;
  }

  std::unique_ptr<StateStore> store;
  ScriptedChangelog changelog;
  StateBackend backend;
  ValueState<std::string> value;
  int rooms = 0;
};

class SharedOverlayTest : public testing::Test {
 protected:
  // Until it is refused.
  static void Fill(Task& task) {
    for (int i = 0; task.value.Put(absl::StrCat("k", i), std::string(1'000, 'x')); ++i) {
    }
  }

  ManualClock clock_;
  MemoryAccount account_{100'000};
  Task first_{clock_, account_};
  std::unique_ptr<Task> second_ = std::make_unique<Task>(clock_, account_);
};

TEST_F(SharedOverlayTest, NeverHoldMoreThanTheAccount) {
  Fill(first_);
  const size_t most = account_.used();
  EXPECT_GT(most, 95'000);
  EXPECT_LE(most, account_.bytes_max());
  EXPECT_EQ(first_.backend.overlay_bytes(), most);
  EXPECT_FALSE(second_->value.Put("k", std::string(3'000, 'y')));
  EXPECT_EQ(account_.used(), most + second_->backend.overlay_bytes()) << "what was refused counts";
  EXPECT_LT(second_->backend.overlay_bytes(), 1'000) << "that the state's name is written";
  first_.changelog.AnswerAll();
  second_->changelog.AnswerAll();
  EXPECT_EQ(account_.used(), 0) << "what the store has taken counts";
}

TEST_F(SharedOverlayTest, WhoWasRefusedForOthersIsToldWhenHeAsksAgain) {
  Fill(first_);
  ASSERT_FALSE(second_->value.Put("k", std::string(3'000, 'y')));
  EXPECT_TRUE(second_->backend.wants_retry());
  second_->backend.OnRoom();
  EXPECT_EQ(second_->rooms, 0);
  EXPECT_TRUE(second_->backend.wants_retry());
  first_.changelog.AnswerAll();
  second_->backend.OnRoom();
  EXPECT_EQ(second_->rooms, 1);
  EXPECT_FALSE(second_->backend.wants_retry());
  EXPECT_TRUE(second_->value.Put("k", std::string(3'000, 'y')));
}

TEST_F(SharedOverlayTest, AChangelogThatRefusesGivesBackWhatWasTaken) {
  second_->changelog.room = 0;
  EXPECT_FALSE(second_->value.Put("k", std::string(3'000, 'y')));
  EXPECT_EQ(account_.used(), 0);
}

TEST_F(SharedOverlayTest, ATaskThatEndsGivesBackWhatItHeld) {
  Fill(*second_);
  EXPECT_GT(account_.used(), 95'000);
  second_->changelog.DropAnswers();
  second_.reset();
  EXPECT_EQ(account_.used(), 0);
}

}  // namespace
}  // namespace postrider
