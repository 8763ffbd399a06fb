#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/options.h"
#include "core/crypto/key_ring.h"
#include "core/http/address_guard.h"
#include "core/http/curl_sink.h"
#include "core/http/egress_proxy.h"
#include "core/http/resolver.h"
#include "core/stream/job.h"
#include "core/stream/log.h"
#include "core/stream/record.h"
#include "core/stream/state_store.h"
#include "delivery/endpoint_reporting.h"
#include "delivery/memory_budget.h"
#include "delivery/operational_teller.h"
#include "subscriptions/registry/snapshot.h"

namespace postrider::delivery {

struct WorkerOptions {
  std::string pool = "default";
  int64_t shards = 1;
  int64_t key_groups = 64;
  int64_t messages_max = 100'000;
  std::chrono::milliseconds session_timeout{6'000};
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds fetch_wait_max{10};
  int64_t fetch_bytes_min = 100'000;
  std::chrono::milliseconds linger{5};
  std::chrono::milliseconds trim_safety{std::chrono::hours(1)};
  std::chrono::milliseconds stop_wait_max{20'000};
  int64_t requests_max = 2'000;  // per shard
  std::chrono::milliseconds probe_rest_max{60'000};
  std::chrono::milliseconds auto_disable_after{std::chrono::hours(24 * 5)};
  std::string ca_file = "/etc/ssl/certs/ca-certificates.crt";
  int64_t memory_limit = 1 << 30;
  std::string state_store = "rocksdb";  // or "heap": of the backlog
  std::string state_directory;          // empty: below the process's data directory
  int64_t backlog_bytes_max = int64_t{64} << 30;
  std::chrono::milliseconds backlog_linger{50};
  int64_t customer_backlog_bytes_max = int64_t{10} << 30;  // per process
  double disk_share_max = 0.8;  // of what the backlog has on its disk and what is free there
  EndpointReportingOptions reports;
  OperationalOptions operational;
  // Of the pool's topics; no option: the control topic says it, and key_groups with it.
  uint64_t generation = 1;

  void Register(Options& options);
  // How the limit is divided; kInvalidArgument when it is too small.
  absl::StatusOr<MemoryBudget> Memory() const;
  // How many connections a shard keeps when the process may have `open_files_max` files open and
  // other roles `other_files` of them; kInvalidArgument when those are too few.
  absl::StatusOr<int64_t> IdleConnections(const MemoryBudget& memory, int64_t open_files_max,
                                          int64_t other_files) const;
};

// What a worker stands on; all of it outlives the role.
struct WorkerParts {
  Log& log;
  const Clock& clock;
  Metrics& metrics;
  const KeyRing& keys;
  Resolver& resolver;
  // A new, empty store for a task, which holds at most `bytes_max`. Called on shards' threads, for
  // several at once.
  using OpenBoundedStore = std::function<absl::StatusOr<std::unique_ptr<StateStore>>(
      const TopicPartition& tp, uint64_t bytes_max)>;
  OpenBoundedStore open_endpoint_state;
  OpenBoundedStore open_backlog;
  // What the open stores of the backlog hold in memory together, where they share it.
  std::function<uint64_t()> backlog_memory;
  // How far a partition of the pool's topic may be trimmed at most: see JobOptions::trim_limit.
  std::function<absl::optional<int64_t>(const TopicPartition&)> trim_limit;
  // Null: receivers are reached without one.
  std::shared_ptr<const EgressProxy> proxy;
  // Files that the process may have open, and what other roles may have of them.
  int64_t open_files_max = 0;
  int64_t other_files = 0;
  // What the disk of the backlog's stores has free; none when it cannot be told. Null: they have
  // none. And what is told whether they have more there than state.disk_share_max.
  std::function<absl::optional<uint64_t>()> disk_free = nullptr;
  std::function<void(bool)> set_disk_tight = nullptr;
};

// The worker: reads the dispatch topic of its pool and delivers. Threads: one control thread.
class WorkerRole {
 public:
  // The topics that a pool's workers need beside the one that they read: its changelogs. `name`:
  // GenerationName() of the pool.
  static std::vector<TopicSpec> Topics(const std::string& topic_prefix, const std::string& name,
                                       int64_t key_groups, int16_t replication);
  // The group that a pool's workers are members of.
  static std::string Group(const std::string& topic_prefix, const std::string& pool);
  // `snapshot`: the first one; nothing can be sent without. kInvalidArgument: memory.limit or the
  // limit of open files is too small.
  static absl::StatusOr<std::unique_ptr<WorkerRole>> Start(
      const WorkerParts& parts, const WorkerOptions& options, const std::string& topic_prefix,
      std::chrono::milliseconds snapshot_age_max, std::shared_ptr<const AddressRules> rules,
      std::shared_ptr<const subscriptions::Snapshot> snapshot);
  ~WorkerRole();

  void SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot);
  // Whom it may reach from now on; connections made before take no more requests.
  void SetAddressRules(std::shared_ptr<const AddressRules> rules);
  // Draining: everything that pends is parked, so that all records are soon complete, and no
  // request is begun. Otherwise it delivers.
  void SetDraining(bool draining);
  // Of this process; to be looked at before a stop, so that none is left in flight.
  int64_t requests_in_flight() const;
  JobStatus status() const;
  // Brings the metrics of stores, memory and disk up to date, soon, and what the backlogs may hold
  // on that. To be called every few seconds.
  void LookAtMemory();
  // Drains and leaves; `done` runs on some thread.
  void Stop(std::function<void()> done);
  void StopHard();

 private:
  struct Impl;
  explicit WorkerRole(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider::delivery
