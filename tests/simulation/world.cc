#include "tests/simulation/world.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/state/heap_store.h"

namespace postrider::simulation {
namespace {

using std::chrono::milliseconds;

class FaultyStore final : public StateStore {
 public:
  FaultyStore(StoreFaults& faults, Random& random) : faults_(faults), random_(random) {}

  absl::Status Apply(const StateBatch& batch) override {
    if (random_.Below(10'000) < faults_.broken) broken_ = true;
    if (broken_) return absl::DataLossError("the store is broken");
    if (faults_.full) return absl::ResourceExhaustedError("the store is full");
    return store_->Apply(batch);
  }
  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    if (broken_) return absl::DataLossError("the store is broken");
    return store_->Get(key, value);
  }
  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    if (broken_) return absl::DataLossError("the store is broken");
    return store_->Scan(range, from, limits, visit);
  }
  absl::Status Clear() override { return store_->Clear(); }
  StoreFigures figures() const override { return store_->figures(); }

 private:
  StoreFaults& faults_;
  Random& random_;
  std::unique_ptr<StateStore> store_ = MakeHeapStore({});
  bool broken_ = false;
};

}  // namespace

World::World(uint64_t seed, int32_t partition_count) : random(seed), partitions(partition_count) {
  for (const char* topic : {Oracle::kWork, Oracle::kState, Oracle::kBacklog, Oracle::kLetters}) {
    log.MakeTopic(topic, partitions);
  }
  surroundings.oracle = &oracle;
  surroundings.random = &random;
  options.name = "sim";
  options.group.group = kGroup;
  options.group.topics = {Oracle::kWork};
  options.group.session_timeout = milliseconds(3'000);
  options.group.poll_interval_max = milliseconds(4'000);
  options.stop_wait_max = milliseconds(3'000);
  options.changelogs.resize(2);
  options.changelogs[0].topic = Oracle::kState;
  options.changelogs[1].topic = Oracle::kBacklog;
  options.changelogs[1].restore = ChangelogOptions::Restore::kBeside;
  if (seed % 4 == 2) options.changelogs[1].gather = milliseconds(40);
  log.SetCommitObserver([this](const std::string&, uint64_t member, const CommitEntry& entry) {
    if (turning_ != nullptr) turning_->member = member;
    oracle.CommitStored(entry);
  });
}

World::~World() { processes.clear(); }

Process& World::Start() {
  processes.push_back(std::make_unique<Process>());
  Process& process = *processes.back();
  process.loop = *EventLoop::Create(clock);
  process.log = std::make_unique<FaultyLog>(log, oracle, random, process.log_faults);
  process.surroundings = surroundings;
  process.surroundings.restoring = &restoring;
  process.surroundings.lease = [&process] { return process.log->lease(); };
  if (!process.surroundings.receive) {
    process.surroundings.receive =
        [this, &process](int32_t partition, const std::vector<int64_t>& offsets, int attempt) {
          if (process.log_faults.dead) return Answer();
          const Answer answer = receive(partition, offsets, attempt);
          if (answer.taken) {
            for (const int64_t offset : offsets) oracle.Delivered(partition, offset);
          }
          return answer;
        };
  }
  JobOptions of_process = options;
  for (ChangelogOptions& changelog : of_process.changelogs) {
    changelog.open_store =
        [this, &process](const TopicPartition&) -> absl::StatusOr<std::unique_ptr<StateStore>> {
      if (random.Below(1'000) < process.store_faults.cannot_open) {
        return absl::UnavailableError("no store today");
      }
      return std::make_unique<FaultyStore>(process.store_faults, random);
    };
  }
  ShardProgramFactory factory = [&process](const ShardEnvironment& at) {
    return absl::StatusOr<std::unique_ptr<ShardProgram>>(
        std::make_unique<DeliveringProgram>(process.surroundings, at.loop, at.results));
  };
  process.number = ++started_;
  oracle.Note(absl::StrCat("start of process ", process.number));
  turning_ = &process;
  process.shard = *Shard::Create(*process.log, *process.loop, process.metrics, of_process, 0,
                                 random.Next(), factory);
  turning_ = nullptr;
  return process;
}

void World::Crash(Process& process) {
  oracle.Note(absl::StrCat("crash of process ", process.number));
  for (AppendRecord& ghost : process.log->TakeGhosts()) ghosts.push_back(std::move(ghost));
  std::erase_if(processes, [&process](const auto& one) { return one.get() == &process; });
}

void World::Stop(Process& process) {
  if (process.stopping) return;
  process.stopping = true;
  oracle.Note(absl::StrCat("stop of process ", process.number));
  process.shard->Stop([&process] { process.stopped = true; });
}

int64_t World::Produce(int32_t partition, absl::string_view key) {
  const int64_t offset = log.Write({Oracle::kWork, partition}, key, "v");
  oracle.Written(partition, offset);
  if (oracle.trace) oracle.Note(absl::StrCat("produce ", partition, " ", offset));
  return offset;
}

void World::Turn(int turns_max) {
  std::vector<Process*> order;
  for (const auto& process : processes) order.push_back(process.get());
  if (order.size() > 1 && random.Below(2) == 0) std::reverse(order.begin(), order.end());
  for (Process* process : order) {
    if (clock.Now() < process->frozen_until) continue;
    turning_ = process;
    if (oracle.trace) oracle.Note(absl::StrCat("-- process ", process->number));
    for (int turns = turns_max; turns > 0 && !process->stopped; --turns) {
      if (process->loop->RunOnce(Duration::zero()) == 0) break;
    }
    turning_ = nullptr;
  }
  std::erase_if(processes,
                [](const auto& process) { return process->stopped || process->log_faults.dead; });
}

void World::Pass(milliseconds time, milliseconds step) {
  PassUntil([] { return false; }, time, step);
}

bool World::PassUntil(const std::function<bool()>& condition, milliseconds time_max,
                      milliseconds step) {
  for (milliseconds left = time_max;; left -= step) {
    Turn(100);
    if (oracle.fault() || condition()) return true;
    if (left <= milliseconds::zero()) return false;
    clock.Advance(std::min(step, left));
  }
}

void World::Compact(const TopicPartition& tp, bool drop_tombstones) {
  log.Compact(tp, drop_tombstones ? MemoryLog::Tombstones::kDrop : MemoryLog::Tombstones::kKeep);
  oracle.Compacted(tp);
}

void World::BeginAgain() {
  for (int32_t partition = 0; partition < partitions; ++partition) {
    for (const char* topic : {Oracle::kState, Oracle::kBacklog}) {
      Compact({topic, partition}, random.Below(2) == 0);
    }
  }
  int restored = 0;
  bool sent = false;
  surroundings.on_restored = [&restored](const TopicPartition&) { ++restored; };
  receive = [&sent](int32_t, const std::vector<int64_t>&, int) {
    sent = true;
    return Answer{true, true, milliseconds(1)};
  };
  Start();
  PassUntil([&] { return restored == partitions; }, milliseconds(20'000), milliseconds(50));
  Pass(milliseconds(1'000), milliseconds(50));
  processes.clear();
  if (oracle.fault()) return;
  if (restored != partitions) oracle.Fault("the last restore does not end");
  if (sent) oracle.Fault("revived: the last restore brings back what was finished");
}

int64_t World::Committed(int32_t partition) const {
  const auto committed = log.Committed(kGroup, {Oracle::kWork, partition});
  return committed ? committed->offset : -1;
}

absl::optional<std::string> World::Unfinished() const {
  std::map<int32_t, absl::optional<CommittedPosition>> committed;
  for (int32_t partition = 0; partition < partitions; ++partition) {
    committed[partition] = log.Committed(kGroup, {Oracle::kWork, partition});
  }
  return oracle.Unfinished(committed);
}

}  // namespace postrider::simulation
