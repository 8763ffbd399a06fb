#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/stream/hole_map.h"
#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"

namespace postrider {
namespace {

constexpr int32_t kPartitions = 3;

// Shards of the sample job under crashes, stalls, fencing, outages, full stores and compaction.
class DurableSimulation {
 public:
  explicit DurableSimulation(uint64_t seed) : random_(seed) {
    log_.MakeTopic("t", kPartitions);
    log_.MakeTopic("first", kPartitions);
    log_.MakeTopic("beside", kPartitions);
    options_.name = "test";
    options_.group.group = "g";
    options_.group.topics = {"t"};
    options_.restores_max = 1 + static_cast<int>(random_.Below(2));
    options_.changelogs = {Changelog("first", ChangelogOptions::Restore::kFirst),
                           Changelog("beside", ChangelogOptions::Restore::kBeside)};
    world_.takes = [this](const std::string&) { return healed_ || random_.Below(3) != 0; };
    world_.latency = [this](const std::string&) {
      const uint64_t most = random_.Below(8) == 0 ? 4'000 : 300;
      return Duration(milliseconds(1 + static_cast<int64_t>(random_.Below(most))));
    };
    log_.SetCommitObserver(
        [this](const std::string&, uint64_t, const CommitEntry& entry) { CheckCommit(entry); });
  }

  void Run(int steps) {
    for (int i = 0; i < 2; ++i) StartProcess();
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      Disturb();
      clock_.Advance(milliseconds(1 + static_cast<int64_t>(random_.Below(60))));
      Turn();
      Bury();
    }
    Heal();
    processes_.clear();
    EXPECT_EQ(world_.revived, 0);
    EXPECT_EQ(world_.stale, 0);
  }

  int64_t written() const { return written_; }
  int64_t repeats() const {
    int64_t repeats = 0;
    for (const auto& [name, times] : world_.taken) repeats += times - 1;
    return repeats;
  }

 private:
  struct Process {
    std::unique_ptr<SampleMember> member;
    bool stopping = false;
    bool stopped = false;
  };

  ChangelogOptions Changelog(const std::string& topic, ChangelogOptions::Restore restore) {
    ChangelogOptions changelog;
    changelog.topic = topic;
    changelog.restore = restore;
    changelog.open_store =
        [this](const TopicPartition& tp) -> absl::StatusOr<std::unique_ptr<StateStore>> {
      if (!healed_ && random_.Below(50) == 0) return absl::UnavailableError("the disk is away");
      return std::unique_ptr<StateStore>(std::make_unique<FullableStore>(full_[tp]));
    };
    return changelog;
  }

  // Below a committed offset, and in its map, everything was taken or is durable elsewhere.
  void CheckCommit(const CommitEntry& entry) {
    const auto metadata = DecodeCommitMetadata(entry.position.metadata, entry.position.offset);
    ASSERT_TRUE(metadata.has_value());
    for (const int64_t offset : existing_[entry.tp]) {
      if (offset >= entry.position.offset && !metadata->completed.Contains(offset)) continue;
      const std::string name = absl::StrCat(entry.tp.ToString(), "@", offset);
      ASSERT_TRUE(world_.taken.contains(name) || world_.parked.contains(name))
          << name << " is committed, and neither taken nor parked";
    }
  }

  void StartProcess() {
    auto process = std::make_unique<Process>();
    process->member =
        std::make_unique<SampleMember>(log_, clock_, options_, random_.Next(), world_);
    processes_.push_back(std::move(process));
  }

  void Disturb() {
    const TopicPartition tp{"t", static_cast<int32_t>(random_.Below(kPartitions))};
    if (random_.Below(2) == 0) {
      for (uint64_t i = random_.Below(4); i > 0; --i) {
        existing_[tp].push_back(log_.Write(tp, absl::StrCat("k", random_.Below(5)), "v"));
        ++written_;
      }
    }
    const auto members = log_.Members("g");
    switch (random_.Below(160)) {
      case 0:
        if (!processes_.empty()) Kill(random_.Below(processes_.size()));
        break;
      case 1:
      case 2:
        if (processes_.size() < 3) StartProcess();
        break;
      case 3:
        log_.SetReachable(false);
        break;
      case 4:
      case 5:
        log_.SetReachable(true);
        break;
      case 6:
        log_.SetCommitFault(static_cast<MemoryLog::CommitFault>(random_.Below(4)));
        break;
      case 7:
      case 8:
        log_.SetCommitFault(MemoryLog::CommitFault::kNone);
        break;
      case 9: {
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
        if (!processes_.empty()) Stop(*processes_[random_.Below(processes_.size())]);
        break;
      case 15:
        log_.HoldAppends(true);
        break;
      case 16:
      case 17:
        log_.HoldAppends(false);
        break;
      case 18:
        full_[{random_.Below(2) == 0 ? "first" : "beside", tp.partition}] = true;
        break;
      case 19:
      case 20:
        for (auto& [changelog, full] : full_) full = false;
        break;
      case 21:
      case 22:
      case 23:
        log_.Compact({"first", tp.partition});
        log_.Compact({"beside", tp.partition});
        break;
      case 24:
        // Nobody reads: tombstones may go.
        processes_.clear();
        for (int32_t partition = 0; partition < kPartitions; ++partition) {
          log_.Compact({"first", partition}, MemoryLog::Tombstones::kDrop);
          log_.Compact({"beside", partition}, MemoryLog::Tombstones::kDrop);
        }
        StartProcess();
        break;
      default:
        break;
    }
  }
  void Kill(size_t index) {
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void Stop(Process& process) {
    if (std::exchange(process.stopping, true)) return;
    process.member->shard->Stop([&process] { process.stopped = true; });
  }
  void Bury() {
    std::erase_if(processes_, [](const auto& process) { return process->stopped; });
  }
  void Reconnect() {
    for (const uint64_t member : isolated_) log_.Isolate("g", member, false);
    isolated_.clear();
  }
  void Turn() {
    for (const auto& process : processes_) {
      for (uint64_t turns = random_.Below(5); turns > 0; --turns) {
        process->member->loop->RunOnce(Duration::zero());
      }
    }
  }

  void Heal() {
    healed_ = true;
    log_.SetReachable(true);
    log_.SetCommitFault(MemoryLog::CommitFault::kNone);
    log_.HoldAppends(false);
    for (auto& [changelog, full] : full_) full = false;
    Reconnect();
    std::erase_if(processes_, [](const auto& process) { return process->stopping; });
    if (processes_.empty()) StartProcess();
    for (int step = 0; step < 3'000 && !AllDone() && !::testing::Test::HasFailure(); ++step) {
      clock_.Advance(milliseconds(50));
      for (int turn = 0; turn < 4; ++turn) {
        for (const auto& process : processes_) process->member->loop->RunOnce(Duration::zero());
      }
    }
    for (const auto& [tp, offsets] : existing_) {
      for (const int64_t offset : offsets) {
        const std::string name = absl::StrCat(tp.ToString(), "@", offset);
        EXPECT_TRUE(world_.taken.contains(name)) << name << " is lost";
      }
    }
    EXPECT_TRUE(AllDone());
  }
  bool AllDone() {
    for (const auto& [tp, offsets] : existing_) {
      if (offsets.empty()) continue;
      const auto committed = log_.Committed("g", tp);
      if (!committed || committed->offset <= offsets.back()) return false;
      const auto owner =
          std::find_if(processes_.begin(), processes_.end(),
                       [&tp = tp](const auto& process) { return process->member->Has(tp); });
      if (owner == processes_.end()) return false;
      const SampleFunction& function = (*owner)->member->At(tp);
      if (!function.restored(1) || function.parked() > 0) return false;
    }
    return true;
  }

  Random random_;
  ManualClock clock_;
  MemoryLog log_{clock_};
  JobOptions options_;
  SampleWorld world_;
  bool healed_ = false;
  std::map<TopicPartition, bool> full_;
  std::map<TopicPartition, std::vector<int64_t>> existing_;
  std::set<uint64_t> isolated_;
  int64_t written_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Nothing is lost, nothing that is durably finished is sent again, no owner sends after its
// successor has begun, and repeats are rare.
TEST(DurableSimulationTest, LosesNothingAndRevivesNothing) {
  int64_t written = 0;
  int64_t repeats = 0;
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    DurableSimulation simulation(seed);
    simulation.Run(400);
    written += simulation.written();
    repeats += simulation.repeats();
  }
  EXPECT_GT(written, 10'000);
  EXPECT_LT(repeats, written / 7);
}

}  // namespace
}  // namespace postrider
