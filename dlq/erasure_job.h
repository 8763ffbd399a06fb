#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/postgres/pool.h"
#include "core/postgres/result.h"

namespace postrider::dlq {

struct ErasureMetrics {
  explicit ErasureMetrics(Metrics& metrics);

  Counter& rows;
  Counter& failures;
};

struct ErasureLimits {
  int rows_max = 1'000;  // of a kind, per transaction
  Duration between_steps = std::chrono::milliseconds(50);
  Duration when_idle = std::chrono::seconds(2);
  Duration after_failure = std::chrono::seconds(5);
};

// Deletes from Postgres what is to be forgotten, in steps (postrider.erase_some), as long as it
// lives. Any number of processes may: each takes another erasure.
//
// Threads: the loop's.
class ErasureJob {
 public:
  // All outlive it.
  ErasureJob(EventLoop& loop, Pool& pool, ErasureMetrics& metrics,
             const ErasureLimits& limits = ErasureLimits());
  ~ErasureJob();

 private:
  void Plan(Duration delay);
  void Step();
  void OnStep(absl::StatusOr<std::vector<QueryResult>> results);

  EventLoop& loop_;
  Pool& pool_;
  ErasureMetrics& metrics_;
  const ErasureLimits limits_;
  TimerId timer_ = 0;
  // What is under way is answered when this is gone, too.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace postrider::dlq
