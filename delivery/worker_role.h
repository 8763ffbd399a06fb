#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/resolver.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {

struct WorkerOptions {
  std::string pool = "default";
  int64_t shards = 1;
  int64_t key_groups = 64;
  int64_t messages_max = 100'000;
  int64_t bytes_max = 64 << 20;
  std::chrono::milliseconds session_timeout{6'000};
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds fetch_wait_max{10};
  int64_t fetch_bytes_min = 100'000;
  std::chrono::milliseconds linger{5};
  std::chrono::milliseconds trim_safety{std::chrono::hours(1)};
  std::chrono::milliseconds stop_wait_max{20'000};
  int64_t requests_max = 2'000;  // per shard
  std::string ca_file = "/etc/ssl/certs/ca-certificates.crt";

  void Register(Options& options);
};

// What a worker stands on; all of it outlives the role.
struct WorkerParts {
  Log& log;
  const Clock& clock;
  Metrics& metrics;
  const KeyRing& keys;
  Resolver& resolver;
};

// The worker: reads the dispatch topic of its pool and delivers. Threads: one control thread.
class WorkerRole {
 public:
  // `snapshot`: the first one; nothing can be sent without.
  static absl::StatusOr<std::unique_ptr<WorkerRole>> Start(
      const WorkerParts& parts, const WorkerOptions& options, const std::string& topic_prefix,
      std::chrono::milliseconds snapshot_age_max, std::shared_ptr<const AddressRules> rules,
      std::shared_ptr<const subscriptions::Snapshot> snapshot);
  ~WorkerRole();

  void SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot);
  JobStatus status() const;
  // Drains and leaves; `done` runs on some thread.
  void Stop(std::function<void()> done);
  void StopHard();

 private:
  struct Impl;
  explicit WorkerRole(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::delivery
