#include "delivery/worker_role.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "core/stream/control_record.h"
#include "core/stream/memory_account.h"
#include "delivery/backlog_state.h"
#include "delivery/changelog_topics.h"
#include "delivery/delivery_metrics.h"
#include "delivery/delivery_program.h"
#include "delivery/file_budget.h"
#include "delivery/files_bound.h"
#include "delivery/memory_metrics.h"
#include "delivery/recent_maximum.h"
#include "delivery/store_figures.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {

void WorkerOptions::Register(Options& options) {
  options.Add("worker.pool", &pool, "The pool of workers that this one belongs to.");
  options.Add("worker.shards", &shards, 1, 64,
              "Threads that deliver, each with a share of the key groups.");
  options.Add("worker.key_groups", &key_groups, 1, 4096,
              "Partitions of the pool's dispatch topic when it is made; later `postrider rescale` "
              "changes them.");
  options.Add("worker.messages_max", &messages_max, 1'000, 10'000'000,
              "Messages that a shard holds at most, if memory.limit has room for so many; then it "
              "stops reading.");
  options.AddDuration("worker.session_timeout", &session_timeout, std::chrono::milliseconds(2'000),
                      std::chrono::milliseconds(300'000),
                      "After so long without a heartbeat another worker takes over.");
  options.AddDuration("worker.heartbeat_interval", &heartbeat_interval,
                      std::chrono::milliseconds(50), std::chrono::milliseconds(60'000),
                      "How often a shard shows the group that it lives.");
  options.AddDuration("worker.fetch_wait_max", &fetch_wait_max, std::chrono::milliseconds(1),
                      std::chrono::milliseconds(10'000),
                      "How long a fetch waits for worker.fetch_bytes_min.");
  options.AddBytes("worker.fetch_bytes_min", &fetch_bytes_min, 1, 16 << 20,
                   "A fetch of the dispatch topic waits for so many bytes.");
  options.AddDuration("worker.linger", &linger, std::chrono::milliseconds(0),
                      std::chrono::milliseconds(1'000),
                      "How long appends (dead letters, reports) wait for company.");
  options.AddDuration("worker.trim_safety", &trim_safety, std::chrono::milliseconds(0),
                      std::chrono::hours(24 * 30),
                      "The dispatch topic keeps what was finished so long ago; 0: it is never "
                      "trimmed.");
  options.AddDuration("worker.stop_wait_max", &stop_wait_max, std::chrono::milliseconds(0),
                      std::chrono::minutes(10),
                      "How long a stop waits for the answers of requests in flight.");
  options.Add("worker.requests_max", &requests_max, 1, 50'000,
              "Requests in flight at most, per shard.");
  options.AddDuration("worker.probe_rest_max", &probe_rest_max, std::chrono::milliseconds(1'000),
                      std::chrono::hours(1),
                      "How long an endpoint that fails rests at most from one probe to the next.");
  options.AddDuration("worker.auto_disable_after", &auto_disable_after, std::chrono::minutes(1),
                      std::chrono::hours(24 * 30),
                      "An endpoint that has failed for so long, without a success in between, is "
                      "disabled.");
  options.Add("worker.ca_file", &ca_file,
              "The certificate authorities that receivers are verified "
              "against; a PEM file.");
  options.AddBytes(
      "memory.limit", &memory_limit, 64 << 20, int64_t{1} << 40,
      "What a worker takes for messages, requests, state and buffers together; each "
      "has its part, and what would be more waits. The start says when it is too small "
      "for worker.shards.");
  options.AddChoice("state.store", &state_store, {"rocksdb", "heap"},
                    "Where a worker keeps the backlog while it runs: on disk, or within "
                    "memory.limit. Kafka has it too, and a restart reads it from there.");
  options.Add("state.directory", &state_directory,
              "Where the backlog lies on disk, of this process alone and wiped when it starts; by "
              "default `state` in data_dir.");
  options.AddBytes("state.backlog_bytes_max", &backlog_bytes_max, 64 << 20, int64_t{1} << 50,
                   "What the backlog of a pool takes on disk at most, an equal share for each key "
                   "group.");
  options.AddDuration("state.backlog_linger", &backlog_linger, std::chrono::milliseconds(0),
                      std::chrono::milliseconds(1'000),
                      "How long what is removed from the backlog waits for company on its way to "
                      "Kafka, and what is put into it four times as long: the longer, the fewer "
                      "requests. A crash repeats what was delivered from the backlog meanwhile.");
  options.AddBytes(
      "state.customer_backlog_bytes_max", &customer_backlog_bytes_max, 1 << 20, int64_t{1} << 50,
      "What the backlogs of a customer's endpoints hold in one process at most; beyond "
      "it the largest ones follow their policy as if they were at their bounds.");
  options.Add("state.disk_share_max", &disk_share_max, 0.05, 0.95,
              "How much of the disk the backlog takes at most: of what it has there and what is "
              "free. Beyond it the largest backlogs follow their policy as if they were at their "
              "bounds.");
  reports.Register(options);
  operational.Register(options);
}

absl::StatusOr<MemoryBudget> WorkerOptions::Memory() const {
  MemoryDemand demand;
  demand.limit_bytes = memory_limit;
  demand.shards = shards;
  demand.key_groups = key_groups;
  demand.messages_max = messages_max;
  demand.requests_max = requests_max;
  return DivideMemory(demand);
}

absl::StatusOr<int64_t> WorkerOptions::IdleConnections(const MemoryBudget& memory,
                                                       int64_t open_files_max,
                                                       int64_t other_files) const {
  FileDemand demand;
  demand.limit = open_files_max;
  demand.others = other_files;
  demand.shards = shards;
  demand.key_groups = state_store == "rocksdb" ? key_groups : 0;
  demand.requests_max = requests_max;
  demand.connections_max = memory.connections_max;
  return IdleConnectionsWithin(demand);
}

namespace {

// Labels of the stores.
constexpr char kEndpointState[] = "endpoint_state";
constexpr char kBacklog[] = "backlog";
constexpr char kJobName[] = "worker";
constexpr size_t kChangelogs = 2;
// Looks at the disk that count together, two seconds between them: few compactions take longer than
// such a minute.
constexpr size_t kDiskLooks = 30;

// What one task's writes on their way may hold of what there is for all: at least the largest
// message with its key twice, as the overlay counts it.
constexpr int64_t kOverlayLeast = 2 << 20;
constexpr int64_t kOverlayMost = 16 << 20;
constexpr int64_t kOverlayShares = 16;
// What is put into the backlog waits for as long as a commit would: both are read again after a
// crash.
constexpr int kPutsLinger = 4;

OpenStore Bounded(WorkerParts::OpenBoundedStore open, uint64_t bytes_max) {
  return
      [open = std::move(open), bytes_max](const TopicPartition& tp) { return open(tp, bytes_max); };
}

}  // namespace

struct WorkerRole::Impl {
  Impl(Metrics& metrics, size_t overlays)
      : delivery_metrics(metrics), stores(metrics), overlay_account(overlays) {}

  // Of the tasks' durable state, in the order of backlog_state.h.
  std::vector<ChangelogOptions> Changelogs(const WorkerParts& parts, const WorkerOptions& options,
                                           const MemoryBudget& budget,
                                           const std::string& topic_prefix);

  void LookAtDisk();

  DeliveryMetrics delivery_metrics;
  StoreFiguresKeeper stores;
  MemoryAccount overlay_account;
  std::unique_ptr<DeliveryCommon> common;
  std::function<uint64_t()> backlog_memory;
  std::function<absl::optional<uint64_t>()> disk_free;
  std::function<void(bool)> set_disk_tight;
  double disk_share_max = 1;
  FilesBound disk_bound;
  RecentMaximum disk_size{kDiskLooks};
  std::unique_ptr<MemoryMetrics> memory_metrics;
  absl::Mutex mutex;
  // For shards that start after it was set.
  std::shared_ptr<const subscriptions::Snapshot> snapshot ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const AddressRules> rules ABSL_GUARDED_BY(mutex);
  bool draining ABSL_GUARDED_BY(mutex) = false;
  std::unique_ptr<Job> job;
};

std::vector<ChangelogOptions> WorkerRole::Impl::Changelogs(const WorkerParts& parts,
                                                           const WorkerOptions& options,
                                                           const MemoryBudget& budget,
                                                           const std::string& topic_prefix) {
  const std::vector<TopicSpec> topics = WorkerRole::Topics(
      topic_prefix, GenerationName(options.pool, options.generation), options.key_groups, 1);
  const int64_t backlog_bytes =
      options.state_store == "heap" ? budget.backlog_store : options.backlog_bytes_max;
  const auto state_max = static_cast<uint64_t>(budget.endpoint_state / options.key_groups);
  const auto backlog_max = static_cast<uint64_t>(backlog_bytes / options.key_groups);

  std::vector<ChangelogOptions> changelogs(kChangelogs);
  ChangelogOptions& state = changelogs[kEndpointChangelog];
  state.topic = topics[0].name;
  state.restore = ChangelogOptions::Restore::kFirst;
  state.open_store =
      stores.Counted(kEndpointState, state_max, Bounded(parts.open_endpoint_state, state_max));
  ChangelogOptions& backlog = changelogs[kBacklogChangelog];
  backlog.topic = topics[1].name;
  backlog.restore = ChangelogOptions::Restore::kBeside;
  backlog.gather = options.backlog_linger;
  backlog.gather_puts = kPutsLinger * options.backlog_linger;
  backlog.open_store =
      stores.Counted(kBacklog, backlog_max, Bounded(parts.open_backlog, backlog_max));
  for (ChangelogOptions& changelog : changelogs) {
    changelog.overlay_bytes_max = static_cast<size_t>(
        std::clamp(budget.overlays / kOverlayShares, kOverlayLeast, kOverlayMost));
    changelog.overlays = &overlay_account;
  }
  return changelogs;
}

WorkerRole::WorkerRole(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerRole::~WorkerRole() = default;

absl::StatusOr<std::unique_ptr<WorkerRole>> WorkerRole::Start(
    const WorkerParts& parts, const WorkerOptions& options, const std::string& topic_prefix,
    std::chrono::milliseconds snapshot_age_max, std::shared_ptr<const AddressRules> rules,
    std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  ASSIGN_OR_RETURN(const MemoryBudget budget, options.Memory());
  ASSIGN_OR_RETURN(const int64_t idle_connections,
                   options.IdleConnections(budget, parts.open_files_max, parts.other_files));
  auto impl = std::make_unique<Impl>(parts.metrics, static_cast<size_t>(budget.overlays));
  impl->backlog_memory = parts.backlog_memory;
  impl->disk_free = parts.disk_free;
  impl->set_disk_tight = parts.set_disk_tight;
  impl->disk_share_max = options.disk_share_max;
  {
    absl::MutexLock lock(&impl->mutex);
    impl->snapshot = std::move(snapshot);
    impl->rules = std::move(rules);
  }

  JobOptions job;
  job.name = kJobName;
  job.group.group = Group(topic_prefix, options.pool);
  job.group.topics = {subscriptions::DispatchTopic(topic_prefix,
                                                   GenerationName(options.pool, options.generation),
                                                   static_cast<int32_t>(options.key_groups), 1)
                          .name};
  job.group.strategy = AssignmentStrategy::kRange;
  job.group.session_timeout = options.session_timeout;
  job.group.heartbeat_interval = options.heartbeat_interval;
  job.group.fetch_wait_max = options.fetch_wait_max;
  job.group.fetch_bytes_min = options.fetch_bytes_min;
  job.producer.linger = options.linger;
  job.start = StartPolicy::kLogStart;
  job.shards = static_cast<int>(options.shards);
  job.pending_records_max = budget.pending_records_max;
  job.pending_bytes_max = budget.pending_bytes_max;
  job.group.prefetch_bytes = budget.prefetch;
  job.producer.queue_bytes_max = budget.producer;
  job.restore_prefetch_bytes = budget.restore_prefetch;
  job.restore_bytes_max = budget.state_index / options.shards;
  job.changelogs = impl->Changelogs(parts, options, budget, topic_prefix);
  job.stop_wait_max = options.stop_wait_max;
  job.trim_safety = options.trim_safety;
  job.trim_limit = parts.trim_limit;

  DeliveryOptions delivery;
  delivery.topic_prefix = topic_prefix;
  delivery.durable_backlog = true;
  delivery.backlog_room_bytes = static_cast<size_t>(budget.backlog_room);
  delivery.waiting_bytes_max = static_cast<size_t>(budget.waiting);
  delivery.customer_backlog_bytes_max = static_cast<uint64_t>(options.customer_backlog_bytes_max);
  delivery.snapshot_age_max = snapshot_age_max;
  delivery.health.breaker.rest_max = options.probe_rest_max;
  delivery.health.auto_disable_after = options.auto_disable_after;
  delivery.requests_max = static_cast<size_t>(options.requests_max);
  delivery.reports = options.reports;
  delivery.operational = options.operational;
  delivery.key_groups = static_cast<int32_t>(options.key_groups);
  impl->common = std::make_unique<DeliveryCommon>(delivery);
  impl->common->backlog_fullness = [stores = &impl->stores](int32_t key_group) {
    return stores->Fullness(kBacklog, key_group);
  };
  CurlSinkOptions sink_options;
  sink_options.in_flight_max = static_cast<size_t>(options.requests_max);
  sink_options.host_waiting_max = std::max<size_t>(sink_options.in_flight_max / 8, 1);
  sink_options.idle_connections_max = static_cast<size_t>(idle_connections);
  sink_options.pools = static_cast<int>(budget.connection_pools);
  sink_options.ca_bundle_file = options.ca_file;
  sink_options.proxy = parts.proxy;

  Impl* shared = impl.get();
  Resolver* resolver = &parts.resolver;
  const KeyRing* keys = &parts.keys;
  Metrics* metrics = &parts.metrics;
  ShardProgramFactory factory =
      [shared, delivery, sink_options, resolver, keys, metrics](
          const ShardEnvironment& environment) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    // Held to the end, so that no change of the three falls in between.
    absl::MutexLock lock(&shared->mutex);
    ASSIGN_OR_RETURN(
        std::unique_ptr<HttpSink> sink,
        CreateCurlSink(environment.loop, sink_options, *resolver, shared->rules, *metrics));
    uint64_t seed = 0;
    FillRandom(&seed, sizeof seed);
    auto program =
        std::make_unique<DeliveryProgram>(environment, delivery, std::move(sink), *keys,
                                          shared->delivery_metrics, seed, shared->common.get());
    program->SetSnapshot(shared->snapshot);
    program->SetDraining(shared->draining);
    return program;
  };
  ASSIGN_OR_RETURN(impl->job,
                   Job::Start(parts.log, parts.clock, parts.metrics, job, std::move(factory)));
  impl->memory_metrics = std::make_unique<MemoryMetrics>(
      parts.metrics, kJobName, options.memory_limit, options.shards, budget);
  return std::unique_ptr<WorkerRole>(new WorkerRole(std::move(impl)));
}

void WorkerRole::LookAtMemory() {
  impl_->job->Post("stores", [impl = impl_.get()](ShardProgram& program) {
    impl->stores.LookAtMine();
    static_cast<DeliveryProgram&>(program).LookAtMemory();
  });
  // What the shards saw when they were asked last.
  const uint64_t backlog = impl_->backlog_memory != nullptr
                               ? impl_->backlog_memory()
                               : impl_->stores.Total(kBacklog).memory_bytes;
  impl_->memory_metrics->Set({impl_->overlay_account.used(), impl_->common->identity_bytes.load(),
                              impl_->stores.Total(kEndpointState).memory_bytes, backlog});
  impl_->LookAtDisk();
}

// By what the shards saw when they were asked last.
void WorkerRole::Impl::LookAtDisk() {
  if (disk_free == nullptr) return;
  const absl::optional<uint64_t> free = disk_free();
  if (!free) return;
  // What is in memtables comes to the disk too.
  const StoreFigures stored = stores.Total(kBacklog);
  const uint64_t used = stored.disk_bytes + stored.memory_bytes;
  const auto disk = static_cast<double>(disk_size.See(used + *free));
  delivery_metrics.disk_used_ratio.Set(disk > 0 ? static_cast<double>(used) / disk : 0);
  delivery_metrics.disk_free_bytes.Set(static_cast<double>(*free));
  const auto allowed = static_cast<uint64_t>(disk * disk_share_max);
  // Contents that fit as they are never have to go: compaction makes room for them.
  const auto held_least = static_cast<uint64_t>(disk * disk_share_max * FilesBound::kContents);
  if (common->backlogs_known()) {
    common->backlog_levels.SetBytesMax(
        disk_bound.Look(used, allowed, common->backlog_levels.held(), held_least));
  } else {
    disk_bound = FilesBound();
    common->backlog_levels.SetBytesMax(UINT64_MAX);
  }
  if (set_disk_tight != nullptr) set_disk_tight(used > allowed);
}

std::vector<TopicSpec> WorkerRole::Topics(const std::string& topic_prefix, const std::string& name,
                                          int64_t key_groups, int16_t replication) {
  const auto partitions = static_cast<int32_t>(key_groups);
  return {EndpointStateTopic(topic_prefix, name, partitions, replication),
          BacklogTopic(topic_prefix, name, partitions, replication)};
}

std::string WorkerRole::Group(const std::string& topic_prefix, const std::string& pool) {
  return absl::StrCat(topic_prefix, "deliver.", pool);
}

void WorkerRole::SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->snapshot = snapshot;
  }
  impl_->job->Post("snapshot", [snapshot](ShardProgram& program) {
    static_cast<DeliveryProgram&>(program).SetSnapshot(snapshot);
  });
}

void WorkerRole::SetAddressRules(std::shared_ptr<const AddressRules> rules) {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->rules = rules;
  }
  impl_->job->Post("rules", [rules](ShardProgram& program) {
    static_cast<DeliveryProgram&>(program).SetAddressRules(rules);
  });
}

void WorkerRole::SetDraining(bool draining) {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->draining = draining;
  }
  impl_->job->Post("draining", [draining](ShardProgram& program) {
    static_cast<DeliveryProgram&>(program).SetDraining(draining);
  });
}

int64_t WorkerRole::requests_in_flight() const {
  return static_cast<int64_t>(impl_->delivery_metrics.requests_in_flight.value());
}

JobStatus WorkerRole::status() const { return impl_->job->status(); }
void WorkerRole::Stop(std::function<void()> done) { impl_->job->Stop(std::move(done)); }
void WorkerRole::StopHard() { impl_->job->StopHard(); }

}  // namespace postrider::delivery
