#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/postgres/connection.h"
#include "core/stream/job.h"
#include "core/stream/log.h"

namespace postrider::dlq {

struct IndexerOptions {
  int64_t shards = 1;
  int64_t letters_max = 50'000;  // read and not yet written, per shard
  int64_t reports_max = 50'000;  // the same of reports, which have a shard of their own

  void Register(Options& options);
};

// The indexer: brings dead letters and reports from their topics into Postgres, in two jobs, so
// that a flood of reports holds up no letter. Threads: one control thread.
class IndexerRole {
 public:
  // `database`: how to log in as the indexer. `log`, `clock` and `metrics` outlive it.
  static absl::StatusOr<std::unique_ptr<IndexerRole>> Start(Log& log, const Clock& clock,
                                                            Metrics& metrics,
                                                            const IndexerOptions& options,
                                                            const std::string& topic_prefix,
                                                            ConnectionOptions database);
  ~IndexerRole();

  // Of both jobs together.
  JobStatus status() const;
  // Drains and leaves; `done` runs on some thread.
  void Stop(std::function<void()> done);
  void StopHard();

 private:
  struct Impl;
  explicit IndexerRole(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::dlq
