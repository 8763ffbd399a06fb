#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/stream/function.h"
#include "core/stream/hole_map.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "core/stream/shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"

namespace postrider {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A function that does what the test tells it, and says what was done to it.
class ScriptedFunction final : public KeyedProcessFunction {
 public:
  ScriptedFunction(std::map<TopicPartition, ScriptedFunction*>& open,
                   std::vector<std::string>& events, TopicPartition tp)
      : open_(open), events_(events), tp_(std::move(tp)) {
    open_[tp_] = this;
  }
  ~ScriptedFunction() override {
    EXPECT_TRUE(closed_ || ctx_ == nullptr);
    if (open_[tp_] == this) open_.erase(tp_);
  }

  absl::Status Open(TaskContext& ctx) override {
    ctx_ = &ctx;
    Note("open");
    return absl::OkStatus();
  }
  void OnElement(TaskContext& ctx, const LogRecord& record) override {
    EXPECT_FALSE(closed_);
    Note(absl::StrCat("element ", record.offset));
    pending_.insert(record.offset);
    if (on_element) on_element(ctx, record);
  }
  void OnSkipped(TaskContext&, const LogRecord& record) override {
    Note(absl::StrCat("skipped ", record.offset));
  }
  void OnTimer(TaskContext&, absl::string_view key, uint32_t tag, MonotonicTime time) override {
    EXPECT_FALSE(closed_);
    Note(absl::StrCat("timer ", key, " ", tag, " ",
                      std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count()));
    if (on_timer) on_timer();
  }
  void OnPartitionEnd(TaskContext&, int64_t next) override { Note(absl::StrCat("end ", next)); }
  void OnRoom(TaskContext&) override { Note("room"); }
  void OnResume(TaskContext& ctx) override {
    EXPECT_TRUE(ctx.MayAct());
    Note("resume");
  }
  void OnPressure(TaskContext& ctx) override {
    EXPECT_TRUE(ctx.under_pressure());
    Note("pressure");
  }
  void OnHoles(TaskContext&, int64_t below) override { Note(absl::StrCat("holes ", below)); }
  void OnDrain(TaskContext&, Drain kind) override {
    Note(kind == Drain::kHandover ? "handover" : "shutdown");
  }
  size_t in_flight() const override { return flights; }
  void Close(TaskContext& ctx, CloseReason) override {
    ctx.clock();
    closed_ = true;
    Note("close");
  }

  void Complete(int64_t offset) {
    ASSERT_EQ(pending_.erase(offset), 1u) << offset;
    ctx_->Complete(offset);
  }
  void CompleteAll() {
    while (!pending_.empty()) Complete(*pending_.begin());
  }
  const std::set<int64_t>& pending() const { return pending_; }
  TaskContext& ctx() { return *ctx_; }

  size_t flights = 0;
  std::function<void(TaskContext&, const LogRecord&)> on_element;
  std::function<void()> on_timer;

 private:
  void Note(const std::string& what) { events_.push_back(what); }

  std::map<TopicPartition, ScriptedFunction*>& open_;
  std::vector<std::string>& events_;
  const TopicPartition tp_;
  TaskContext* ctx_ = nullptr;
  std::set<int64_t> pending_;
  bool closed_ = false;
};

// One shard with its loop.
class ShardMember {
 public:
  ShardMember(Log& log, const Clock& clock, const JobOptions& options, uint64_t seed,
              ShardSiblings* siblings = nullptr)
      : loop(*EventLoop::Create(clock)) {
    ShardProgramFactory factory = [this](const ShardEnvironment&) {
      return absl::StatusOr<std::unique_ptr<ShardProgram>>(std::make_unique<Program>(*this));
    };
    auto made = Shard::Create(log, *loop, metrics, options, 0, seed, factory, siblings);
    POSTRIDER_CHECK(made.ok());
    shard = *std::move(made);
  }

  bool Has(const TopicPartition& tp) const { return open.contains(tp); }
  ScriptedFunction& At(const TopicPartition& tp) {
    POSTRIDER_CHECK(open.contains(tp));
    return *open.at(tp);
  }
  // What happened to the functions of this partition since the last call.
  std::vector<std::string> Take(const TopicPartition& tp) { return std::exchange(events[tp], {}); }
  double Metric(const std::string& name, const std::string& more = "") const {
    const std::string text = metrics.Expose();
    const std::string start = absl::StrCat(name, "{job=\"test\",shard=\"0\"", more, "} ");
    const size_t at = text.find(start);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + start.size()));
  }

  std::unique_ptr<EventLoop> loop;
  Metrics metrics;
  std::map<TopicPartition, ScriptedFunction*> open;
  std::map<TopicPartition, std::vector<std::string>> events;
  std::function<void(ScriptedFunction&, const TopicPartition&)> on_create;
  int turns = 0;
  std::unique_ptr<Shard> shard;  // ends first

 private:
  class Program final : public ShardProgram {
   public:
    explicit Program(ShardMember& member) : member_(member) {}
    std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition& tp) override {
      auto function = std::make_unique<ScriptedFunction>(member_.open, member_.events[tp], tp);
      if (member_.on_create) member_.on_create(*function, tp);
      return function;
    }
    void OnTurnEnd() override { ++member_.turns; }

   private:
    ShardMember& member_;
  };
};

class ShardTest : public ::testing::Test {
 protected:
  ShardTest() {
    log_.MakeTopic("t", 2);
    options_.name = "test";
    options_.group.group = "g";
    options_.group.topics = {"t"};
  }

  std::unique_ptr<ShardMember> Join(ShardSiblings* siblings = nullptr) {
    return std::make_unique<ShardMember>(log_, clock_, options_, ++seed_, siblings);
  }
  void Write(const TopicPartition& tp, int count) {
    for (int i = 0; i < count; ++i) log_.Write(tp, "k", "0123456789");
  }
  // Turns until nothing is left to do now.
  void Settle(std::vector<ShardMember*> members) {
    // What a turn's end begins shows in the next turn only.
    int quiet = 0;
    for (int round = 0; round < 10'000 && quiet < 2; ++round) {
      size_t ran = 0;
      for (ShardMember* member : members) ran += member->loop->RunOnce(Duration::zero());
      quiet = ran == 0 ? quiet + 1 : 0;
    }
    if (quiet == 2) return;
    ADD_FAILURE() << "the loops never come to rest";
  }
  void Pass(Duration time, std::vector<ShardMember*> members, Duration step = milliseconds(10)) {
    Settle(members);
    for (Duration left = time; left > Duration::zero(); left -= step) {
      clock_.Advance(std::min(step, left));
      Settle(members);
    }
  }
  CommitMetadata Metadata(const TopicPartition& tp) {
    const auto committed = log_.Committed("g", tp);
    POSTRIDER_CHECK(committed.has_value());
    const auto metadata = DecodeCommitMetadata(committed->metadata, committed->offset);
    POSTRIDER_CHECK(metadata.has_value());
    return *metadata;
  }
  int64_t Committed(const TopicPartition& tp) {
    const auto committed = log_.Committed("g", tp);
    return committed ? committed->offset : -1;
  }
  // A commit of an owner that is gone.
  void Preset(const TopicPartition& tp, int64_t offset, uint64_t epoch, OffsetSet completed = {}) {
    CommitMetadata metadata;
    metadata.writer.fill(9);
    metadata.epoch = epoch;
    metadata.incarnation_ms = 1234;
    metadata.completed = std::move(completed);
    log_.SetCommitted("g", tp, {offset, EncodeCommitMetadata(metadata, offset).text});
  }

  ManualClock clock_;
  MemoryLog log_{clock_};
  JobOptions options_;
  const TopicPartition t0_{"t", 0};
  const TopicPartition t1_{"t", 1};

 private:
  uint64_t seed_ = 0;
};

}  // namespace postrider
