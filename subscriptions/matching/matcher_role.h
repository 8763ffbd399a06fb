#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "subscriptions/matching/decoder/json_decoder.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::subscriptions {

struct MatcherOptions {
  JsonDecoderOptions decoder;
  std::string topics = "^events\\..*";  // the pattern of source topics
  std::string start = "earliest";       // or "latest": where a group without any commit begins
  int64_t hops_max = 3;
  int64_t shards = 1;
  int64_t events_max = 100'000;  // per shard, read but not complete
  int64_t bytes_max = 64 << 20;
  std::chrono::milliseconds session_timeout{6'000};
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds fetch_wait_max{10};
  int64_t fetch_bytes_min = 64 << 10;
  std::chrono::milliseconds linger{20};
  std::chrono::milliseconds topic_refresh{30'000};

  // source.*, event.bytes_max, matcher.*
  void Register(Options& options);
};

// Where the matcher writes to, which other roles have a say in too.
struct MatcherTarget {
  std::string topic_prefix = "postrider.";
  std::string pool = "default";
  int32_t key_groups = 64;
  uint64_t generation = 1;  // of the pool's topics: see core/stream/control_record.h
  // The dispatch topic was written to, so that matchers have committed before: a group without any
  // commit has lost them, and reads its sources from their start whatever `start` says.
  bool written = false;
};

// The matcher: reads the source topics and fills the dispatch topic. Threads: Start, Stop and
// status one control thread; SetSnapshot any one thread.
class MatcherRole {
 public:
  // The group that matchers are members of.
  static std::string Group(const std::string& topic_prefix);
  // The topics that it writes to; make them before Start().
  static std::vector<TopicSpec> Topics(const MatcherTarget& target, int16_t replication);

  // `log`, `clock` and `metrics` outlive it. Without a first SetSnapshot() events are read up to
  // the bounds and wait.
  static absl::StatusOr<std::unique_ptr<MatcherRole>> Start(
      Log& log, const Clock& clock, Metrics& metrics, const MatcherOptions& options,
      const MatcherTarget& target, std::chrono::milliseconds snapshot_age_max);
  ~MatcherRole();

  // Builds the index on the calling thread, when the contents are others than before, and posts
  // both to the shards.
  void SetSnapshot(std::shared_ptr<const Snapshot> snapshot);
  JobStatus status() const;
  // Drains and leaves; `done` runs on some thread.
  void Stop(std::function<void()> done);
  void StopHard();

 private:
  struct Impl;
  explicit MatcherRole(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::subscriptions
