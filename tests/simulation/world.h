#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/base/random.h"
#include "core/stream/job.h"
#include "core/stream/shard.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"
#include "tests/simulation/delivering_function.h"
#include "tests/simulation/faulty_log.h"
#include "tests/simulation/oracle.h"

namespace postrider::simulation {

// What a process's stores do.
struct StoreFaults {
  bool full = false;         // kResourceExhausted
  uint64_t broken = 0;       // kDataLoss, of 10,000 calls of Apply()
  uint64_t cannot_open = 0;  // of 1,000
};

// A shard and all that is its own. It dies as it stands: no destructor of it tells anybody.
struct Process {
  int number = 0;
  std::unique_ptr<EventLoop> loop;
  Metrics metrics;
  LogFaults log_faults;
  StoreFaults store_faults;
  std::unique_ptr<FaultyLog> log;
  Surroundings surroundings;
  uint64_t member = 0;  // of the group, as far as it is known
  MonotonicTime frozen_until = MonotonicTime::min();
  bool stopping = false;
  bool stopped = false;
  std::unique_ptr<Shard> shard;
};

// A log, some processes, receivers and a clock that is moved by hand, in one thread. The same seed
// gives the same run.
class World {
 public:
  explicit World(uint64_t seed, int32_t partitions);
  ~World();

  Process& Start();
  void Crash(Process& process);
  void Stop(Process& process);
  int64_t Produce(int32_t partition, absl::string_view key);
  // Every process that is not frozen gets some turns, in some order.
  void Turn(int turns_max);
  // Time passes in steps; every process has all the turns that it wants.
  void Pass(std::chrono::milliseconds time,
            std::chrono::milliseconds step = std::chrono::milliseconds(10));
  bool PassUntil(const std::function<bool()>& condition, std::chrono::milliseconds time_max,
                 std::chrono::milliseconds step = std::chrono::milliseconds(10));
  // Of the changelogs. Tombstones go only where no restore has begun: a real log keeps them longer
  // than any takes.
  void Compact(const TopicPartition& tp, bool drop_tombstones);
  absl::optional<std::string> Unfinished() const;
  // All is finished and nobody runs: a new process finds nothing to do, whatever compaction has
  // left.
  void BeginAgain();
  int64_t Committed(int32_t partition) const;

  Random random;
  ManualClock clock;
  MemoryLog log{clock};
  Oracle oracle{clock};
  JobOptions options;
  Surroundings surroundings;  // what each new process gets a copy of
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<AppendRecord> ghosts;  // of the dead
  int restoring = 0;
  const int32_t partitions;
  std::function<Answer(int32_t partition, const std::vector<int64_t>& offsets, int attempt)>
      receive;

 private:
  Process* turning_ = nullptr;
  int started_ = 0;
};

constexpr char kGroup[] = "g";

}  // namespace postrider::simulation
