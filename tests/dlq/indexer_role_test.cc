#include "dlq/indexer_role.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dlq/letters/dead_letter_log.h"
#include "dlq/reports/endpoint_status.h"
#include "dlq/reports/report_record.h"
#include "migrations/runner.h"
#include "tests/dlq/letter_database.h"
#include "tests/fakes/memory_log.h"

namespace postrider::dlq {
namespace {

using tests::RunUntil;

// The whole role, with its threads, between a log in memory and a real Postgres.
class IndexerRoleTest : public LetterDatabaseTest {
 protected:
  void SetUp() override {
    LetterDatabaseTest::SetUp();
    prefix_ = absl::StrCat(customer_.ToString(), ".");
    log_.MakeTopic(DeadLetterTopicName(prefix_), kDeadLetterPartitions);
    log_.MakeTopic(prefix_ + "rejected", 1);
    log_.MakeTopic(ReportTopicName(prefix_), kReportPartitions);
  }

  std::unique_ptr<IndexerRole> StartRole() {
    IndexerOptions options;
    options.shards = 2;
    ConnectionOptions connection;
    connection.url = database()->options().indexer_url;
    connection.check_sql = VersionCheckSql();
    auto role = IndexerRole::Start(log_, clock_, metrics_, options, prefix_, connection);
    EXPECT_OK(role);
    return role.ok() ? *std::move(role) : nullptr;
  }
  static void Stop(IndexerRole& role) {
    std::promise<void> stopped;
    role.Stop([&stopped] { stopped.set_value(); });
    ASSERT_EQ(stopped.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
  void Write(const DeadLetterRecord& letter) {
    const AppendRecord append = MakeDeadLetterAppend(prefix_, letter);
    log_.Write({append.topic, append.partition}, append.key, append.value);
  }
  std::string Stored() {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.dead_letters WHERE endpoint_id = '",
                            endpoint_.ToUuid(), "'"));
  }
  [[nodiscard]] bool Until(absl::FunctionRef<bool()> done) {
    return RunUntil(*loop_, done, std::chrono::seconds(60));
  }

  std::string prefix_;
  Metrics metrics_;
  MemoryLog log_{clock_};
};

TEST_F(IndexerRoleTest, StoresLettersOfAllPartitionsOnceOverRestarts) {
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 400; ++i) {
    letters.push_back(NewLetter(NewId<subscriptions::CustomerId>(clock_)));
  }
  for (int i = 0; i < 200; ++i) Write(letters[static_cast<size_t>(i)]);
  log_.Write({DeadLetterTopicName(prefix_), 5}, "key", "no letter");
  std::unique_ptr<IndexerRole> role = StartRole();
  ASSERT_NE(role, nullptr);
  ASSERT_TRUE(Until([this] { return Stored() == "200"; }));
  // Once; once more when the second shard took the partition over before its offset was stored.
  ASSERT_TRUE(Until([this] { return !log_.Records({prefix_ + "rejected", 0}).empty(); }));
  for (const auto& record : log_.Records({prefix_ + "rejected", 0})) {
    EXPECT_EQ(record.value, "no letter");
  }
  Stop(*role);
  role.reset();
  // The stop has committed all that was stored.
  int64_t committed = 0;
  for (int32_t partition = 0; partition < kDeadLetterPartitions; ++partition) {
    const auto position =
        log_.Committed(prefix_ + "index", {DeadLetterTopicName(prefix_), partition});
    ASSERT_TRUE(position) << partition;
    committed += position->offset;
  }
  EXPECT_EQ(committed, 201);

  for (int i = 200; i < 400; ++i) Write(letters[static_cast<size_t>(i)]);
  role = StartRole();
  ASSERT_NE(role, nullptr);
  ASSERT_TRUE(Until([this] { return Stored() == "400"; }));
  EXPECT_EQ(role->status().tasks_failed, 0);
  Stop(*role);
  EXPECT_EQ(metrics_.AddCounter("postrider_dlq_letters_indexed_total", "").value(), 400);
}

TEST_F(IndexerRoleTest, BringsReportsBesideLetters) {
  std::unique_ptr<IndexerRole> role = StartRole();
  ASSERT_NE(role, nullptr);
  for (int i = 0; i < 50; ++i) {
    EndpointStatus status;
    status.customer = NewId<subscriptions::CustomerId>(clock_);
    status.endpoint = NewId<subscriptions::EndpointId>(clock_);
    status.observed_at = clock_.Wall();
    status.reason = prefix_;
    const AppendRecord append = MakeStatusAppend(prefix_, status);
    log_.Write({append.topic, append.partition}, append.key, append.value);
  }
  Write(NewLetter(customer_));
  ASSERT_TRUE(Until([this] {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.endpoint_status WHERE reason = '",
                            prefix_, "'")) == "50";
  }));
  ASSERT_TRUE(Until([this] { return Stored() == "1"; }));
  EXPECT_EQ(role->status().shards, 3);
  Stop(*role);
}

TEST_F(IndexerRoleTest, AHardStopInTheMiddleLosesAndRepeatsNothing) {
  for (int i = 0; i < 24'000; ++i) Write(NewLetter(NewId<subscriptions::CustomerId>(clock_)));
  for (int round = 0; round < 2; ++round) {
    const std::string before = Stored();
    std::unique_ptr<IndexerRole> role = StartRole();
    ASSERT_NE(role, nullptr);
    // Some of it is written, and more is on its way.
    ASSERT_TRUE(Until([&] { return Stored() != before || before == "24000"; }));
    role->StopHard();
  }
  std::unique_ptr<IndexerRole> role = StartRole();
  ASSERT_NE(role, nullptr);
  ASSERT_TRUE(Until([this] { return Stored() == "24000"; }));
  Stop(*role);
  EXPECT_EQ(log_.Records({prefix_ + "rejected", 0}).size(), 0u);
}

}  // namespace
}  // namespace postrider::dlq
