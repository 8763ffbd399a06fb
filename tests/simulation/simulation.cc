#include "tests/simulation/simulation.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/world.h"

namespace postrider::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kHealMax{150'000};
// A commit interval, its answer, and a rebalance in between.
constexpr milliseconds kCommitAgeMax{1'000};

// What may happen in a seed: each has some of it only, so that what the rest would hide is seen.
enum class Mischief {
  kCrash,
  kStop,
  kUnreachable,
  kCommitFault,
  kTrim,
  kIsolate,
  kFreeze,
  kStall,
  kFullStore,
  kWallClock,
  kCompact,
  kGap,
  kLoad,
  kGhosts,
  kCount,
};

class Simulation {
 public:
  Simulation(uint64_t seed, bool calm)
      : calm_(calm), world_(seed, 2 + static_cast<int32_t>(Random(seed).Below(3))) {
    Random& random = world_.random;
    world_.oracle.trace = std::getenv("POSTRIDER_SIMULATION_TRACE") != nullptr;
    world_.options.pending_records_max = 8 + static_cast<int64_t>(random.Below(60));
    world_.options.holes_max = 2 + static_cast<int64_t>(random.Below(40));
    world_.options.restores_max = 1 + static_cast<int>(random.Below(3));
    world_.options.restore_bytes_max = static_cast<int64_t>(random.Below(4'000));
    Surroundings& at = world_.surroundings;
    at.attempts_max = 1 + static_cast<int>(random.Below(4));
    at.park = random.Below(3) == 0 ? random.Below(500) : 0;
    if (random.Below(2) == 0) at.attempts_ttl = milliseconds(2'000);
    refusal_ = random.Below(4) == 0 ? 600 : random.Below(200);
    // A third of the calm ones too has answers that outlive a handover.
    slow_ = random.Below(3) == 0 ? 200 : 0;
    if (calm_) at.request_timeout = milliseconds(5'000);
    if (!calm_) {
      for (bool& one : mischief_) one = random.Below(3) != 0;
      if (random.Below(2) == 0) at.fail_open = 30;
      if (random.Below(2) == 0) at.fail_result = 5;
      if (random.Below(2) == 0) {
        world_.options.producer.queue_records_max = 5 + static_cast<int64_t>(random.Below(40));
      }
      if (random.Below(3) == 0) {
        world_.options.changelogs[1].overlay_bytes_max = 1'000 + random.Below(4'000);
      }
      silence_ = random.Below(3) == 0 ? 60 : 0;
    }
    world_.receive = [this](int32_t, const std::vector<int64_t>&, int) { return Receive(); };
  }

  Outcome Run() {
    const int steps = 80 + static_cast<int>(world_.random.Below(80));
    Start();
    if (world_.random.Below(2) == 0) Start();
    for (int step = 0; step < steps && !world_.oracle.fault(); ++step) {
      Produce();
      if (calm_) {
        DisturbGently();
      } else {
        Disturb();
      }
      world_.clock.Advance(milliseconds(1 + static_cast<int64_t>(world_.random.Below(80))));
      if (calm_) world_.oracle.CheckCommitAge(kCommitAgeMax);
      world_.Turn(calm_ ? 20 : 1 + static_cast<int>(world_.random.Below(6)));
    }
    if (!world_.oracle.fault()) Heal();
    if (!world_.oracle.fault()) BeginAgain();
    if (calm_ && world_.oracle.repeats() > 0) {
      world_.oracle.Fault(
          absl::StrCat(world_.oracle.repeats(), " repeats, though every handover was clean"));
    }
    return Outcome{world_.oracle.fault(), world_.oracle.records(), world_.oracle.repeats(),
                   world_.oracle.letters()};
  }

 private:
  Answer Receive() {
    Random& random = world_.random;
    Answer answer;
    answer.ok = healing_ ? true : random.Below(1'000) >= refusal_;
    answer.taken = answer.ok;
    answer.after = milliseconds(1 + static_cast<int64_t>(random.Below(150)));
    if (healing_) return answer;
    if (random.Below(1'000) < slow_) {
      answer.after = milliseconds(static_cast<int64_t>(random.Below(calm_ ? 950 : 1'200)));
    }
    if (random.Below(1'000) < silence_) {
      answer.after = absl::nullopt;
      answer.taken = random.Below(2) == 0;
    }
    return answer;
  }

  Process& Start() {
    Process& process = world_.Start();
    if (calm_) return process;
    Random& random = world_.random;
    LogFaults& faults = process.log_faults;
    faults.reachable = reachable_;
    if (random.Below(3) == 0) faults.fail_unwritten = random.Below(20);
    if (random.Below(3) == 0) faults.fail_written = random.Below(20);
    if (random.Below(2) == 0) faults.delay_write = random.Below(300);
    if (random.Below(2) == 0) faults.delay_answer = random.Below(500);
    if (random.Below(4) == 0) faults.delay_ms_max = 1'000;
    if (random.Below(2) == 0) faults.read_max = 1 + random.Below(6);
    if (random.Below(4) == 0) process.store_faults.broken = random.Below(40);
    if (random.Below(6) == 0) process.store_faults.cannot_open = random.Below(200);
    return process;
  }

  int32_t AnyPartition() {
    return static_cast<int32_t>(world_.random.Below(static_cast<uint64_t>(world_.partitions)));
  }
  Process* AnyProcess() {
    if (world_.processes.empty()) return nullptr;
    return world_.processes[world_.random.Below(world_.processes.size())].get();
  }

  void Produce() {
    Random& random = world_.random;
    if (random.Below(3) != 0) return;
    const int32_t partition = AnyPartition();
    for (uint64_t i = random.Below(4); i > 0; --i) {
      world_.Produce(partition, absl::StrCat("k", random.Below(Oracle::kKeys)));
    }
  }

  void DisturbGently() {
    Random& random = world_.random;
    switch (random.Below(40)) {
      case 0:
        if (world_.processes.size() < 3) Start();
        break;
      case 1: {
        Process* const process = AnyProcess();
        if (Staying() > 1 && process != nullptr) world_.Stop(*process);
        break;
      }
      case 2:
        world_.Compact({random.Below(2) == 0 ? Oracle::kState : Oracle::kBacklog, AnyPartition()},
                       false);
        break;
      case 3:
        // Nobody stays; who comes may find that all deadlines have passed.
        if (random.Below(3) != 0) break;
        for (const auto& process : world_.processes) world_.Stop(*process);
        world_.Pass(milliseconds(static_cast<int64_t>(random.Below(10'000))));
        Start();
        break;
      default:
        break;
    }
  }
  int64_t Staying() const {
    return std::count_if(world_.processes.begin(), world_.processes.end(),
                         [](const auto& process) { return !process->stopping; });
  }

  bool Has(Mischief what) const { return mischief_[static_cast<size_t>(what)]; }

  void Disturb() {
    Random& random = world_.random;
    const int32_t partition = AnyPartition();
    Process* const process = AnyProcess();
    WriteGhosts();
    switch (random.Below(90)) {
      case 0:
      case 1:
      case 2:
        if (Has(Mischief::kCrash) && process != nullptr) world_.Crash(*process);
        break;
      case 3:
      case 4:
      case 5:
        if (world_.processes.size() < 3) Start();
        break;
      case 6:
        if (Has(Mischief::kUnreachable)) SetReachable(false);
        break;
      case 7:
      case 8:
        SetReachable(true);
        break;
      case 9:
        if (Has(Mischief::kCommitFault)) {
          world_.log.SetCommitFault(static_cast<MemoryLog::CommitFault>(random.Below(4)));
        }
        break;
      case 10:
      case 11:
        world_.log.SetCommitFault(MemoryLog::CommitFault::kNone);
        break;
      case 12: {
        const int64_t committed = world_.Committed(partition);
        if (Has(Mischief::kTrim) && committed > 0)
          world_.log.TrimNow({Oracle::kWork, partition}, committed);
        break;
      }
      case 13:
        if (Has(Mischief::kIsolate) && process != nullptr) Isolate(*process, true);
        break;
      case 14:
      case 15:
        if (process != nullptr) Isolate(*process, false);
        break;
      case 16:
        if (Has(Mischief::kFreeze) && process != nullptr) {
          // Longer than its session, or not.
          process->frozen_until = world_.clock.Now() + milliseconds(random.Below(6'000));
          Isolate(*process, true);
        }
        break;
      case 17:
        // Everybody stalls.
        if (Has(Mischief::kStall)) world_.clock.Advance(milliseconds(random.Below(5'000)));
        break;
      case 18:
        if (Has(Mischief::kStop) && process != nullptr) world_.Stop(*process);
        break;
      case 19:
        if (Has(Mischief::kFullStore) && process != nullptr) process->store_faults.full = true;
        break;
      case 20:
      case 21:
        if (process != nullptr) process->store_faults.full = false;
        break;
      case 22:
        if (!Has(Mischief::kWallClock)) break;
        world_.clock.SetWall(
            world_.clock.Wall() +
            milliseconds(static_cast<int64_t>(random.Below(7'200'000)) - 3'600'000));
        break;
      case 23:
      case 24:
      case 25:
        if (Has(Mischief::kCompact)) {
          Compact(random.Below(2) == 0 ? Oracle::kState : Oracle::kBacklog, partition);
        }
        break;
      case 26:
        if (!Has(Mischief::kGap)) break;
        world_.log.SkipOffsets({Oracle::kWork, partition}, static_cast<int64_t>(random.Below(5)));
        break;
      case 27:
        // So that bounds are reached.
        if (!Has(Mischief::kLoad)) break;
        for (int i = 0; i < 20; ++i) {
          world_.Produce(partition, absl::StrCat("k", random.Below(Oracle::kKeys)));
        }
        break;
      default:
        break;
    }
    Thaw();
  }

  void Compact(const char* topic, int32_t partition) {
    const bool drop = world_.restoring == 0 && world_.ghosts.empty() && world_.random.Below(2) == 0;
    world_.Compact({topic, partition}, drop);
  }
  void SetReachable(bool reachable) {
    reachable_ = reachable;
    world_.log.SetReachable(reachable);
    for (const auto& process : world_.processes) process->log_faults.reachable = reachable;
  }
  void Isolate(Process& process, bool isolated) {
    if (process.member != 0) world_.log.Isolate(kGroup, process.member, isolated);
  }
  // What had been frozen goes on.
  void Thaw() {
    for (const auto& process : world_.processes) {
      if (process->frozen_until == MonotonicTime::min()) continue;
      if (world_.clock.Now() < process->frozen_until) continue;
      process->frozen_until = MonotonicTime::min();
      Isolate(*process, false);
    }
  }
  // What the dead had sent reaches the log late, or never.
  void WriteGhosts() {
    std::vector<AppendRecord>& ghosts = world_.ghosts;
    if (!Has(Mischief::kGhosts)) ghosts.clear();
    while (reachable_ && !ghosts.empty() && world_.random.Below(3) == 0) {
      const AppendRecord ghost = std::move(ghosts.front());
      ghosts.erase(ghosts.begin());
      const TopicPartition tp{ghost.topic, ghost.partition};
      world_.oracle.Appended(ghost);
      if (ghost.tombstone) {
        world_.log.WriteTombstone(tp, ghost.key);
      } else {
        world_.log.Write(tp, ghost.key, ghost.value, ghost.headers);
      }
    }
    if (world_.random.Below(50) == 0) ghosts.clear();
  }

  // No more faults: everything that was written must be done in time.
  void Heal() {
    healing_ = true;
    world_.ghosts.clear();
    SetReachable(true);
    world_.log.SetCommitFault(MemoryLog::CommitFault::kNone);
    for (const auto& process : world_.processes) {
      process->frozen_until = MonotonicTime::min();
      Isolate(*process, false);
      Mend(*process);
    }
    if (Staying() == 0) Mend(Start());
    const bool ended =
        world_.PassUntil([this] { return !world_.Unfinished(); }, kHealMax, milliseconds(50));
    if (world_.oracle.fault() || ended) return;
    world_.oracle.Fault(absl::StrCat("forgotten: ", *world_.Unfinished()));
  }
  static void Mend(Process& process) {
    process.log_faults = LogFaults();
    process.store_faults = StoreFaults();
    process.surroundings.fail_open = 0;
    process.surroundings.fail_result = 0;
  }

  void BeginAgain() {
    if (calm_) {
      for (const auto& process : world_.processes) world_.Stop(*process);
      world_.Pass(seconds(2), milliseconds(50));
    }
    world_.processes.clear();
    world_.surroundings.fail_open = 0;
    world_.surroundings.fail_result = 0;
    world_.BeginAgain();
  }

  const bool calm_;
  World world_;
  bool mischief_[static_cast<size_t>(Mischief::kCount)] = {};
  bool healing_ = false;
  bool reachable_ = true;
  uint64_t refusal_ = 0;
  uint64_t silence_ = 0;
  uint64_t slow_ = 0;
};

}  // namespace

Outcome RunStormy(uint64_t seed) { return Simulation(seed, false).Run(); }
Outcome RunCalm(uint64_t seed) { return Simulation(seed, true).Run(); }

}  // namespace postrider::simulation
