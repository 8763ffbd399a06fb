#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/async_operations.h"
#include "core/stream/function.h"
#include "core/stream/inherited_operations.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/record.h"
#include "core/stream/state_backend.h"
#include "tests/fakes/state_serializers.h"

namespace postrider {

// A function that uses all of the stream core, small enough to be seen through: it sends each
// record to an outside world that answers later, parks what is refused in a durable list, tries
// that again by a timer, and counts per key, durably, what was taken. It hands over what is in
// flight, waits for what it inherits, and passes on results that come in when it has moved.
// Changelog 0 has the counts, changelog 1 what is parked.

// The outside world, and what is true whatever functions believe. Threads: one.
struct SampleWorld {
  // What it does with a record, by name ("topic/partition@offset"); the test's to change.
  std::function<bool(const std::string&)> takes = [](const std::string&) { return true; };
  std::function<Duration(const std::string&)> latency = [](const std::string&) {
    return Duration(std::chrono::milliseconds(10));
  };
  // Whether durable state is made with a serialiser that a newer binary has.
  uint32_t count_version = 1;

  std::map<std::string, int> taken;          // how often
  std::map<std::string, int> arrived;        // taken or not
  std::set<std::string> parked;              // durably
  std::set<std::string> removed;             // durably, from what is parked
  int64_t revived = 0;                       // sent as parked though the removal was durable
  int64_t stale = 0;                         // sent by a former owner after its successor had begun
  std::map<TopicPartition, uint64_t> epoch;  // the highest that has begun
  std::map<TopicPartition, std::map<std::string, int64_t>> counted;  // durably, by that owner
};

class SampleProgram;
// Whether the outside world has taken a record.
using SampleOperations = AsyncOperations<bool>;

class SampleFunction final : public KeyedProcessFunction, private SampleOperations::Owner {
 public:
  static constexpr uint32_t kAgainTimer = 1;
  static constexpr uint32_t kHeldTimer = 2;
  static constexpr Duration kAgainAfter = std::chrono::seconds(1);

  explicit SampleFunction(SampleProgram& program) : program_(program) {}
  ~SampleFunction() override { EXPECT_TRUE(closed_); }

  absl::Status Open(TaskContext& ctx) override;
  void OnRestored(TaskContext& ctx, size_t index) override;
  void OnInherited(TaskContext& ctx, std::vector<Operation> operations) override;
  void OnResult(TaskContext& ctx, const OperationResult& result) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnSkipped(TaskContext&, const LogRecord&) override {}
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext&, int64_t) override;
  void OnRoom(TaskContext&) override { Pump(); }
  void OnResume(TaskContext&) override;
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext&, Drain) override { draining_ = true; }
  size_t in_flight() const override;
  std::vector<Operation> Operations() const override;
  void OnGivenBack(TaskContext&) override;
  void Close(TaskContext& ctx, CloseReason reason) override;

  // For tests.
  int64_t Count(const std::string& key) const { return **counts_->Get(key); }
  uint64_t parked() const { return backlog_->size(); }
  size_t held() const { return held_.size(); }
  size_t inherited() const { return inherited_.size(); }
  bool restored(size_t index) const { return restored_.contains(index); }
  TaskContext& ctx() { return *ctx_; }

 private:
  friend class SampleProgram;
  // A record, or what is parked of one.
  struct Message {
    std::string key;
    int64_t offset = 0;
    bool pending = false;  // its record is not complete
    bool parked = false;   // it stands in the list, or its push is on its way
  };
  // What is to be written when there is room.
  using Write = std::function<bool()>;

  std::string Name(int64_t offset) const {
    return absl::StrCat(ctx_->partition().ToString(), "@", offset);
  }
  // Nobody has begun after it.
  bool Owns() const;
  static std::string Identity(int64_t offset) { return absl::StrCat(offset); }
  bool IsInherited(int64_t offset) const { return inherited_.Carrying(offset) != nullptr; }
  void EndInherited();
  void Pump();
  void Send(Message message);
  // SampleOperations::Owner
  void OnEnded(const std::string& key, uint64_t number, bool taken) override;
  absl::optional<Operation> Describe(const std::string&, uint64_t number) const override {
    return operations_.at(number);
  }
  SampleOperations::Telling Leave(const std::string& key, uint64_t number) override;
  void Park(Message message);
  void Take(Message message);
  void WakeParked(const std::string& key);
  void Release();

  SampleProgram& program_;
  TaskContext* ctx_ = nullptr;
  std::unique_ptr<ValueState<int64_t>> counts_;
  std::unique_ptr<ListState> backlog_;
  std::set<size_t> restored_;
  std::deque<Message> ready_;
  std::map<int64_t, Message> held_;  // by offset: an inherited operation has them
  InheritedOperations inherited_;
  std::map<int64_t, Message> flying_;  // by offset
  std::set<int64_t> known_;            // of all messages in memory
  std::set<int64_t> finishing_;        // records that were read while their removal was on its way
  std::deque<Write> writes_;
  std::map<uint64_t, Operation> operations_;  // in flight, or at their end before OnResume()
  bool draining_ = false;
  bool closed_ = false;
};

class SampleProgram final : public ShardProgram {
 public:
  static constexpr AsyncLimits kLimits = {16, 8};

  SampleProgram(const ShardEnvironment& environment, SampleWorld& world)
      : loop_(environment.loop), world_(world), operations_(environment.results, kLimits) {}
  ~SampleProgram() override {
    for (const auto& [number, timer] : timers_) loop_.CancelTimer(timer);
  }

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override {
    auto function = std::make_unique<SampleFunction>(*this);
    functions_[tp] = function.get();
    return function;
  }
  // What ends in one function makes room for the others.
  void OnTurnEnd() override {
    for (const auto& [tp, function] : functions_) function->Pump();
  }
  size_t in_flight() const override { return operations_.moved(); }

  // For tests: the open function of a partition, if there is one.
  SampleFunction* At(const TopicPartition& tp) const {
    const auto found = functions_.find(tp);
    return found == functions_.end() ? nullptr : found->second;
  }
  SampleWorld& world() { return world_; }

 private:
  friend class SampleFunction;
  static IdBytes IdOf(const std::string& name) {
    IdBytes id{};
    for (size_t i = 0; i < name.size(); ++i) {
      id[i % id.size()] = static_cast<uint8_t>(id[i % id.size()] * 31 + name[i]);
    }
    return id;
  }

  // It has arrived: nothing takes that back.
  Operation Start(uint64_t number, const TaskContext& ctx, const std::string& key, int64_t offset,
                  const std::string& name) {
    const bool taken = world_.takes(name);
    const Duration latency = world_.latency(name);
    ++world_.arrived[name];
    if (taken) ++world_.taken[name];
    if (ctx.epoch() < world_.epoch[ctx.partition()]) ++world_.stale;
    Operation operation;
    operation.key = key;
    operation.id = IdOf(name);
    operation.offsets = {offset};
    operation.deadline = loop_.clock().Wall() +
                         std::chrono::ceil<std::chrono::milliseconds>(latency) +
                         std::chrono::seconds(1);
    timers_[number] = loop_.CallAfter(latency, [this, number, taken] {
      timers_.erase(number);
      operations_.End(number, taken);
    });
    return operation;
  }
  void Forget(SampleFunction* function, const TopicPartition& tp) {
    const auto found = functions_.find(tp);
    if (found != functions_.end() && found->second == function) functions_.erase(found);
  }

  EventLoop& loop_;
  SampleWorld& world_;
  SampleOperations operations_;
  std::map<TopicPartition, SampleFunction*> functions_;
  std::map<uint64_t, TimerId> timers_;
};

inline absl::Status SampleFunction::Open(TaskContext& ctx) {
  ctx_ = &ctx;
  SampleWorld& world = program_.world();
  StateSerializer<int64_t> serializer = NumberSerializer<int64_t>();
  serializer.version_write = serializer.version_max = world.count_version;
  counts_ = std::make_unique<ValueState<int64_t>>(
      ctx.state(0), ctx.clock(), StateDescriptor{2, "sample.count", {}}, std::move(serializer));
  backlog_ = std::make_unique<ListState>(ctx.state(1), ctx.clock(),
                                         StateDescriptor{3, "sample.parked", {}}, 1);
  uint64_t& epoch = world.epoch[ctx.partition()];
  EXPECT_GT(ctx.epoch(), epoch) << "two owners share an epoch";
  epoch = std::max(epoch, ctx.epoch());
  return absl::OkStatus();
}

inline void SampleFunction::OnRestored(TaskContext& ctx, size_t index) {
  EXPECT_TRUE(restored_.insert(index).second);
  if (index == 0) {
    // What was durable is there.
    for (const auto& [key, count] : program_.world().counted[ctx.partition()]) {
      const auto found = counts_->Get(key);
      EXPECT_TRUE(found.ok() && found->has_value()) << "count of " << key << " is lost";
      EXPECT_GE(found.ok() ? found->value_or(0) : 0, count) << key;
    }
    return;
  }
  std::vector<std::string> keys;
  backlog_->ForEachKey([&](absl::string_view key, uint64_t) { keys.emplace_back(key); });
  std::sort(keys.begin(), keys.end());  // not in a hash map's order: a simulation repeats itself
  for (const std::string& key : keys) ctx.SetTimer(key, kAgainTimer, ctx.clock().Now());
}

inline void SampleFunction::OnInherited(TaskContext& ctx, std::vector<Operation> operations) {
  EXPECT_TRUE(restored_.contains(0));
  inherited_.Add(std::move(operations), ctx.clock());
  EndInherited();
}

// What nobody will tell of any more is sent again.
inline void SampleFunction::EndInherited() {
  inherited_.TakeLapsed(ctx_->clock().Now());
  const auto next = inherited_.NextLapse();
  if (next) ctx_->SetTimer("", kHeldTimer, *next);
  Release();
}

inline void SampleFunction::OnPartitionEnd(TaskContext&, int64_t) {
  if (inherited_.empty()) return;
  inherited_.OnPartitionEnd();
  EndInherited();
}

inline bool SampleFunction::Owns() const {
  return ctx_->epoch() == program_.world().epoch[ctx_->partition()];
}

// Whatever message it is that the records belong to, wherever it stands by now.
inline void SampleFunction::OnResult(TaskContext&, const OperationResult& result) {
  inherited_.Remove(result.id);
  for (const int64_t offset : result.offsets) {
    if (result.outcome != "taken") continue;
    const auto held = held_.find(offset);
    if (held != held_.end()) {
      Message message = std::move(held->second);
      held_.erase(held);
      Take(std::move(message));
      continue;
    }
    const auto ready = std::find_if(ready_.begin(), ready_.end(), [&](const Message& message) {
      return message.offset == offset;
    });
    if (ready != ready_.end()) {
      Message message = std::move(*ready);
      ready_.erase(ready);
      Take(std::move(message));
    } else if (flying_.count(offset) == 0) {
      // It may be parked, or turn out to be when all is restored.
      Message message{result.key, offset, false, true};
      known_.insert(offset);
      Take(std::move(message));
    }
  }
  Release();
}

inline void SampleFunction::Release() {
  for (auto at = held_.begin(); at != held_.end();) {
    if (IsInherited(at->first)) {
      ++at;
      continue;
    }
    ready_.push_back(std::move(at->second));
    at = held_.erase(at);
  }
  Pump();
}

inline void SampleFunction::OnElement(TaskContext& ctx, const LogRecord& record) {
  EXPECT_TRUE(restored_.contains(0));
  Message message{std::string(record.key), record.offset, true, false};
  bool there = false;
  EXPECT_TRUE(backlog_
                  ->Scan(message.key, static_cast<uint64_t>(record.offset), "", ScanLimits{1, 1},
                         [&](const ListState::Entry& entry) {
                           there = entry.identity == Identity(record.offset);
                           return false;
                         })
                  .ok());
  if (there) {
    const auto complete = [this, offset = record.offset] {
      program_.world().parked.insert(Name(offset));
      ctx_->Complete(offset);
    };
    if (!ctx.state(1).WhenDurable(complete)) complete();
    return;
  }
  // Its removal is on its way: nothing is left to be done for it.
  if (!known_.insert(record.offset).second) {
    finishing_.insert(record.offset);
    return;
  }
  if (IsInherited(record.offset)) {
    held_.emplace(record.offset, std::move(message));
    return;
  }
  ready_.push_back(std::move(message));
  Pump();
}

inline void SampleFunction::OnTimer(TaskContext&, absl::string_view key, uint32_t tag,
                                    MonotonicTime) {
  if (tag == kAgainTimer) return WakeParked(std::string(key));
  EndInherited();
}

inline void SampleFunction::WakeParked(const std::string& key) {
  if (!restored_.contains(1)) return;
  EXPECT_TRUE(backlog_
                  ->Scan(key, ScanLimits{},
                         [&](const ListState::Entry& entry) {
                           const auto offset = static_cast<int64_t>(entry.order);
                           // An inherited operation has it: its result or deadline comes first.
                           if (IsInherited(offset) || known_.contains(offset)) return true;
                           known_.insert(offset);
                           ready_.push_back(Message{key, offset, false, true});
                           return true;
                         })
                  .ok());
  if (backlog_->size(key) > 0) {
    ctx_->SetTimer(key, kAgainTimer, ctx_->clock().Now() + kAgainAfter);
  }
  Pump();
}

inline void SampleFunction::OnResume(TaskContext&) {
  draining_ = false;
  program_.operations_.Resume(*this);
  Pump();
}

inline void SampleFunction::Pump() {
  while (!writes_.empty() && writes_.front()()) writes_.pop_front();
  const auto may_go = [this](const Message& message) {
    return program_.operations_.CanBegin(*this, message.key);
  };
  while (!draining_) {
    const auto next = std::find_if(ready_.begin(), ready_.end(), may_go);
    if (next == ready_.end() || !ctx_->MayAct()) return;
    Message message = std::move(*next);
    ready_.erase(next);
    Send(std::move(message));
  }
}

inline void SampleFunction::Send(Message message) {
  const std::string name = Name(message.offset);
  if (message.parked && !message.pending && program_.world().removed.contains(name)) {
    ++program_.world().revived;
  }
  const int64_t offset = message.offset;
  const std::string key = message.key;
  flying_.emplace(offset, std::move(message));
  const uint64_t number = program_.operations_.Begin(*this, key);
  operations_[number] = program_.Start(number, *ctx_, key, offset, name);
}

inline void SampleFunction::OnEnded(const std::string&, uint64_t number, bool taken) {
  const auto operation = operations_.extract(number);
  for (const int64_t offset : operation.mapped().offsets) {
    const auto found = flying_.find(offset);
    EXPECT_TRUE(found != flying_.end());
    if (found == flying_.end()) continue;
    Message message = std::move(found->second);
    flying_.erase(found);
    if (taken) {
      Take(std::move(message));
    } else {
      Park(std::move(message));
    }
  }
  Pump();
}

// Parked, its record may be forgotten.
inline void SampleFunction::Park(Message message) {
  ctx_->SetTimer(message.key, kAgainTimer, ctx_->clock().Now() + kAgainAfter);
  if (message.parked) {
    known_.erase(message.offset);
    return;
  }
  writes_.push_back([this, message] {
    const std::string name = Name(message.offset);
    const auto pushed = backlog_->Push(message.key, static_cast<uint64_t>(message.offset),
                                       Identity(message.offset), 1, "v", [this, message, name] {
                                         known_.erase(message.offset);
                                         if (Owns()) program_.world().parked.insert(name);
                                         ctx_->Complete(message.offset);
                                       });
    EXPECT_TRUE(pushed.ok());
    if (!pushed.ok() || *pushed == ListState::Pushed::kNoRoom) return false;
    EXPECT_EQ(*pushed, ListState::Pushed::kTaken);
    if (Owns()) program_.world().removed.erase(name);
    return true;
  });
}

// Counted, taken out of what is parked, and its record complete when both are durable.
inline void SampleFunction::Take(Message message) {
  writes_.push_back([this, message] {
    const auto before = counts_->Get(message.key);
    EXPECT_TRUE(before.ok());
    if (!before.ok()) return false;
    const int64_t count = before->value_or(0) + 1;
    return counts_->Put(message.key, count, [this, message, count] {
      if (!Owns()) return;
      int64_t& counted = program_.world().counted[ctx_->partition()][message.key];
      counted = std::max(counted, count);
    });
  });
  // What is being restored may hold it, also when this task has not parked it.
  writes_.push_back([this, message] {
    const auto removed = backlog_->Remove(message.key, Identity(message.offset), [this, message] {
      known_.erase(message.offset);
      if (Owns()) program_.world().removed.insert(Name(message.offset));
      const bool read_again = finishing_.erase(message.offset) > 0;
      if (message.pending || read_again) ctx_->Complete(message.offset);
    });
    EXPECT_TRUE(removed.ok());
    return removed.ok() && *removed;
  });
  Pump();
}

inline size_t SampleFunction::in_flight() const { return program_.operations_.in_flight(*this); }

inline void SampleFunction::OnGivenBack(TaskContext&) { program_.operations_.GiveBack(*this); }

inline SampleOperations::Telling SampleFunction::Leave(const std::string&, uint64_t number) {
  return [operation = operations_.at(number)](bool taken) {
    return OperationResult{operation.key, operation.id, operation.offsets,
                           taken ? "taken" : "refused"};
  };
}

inline std::vector<Operation> SampleFunction::Operations() const {
  std::vector<Operation> operations = program_.operations_.Operations(*this);
  for (Operation& operation : inherited_.All()) operations.push_back(std::move(operation));
  return operations;
}

inline void SampleFunction::Close(TaskContext& ctx, CloseReason reason) {
  closed_ = true;
  if (reason == CloseReason::kMoved) {
    program_.operations_.Move(*this, ctx.partition());
  } else {
    program_.operations_.Abort(*this);
  }
  program_.Forget(this, ctx.partition());
  ctx_ = nullptr;
}

}  // namespace postrider
