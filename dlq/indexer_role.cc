#include "dlq/indexer_role.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/status_macros.h"
#include "core/postgres/pool.h"
#include "dlq/indexer_function.h"
#include "dlq/letters/dead_letter_log.h"

namespace postrider::dlq {
namespace {

// A transaction whose owner was stopped in the middle of it keeps its row locks, and holds up
// whoever takes the partition next: the server ends it.
constexpr char kSetup[] = "SET idle_in_transaction_session_timeout = 5000";

class IndexerProgram final : public ShardProgram {
 public:
  IndexerProgram(EventLoop& loop, const ConnectionOptions& database, IndexerMetrics& metrics,
                 std::string rejected_topic)
      : pool_(loop, PoolOf(database),
              static_cast<uint64_t>(loop.clock().Now().time_since_epoch().count())),
        metrics_(metrics),
        rejected_topic_(std::move(rejected_topic)) {}

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
    return std::make_unique<IndexerFunction>(pool_, metrics_, IndexerLimits(), rejected_topic_);
  }

 private:
  static PoolOptions PoolOf(const ConnectionOptions& database) {
    PoolOptions pool;
    pool.connection = database;
    pool.connection.setup_sql = kSetup;
    pool.connections_max = 2;
    pool.waiters_max = kDeadLetterPartitions * 2;
    pool.acquire_timeout = std::chrono::seconds(5);
    return pool;
  }

  Pool pool_;
  IndexerMetrics& metrics_;
  const std::string rejected_topic_;
};

}  // namespace

void IndexerOptions::Register(Options& options) {
  options.Add("indexer.shards", &shards, 1, kDeadLetterPartitions,
              "Threads that write dead letters into Postgres.");
  options.Add("indexer.letters_max", &letters_max, 1'000, 1'000'000,
              "Letters that a shard holds while Postgres is slow or away; then it stops reading.");
}

struct IndexerRole::Impl {
  explicit Impl(Metrics& metrics) : indexer_metrics(metrics) {}
  IndexerMetrics indexer_metrics;
  std::unique_ptr<Job> job;
};

IndexerRole::IndexerRole(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
IndexerRole::~IndexerRole() = default;

absl::StatusOr<std::unique_ptr<IndexerRole>> IndexerRole::Start(Log& log, const Clock& clock,
                                                                Metrics& metrics,
                                                                const IndexerOptions& options,
                                                                const std::string& topic_prefix,
                                                                ConnectionOptions database) {
  auto impl = std::make_unique<Impl>(metrics);
  JobOptions job;
  job.name = "indexer";
  job.group.group = absl::StrCat(topic_prefix, "index");
  job.group.topics = {DeadLetterTopicName(topic_prefix)};
  job.start = StartPolicy::kLogStart;
  job.shards = static_cast<int>(options.shards);
  job.pending_records_max = options.letters_max;
  job.trim_safety = kDeadLetterKept;
  IndexerMetrics* indexer_metrics = &impl->indexer_metrics;
  ShardProgramFactory factory =
      [database = std::move(database), indexer_metrics,
       rejected_topic = absl::StrCat(topic_prefix, "rejected")](
          const ShardEnvironment& environment) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    return std::make_unique<IndexerProgram>(environment.loop, database, *indexer_metrics,
                                            rejected_topic);
  };
  ASSIGN_OR_RETURN(impl->job, Job::Start(log, clock, metrics, job, std::move(factory)));
  return std::unique_ptr<IndexerRole>(new IndexerRole(std::move(impl)));
}

JobStatus IndexerRole::status() const { return impl_->job->status(); }
void IndexerRole::Stop(std::function<void()> done) { impl_->job->Stop(std::move(done)); }
void IndexerRole::StopHard() { impl_->job->StopHard(); }

}  // namespace postrider::dlq
