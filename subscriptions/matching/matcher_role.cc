#include "subscriptions/matching/matcher_role.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/stream/control_record.h"
#include "core/stream/rejected_record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/matching/index.h"
#include "subscriptions/matching/match_metrics.h"
#include "subscriptions/matching/match_program.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::subscriptions {
namespace {

// What was gathered is handed on in one go; the producer sends when all of it has come.
constexpr std::chrono::milliseconds kBurst{1};

// A pattern of what `pattern` (which begins with '^') fits, and of `topic`.
std::string WithTopic(absl::string_view pattern, absl::string_view topic) {
  return absl::StrCat("^(", pattern, ")|^", absl::StrReplaceAll(topic, {{".", "[.]"}}));
}

}  // namespace

void MatcherOptions::Register(Options& options) {
  using std::chrono::milliseconds;
  decoder.Register(options);
  options.Add("source.topics", &topics,
              "The source topics: a regular expression (POSIX extended) that begins with '^'.");
  options.AddChoice("source.start", &start, {"earliest", "latest"},
                    "Where a group that has never committed begins to read.");
  options.Add("source.hops_max", &hops_max, 1, 1'000,
              "How often an event may have been delivered and published again with its header "
              "webhook-hops; then it goes to the rejected topic, with reason loop.");
  options.Add("matcher.shards", &shards, 1, 64,
              "Threads that match, each with a share of the source partitions.");
  options.Add("matcher.events_max", &events_max, 1'000, 10'000'000,
              "Events that a shard has read and not completed at most; then it stops reading.");
  options.AddBytes("matcher.bytes_max", &bytes_max, 1 << 20, int64_t{64} << 30,
                   "The same in bytes.");
  options.AddDuration("matcher.session_timeout", &session_timeout, milliseconds(2'000),
                      milliseconds(300'000),
                      "After so long without a heartbeat another matcher takes over.");
  options.AddDuration("matcher.heartbeat_interval", &heartbeat_interval, milliseconds(50),
                      milliseconds(60'000), "How often a shard shows the group that it lives.");
  options.AddDuration("matcher.fetch_wait_max", &fetch_wait_max, milliseconds(1),
                      milliseconds(10'000), "How long a fetch waits for matcher.fetch_bytes_min.");
  options.AddBytes("matcher.fetch_bytes_min", &fetch_bytes_min, 1, 16 << 20,
                   "A fetch of source topics waits for so many bytes.");
  options.AddDuration(
      "matcher.linger", &linger, milliseconds(0), milliseconds(1'000),
      "How long messages wait for company on their way to the dispatch topic, at most: half a "
      "millisecond for each key group for which one waits.");
  options.AddDuration("matcher.topic_refresh", &topic_refresh, milliseconds(1'000),
                      milliseconds(600'000), "How soon a new source topic is found.");
}

struct MatcherRole::Impl {
  explicit Impl(Metrics& metrics) : match_metrics(metrics) {}

  MatchMetrics match_metrics;
  const Clock* clock = nullptr;
  absl::Mutex mutex;
  // For shards that start after it was set.
  std::shared_ptr<const Snapshot> snapshot ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const MatchIndex> index ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Job> job;
};

MatcherRole::MatcherRole(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatcherRole::~MatcherRole() = default;

std::vector<TopicSpec> MatcherRole::Topics(const MatcherTarget& target, int16_t replication) {
  return {DispatchTopic(target.topic_prefix, GenerationName(target.pool, target.generation),
                        target.key_groups, replication),
          RejectedTopic(target.topic_prefix, replication),
          OperationalTopic(target.topic_prefix, replication)};
}

std::string MatcherRole::Group(const std::string& topic_prefix) {
  return absl::StrCat(topic_prefix, "match");
}

absl::StatusOr<std::unique_ptr<MatcherRole>> MatcherRole::Start(
    Log& log, const Clock& clock, Metrics& metrics, const MatcherOptions& options,
    const MatcherTarget& target, std::chrono::milliseconds snapshot_age_max) {
  // The shards' decoders are made on their threads; a bad option shall be told here.
  if (auto decoder = JsonDecoder::Create(options.decoder); !decoder.ok()) return decoder.status();
  auto impl = std::make_unique<Impl>(metrics);
  impl->clock = &clock;

  JobOptions job;
  job.name = "matcher";
  job.group.group = Group(target.topic_prefix);
  const std::string operational = OperationalTopicName(target.topic_prefix);
  job.group.topics = {WithTopic(options.topics, operational)};
  job.group.excluded_prefixes = {target.topic_prefix};
  job.group.exempt_topics = {operational};
  job.group.strategy = AssignmentStrategy::kRoundRobin;
  job.group.session_timeout = options.session_timeout;
  job.group.heartbeat_interval = options.heartbeat_interval;
  job.group.fetch_wait_max = options.fetch_wait_max;
  job.group.fetch_bytes_min = options.fetch_bytes_min;
  job.group.topic_refresh = options.topic_refresh;
  job.gather = options.linger;
  job.producer.linger = std::min(options.linger, kBurst);
  job.start =
      options.start == "latest" ? StartPolicy::kLogStartOnceEstablished : StartPolicy::kLogStart;
  job.group_had_commits = target.written;
  job.shards = static_cast<int>(options.shards);
  job.pending_records_max = options.events_max;
  job.pending_bytes_max = options.bytes_max;

  MatchProgramOptions program;
  const std::vector<TopicSpec> topics = Topics(target, 1);
  program.dispatch_topic = topics[0].name;
  program.rejected_topic = topics[1].name;
  program.operational_topic = operational;
  program.key_groups = target.key_groups;
  program.hops_max = static_cast<uint32_t>(options.hops_max);
  program.snapshot_age_max = snapshot_age_max;

  Impl* shared = impl.get();
  const JsonDecoderOptions decoding = options.decoder;
  ShardProgramFactory factory =
      [shared, program,
       decoding](const ShardEnvironment&) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    ASSIGN_OR_RETURN(std::unique_ptr<JsonDecoder> decoder, JsonDecoder::Create(decoding));
    auto made = std::make_unique<MatchProgram>(program, std::move(decoder), shared->match_metrics);
    absl::MutexLock lock(&shared->mutex);
    if (shared->snapshot != nullptr) made->SetSnapshot(shared->snapshot, shared->index);
    return made;
  };
  ASSIGN_OR_RETURN(impl->job, Job::Start(log, clock, metrics, job, std::move(factory)));
  return std::unique_ptr<MatcherRole>(new MatcherRole(std::move(impl)));
}

void MatcherRole::SetSnapshot(std::shared_ptr<const Snapshot> snapshot) {
  std::shared_ptr<const MatchIndex> index;
  {
    absl::MutexLock lock(&impl_->mutex);
    index = impl_->index;
  }
  if (index == nullptr || index->snapshot().contents_version() != snapshot->contents_version()) {
    const MonotonicTime begun = impl_->clock->Now();
    index = MatchIndex::Build(snapshot);
    impl_->match_metrics.index_build_seconds.Set(
        std::chrono::duration<double>(impl_->clock->Now() - begun).count());
    impl_->match_metrics.index_bytes.Set(static_cast<double>(index->memory_bytes()));
  }
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->snapshot = snapshot;
    impl_->index = index;
  }
  impl_->job->Post("snapshot", [snapshot = std::move(snapshot),
                                index = std::move(index)](ShardProgram& program) {
    static_cast<MatchProgram&>(program).SetSnapshot(snapshot, index);
  });
}

JobStatus MatcherRole::status() const { return impl_->job->status(); }
void MatcherRole::Stop(std::function<void()> done) { impl_->job->Stop(std::move(done)); }
void MatcherRole::StopHard() { impl_->job->StopHard(); }

}  // namespace postrider::subscriptions
