#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/random.h"
#include "core/stream/async_operations.h"
#include "core/stream/durable_timers.h"
#include "core/stream/function.h"
#include "core/stream/inherited_operations.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "tests/simulation/oracle.h"

namespace postrider::simulation {

// What the world does with a request.
struct Answer {
  bool taken = false;                               // the receiver has it, whatever it answers
  bool ok = false;                                  // what it answers
  absl::optional<std::chrono::milliseconds> after;  // none: never
};

// What a function is like in this world, and what it shares with it.
struct Surroundings {
  Oracle* oracle = nullptr;
  Random* random = nullptr;
  // A request arrives at the receiver: it takes all that it carries, or nothing.
  std::function<Answer(int32_t partition, const std::vector<int64_t>& offsets, int attempt)>
      receive;
  // Until when the process may act, by what the log has acknowledged.
  std::function<MonotonicTime()> lease;
  // Before the function goes on with an answer; see the crash table.
  std::function<void(bool ok)> on_answer;
  std::function<void(const TopicPartition&)> on_restored;  // of everything
  int* restoring = nullptr;                                // tasks that are not restored as a whole
  uint64_t fail_open = 0;                                  // of 1,000
  uint64_t fail_result = 0;
  uint64_t park = 0;  // records that go to the backlog at once, of 1,000
  std::chrono::milliseconds request_timeout{1'000};
  std::chrono::milliseconds retry_delay{150};
  std::chrono::milliseconds attempts_ttl{0};
  int attempts_max = 3;
};

class DeliveringFunction;

// The requests of one shard: they outlive their task when its partition moves.
class DeliveringProgram final : public ShardProgram {
 public:
  using Requests = AsyncOperations<bool>;  // whether the receiver has taken it

  DeliveringProgram(Surroundings& at, EventLoop& loop, ResultSink& results)
      : at_(at), loop_(loop), requests_(results) {}

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override;
  size_t in_flight() const override { return requests_.moved(); }

  Requests& requests() { return requests_; }
  // One that has begun goes out.
  void Send(uint64_t number, int32_t partition, const std::vector<int64_t>& offsets, int attempt);

 private:
  Surroundings& at_;
  EventLoop& loop_;
  Requests requests_;
};

// Sends each record to the receiver, as an example of a function with durable state: it counts by
// key what was delivered, keeps in a durable list what the receiver refused or what it parks, tries
// that again by a durable timer, gives up after some attempts (to another topic), names its
// requests at a handover and waits for those that it inherits.
//
// A record is complete when it was delivered or given up and its durable traces are gone durably,
// or when its entry and the timer that wakes it are durable.
class DeliveringFunction final : public KeyedProcessFunction,
                                 private DeliveringProgram::Requests::Owner {
 public:
  static constexpr uint16_t kCountId = 0x10;
  static constexpr uint16_t kTimersId = 0x12;
  static constexpr uint16_t kAttemptsId = 0x14;

  DeliveringFunction(DeliveringProgram& program, Surroundings& at, TopicPartition tp)
      : program_(program), at_(at), tp_(std::move(tp)) {}
  ~DeliveringFunction() override;

  absl::Status Open(TaskContext& ctx) override;
  void OnRestored(TaskContext& ctx, size_t index) override;
  void OnInherited(TaskContext& ctx, std::vector<Operation> operations) override;
  void OnResult(TaskContext& ctx, const OperationResult& result) override;
  void OnElement(TaskContext& ctx, const LogRecord& record) override;
  void OnTimer(TaskContext& ctx, absl::string_view key, uint32_t tag, MonotonicTime time) override;
  void OnPartitionEnd(TaskContext& ctx, int64_t next) override;
  void OnRoom(TaskContext& ctx) override;
  void OnResume(TaskContext& ctx) override;
  void OnPressure(TaskContext& ctx) override;
  void OnHoles(TaskContext& ctx, int64_t below) override;
  void OnDrain(TaskContext& ctx, Drain kind) override;
  size_t in_flight() const override { return program_.requests().in_flight(*this); }
  std::vector<Operation> Operations() const override;
  void OnGivenBack(TaskContext& ctx) override;
  void Close(TaskContext& ctx, CloseReason reason) override;

 private:
  static constexpr size_t kFlightsMax = 6;
  static constexpr uint32_t kAlarm = 1;
  static constexpr uint32_t kRelease = 2;
  static constexpr uint32_t kRetry = 1;  // of the durable timers

  // A pending record.
  enum class Stage { kWaiting, kFlying, kHeld, kBusy };
  struct Item {
    std::string key;
    Stage stage = Stage::kWaiting;
    bool read_again = false;  // an owner before this one may have put it into its backlog
  };

  void OnEnded(const std::string& key, uint64_t number, bool ok) override;
  absl::optional<Operation> Describe(const std::string&, uint64_t number) const override {
    return flying_.at(number);
  }
  DeliveringProgram::Requests::Telling Leave(const std::string& key, uint64_t number) override;

  using Step = std::function<bool()>;  // false: no room, again later
  void Try(Step step);
  void RunSteps();

  void Pump();
  bool Awaited(int64_t offset) const { return inherited_.Carrying(offset) != nullptr; }
  void EndInherited();
  void Begin(const std::string& key, const std::vector<int64_t>& offsets, int attempt);
  void Deliver(int64_t offset, const std::string& key);
  void Settle(int64_t offset, const std::string& key, bool counted);
  void Park(int64_t offset);
  void GoOnWaiting(int64_t offset);
  void Letter(int64_t offset, const std::string& key);
  void Complete(int64_t offset);
  void Retry(const std::string& key);
  void Touch(uint16_t state, const std::string& key, const std::string& sub_key);
  std::string BacklogIdentity(const std::string& key, int64_t offset) const;
  void CheckRestored(size_t index);
  void WakeEntries();

  DeliveringProgram& program_;
  Surroundings& at_;
  const TopicPartition tp_;
  TaskContext* ctx_ = nullptr;
  std::unique_ptr<ValueState<uint64_t>> counts_;
  std::unique_ptr<DurableTimers> timers_;
  std::unique_ptr<ListState> backlog_;
  std::unique_ptr<MapState<uint64_t>> attempts_;

  std::map<int64_t, Item> items_;
  std::set<int64_t> working_;  // entries of the backlog that are in flight or on their way out
  InheritedOperations inherited_;
  std::map<uint64_t, Operation> flying_;  // requests
  std::deque<Step> steps_;
  bool running_steps_ = false;
  bool draining_ = false;
  bool at_end_ = false;
  bool restored_ = false;
  bool counted_as_restoring_ = false;
  bool reasserted_[2] = {};

  // Of this life, for the oracle.
  std::set<std::string> touched_;
  std::set<int64_t> put_;
  std::set<int64_t> removed_;
};

}  // namespace postrider::simulation
