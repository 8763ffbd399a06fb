#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "core/state/heap_store.h"
#include "core/stream/changelog.h"
#include "core/stream/function.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_backend.h"
#include "core/stream/state_store.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scripted_changelog.h"

namespace postrider {

// A record with its own storage, for calls of OnElement().
struct OwnedRecord {
  std::string topic = "topic";
  int32_t partition = 0;
  int64_t offset = 0;
  WallTime timestamp;
  std::string key;
  absl::optional<std::string> value = std::string();  // none: a tombstone
  std::vector<std::pair<std::string, std::string>> headers;

  // Good until the next call or change.
  LogRecord View() const {
    views_.clear();
    for (const auto& [name, content] : headers) views_.push_back({name, content});
    LogRecord record;
    record.topic = topic;
    record.partition = partition;
    record.offset = offset;
    record.timestamp = timestamp;
    record.key = key;
    if (value) record.value = *value;
    record.headers = views_;
    return record;
  }

 private:
  mutable std::vector<RecordHeader> views_;
};

// One task's context without a shard: time by hand, appends that wait for the test's answer, timers
// that fire when told to, a list of what was completed, and durable state on changelogs whose answers
// wait for the test too.
class FakeTaskContext final : public TaskContext {
 public:
  explicit FakeTaskContext(TopicPartition tp = {"topic", 0}) : tp_(std::move(tp)) {}

  struct Emitted {
    AppendRecord record;
    LogProducer::AppendDone done;
    bool answered = false;
  };

  // What the test sets.
  ManualClock& manual_clock() { return clock_; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  void set_incarnation_ms(int64_t incarnation) { incarnation_ms_ = incarnation; }
  void set_may_act(bool may) { may_act_ = may; }
  void set_under_pressure(bool pressure) { under_pressure_ = pressure; }
  // So many more appends are taken, then they are refused; call OnRoom() after raising it.
  void set_emit_room(size_t appends) { emit_room_ = appends; }

  // What the function did.
  std::vector<Emitted>& emitted() { return emitted_; }
  size_t refused() const { return refused_; }
  const std::vector<int64_t>& completed() const { return completed_; }
  bool IsCompleted(int64_t offset) const { return completed_set_.contains(offset); }
  const absl::optional<absl::Status>& failure() const { return failure_; }

  // Answers append number `index` (from 0, in the order of Emit()).
  void Answer(size_t index, absl::StatusOr<int64_t> answer) {
    ASSERT_LT(index, emitted_.size());
    ASSERT_FALSE(emitted_[index].answered) << "append " << index << " answered twice";
    emitted_[index].answered = true;
    LogProducer::AppendDone done = std::move(emitted_[index].done);
    if (open_) std::move(done)(std::move(answer));
  }
  void Acknowledge(size_t index) { Answer(index, static_cast<int64_t>(index)); }
  void AcknowledgeAll() {
    for (size_t i = 0; i < emitted_.size(); ++i) {
      if (!emitted_[i].answered) Acknowledge(i);
    }
  }
  size_t unanswered() const {
    return static_cast<size_t>(std::count_if(emitted_.begin(), emitted_.end(),
                                             [](const Emitted& e) { return !e.answered; }));
  }

  size_t timers() const { return timers_.size(); }
  absl::optional<MonotonicTime> Timer(absl::string_view key, uint32_t tag) const {
    const auto found = timers_.find({std::string(key), tag});
    return found == timers_.end() ? absl::nullopt : absl::make_optional(found->second);
  }
  absl::optional<MonotonicTime> NextTimer() const {
    absl::optional<MonotonicTime> next;
    for (const auto& [name, time] : timers_) {
      if (!next || time < *next) next = time;
    }
    return next;
  }
  // Runs what is due, earliest first, those set meanwhile too. Returns how many ran.
  size_t FireTimers(KeyedProcessFunction& function) {
    size_t fired = 0;
    while (true) {
      auto due = timers_.end();
      for (auto it = timers_.begin(); it != timers_.end(); ++it) {
        if (it->second <= clock_.Now() && (due == timers_.end() || it->second < due->second)) {
          due = it;
        }
      }
      if (due == timers_.end() || fired > 1'000'000) return fired;
      const auto [name, time] = *due;
      timers_.erase(due);
      ++fired;
      function.OnTimer(*this, name.first, name.second, time);
    }
  }
  // Durable state. What is written to changelog `index` so far; its answers.
  ScriptedChangelog& changelog(size_t index) { return Durable(index).changelog; }
  StateStore& store(size_t index) { return *Durable(index).store; }
  // Of backends that are made afterwards: call it before Open().
  void set_overlay_bytes_max(size_t bytes) { overlay_bytes_max_ = bytes; }
  // Acknowledges what waits in every changelog, and what is written for that, until nothing is.
  void AcknowledgeWrites() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [index, durable] : durable_) {
        any = any || durable->changelog.waiting() > 0;
        durable->changelog.AnswerAll();
      }
    }
  }
  // A restore: begin before Open(), pass what the former life's changelog(index).log holds (all of
  // it, or a part), and end it; then call OnRestored() of the function.
  void BeginRestore(size_t index) {
    DurableFake& durable = Durable(index);
    durable.replay = std::make_unique<ChangelogReplay>(epoch_, ReplayRuleOf);
    durable.backend->BeginRestore(*durable.replay);
  }
  void RestoreRecords(size_t index, const std::vector<EncodedChangelogRecord>& records) {
    for (const EncodedChangelogRecord& record : records) {
      const absl::Status status = Durable(index).backend->RestoreRecord(record.key, record.value);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  void EndRestore(size_t index) { Durable(index).backend->EndRestore(); }
  // Room came back after a refused write or append.
  void GiveRoom(KeyedProcessFunction& function) {
    for (auto& [index, durable] : durable_) durable->backend->OnRoom();
    function.OnRoom(*this);
  }

  // The task is closed: guarded callbacks and answers no longer run.
  void Close(
      KeyedProcessFunction& function,
      KeyedProcessFunction::CloseReason reason = KeyedProcessFunction::CloseReason::kEnded) {
    function.Close(*this, reason);
    for (auto& [index, durable] : durable_) durable->changelog.DropAnswers();
    open_ = false;
    *alive_ = false;
    timers_.clear();
  }

  const Clock& clock() const override { return clock_; }
  const TopicPartition& partition() const override { return tp_; }
  uint64_t epoch() const override { return epoch_; }
  int64_t incarnation_ms() const override { return incarnation_ms_; }
  void Complete(int64_t offset) override {
    EXPECT_TRUE(completed_set_.insert(offset).second) << "offset " << offset << " completed twice";
    completed_.push_back(offset);
  }
  bool Emit(AppendRecord&& record, LogProducer::AppendDone&& done) override {
    if (emit_room_ == 0) {
      ++refused_;
      return false;
    }
    --emit_room_;
    emitted_.push_back(Emitted{std::move(record), std::move(done), false});
    return true;
  }
  StateBackend& state(size_t index) override { return *Durable(index).backend; }
  void SetTimer(absl::string_view key, uint32_t tag, MonotonicTime time) override {
    timers_[{std::string(key), tag}] = time;
  }
  void CancelTimer(absl::string_view key, uint32_t tag) override {
    timers_.erase({std::string(key), tag});
  }
  bool MayAct() const override { return may_act_; }
  absl::AnyInvocable<void() &&> Guard(absl::AnyInvocable<void() &&> callback) override {
    return [alive = alive_, callback = std::move(callback)]() mutable {
      if (*alive) std::move(callback)();
    };
  }
  bool under_pressure() const override { return under_pressure_; }
  void Fail(absl::Status why) override { failure_ = std::move(why); }

 private:
  struct DurableFake {
    ScriptedChangelog changelog;
    std::unique_ptr<StateStore> store = MakeHeapStore({});
    std::unique_ptr<StateBackend> backend;
    std::unique_ptr<ChangelogReplay> replay;
  };
  DurableFake& Durable(size_t index) {
    std::unique_ptr<DurableFake>& durable = durable_[index];
    if (durable == nullptr) {
      durable = std::make_unique<DurableFake>();
      StateBackendOptions options;
      options.epoch = epoch_;
      options.overlay_bytes_max = overlay_bytes_max_;
      durable->backend =
          std::make_unique<StateBackend>(options, *durable->store, durable->changelog,
                                         [this](absl::Status why) { Fail(std::move(why)); });
    }
    return *durable;
  }

  ManualClock clock_;
  TopicPartition tp_;
  uint64_t epoch_ = 1;
  int64_t incarnation_ms_ = 1'700'000'000'000;
  bool may_act_ = true;
  bool under_pressure_ = false;
  bool open_ = true;
  size_t overlay_bytes_max_ = 1 << 20;
  std::map<size_t, std::unique_ptr<DurableFake>> durable_;
  size_t emit_room_ = std::numeric_limits<size_t>::max();
  size_t refused_ = 0;
  std::vector<Emitted> emitted_;
  std::vector<int64_t> completed_;
  absl::flat_hash_set<int64_t> completed_set_;
  std::map<std::pair<std::string, uint32_t>, MonotonicTime> timers_;
  absl::optional<absl::Status> failure_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace postrider
