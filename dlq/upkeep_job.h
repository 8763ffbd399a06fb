#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/postgres/pool.h"
#include "core/postgres/result.h"

namespace postrider::dlq {

// What is deleted from Postgres.
enum class Upkeep : size_t {
  kErase,        // what is to be forgotten: letters, attempts, status, kept answers of the API
  kPurge,        // rows of desired state that were deleted 30 days ago, kept answers of a day ago
  kLetterDays,   // days of letters that are all past their retention
  kAttemptDays,  // days of attempts that are past theirs
};
inline constexpr size_t kUpkeeps = 4;

struct UpkeepMetrics {
  explicit UpkeepMetrics(Metrics& metrics);

  std::array<Counter*, kUpkeeps> gone{};
  std::array<Counter*, kUpkeeps> failures{};
};

struct UpkeepLimits {
  int rows_max = 1'000;  // of a kind, per transaction
  Duration between_steps = std::chrono::milliseconds(50);
  // How soon the next look is when there was nothing to do.
  std::array<Duration, kUpkeeps> when_idle = {std::chrono::seconds(2), std::chrono::minutes(10),
                                              std::chrono::minutes(10), std::chrono::minutes(10)};
  Duration after_failure = std::chrono::seconds(5);
};

// Deletes what nobody may or need see any more, in steps (functions of the schema), as long as it
// lives; one step at a time. Any number of processes may: their steps take turns or other rows.
//
// Threads: the loop's.
class UpkeepJob {
 public:
  // All outlive it.
  UpkeepJob(EventLoop& loop, Pool& pool, UpkeepMetrics& metrics,
            const UpkeepLimits& limits = UpkeepLimits());
  ~UpkeepJob();

 private:
  void Plan();
  void Step(size_t which);
  void OnStep(size_t which, absl::StatusOr<std::vector<QueryResult>> results);

  EventLoop& loop_;
  Pool& pool_;
  UpkeepMetrics& metrics_;
  const UpkeepLimits limits_;
  std::array<MonotonicTime, kUpkeeps> due_{};
  TimerId timer_ = 0;
  // What is under way is answered when this is gone, too.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace postrider::dlq
