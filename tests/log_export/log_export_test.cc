#include "log_export/log_export.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/embedded_log/embedded_log.h"
#include "core/embedded_log/inspect.h"
#include "core/kafka/kafka_log.h"
#include "core/kafka/partition_copier.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "log_export/log_export_command.h"
#include "log_export/log_export_marks.h"
#include "log_export/log_export_target.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/forwarding_log.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{60'000};

// An embedded log with a source topic, a changelog and positions, and a Kafka without them.
class LogExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* brokers = std::getenv("POSTRIDER_KAFKA__BROKERS");
    ASSERT_NE(brokers, nullptr) << "tests/run starts a broker and sets it";
    std::random_device random;
    kafka_.brokers = brokers;
    kafka_.prefix = absl::StrCat("x", ::getpid(), "x", random(), ".");
    kafka_.allow_single_replica = true;
    source_ = kafka_.prefix + "source";
    changelog_ = kafka_.prefix + "changelog";
    ASSERT_OK_AND_ASSIGN(to_, KafkaLog::Open(kafka_, clock_, metrics_));
    Open();
    ASSERT_OK(log_->EnsureTopics(
        {{source_, 2, 1, {{"retention.ms", "-1"}}},
         {changelog_, 1, 1, {{"cleanup.policy", "compact"}, {"min.compaction.lag.ms", "0"}}}},
        kTimeout));
  }
  void Open() {
    embedded_metrics_ = std::make_unique<Metrics>();
    EmbeddedLogOptions options;
    options.directory = directory_.path() + "/log";
    options.memory_bytes = 8 << 20;
    options.upkeep_interval = milliseconds(0);
    ASSERT_OK_AND_ASSIGN(log_, EmbeddedLog::Open(options, clock_, *embedded_metrics_));
  }
  static void Append(Log& log, const Clock& clock, const TopicPartition& tp, int first, int last,
                     const std::string& key = "key") {
    ASSERT_OK_AND_ASSIGN(const auto writer, BlockingWriter::Open(log, clock, {}));
    for (int i = first; i < last; ++i) {
      AppendRecord record;
      record.topic = tp.topic;
      record.partition = tp.partition;
      record.key = key;
      record.value = absl::StrCat("value ", i);
      record.headers = {{"id", absl::StrCat(i)}, {"empty", ""}};
      record.tombstone = i % 10 == 9;
      if (record.tombstone) record.value.clear();
      ASSERT_OK(writer->Append(std::move(record)));
    }
    ASSERT_OK(writer->Flush());
  }
  void Trim(const TopicPartition& tp, int64_t offset) {
    ASSERT_OK_AND_ASSIGN(const auto loop, EventLoop::Create(clock_));
    absl::optional<absl::Status> done;
    log_->Trim(*loop, tp, offset, [&](absl::Status status) { done = std::move(status); });
    while (!done) loop->RunOnce(milliseconds(100));
    ASSERT_OK(*done);
  }
  std::string LogDirectory() const { return directory_.path() + "/log"; }
  absl::Status Export() {
    log_.reset();
    return RunLogExportCommand({LogDirectory(), fillers_max_, false, false}, kafka_);
  }
  // As a run leaves it that was killed: topics that are its own, and what it has put there.
  void Interrupted(const std::function<void(LogInspector&, PartitionCopier&)>& put) {
    log_.reset();
    ASSERT_OK_AND_ASSIGN(const auto log, LogInspector::Open(LogDirectory()));
    LogExportMarks marks(*to_, clock_, kafka_.prefix + "log-export");
    ASSERT_OK(marks.Load());
    ASSERT_OK(marks.Take());
    std::map<std::string, LogExportMarks::Topic> topics;
    for (const auto& topic : log->Topics()) {
      topics[topic.name] = {MillisSinceEpoch(topic.created), ""};
    }
    ASSERT_OK(marks.SetTopics(topics));
    ASSERT_OK(to_->EnsureTopics({{source_, 2, 3, {{"retention.ms", "-1"}}},
                                 {changelog_, 1, 3, {{"cleanup.policy", "compact"}}}},
                                kTimeout));
    ASSERT_OK_AND_ASSIGN(const auto copier, PartitionCopier::Open(kafka_, {}));
    put(*log, *copier);
    ASSERT_OK(copier->End());
  }
  // Copies `count` records from `from` on, as if they began at `to`.
  static void Put(LogInspector& log, PartitionCopier& copier, const TopicPartition& tp,
                  int64_t from, int64_t to, int count) {
    if (count == 0) return;
    copier.Begin(tp, to);
    ASSERT_OK(log.Read(tp, from, [&](const LogRecord& record) {
      LogRecord one = record;
      one.offset = copier.next();
      EXPECT_OK(copier.Put(one));
      return --count > 0;
    }));
  }
  // Offset, time, key, value and headers of each record.
  static std::string Text(const LogRecord& record, bool with_offset) {
    std::string text =
        absl::StrCat(with_offset ? record.offset : -1, " ", MillisSinceEpoch(record.timestamp), " ",
                     record.key, " ", record.value.data() == nullptr ? "-" : record.value);
    for (const auto& header : record.headers) {
      absl::StrAppend(&text, " ", header.name, "=", header.value);
    }
    return text;
  }
  std::vector<std::string> InKafka(const TopicPartition& tp, bool with_offset = true) {
    std::vector<std::string> all;
    auto reader = BlockingReader::Open(*to_, clock_, {});
    EXPECT_OK(reader);
    EXPECT_OK((*reader)->ReadAll(tp, [&](const LogRecord& record) {
      all.push_back(Text(record, with_offset));
      return absl::OkStatus();
    }));
    return all;
  }
  std::vector<std::string> Here(const TopicPartition& tp, bool with_offset = true) {
    log_.reset();
    std::vector<std::string> all;
    auto log = LogInspector::Open(directory_.path() + "/log");
    EXPECT_OK(log);
    EXPECT_OK((*log)->Read(tp, 0, [&](const LogRecord& record) {
      all.push_back(Text(record, with_offset));
      return true;
    }));
    return all;
  }

  // The last value of each key, without offsets.
  static std::map<std::string, std::string> Latest(const std::vector<std::string>& records) {
    std::map<std::string, std::string> latest;
    for (const std::string& record : records) {
      const std::vector<std::string> words = absl::StrSplit(record, ' ');
      if (words.at(3) == "-") {
        latest.erase(words.at(2));
      } else {
        latest[words.at(2)] = record;
      }
    }
    return latest;
  }

  const tests::TemporaryDirectory directory_;
  const SystemClock clock_;
  Metrics metrics_;
  KafkaOptions kafka_;
  int64_t fillers_max_ = 1'000'000;
  std::string source_;
  std::string changelog_;
  std::unique_ptr<Metrics> embedded_metrics_;
  std::unique_ptr<EmbeddedLog> log_;
  std::unique_ptr<KafkaLog> to_;
};

TEST_F(LogExportTest, MovesRecordsTheirOffsetsAndPositions) {
  Append(*log_, clock_, {source_, 0}, 0, 300);
  Append(*log_, clock_, {source_, 1}, 0, 20);
  Trim({source_, 0}, 250);
  Trim({source_, 1}, 20);  // nothing is left, and the next offset is 20
  for (int i = 0; i < 5; ++i) {
    Append(*log_, clock_, {changelog_, 0}, 0, 3, absl::StrCat("k", i % 2));
  }
  log_->RunUpkeep();
  ASSERT_OK(log_->ResetGroup("g-" + source_,
                             {{{source_, 0}, {270, "notes"}}, {{source_, 1}, {20, ""}}}, kTimeout));
  ASSERT_OK(Export());
  const auto first = to_->Offsets({source_, 0}, kTimeout);
  ASSERT_OK(first);
  EXPECT_EQ(first->begin, 250);
  EXPECT_EQ(first->end, 300);
  const auto second = to_->Offsets({source_, 1}, kTimeout);
  ASSERT_OK(second);
  EXPECT_EQ(second->begin, 20);
  EXPECT_EQ(second->end, 20);
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
  EXPECT_EQ(InKafka({source_, 0}).size(), 50u);
  const auto changes = InKafka({changelog_, 0}, false);
  EXPECT_EQ(changes, Here({changelog_, 0}, false));
  EXPECT_LT(changes.size(), 15u) << "it was compacted";
  const auto group = to_->DescribeGroup("g-" + source_, {{source_, 0}, {source_, 1}}, kTimeout);
  ASSERT_OK(group);
  EXPECT_EQ(group->partitions[0].committed, (CommittedPosition{270, "notes"}));
  EXPECT_EQ(group->partitions[1].committed, (CommittedPosition{20, ""}));
}

TEST_F(LogExportTest, GoesOnWhereItWasInterruptedAndIsDoneOnce) {
  Append(*log_, clock_, {source_, 0}, 0, 100);
  Append(*log_, clock_, {changelog_, 0}, 0, 30);
  Trim({source_, 0}, 30);
  Interrupted([this](LogInspector& log, PartitionCopier& copier) {
    copier.Begin({source_, 0}, 0);
    ASSERT_OK(copier.Fill(30, clock_.Wall()));
    Put(log, copier, {source_, 0}, 30, 30, 37);
    Put(log, copier, {changelog_, 0}, 0, 0, 10);
  });
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
  EXPECT_EQ(InKafka({changelog_, 0}), Here({changelog_, 0}));
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}).size(), 70u);
  EmbeddedLogOptions options;
  options.directory = LogDirectory();
  Metrics metrics;
  const auto refused = EmbeddedLog::Open(options, clock_, metrics);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("was exported to Apache Kafka"));
  std::filesystem::remove(LogDirectory() + "/exported");
  Open();
  Append(*log_, clock_, {source_, 1}, 0, 1);
  EXPECT_THAT(Export().message(), HasSubstr("of another log or of this one before a service ran"));
}

TEST_F(LogExportTest, GoesOnBehindNothingThatTwoExportsHaveWritten) {
  Append(*log_, clock_, {source_, 0}, 0, 100);
  // The second one began where Kafka showed the end, while records of the first were on their way.
  Interrupted([this](LogInspector& log, PartitionCopier& copier) {
    Put(log, copier, {source_, 0}, 0, 0, 40);
    Put(log, copier, {source_, 0}, 35, 40, 30);
  });
  const absl::Status refused = Export();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("topic " + source_ + " in Kafka is not as it is here"));
  EXPECT_THAT(refused.message(), HasSubstr("delete the topic there and run the export again"));
  // It stays so, though what lies there should fit by then.
  EXPECT_THAT(Export().message(), HasSubstr("is not as it is here"));
  ASSERT_OK(to_->DeleteTopic(source_, kTimeout));
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
  EXPECT_EQ(InKafka({source_, 0}).size(), 100u);
}

TEST_F(LogExportTest, ComparesWhatIsThereOnceWhatIsHereReachesAsFar) {
  Append(*log_, clock_, {source_, 0}, 0, 100);
  Interrupted([this](LogInspector& log, PartitionCopier& copier) {
    Put(log, copier, {source_, 0}, 0, 0, 100);
    Put(log, copier, {source_, 0}, 70, 100, 30);
  });
  Open();
  LogExport exporting({}, kafka_, *to_, clock_, [] {});
  ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
  ASSERT_OK_AND_ASSIGN(const LogExport::Round round, exporting.CopyRound(*beside));
  EXPECT_EQ(round.unread, 1);
  Append(*log_, clock_, {source_, 0}, 100, 150);
  ASSERT_OK(beside->CatchUp());
  EXPECT_THAT(exporting.CopyRound(*beside).status().message(), HasSubstr("is not as it is here"));
}

TEST_F(LogExportTest, EndsARoundInTimeAndGoesOnThere) {
  Append(*log_, clock_, {source_, 0}, 0, 2'500);
  Append(*log_, clock_, {source_, 1}, 0, 1);
  LogExportOptions options;
  options.round_max = milliseconds(0);
  LogExport exporting(options, kafka_, *to_, clock_, [] {});
  ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
  ASSERT_OK_AND_ASSIGN(const LogExport::Round round, exporting.CopyRound(*beside));
  EXPECT_TRUE(round.cut);
  EXPECT_EQ(round.records, 0);
  exporting.LeaveKafka();
  log_.reset();
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
  ASSERT_OK(exporting.Finish(*whole, [] { return absl::OkStatus(); }));
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
  EXPECT_EQ(InKafka({source_, 1}), Here({source_, 1}));
}

TEST_F(LogExportTest, SaysWhenSomethingElseWritesToATopicMeanwhile) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  LogExport exporting({}, kafka_, *to_, clock_, [] {});
  {
    ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
    ASSERT_OK(exporting.CopyRound(*beside));
  }
  Append(*to_, clock_, {source_, 0}, 0, 1, "foreign");
  Append(*log_, clock_, {source_, 0}, 10, 20);
  log_.reset();
  {
    ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
    const absl::Status refused = exporting.Finish(*whole, [] { return absl::OkStatus(); });
    EXPECT_THAT(refused.message(), HasSubstr("a record of offset 10 was stored at 11"));
    EXPECT_THAT(refused.message(), HasSubstr("delete the topic there and run the export again"));
  }
  EXPECT_THAT(Export().message(), HasSubstr("a record of offset 10 was stored at 11"));
  ASSERT_OK(to_->DeleteTopic(source_, kTimeout));
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
}

// Kafka whose end of a partition shows late what a killed run has sent.
class LateLog : public ForwardingLog {
 public:
  LateLog(Log& log, TopicPartition tp) : ForwardingLog(log), log_(log), tp_(std::move(tp)) {}
  absl::StatusOr<Range> Offsets(const TopicPartition& tp, milliseconds timeout) override {
    absl::StatusOr<Range> range = log_.Offsets(tp, timeout);
    if (tp == tp_ && late_ > 0 && range.ok()) range->end -= late_--;
    return range;
  }

 private:
  Log& log_;
  const TopicPartition tp_;
  int late_ = 3;
};

TEST_F(LogExportTest, WaitsForWhatAKilledRunHadOnItsWay) {
  Append(*log_, clock_, {source_, 0}, 0, 100);
  Interrupted([this](LogInspector& log, PartitionCopier& copier) {
    Put(log, copier, {source_, 0}, 0, 0, 40);
  });
  LateLog late(*to_, {source_, 0});
  LogExportOptions options;
  options.settle = milliseconds(20);
  LogExport exporting(options, kafka_, late, clock_, [] {});
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
  ASSERT_OK(exporting.Finish(*whole, [] { return absl::OkStatus(); }));
  EXPECT_EQ(exporting.copied(), 60);
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
}

TEST_F(LogExportTest, DoesNotGoOnWithATopicThatWasMadeAnew) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  LogExport exporting({}, kafka_, *to_, clock_, [] {});
  ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
  ASSERT_OK(exporting.CopyRound(*beside));
  const int64_t now = MillisSinceEpoch(clock_.Wall());  // by which topics are told apart
  while (MillisSinceEpoch(clock_.Wall()) == now) std::this_thread::yield();
  ASSERT_OK(log_->DeleteTopic(source_, kTimeout));
  ASSERT_OK(log_->EnsureTopics({{source_, 2, 1, {{"retention.ms", "-1"}}}}, kTimeout));
  Append(*log_, clock_, {source_, 0}, 50, 70);
  ASSERT_OK(beside->CatchUp());
  EXPECT_THAT(exporting.CopyRound(*beside).status().message(), HasSubstr("was made anew here"));
  EXPECT_EQ(InKafka({source_, 0}).size(), 10u);
}

TEST_F(LogExportTest, CopiesStateAnewThatARunHasBegunToCopy) {
  Append(*log_, clock_, {changelog_, 0}, 0, 8, "early");
  Append(*log_, clock_, {changelog_, 0}, 0, 30, "late");
  Interrupted([this](LogInspector& log, PartitionCopier& copier) {
    Put(log, copier, {changelog_, 0}, 0, 0, 10);
  });
  // Compaction has taken what was copied, so that counting records would skip others.
  Open();
  Append(*log_, clock_, {changelog_, 0}, 0, 1, "another");
  log_->RunUpkeep();
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({changelog_, 0}, false), Here({changelog_, 0}, false));
  EXPECT_LT(InKafka({changelog_, 0}).size(), 10u) << "it was compacted";
}

TEST_F(LogExportTest, CopiesWhileAServiceWritesAndTheRestWhenThatHasStopped) {
  Append(*log_, clock_, {source_, 0}, 0, 100);
  Trim({source_, 0}, 20);
  Append(*log_, clock_, {changelog_, 0}, 0, 15, "one");
  absl::Status exported;
  std::thread exporting([&] {
    exported = RunLogExportCommand({LogDirectory(), 1'000'000, false, true}, kafka_);
  });
  const auto copied = [&](const TopicPartition& tp, int64_t end) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (std::chrono::steady_clock::now() < deadline) {
      // A client that asks for offsets of what is not there yet may go on believing so.
      const bool there = to_->Partitions(tp.topic, kTimeout).ok();
      const absl::StatusOr<Log::Range> range =
          there ? to_->Offsets(tp, kTimeout) : absl::NotFoundError("");
      if (range.ok() && range->end >= end) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  };
  EXPECT_TRUE(copied({source_, 0}, 100));
  const absl::Status second = RunLogExportCommand({LogDirectory(), 1, false, true}, kafka_);
  EXPECT_THAT(second.message(), HasSubstr("is being copied by another process"));
  Append(*log_, clock_, {source_, 0}, 100, 150);
  Append(*log_, clock_, {source_, 1}, 0, 10);
  ASSERT_OK(log_->EnsureTopics({{source_ + "-new", 1, 1, {}}}, kTimeout));
  Append(*log_, clock_, {source_ + "-new", 0}, 0, 5);
  EXPECT_TRUE(copied({source_ + "-new", 0}, 5));
  EXPECT_TRUE(copied({source_, 0}, 150));
  EXPECT_TRUE(copied({changelog_, 0}, 15)) << "state too";
  Append(*log_, clock_, {changelog_, 0}, 15, 20, "one");  // the last is a tombstone
  Append(*log_, clock_, {changelog_, 0}, 0, 15, "another");
  log_->RunUpkeep();
  EXPECT_TRUE(copied({changelog_, 0}, 17));
  Trim({source_, 0}, 120);
  Append(*log_, clock_, {source_, 0}, 150, 160);
  ASSERT_OK(log_->ResetGroup("g-" + source_, {{{source_, 0}, {130, "notes"}}}, kTimeout));
  log_.reset();
  exporting.join();
  ASSERT_OK(exported);
  for (const TopicPartition& tp :
       {TopicPartition{source_, 0}, TopicPartition{source_, 1}, {source_ + "-new", 0}}) {
    EXPECT_EQ(InKafka(tp), Here(tp)) << tp.ToString();
  }
  EXPECT_EQ(InKafka({source_, 0}).size(), 40u);
  EXPECT_EQ(Latest(InKafka({changelog_, 0}, false)), Latest(Here({changelog_, 0}, false)));
  EXPECT_EQ(Latest(InKafka({changelog_, 0}, false)).size(), 1u);
  const auto group = to_->DescribeGroup("g-" + source_, {{source_, 0}}, kTimeout);
  ASSERT_OK(group);
  EXPECT_EQ(group->partitions[0].committed, (CommittedPosition{130, "notes"}));
}

class ClockAhead final : public Clock {
 public:
  MonotonicTime Now() const override { return clock_.Now() + ahead; }
  WallTime Wall() const override { return clock_.Wall(); }
  Duration ahead{};

 private:
  const SystemClock clock_;
};

TEST_F(LogExportTest, CopiesStateByWhatIsNewAndAnewWhenTombstonesMayBeGone) {
  ClockAhead clock;
  LogExport exporting({}, kafka_, *to_, clock, [] {});
  const auto round = [&] {
    const auto beside = LogInspector::OpenBeside(LogDirectory());
    EXPECT_OK(beside);
    const auto done = exporting.CopyRound(**beside);
    EXPECT_OK(done);
    return done->records;
  };
  Append(*log_, clock_, {changelog_, 0}, 0, 5, "one");
  Append(*log_, clock_, {changelog_, 0}, 0, 5, "two");
  EXPECT_EQ(round(), 10);
  clock.ahead = std::chrono::hours(11);
  EXPECT_EQ(round(), 0);
  Append(*log_, clock_, {changelog_, 0}, 5, 8, "one");
  clock.ahead = std::chrono::hours(22);
  EXPECT_EQ(round(), 3) << "all of it was there 11 hours ago, and tombstones stay for 24";
  clock.ahead = std::chrono::hours(35);
  EXPECT_EQ(round(), 13);
  EXPECT_EQ(InKafka({changelog_, 0}, false).size(), 13u) << "another topic of the name";
  // A group comes to have a position: offsets are to stay.
  ASSERT_OK(log_->ResetGroup("g-" + changelog_, {{{changelog_, 0}, {12, ""}}}, kTimeout));
  EXPECT_EQ(round(), 0);
  log_.reset();
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
  ASSERT_OK(exporting.Finish(*whole, [] { return absl::OkStatus(); }));
  EXPECT_EQ(InKafka({changelog_, 0}), Here({changelog_, 0}));
}

TEST_F(LogExportTest, ComparesAnewWhatHasLostItsEndAndGoneOnOtherwise) {
  Append(*log_, clock_, {source_, 0}, 0, 50);
  log_.reset();
  std::filesystem::copy(LogDirectory(), directory_.path() + "/early",
                        std::filesystem::copy_options::recursive);
  Open();
  Append(*log_, clock_, {source_, 0}, 50, 100);
  LogExport exporting({}, kafka_, *to_, clock_, [] {});
  {
    ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
    ASSERT_OK_AND_ASSIGN(const LogExport::Round round, exporting.CopyRound(*beside));
    EXPECT_EQ(round.records, 100);
  }
  log_.reset();
  std::filesystem::remove_all(LogDirectory());
  std::filesystem::rename(directory_.path() + "/early", LogDirectory());
  Open();
  Append(*log_, clock_, {source_, 0}, 50, 150, "other");
  {
    ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
    EXPECT_THAT(exporting.CopyRound(*beside).status().message(), HasSubstr("is not as it is here"));
  }
  log_.reset();
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
  EXPECT_FALSE(exporting.Finish(*whole, [] { return absl::OkStatus(); }).ok());
}

// Kafka that does not answer for a while.
class SilentLog : public ForwardingLog {
 public:
  explicit SilentLog(Log& log) : ForwardingLog(log), log_(log) {}
  absl::StatusOr<int32_t> Partitions(const std::string& topic, milliseconds timeout) override {
    if (answers-- <= 0) return absl::UnavailableError("no broker answers");
    return log_.Partitions(topic, timeout);
  }
  int answers = 0;

 private:
  Log& log_;
};

TEST_F(LogExportTest, ASilenceOfKafkaAtAnyStepOfABeginningIsNoEnd) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  SilentLog silent(*to_);
  LogExportOptions options;
  options.settle = milliseconds(20);
  Trim({source_, 0}, 5);
  LogExport exporting(options, kafka_, silent, clock_, [] {});
  ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
  int silences = 0;
  for (int answers = 0; answers < 50; ++answers) {
    silent.answers = answers;
    const absl::StatusOr<LogExport::Round> round = exporting.CopyRound(*beside);
    if (round.ok()) {
      EXPECT_EQ(round->records, 5);
      break;
    }
    ASSERT_EQ(round.status().code(), absl::StatusCode::kDeadlineExceeded) << round.status();
    exporting.LeaveKafka();
    ++silences;
  }
  EXPECT_GT(silences, 2);
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
}

// Counts the trims that wait, and answers each later.
class SlowTrims : public ForwardingLog {
 public:
  explicit SlowTrims(Log& log) : ForwardingLog(log) {}
  void Trim(EventLoop& loop, const TopicPartition&, int64_t,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    most = std::max(most, ++waiting);
    ++all;
    ASSERT_TRUE(loop.Post([this, done = std::move(done)]() mutable {
      --waiting;
      std::move(done)(absl::OkStatus());
    }));
  }
  int waiting = 0;
  int most = 0;
  int all = 0;
};

TEST_F(LogExportTest, LetsABoundedNumberOfTrimsWait) {
  SlowTrims slow(*to_);
  ASSERT_OK_AND_ASSIGN(const auto target, LogExportTarget::Open(slow, clock_));
  std::map<TopicPartition, int64_t> begins;
  for (int i = 0; i < 1'100; ++i) begins[{source_, i}] = 1;
  ASSERT_OK(target->Trim(begins));
  EXPECT_EQ(slow.all, 1'100);
  EXPECT_EQ(slow.waiting, 0);
  EXPECT_LE(slow.most, 100);
}

TEST_F(LogExportTest, GivesNoPositionsBeforeNoServiceCanStartHere) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  ASSERT_OK(log_->ResetGroup("g-" + source_, {{{source_, 0}, {5, ""}}}, kTimeout));
  std::filesystem::create_directories(LogDirectory() + "/exported/in-the-way");
  EXPECT_FALSE(Export().ok());
  auto group = to_->DescribeGroup("g-" + source_, {{source_, 0}}, kTimeout);
  ASSERT_OK(group);
  EXPECT_FALSE(group->partitions[0].committed.has_value());
  std::filesystem::remove_all(LogDirectory() + "/exported");
  ASSERT_OK(Export());
  group = to_->DescribeGroup("g-" + source_, {{source_, 0}}, kTimeout);
  ASSERT_OK(group);
  EXPECT_EQ(group->partitions[0].committed, (CommittedPosition{5, ""}));
  EXPECT_EQ(InKafka({source_, 0}).size(), 10u);
}

TEST_F(LogExportTest, EndsWhenAnotherRunHasTakenItOver) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  LogExportOptions options;
  options.settle = milliseconds(50);
  LogExport first(options, kafka_, *to_, clock_, [] {});
  LogExport second(options, kafka_, *to_, clock_, [] {});
  {
    ASSERT_OK_AND_ASSIGN(const auto beside, LogInspector::OpenBeside(LogDirectory()));
    ASSERT_OK_AND_ASSIGN(const LogExport::Round round, first.CopyRound(*beside));
    EXPECT_EQ(round.records, 10);
    EXPECT_EQ(round.unread, 0);
    ASSERT_OK_AND_ASSIGN(const LogExport::Round nothing, second.CopyRound(*beside));
    EXPECT_EQ(nothing.records, 0);
  }
  Append(*log_, clock_, {source_, 0}, 10, 12);
  log_.reset();
  ASSERT_OK_AND_ASSIGN(const auto whole, LogInspector::Open(LogDirectory()));
  EXPECT_EQ(second.BehindOf(*whole), 2);
  ASSERT_OK(second.Finish(*whole, [] { return absl::OkStatus(); }));
  EXPECT_EQ(second.copied(), 2);
  const absl::Status lost = first.Finish(*whole, [] { return absl::OkStatus(); });
  EXPECT_EQ(lost.code(), absl::StatusCode::kAborted) << lost;
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
}

TEST_F(LogExportTest, GivesNoOffsetAgainThatAGroupHasSeen) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  // As if damage had taken the last five.
  ASSERT_OK(log_->ResetGroup("g-" + source_, {{{source_, 0}, {15, ""}}}, kTimeout));
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}).size(), 10u);
  ASSERT_OK_AND_ASSIGN(const Log::Range range, to_->Offsets({source_, 0}, kTimeout));
  EXPECT_EQ(range.end, 15);
}

TEST_F(LogExportTest, MovesRecordsOfTheMostBytes) {
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, BlockingWriter::Open(*log_, clock_, {}));
    for (int i = 0; i < 3; ++i) {
      AppendRecord record;
      record.topic = source_;
      record.value = std::string(1'000'000, static_cast<char>('a' + i));
      ASSERT_OK(writer->Append(std::move(record)));
    }
    ASSERT_OK(writer->Flush());
  }
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}), Here({source_, 0}));
}

TEST_F(LogExportTest, RefusesTopicsAndGroupsThatHaveSomethingOfOthers) {
  Append(*log_, clock_, {source_, 0}, 0, 10);
  ASSERT_OK(log_->ResetGroup("g-" + source_, {{{source_, 0}, {5, ""}}}, kTimeout));
  ASSERT_OK(to_->EnsureTopics({{source_, 2, 3, {}}}, kTimeout));
  ASSERT_OK(to_->ResetGroup("g-" + source_, {{{source_, 0}, {0, ""}}}, kTimeout));
  EXPECT_THAT(Export().message(), HasSubstr("has members or positions in Kafka already"));
  Append(*to_, clock_, {source_, 1}, 0, 1);
  EXPECT_THAT(Export().message(), HasSubstr("has had records that are not of this export"));
  EXPECT_TRUE(absl::IsNotFound(to_->Partitions(changelog_, kTimeout).status()))
      << "nothing is made";
}

TEST_F(LogExportTest, AsksBeforeItWritesVeryManyFillers) {
  Append(*log_, clock_, {source_, 0}, 0, 20);
  Trim({source_, 0}, 15);
  fillers_max_ = 14;
  EXPECT_THAT(Export().message(), HasSubstr("so 15 records must be written"));
  fillers_max_ = 15;
  ASSERT_OK(Export());
  EXPECT_EQ(InKafka({source_, 0}).size(), 5u);
}

}  // namespace
}  // namespace postrider
