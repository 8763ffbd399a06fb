#include "delivery/worker_role.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/crypto/random.h"
#include "delivery/delivery_metrics.h"
#include "delivery/delivery_program.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {

void WorkerOptions::Register(Options& options) {
  options.Add("worker.pool", &pool, "The pool of workers that this one belongs to.");
  options.Add("worker.shards", &shards, 1, 64,
              "Threads that deliver, each with a share of the key groups.");
  options.Add("worker.key_groups", &key_groups, 1, 4096,
              "Partitions of the pool's dispatch topic; fixed when the topic is made.");
  options.Add("worker.messages_max", &messages_max, 1'000, 10'000'000,
              "Messages that a shard holds at most; then it stops reading.");
  options.AddBytes("worker.bytes_max", &bytes_max, 1 << 20, int64_t{64} << 30,
                   "Bytes of messages that a shard holds at most; then it stops reading.");
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
  options.Add("worker.ca_file", &ca_file,
              "The certificate authorities that receivers are verified "
              "against; a PEM file.");
}

struct WorkerRole::Impl {
  explicit Impl(Metrics& metrics) : delivery_metrics(metrics) {}

  DeliveryMetrics delivery_metrics;
  absl::Mutex mutex;
  // For shards that start after it was set.
  std::shared_ptr<const subscriptions::Snapshot> snapshot ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Job> job;
};

WorkerRole::WorkerRole(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerRole::~WorkerRole() = default;

absl::StatusOr<std::unique_ptr<WorkerRole>> WorkerRole::Start(
    const WorkerParts& parts, const WorkerOptions& options, const std::string& topic_prefix,
    std::chrono::milliseconds snapshot_age_max, std::shared_ptr<const AddressRules> rules,
    std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  auto impl = std::make_unique<Impl>(parts.metrics);
  {
    absl::MutexLock lock(&impl->mutex);
    impl->snapshot = std::move(snapshot);
  }

  JobOptions job;
  job.name = "worker";
  job.group.group = absl::StrCat(topic_prefix, "deliver.", options.pool);
  job.group.topics = {subscriptions::DispatchTopic(topic_prefix, options.pool,
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
  job.pending_records_max = options.messages_max;
  job.pending_bytes_max = options.bytes_max;
  job.stop_wait_max = options.stop_wait_max;
  job.trim_safety = options.trim_safety;

  DeliveryOptions delivery;
  delivery.topic_prefix = topic_prefix;
  delivery.snapshot_age_max = snapshot_age_max;
  CurlSinkOptions sink_options;
  sink_options.in_flight_max = static_cast<size_t>(options.requests_max);
  sink_options.ca_bundle_file = options.ca_file;

  Impl* shared = impl.get();
  Resolver* resolver = &parts.resolver;
  const KeyRing* keys = &parts.keys;
  Metrics* metrics = &parts.metrics;
  ShardProgramFactory factory =
      [shared, delivery, sink_options, resolver, keys, metrics, rules](
          const ShardEnvironment& environment) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    ASSIGN_OR_RETURN(std::unique_ptr<HttpSink> sink,
                     CreateCurlSink(environment.loop, sink_options, *resolver, rules, *metrics));
    uint64_t seed = 0;
    FillRandom(&seed, sizeof seed);
    auto program = std::make_unique<DeliveryProgram>(environment, delivery, std::move(sink), *keys,
                                                     shared->delivery_metrics, seed);
    absl::MutexLock lock(&shared->mutex);
    program->SetSnapshot(shared->snapshot);
    return program;
  };
  ASSIGN_OR_RETURN(impl->job,
                   Job::Start(parts.log, parts.clock, parts.metrics, job, std::move(factory)));
  return std::unique_ptr<WorkerRole>(new WorkerRole(std::move(impl)));
}

void WorkerRole::SetSnapshot(std::shared_ptr<const subscriptions::Snapshot> snapshot) {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->snapshot = snapshot;
  }
  impl_->job->Post([snapshot](ShardProgram& program) {
    static_cast<DeliveryProgram&>(program).SetSnapshot(snapshot);
  });
}

JobStatus WorkerRole::status() const { return impl_->job->status(); }
void WorkerRole::Stop(std::function<void()> done) { impl_->job->Stop(std::move(done)); }
void WorkerRole::StopHard() { impl_->job->StopHard(); }

}  // namespace postrider::delivery
