#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/random.h"
#include "core/stream/log.h"
#include "tests/fakes/forwarding_log.h"
#include "tests/simulation/oracle.h"

namespace postrider::simulation {

// How ill the log treats one process. Chances are out of 1,000 appends.
struct LogFaults {
  bool reachable = true;
  // It was killed, though its turn is not over: nothing that it does counts any more.
  bool dead = false;
  uint64_t fail_unwritten = 0;  // never written, and the answer says so
  uint64_t fail_written = 0;    // written, and the answer says that it failed
  uint64_t delay_write = 0;     // written later, with all that follow it in the partition
  uint64_t delay_answer = 0;
  int64_t delay_ms_max = 100;
  size_t read_max = 1'000;  // records that one poll of a restore gets
};

// The log as one process sees it: the true one behind faults of its own, and everything that is
// written and committed told to the oracle, in the order of the log.
//
// Threads: the loop's.
class FaultyLog final : public ForwardingLog {
 public:
  FaultyLog(Log& log, Oracle& oracle, Random& random, LogFaults& faults)
      : ForwardingLog(log), oracle_(oracle), random_(random), faults_(faults) {}

  absl::StatusOr<std::unique_ptr<LogProducer>> OpenProducer(
      EventLoop& loop, const ProducerOptions& options) override;
  absl::StatusOr<std::unique_ptr<GroupConsumer>> JoinGroup(EventLoop& loop,
                                                           const GroupOptions& options,
                                                           GroupHandler& handler) override;
  absl::StatusOr<std::unique_ptr<PartitionReader>> OpenReader(EventLoop& loop,
                                                              const ReaderOptions& options,
                                                              ReadHandler& handler) override;

  // Until when the process may act, by the commits that it knows to be acknowledged.
  MonotonicTime lease() const { return lease_; }
  // Appends that the network has, though their process is about to die: a first part of each
  // partition's. They may yet be written.
  std::vector<AppendRecord> TakeGhosts();
  // For tests that kill the process at a certain point.
  std::function<void(const AppendRecord&)> after_append;  // it is in the log, not answered
  std::function<void(const AppendRecord&)> after_answer;  // acknowledged
  std::function<void(const std::vector<CommitEntry>&)> before_commit;
  std::function<void(const CommitEntry&)> after_commit;  // acknowledged

 private:
  class Producer;
  class Consumer;
  class Reader;

  Oracle& oracle_;
  Random& random_;
  LogFaults& faults_;
  MonotonicTime lease_ = MonotonicTime::min();
  Producer* producer_ = nullptr;
};

}  // namespace postrider::simulation
