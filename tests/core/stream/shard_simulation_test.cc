#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/random.h"
#include "core/stream/function.h"
#include "core/stream/hole_map.h"
#include "core/stream/shard.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kPartitions = 3;

// What is true, whatever the shards believe: how often each record was completed, and by when.
struct Truth {
  std::map<TopicPartition, std::map<int64_t, int>> done;
  // The epoch that acted last on a partition.
  std::map<TopicPartition, uint64_t> epoch;
  int64_t repeats = 0;
};

// Sends each record to the outside world, some time later; now and then it fails.
class SendingFunction final : public KeyedProcessFunction {
 public:
  SendingFunction(Truth& truth, Random& random, EventLoop& loop)
      : truth_(truth), random_(random), loop_(loop) {}

  absl::Status Open(TaskContext& ctx) override {
    ctx_ = &ctx;
    return random_.Below(40) == 0 ? absl::UnavailableError("not today") : absl::OkStatus();
  }
  void OnElement(TaskContext&, const LogRecord& record) override {
    EXPECT_TRUE(seen_.empty() || *seen_.rbegin() < record.offset) << "records go backwards";
    seen_.insert(record.offset);
    waiting_.insert(record.offset);
    Send();
  }
  void OnTimer(TaskContext&, absl::string_view, uint32_t, MonotonicTime) override { Send(); }
  void OnPartitionEnd(TaskContext&, int64_t) override { Send(); }
  void OnRoom(TaskContext&) override { Send(); }
  void OnResume(TaskContext&) override {
    draining_ = false;
    Send();
  }
  void OnPressure(TaskContext&) override {}
  void OnDrain(TaskContext&, Drain kind) override { draining_ = kind == Drain::kHandover; }
  size_t in_flight() const override { return flying_.size(); }
  void Close(TaskContext&, CloseReason) override {
    flying_.clear();
    ctx_ = nullptr;
  }

 private:
  void Send() {
    while (ctx_ != nullptr && !draining_ && !waiting_.empty() && flying_.size() < 8 &&
           ctx_->MayAct()) {
      auto next = waiting_.begin();
      std::advance(next, static_cast<long>(random_.Below(std::min<size_t>(waiting_.size(), 4))));
      const int64_t offset = *next;
      waiting_.erase(next);
      flying_.insert(offset);
      Arrive(offset);
      auto result = ctx_->Guard([this, offset] { Result(offset); });
      loop_.CallAfter(milliseconds(1 + static_cast<int64_t>(random_.Below(400))),
                      std::move(result));
    }
  }
  // The outside world has it now: nothing takes that back.
  void Arrive(int64_t offset) {
    uint64_t& last = truth_.epoch[ctx_->partition()];
    EXPECT_GE(ctx_->epoch(), last) << "a former owner acts after its successor";
    last = std::max(last, ctx_->epoch());
    if (++truth_.done[ctx_->partition()][offset] > 1) ++truth_.repeats;
  }
  void Result(int64_t offset) {
    if (random_.Below(300) == 0) return ctx_->Fail(absl::InternalError("broken"));
    flying_.erase(offset);
    ctx_->Complete(offset);
    ctx_->SetTimer("more", 1, ctx_->clock().Now() + milliseconds(random_.Below(20)));
    Send();
  }

  Truth& truth_;
  Random& random_;
  EventLoop& loop_;
  TaskContext* ctx_ = nullptr;
  std::set<int64_t> seen_;
  std::set<int64_t> waiting_;
  std::set<int64_t> flying_;
  bool draining_ = false;
};

class SendingProgram final : public ShardProgram {
 public:
  SendingProgram(Truth& truth, Random& random, EventLoop& loop)
      : truth_(truth), random_(random), loop_(loop) {}
  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
    return std::make_unique<SendingFunction>(truth_, random_, loop_);
  }

 private:
  Truth& truth_;
  Random& random_;
  EventLoop& loop_;
};

struct Process {
  std::unique_ptr<EventLoop> loop;
  Metrics metrics;
  bool stopped = false;
  std::unique_ptr<Shard> shard;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {
    log_.MakeTopic("t", kPartitions);
    options_.name = "sim";
    options_.group.group = "g";
    options_.group.topics = {"t"};
    options_.pending_records_max = 20 + static_cast<int64_t>(random_.Below(60));
    log_.SetCommitObserver(
        [this](const std::string&, uint64_t, const CommitEntry& entry) { CheckCommit(entry); });
  }
  ~Simulation() { processes_.clear(); }

  void Run(int steps) {
    for (int i = 0; i < 2; ++i) StartProcess();
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      Disturb();
      clock_.Advance(milliseconds(1 + static_cast<int64_t>(random_.Below(60))));
      Turn();
    }
    Heal();
  }

  int64_t written() const { return written_; }
  const Truth& truth() const { return truth_; }

 private:
  // Nothing below a committed offset, and nothing in its map, may be undone.
  void CheckCommit(const CommitEntry& entry) {
    const auto metadata = DecodeCommitMetadata(entry.position.metadata, entry.position.offset);
    ASSERT_TRUE(metadata.has_value());
    const auto& done = truth_.done[entry.tp];
    for (int64_t offset : existing_[entry.tp]) {
      if (offset >= entry.position.offset && !metadata->completed.Contains(offset)) continue;
      ASSERT_TRUE(done.contains(offset))
          << entry.tp.ToString() << " commits " << offset << ", which nobody has sent";
    }
  }

  void StartProcess() {
    auto process = std::make_unique<Process>();
    process->loop = *EventLoop::Create(clock_);
    ShardProgramFactory factory = [this](const ShardEnvironment& at) {
      return absl::StatusOr<std::unique_ptr<ShardProgram>>(
          std::make_unique<SendingProgram>(truth_, random_, at.loop));
    };
    process->shard = *Shard::Create(log_, *process->loop, process->metrics, options_, 0,
                                    random_.Next(), factory);
    processes_.push_back(std::move(process));
  }

  void Disturb() {
    const TopicPartition tp{"t", static_cast<int32_t>(random_.Below(kPartitions))};
    if (random_.Below(2) == 0) {
      for (uint64_t i = random_.Below(6); i > 0; --i) {
        existing_[tp].push_back(log_.Write(tp, "k", "v"));
        ++written_;
      }
    }
    const auto members = log_.Members("g");
    switch (random_.Below(160)) {
      case 0:
        log_.SkipOffsets(tp, static_cast<int64_t>(random_.Below(50)));
        break;
      case 1:
        if (!processes_.empty()) Kill(random_.Below(processes_.size()));
        break;
      case 2:
      case 3:
        if (processes_.size() < 3) StartProcess();
        break;
      case 4:
        reachable_ = false;
        log_.SetReachable(reachable_);
        break;
      case 5:
        reachable_ = true;
        log_.SetReachable(reachable_);
        break;
      case 6:
        log_.SetCommitFault(static_cast<MemoryLog::CommitFault>(random_.Below(4)));
        break;
      case 7:
      case 8:
        log_.SetCommitFault(MemoryLog::CommitFault::kNone);
        break;
      case 9: {
        // What is committed may go.
        const auto committed = log_.Committed("g", tp);
        if (committed) log_.TrimNow(tp, committed->offset);
        break;
      }
      case 10:
        if (!members.empty()) {
          isolated_.insert(members[random_.Below(members.size())]);
          for (const uint64_t member : isolated_) log_.Isolate("g", member, true);
        }
        break;
      case 11:
      case 12:
        Reconnect();
        break;
      case 13:
        clock_.Advance(milliseconds(random_.Below(7'000)));  // everybody stalls
        break;
      case 14:
        if (!processes_.empty()) {
          Process& process = *processes_[random_.Below(processes_.size())];
          if (!process.stopped) {
            process.stopped = true;
            process.shard->Stop([] {});
          }
        }
        break;
      default:
        break;
    }
  }
  void Kill(size_t index) {
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void Reconnect() {
    for (const uint64_t member : isolated_) log_.Isolate("g", member, false);
    isolated_.clear();
  }
  // Each loop in some order; some do not get the processor.
  void Turn() {
    for (const auto& process : processes_) {
      for (uint64_t turns = random_.Below(5); turns > 0; --turns) {
        process->loop->RunOnce(Duration::zero());
      }
    }
  }

  // No more faults: everything that was written must be done in time.
  void Heal() {
    log_.SetReachable(true);
    log_.SetCommitFault(MemoryLog::CommitFault::kNone);
    Reconnect();
    std::erase_if(processes_, [](const auto& process) { return process->stopped; });
    if (processes_.empty()) StartProcess();
    for (int step = 0; step < 4'000 && !AllDone() && !::testing::Test::HasFailure(); ++step) {
      clock_.Advance(milliseconds(50));
      for (int turn = 0; turn < 4; ++turn) {
        for (const auto& process : processes_) process->loop->RunOnce(Duration::zero());
      }
    }
    for (const auto& [tp, offsets] : existing_) {
      for (const int64_t offset : offsets) {
        EXPECT_TRUE(truth_.done[tp].contains(offset)) << tp.ToString() << "@" << offset << " lost";
      }
      const auto committed = log_.Committed("g", tp);
      EXPECT_TRUE(committed && committed->offset > offsets.back())
          << tp.ToString() << " stands at " << (committed ? committed->offset : -1);
    }
  }
  bool AllDone() {
    for (const auto& [tp, offsets] : existing_) {
      const auto committed = log_.Committed("g", tp);
      if (!committed || committed->offset <= offsets.back()) return false;
    }
    return true;
  }

  Random random_;
  ManualClock clock_;
  MemoryLog log_{clock_};
  JobOptions options_;
  Truth truth_;
  std::map<TopicPartition, std::vector<int64_t>> existing_;
  std::set<uint64_t> isolated_;
  bool reachable_ = true;
  int64_t written_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Two or three shards under crashes, outages, fencing and stalls (but no coordinator that drops a
// member before its session's time, for which no lease can be safe). Nothing is lost; no commit
// says more than is true; no owner acts after its successor.
TEST(ShardSimulationTest, LosesNothing) {
  int64_t written = 0;
  int64_t repeats = 0;
  for (uint64_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    simulation.Run(500);
    written += simulation.written();
    repeats += simulation.truth().repeats;
  }
  // Repeats are rare even so; a regression in what is kept or skipped would show here.
  EXPECT_GT(written, 50'000);
  EXPECT_LT(repeats, written / 7);
}

}  // namespace
}  // namespace postrider
