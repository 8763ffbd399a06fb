#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/steady_wait.h"
#include "core/embedded_log/internal/core.h"
#include "core/embedded_log/internal/partition.h"
#include "core/embedded_log/internal/writer.h"

namespace postrider::embedded_log_internal {

// The thread that ages topics: it trims by time and size, compacts by key, and gives back the disk
// that trims have freed. All that it changes goes through the writer, in steps of about a MB, so
// that appends wait for a step at most.
class Upkeep {
 public:
  struct Options {
    Duration interval{};  // between two rounds
    // Of topics that say nothing of how long or how much is kept. -1: no bound.
    int64_t retention_ms = 604'800'000;
    int64_t retention_bytes = -1;
    size_t keys_max = 200'000;  // of one compaction in memory, about 50 bytes each
  };
  Upkeep(Core& core, Writer& writer, const Options& options);
  ~Upkeep();
  Upkeep(const Upkeep&) = delete;
  Upkeep& operator=(const Upkeep&) = delete;

  void Start();
  void Stop();

  // One round at once; what Start()'s thread does again and again. Blocks. Threads: one at a time.
  enum class Urgency {
    kWhenWorthIt,
    kAlways,  // compacts whatever there is
  };
  void Round(Urgency urgency);

 private:
  void Run();
  bool stopping() {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }
  // By Core::AgeTime(); tells once when the wall clock is far off it.
  int64_t NowMillis();
  void Age(const PartitionPtr& partition, const TopicPolicy& policy);
  void Compact(const PartitionPtr& partition, const TopicPolicy& policy, Urgency urgency);
  void GiveBack(const PartitionPtr& partition);
  // Waits until the writer has made the change.
  absl::Status Change(absl::AnyInvocable<absl::Status(WriteSet&)> prepare);

  Core& core_;
  Writer& writer_;
  const Options options_;
  absl::Mutex mutex_;
  SteadyWait wait_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Up to where the disk was given back, and how many bytes the partition had had there.
  std::map<std::pair<uint32_t, uint32_t>, std::pair<int64_t, uint64_t>> given_back_;
  bool told_of_clock_ = false;
  std::chrono::steady_clock::time_point copied_;  // the entries
  std::thread thread_;
};

// Moves the partition's begin; on the writer's thread, from Change::prepare. kOutOfRange: past the
// end.
absl::Status PrepareTrim(Core& core, const PartitionPtr& partition, int64_t offset, WriteSet& set);

}  // namespace postrider::embedded_log_internal
