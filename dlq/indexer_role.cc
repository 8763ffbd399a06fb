#include "dlq/indexer_role.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/status_macros.h"
#include "core/postgres/pool.h"
#include "core/stream/rejected_record.h"
#include "dlq/indexer_function.h"
#include "dlq/letters/dead_letter_log.h"
#include "dlq/report_indexer.h"
#include "dlq/reports/report_record.h"
#include "dlq/upkeep_job.h"

namespace postrider::dlq {
namespace {

// A transaction whose owner was stopped in the middle of it keeps its row locks, and holds up
// whoever takes the partition next: the server ends it.
constexpr char kSetup[] = "SET idle_in_transaction_session_timeout = 5000";

PoolOptions PoolOf(const ConnectionOptions& database, int32_t partitions) {
  PoolOptions pool;
  pool.connection = database;
  pool.connection.setup_sql = kSetup;
  pool.connections_max = 2;
  pool.waiters_max = static_cast<size_t>(partitions) * 2 + 1;
  pool.acquire_timeout = std::chrono::seconds(5);
  return pool;
}

class IndexerProgram final : public ShardProgram {
 public:
  IndexerProgram(EventLoop& loop, const ConnectionOptions& database, IndexerMetrics& metrics,
                 std::string rejected_topic)
      : pool_(loop, PoolOf(database, kDeadLetterPartitions),
              static_cast<uint64_t>(loop.clock().Now().time_since_epoch().count())),
        metrics_(metrics),
        rejected_topic_(std::move(rejected_topic)) {}

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
    return std::make_unique<IndexerFunction>(pool_, metrics_, IndexerLimits(), rejected_topic_);
  }

 private:
  Pool pool_;
  IndexerMetrics& metrics_;
  const std::string rejected_topic_;
};

class ReportIndexerProgram final : public ShardProgram {
 public:
  ReportIndexerProgram(EventLoop& loop, const ConnectionOptions& database,
                       ReportIndexerMetrics& metrics, UpkeepMetrics& upkeep_metrics)
      : pool_(loop, PoolOf(database, kReportPartitions),
              static_cast<uint64_t>(loop.clock().Now().time_since_epoch().count())),
        metrics_(metrics),
        upkeep_(loop, pool_, upkeep_metrics) {}

  std::unique_ptr<KeyedProcessFunction> CreateFunction(const TopicPartition&) override {
    return std::make_unique<ReportIndexerFunction>(pool_, metrics_, ReportIndexerLimits());
  }

 private:
  Pool pool_;
  ReportIndexerMetrics& metrics_;
  UpkeepJob upkeep_;
};

}  // namespace

void IndexerOptions::Register(Options& options) {
  options.Add("indexer.shards", &shards, 1, kDeadLetterPartitions,
              "Threads that write dead letters into Postgres.");
  options.Add("indexer.letters_max", &letters_max, 1'000, 1'000'000,
              "Letters that a shard holds while Postgres is slow or away; then it stops reading.");
  options.Add("indexer.reports_max", &reports_max, 1'000, 1'000'000,
              "Reports of endpoints and attempts that are held so; then it stops reading them.");
}

struct IndexerRole::Impl {
  explicit Impl(Metrics& metrics)
      : letter_metrics(metrics), report_metrics(metrics), upkeep_metrics(metrics) {}
  IndexerMetrics letter_metrics;
  ReportIndexerMetrics report_metrics;
  UpkeepMetrics upkeep_metrics;
  std::unique_ptr<Job> letters;
  std::unique_ptr<Job> reports;
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
  IndexerMetrics* indexer_metrics = &impl->letter_metrics;
  ShardProgramFactory factory =
      [database, indexer_metrics, rejected_topic = RejectedTopicName(topic_prefix)](
          const ShardEnvironment& environment) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    return std::make_unique<IndexerProgram>(environment.loop, database, *indexer_metrics,
                                            rejected_topic);
  };
  ASSIGN_OR_RETURN(impl->letters, Job::Start(log, clock, metrics, job, std::move(factory)));

  JobOptions reports;
  reports.name = "report-indexer";
  reports.group.group = absl::StrCat(topic_prefix, "index-reports");
  reports.group.topics = {ReportTopicName(topic_prefix)};
  reports.start = StartPolicy::kLogStart;
  reports.pending_records_max = options.reports_max;
  reports.trim_safety = kReportsKept;
  ReportIndexerMetrics* report_metrics = &impl->report_metrics;
  UpkeepMetrics* upkeep_metrics = &impl->upkeep_metrics;
  ShardProgramFactory report_factory =
      [database = std::move(database), report_metrics, upkeep_metrics](
          const ShardEnvironment& environment) -> absl::StatusOr<std::unique_ptr<ShardProgram>> {
    return std::make_unique<ReportIndexerProgram>(environment.loop, database, *report_metrics,
                                                  *upkeep_metrics);
  };
  ASSIGN_OR_RETURN(impl->reports,
                   Job::Start(log, clock, metrics, reports, std::move(report_factory)));
  return std::unique_ptr<IndexerRole>(new IndexerRole(std::move(impl)));
}

JobStatus IndexerRole::status() const {
  JobStatus all = impl_->letters->status();
  all += impl_->reports->status();
  return all;
}

void IndexerRole::Stop(std::function<void()> done) {
  const auto running = std::make_shared<std::atomic<int>>(2);
  const auto stopped = [running, done = std::move(done)] {
    if (--*running == 0) done();
  };
  impl_->letters->Stop(stopped);
  impl_->reports->Stop(stopped);
}

void IndexerRole::StopHard() {
  impl_->letters->StopHard();
  impl_->reports->StopHard();
}

}  // namespace postrider::dlq
