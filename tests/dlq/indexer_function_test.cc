#include "dlq/indexer_function.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/postgres/url.h"
#include "tests/dlq/letter_database.h"
#include "tests/fakes/fake_task_context.h"
#include "tests/support/tcp_relay.h"

namespace postrider::dlq {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using tests::RunUntil;
using tests::TcpRelay;

class IndexerFunctionTest : public LetterDatabaseTest {
 protected:
  // A task: context and function, as a shard would own them.
  struct Indexer {
    Indexer(Pool& pool, IndexerMetrics& metrics, const IndexerLimits& limits,
            const std::string& topic, int64_t incarnation = 1)
        : ctx({topic, 3}),
          function(std::make_unique<IndexerFunction>(pool, metrics, limits, "p.rejected")) {
      ctx.set_incarnation_ms(incarnation);
      EXPECT_OK(function->Open(ctx));
    }
    ~Indexer() { Close(); }
    void Close() {
      if (function == nullptr) return;
      ctx.Close(*function);
      function.reset();
    }
    void Read(int64_t offset, const std::string& value) {
      OwnedRecord record;
      record.topic = ctx.partition().topic;
      record.partition = ctx.partition().partition;
      record.offset = offset;
      record.timestamp = ctx.clock().Wall();
      record.key = "key";
      record.value = value;
      function->OnElement(ctx, record.View());
    }
    void Read(int64_t offset, const DeadLetterRecord& letter) {
      Read(offset, EncodeDeadLetter(letter));
    }
    void Advance(Duration by) {
      ctx.manual_clock().Advance(by);
      ctx.FireTimers(*function);
    }

    FakeTaskContext ctx;
    std::unique_ptr<IndexerFunction> function;
  };

  void SetUp() override {
    LetterDatabaseTest::SetUp();
    pool_ = std::make_unique<Pool>(*loop_, PoolFor(database()->options().indexer_url), 1);
    topic_ = absl::StrCat("topic-", customer_.ToString());
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_TRUE(RunUntil(*loop_, [this] { return pool_->in_use() == 0; }));
    }
  }

  std::unique_ptr<Indexer> Make(Pool* pool = nullptr, int64_t incarnation = 1) {
    return std::make_unique<Indexer>(pool == nullptr ? *pool_ : *pool, metrics_, limits_, topic_,
                                     incarnation);
  }
  [[nodiscard]] bool Until(std::function<bool()> done) { return RunUntil(*loop_, done); }
  [[nodiscard]] bool UntilCompleted(Indexer& indexer, size_t count) {
    return Until([&indexer, count] { return indexer.ctx.completed().size() >= count; });
  }
  // Answers of the database to what was asked by now have come.
  void Settle(Pool& pool) {
    ASSERT_TRUE(Until([&pool] { return pool.in_use() == 0 && pool.waiting() == 0; }));
  }

  std::string Letters() {
    return Ask(absl::StrCat("SELECT count(*) FROM postrider.dead_letters WHERE customer_id = '",
                            customer_.ToUuid(), "'"));
  }
  std::string Stored(int64_t incarnation = 1) {
    return Ask(absl::StrCat("SELECT next_offset FROM postrider.indexer_offsets WHERE topic = '",
                            topic_, "@", incarnation, "' AND partition = 3"));
  }
  std::string Column(const DeadLetterRecord& letter, const std::string& expression) {
    return Ask(absl::StrCat("SELECT ", expression, " FROM postrider.dead_letters WHERE id = '",
                            letter.letter.ToUuid(), "'"));
  }
  // The value of a metric's line in the exposition text.
  double Metric(const std::string& name) {
    for (const absl::string_view line : absl::StrSplit(Exposed(), '\n')) {
      double value = 0;
      if (absl::StartsWith(line, absl::StrCat(name, " ")) &&
          absl::SimpleAtod(line.substr(name.size() + 1), &value)) {
        return value;
      }
    }
    return -1;
  }
  std::string Exposed() {
    exposed_ = registry_.Expose();
    return exposed_;
  }

  Metrics registry_;
  IndexerMetrics metrics_{registry_};
  IndexerLimits limits_;
  std::unique_ptr<Pool> pool_;
  std::string topic_;
  std::string exposed_;
};

TEST_F(IndexerFunctionTest, StoresALetterByteForByte) {
  DeadLetterRecord letter = NewLetter(customer_);
  letter.event_id = std::string("a\0\\\n\xff", 5);
  letter.department = std::string("\0d\t", 3);
  letter.type = "tab\there \\N back\\slash \r\n end";
  letter.tenant = "\xc3\xa9 \\. t";
  letter.message_id = "msg_\\x41";
  letter.last_outcome = "";
  letter.data = "{\"a\":\"\\u0000\"}\n\x80\xfe";
  letter.event_time = WallTimeFromMillis(1'700'000'000'123);
  letter.given_up_at = WallTimeFromMillis(1'700'000'060'456);
  auto indexer = Make();
  indexer->Read(41, letter);
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 1));
  EXPECT_THAT(indexer->ctx.completed(), ElementsAre(41));
  EXPECT_EQ(Stored(), "42");

  ASSERT_OK_AND_ASSIGN(
      QueryResult result,
      indexer_->Query(absl::StrCat(
          "SELECT *, postrider.millis(event_time) AS et, postrider.millis(created_at) AS ct, day = "
          "postrider.letter_day(id) AS right_day FROM postrider.dead_letters WHERE customer_id = '",
          customer_.ToUuid(), "'")));
  ASSERT_EQ(result.rows(), 1u);
  RowReader row(result, 0);
  EXPECT_EQ(row.Uuid("id"), letter.letter.bytes());
  EXPECT_EQ(row.Uuid("endpoint_id"), letter.endpoint.bytes());
  EXPECT_EQ(row.Text("message_id"), letter.message_id);
  EXPECT_EQ(row.Bytes("event_id"), letter.event_id);
  EXPECT_EQ(row.Text("type"), letter.type);
  EXPECT_EQ(row.Text("tenant"), letter.tenant);
  EXPECT_EQ(row.Bytes("department"), *letter.department);
  EXPECT_EQ(row.Bytes("data"), letter.data);
  EXPECT_EQ(row.Text("reason"), "gone");
  EXPECT_EQ(row.Int("attempts"), 3);
  EXPECT_EQ(row.Int("last_status"), 410);
  EXPECT_EQ(row.Text("last_outcome"), "");
  EXPECT_EQ(row.Time("et"), letter.event_time);
  EXPECT_EQ(row.Time("ct"), letter.given_up_at);
  EXPECT_EQ(row.Text("state"), "open");
  EXPECT_TRUE(row.Bool("right_day"));
  EXPECT_OK(row.status());
  EXPECT_EQ(metrics_.letters.value(), 1);
}

// Their topic waited for longer than erasures look for what comes late.
TEST_F(IndexerFunctionTest, TakesNoLetterThatWasToBeForgottenBeforeItCame) {
  const auto hours = [](int n) { return std::chrono::hours(n); };
  const auto letter_of = [&](int hours_ago, const std::string& tenant, const std::string& event) {
    DeadLetterRecord letter = NewLetter(customer_);
    IdBytes digest = letter.letter.bytes();
    std::reverse(digest.begin(), digest.end());
    letter.letter = MakeLetterId(clock_.Wall() - hours(hours_ago), digest);
    letter.tenant = tenant;
    letter.event_id = event;
    return letter;
  };
  const std::string tenant = absl::StrCat("t-", customer_.ToUuid());
  const std::string customer = absl::StrCat("'", customer_.ToUuid(), "'");
  Wish("tenant", absl::StrCat("'", tenant, "'"), 72 * 3600);
  Wish("event_id, customer_id", absl::StrCat("'forgotten', ", customer), 48 * 3600);
  Wish("event_id, tenant", "'forgotten', 'another'", 0);
  Wish("customer_id", customer, 240 * 3600);
  auto indexer = Make();
  int64_t offset = 0;
  indexer->Read(offset++, letter_of(80, tenant, "e1"));
  indexer->Read(offset++, letter_of(70, tenant, "kept 1"));
  indexer->Read(offset++, letter_of(80, "t1", "kept 2"));
  indexer->Read(offset++, letter_of(50, "t1", "forgotten"));
  DeadLetterRecord kept = letter_of(40, "t1", "forgotten");
  indexer->Read(offset++, kept);
  indexer->Read(offset++, letter_of(241, "t1", "e4"));
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 6));
  EXPECT_EQ(Stored(), "6");
  EXPECT_EQ(Letters(), "3");
  EXPECT_EQ(Ask(absl::StrCat("SELECT count(*) FROM postrider.dead_letters WHERE customer_id = ",
                             customer, " AND event_id LIKE 'kept%'")),
            "2");
  EXPECT_EQ(Column(kept, "tenant"), "t1") << "it was dispatched after the wish";
  EXPECT_EQ(metrics_.letters.value(), 3);
}

TEST_F(IndexerFunctionTest, WaitsForABatchToFillAndNoLonger) {
  auto indexer = Make();
  Settle(*pool_);
  indexer->Read(0, NewLetter(customer_));
  indexer->Advance(limits_.wait_max - std::chrono::milliseconds(1));
  EXPECT_EQ(indexer->function->in_flight(), 0u);
  indexer->Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(indexer->function->in_flight(), 1u);
  EXPECT_TRUE(indexer->ctx.completed().empty()) << "not before the commit";
  ASSERT_TRUE(UntilCompleted(*indexer, 1));

  // The next one waits anew.
  indexer->Read(1, NewLetter(customer_));
  indexer->Advance(limits_.wait_max - std::chrono::milliseconds(1));
  EXPECT_EQ(indexer->function->in_flight(), 0u);
  indexer->Advance(std::chrono::milliseconds(1));
  ASSERT_TRUE(UntilCompleted(*indexer, 2));
}

TEST_F(IndexerFunctionTest, BoundsATransactionByLettersAndBytes) {
  limits_.letters_max = 10;
  limits_.bytes_max = 100'000;
  auto indexer = Make();
  Settle(*pool_);
  for (int i = 0; i < 25; ++i) indexer->Read(i, NewLetter(customer_));
  EXPECT_EQ(indexer->function->in_flight(), 1u) << "a full one does not wait";
  ASSERT_TRUE(UntilCompleted(*indexer, 25));
  EXPECT_THAT(Exposed(), HasSubstr("postrider_dlq_batch_letters_count 3"));
  EXPECT_THAT(Exposed(), HasSubstr("postrider_dlq_batch_letters_sum 25"));
  // Each is more than half of what a transaction may have.
  for (int i = 25; i < 28; ++i) {
    DeadLetterRecord letter = NewLetter(customer_);
    letter.data = absl::StrCat("\"", std::string(60'000, 'x'), "\"");
    indexer->Read(i, letter);
  }
  // And one is more than all of it.
  DeadLetterRecord letter = NewLetter(customer_);
  letter.data = absl::StrCat("\"", std::string(150'000, 'x'), "\"");
  indexer->Read(28, letter);
  ASSERT_TRUE(UntilCompleted(*indexer, 29));
  EXPECT_THAT(Exposed(), HasSubstr("postrider_dlq_batch_letters_count 7"));
  EXPECT_EQ(Letters(), "29");
  EXPECT_EQ(Stored(), "29");
}

TEST_F(IndexerFunctionTest, WhatPostgresHasIsNotStoredAgainAfterACrash) {
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 20; ++i) letters.push_back(NewLetter(customer_));
  {
    auto crashed = Make();
    for (int i = 0; i < 12; ++i) crashed->Read(i, letters[static_cast<size_t>(i)]);
    crashed->Advance(limits_.wait_max);
    ASSERT_TRUE(UntilCompleted(*crashed, 12));
  }
  // Kafka has heard of none of it.
  auto next = Make();
  for (int i = 0; i < 20; ++i) next->Read(i, letters[static_cast<size_t>(i)]);
  next->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*next, 20));
  EXPECT_EQ(Letters(), "20");
  EXPECT_EQ(metrics_.letters.value(), 20);
  EXPECT_EQ(metrics_.recovered.value(), 0) << "nothing below the stored offset was new";
}

TEST_F(IndexerFunctionTest, NewLettersAtOffsetsThatWereStoredOnceAreStoredToo) {
  limits_.letters_max = 4;
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 10; ++i) letters.push_back(NewLetter(customer_));
  {
    auto before = Make();
    for (int i = 0; i < 10; ++i) before->Read(i, letters[static_cast<size_t>(i)]);
    before->Advance(limits_.wait_max);
    ASSERT_TRUE(UntilCompleted(*before, 10));
  }
  // The log was put back from a copy that ends at 5; what came after it has its offsets.
  auto after = Make();
  for (int i = 3; i < 5; ++i) after->Read(i, letters[static_cast<size_t>(i)]);
  for (int i = 5; i < 9; ++i) after->Read(i, NewLetter(customer_));
  after->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*after, 6));
  EXPECT_EQ(Letters(), "14");
  EXPECT_EQ(Stored(), "10") << "it does not go back";
  EXPECT_EQ(metrics_.recovered.value(), 4);
  EXPECT_EQ(metrics_.missing.value(), 0);
  for (int i = 9; i < 12; ++i) after->Read(i, NewLetter(customer_));
  after->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*after, 9));
  EXPECT_EQ(Letters(), "17");
  EXPECT_EQ(Stored(), "12");
  EXPECT_EQ(metrics_.letters.value(), 17);
  EXPECT_EQ(metrics_.recovered.value(), 5) << "the one at 9, not those at 10 and 11";
}

TEST_F(IndexerFunctionTest, TheSameLetterAtAnotherOffsetIsOneRow) {
  const DeadLetterRecord letter = NewLetter(customer_);
  auto indexer = Make();
  indexer->Read(0, letter);
  indexer->Read(1, letter);
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 2));
  ASSERT_OK(
      indexer_->Script(absl::StrCat("UPDATE postrider.dead_letters SET state = 'closed', "
                                    "closed_as = 'acked' WHERE id = '",
                                    letter.letter.ToUuid(), "'")));
  indexer->Read(2, letter);
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 3));
  EXPECT_EQ(Letters(), "1");
  EXPECT_EQ(Column(letter, "closed_as"), "acked") << "it does not come back to life";
  EXPECT_EQ(Stored(), "3");
  EXPECT_EQ(metrics_.letters.value(), 1);
}

TEST_F(IndexerFunctionTest, TwoIndexersOfOnePartitionStoreEachLetterOnce) {
  limits_.letters_max = 7;
  Pool other_pool(*loop_, PoolFor(database()->options().indexer_url), 2);
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 100; ++i) letters.push_back(NewLetter(customer_));
  auto one = Make();
  auto two = Make(&other_pool);
  Settle(*pool_);
  Settle(other_pool);
  // Both know that nothing is stored, and both begin to write.
  for (int i = 0; i < 100; ++i) {
    one->Read(i, letters[static_cast<size_t>(i)]);
    two->Read(i, letters[static_cast<size_t>(i)]);
  }
  for (Indexer* indexer : {one.get(), two.get()}) indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(Until(
      [&] { return one->ctx.completed().size() == 100 && two->ctx.completed().size() == 100; }));
  EXPECT_EQ(Letters(), "100");
  EXPECT_EQ(Stored(), "100");
  EXPECT_EQ(metrics_.letters.value(), 100);
  EXPECT_GE(metrics_.displaced.value(), 1);
  EXPECT_TRUE(std::is_sorted(one->ctx.completed().begin(), one->ctx.completed().end()));
}

TEST_F(IndexerFunctionTest, ATopicThatWasMadeAnewIsNotTakenForTheOldOne) {
  auto old = Make();
  for (int i = 0; i < 10; ++i) old->Read(i, NewLetter(customer_));
  old->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*old, 10));
  auto anew = Make(nullptr, 2);
  for (int i = 0; i < 3; ++i) anew->Read(i, NewLetter(customer_));
  anew->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*anew, 3));
  EXPECT_EQ(Letters(), "13");
  EXPECT_EQ(Stored(1), "10");
  EXPECT_EQ(Stored(2), "3");
}

TEST_F(IndexerFunctionTest, CountsOffsetsThatTheLogDoesNotGiveOnce) {
  auto indexer = Make();
  indexer->Read(7, NewLetter(customer_));
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 1));
  EXPECT_EQ(metrics_.missing.value(), 0) << "a first offset is not a gap";
  indexer->Read(12, NewLetter(customer_));
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 2));
  EXPECT_EQ(metrics_.missing.value(), 4);
}

class PostgresAwayTest : public IndexerFunctionTest {
 protected:
  void SetUp() override {
    IndexerFunctionTest::SetUp();
    ASSERT_OK_AND_ASSIGN(DatabaseUrl url, DatabaseUrl::Parse(database()->options().indexer_url));
    int port = 0;
    ASSERT_TRUE(absl::SimpleAtoi(url.hosts.substr(url.hosts.rfind(':') + 1), &port));
    relay_ = std::make_unique<TcpRelay>(static_cast<uint16_t>(port));
    url.hosts = absl::StrCat("127.0.0.1:", relay_->port());
    relayed_ = std::make_unique<Pool>(*loop_, PoolFor(url.ToString()), 3);
  }
  std::unique_ptr<TcpRelay> relay_;
  std::unique_ptr<Pool> relayed_;
};

TEST_F(PostgresAwayTest, LettersWaitAndAreStoredWhenItIsBack) {
  relay_->Set(TcpRelay::Mode::kClosed);
  auto indexer = Make(relayed_.get());
  for (int i = 0; i < 30; ++i) indexer->Read(i, NewLetter(customer_));
  ASSERT_TRUE(Until([this] { return metrics_.failures.value() >= 1; }));
  // Letters that come in meanwhile do not hurry the retry.
  EXPECT_EQ(indexer->ctx.Timer("", 2), indexer->ctx.clock().Now() + limits_.retry_first);
  for (int i = 1; i < 4; ++i) {
    indexer->Advance(std::chrono::seconds(5));
    ASSERT_TRUE(Until([this, i] { return metrics_.failures.value() >= i + 1; }));
  }
  EXPECT_EQ(indexer->ctx.Timer("", 2), indexer->ctx.clock().Now() + 8 * limits_.retry_first);
  EXPECT_EQ(Metric("postrider_dlq_oldest_unwritten_seconds{partition=\"3\"}"), 15);
  EXPECT_TRUE(indexer->ctx.completed().empty());

  relay_->Set(TcpRelay::Mode::kOpen);
  const bool stored = Until([&] {
    indexer->Advance(std::chrono::milliseconds(100));
    return indexer->ctx.completed().size() == 30;
  });
  ASSERT_TRUE(stored);
  EXPECT_EQ(Letters(), "30");
  EXPECT_EQ(Metric("postrider_dlq_oldest_unwritten_seconds{partition=\"3\"}"), 0);
}

TEST_F(PostgresAwayTest, ABrokenTransactionIsTriedAgainAndStoresNothingTwice) {
  limits_.letters_max = 5;
  auto indexer = Make(relayed_.get());
  Settle(*relayed_);
  int64_t offset = 0;
  // Cut at many points of the transaction's course, the commit's answer among them.
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 5; ++i) indexer->Read(offset++, NewLetter(customer_));
    indexer->Advance(limits_.wait_max);
    for (int turn = 0; turn < round % 20; ++turn) loop_->RunOnce(std::chrono::milliseconds(1));
    relay_->Set(TcpRelay::Mode::kClosed);
    loop_->RunOnce(Duration::zero());
    relay_->Set(TcpRelay::Mode::kOpen);
  }
  ASSERT_TRUE(Until([&] {
    indexer->Advance(std::chrono::milliseconds(100));
    return indexer->ctx.completed().size() == static_cast<size_t>(offset);
  }));
  EXPECT_EQ(Letters(), absl::StrCat(offset));
  EXPECT_EQ(Stored(), absl::StrCat(offset));
  EXPECT_GE(metrics_.failures.value(), 5);
  EXPECT_LE(metrics_.letters.value(), static_cast<double>(offset));
}

TEST_F(PostgresAwayTest, TheNextOwnerGoesOnWhereABrokenOneStopped) {
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 60; ++i) letters.push_back(NewLetter(customer_));
  limits_.letters_max = 4;
  size_t done = 0;
  for (int life = 0; life < 12; ++life) {
    // Kafka's commit is that of the life before the last one, at best.
    auto indexer = Make(life % 2 == 0 ? pool_.get() : relayed_.get());
    const size_t from = done > 10 ? done - 10 : 0;
    for (size_t i = from; i < std::min(letters.size(), done + 6); ++i) {
      indexer->Read(static_cast<int64_t>(i), letters[i]);
    }
    indexer->Advance(limits_.wait_max);
    for (int turn = 0; turn < 3 * life; ++turn) loop_->RunOnce(std::chrono::milliseconds(1));
    done = std::max(done, from + indexer->ctx.completed().size());
    indexer->Close();  // whatever runs
  }
  auto last = Make();
  const size_t from = done > 10 ? done - 10 : 0;
  for (size_t i = from; i < letters.size(); ++i) last->Read(static_cast<int64_t>(i), letters[i]);
  last->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*last, letters.size() - from));
  EXPECT_EQ(Letters(), "60");
  EXPECT_EQ(Stored(), "60");
  EXPECT_EQ(metrics_.missing.value(), 0);
}

TEST_F(IndexerFunctionTest, AClosedFunctionsTransactionEndsWithoutIt) {
  auto closed = Make();
  Settle(*pool_);
  const DeadLetterRecord letter = NewLetter(customer_);
  closed->Read(0, letter);
  closed->Advance(limits_.wait_max);
  ASSERT_EQ(closed->function->in_flight(), 1u);
  closed->Close();
  Settle(*pool_);
  EXPECT_TRUE(closed->ctx.completed().empty());
  EXPECT_EQ(Stored(), "1");
  auto next = Make();
  next->Read(0, letter);
  ASSERT_TRUE(UntilCompleted(*next, 1));
  EXPECT_EQ(Letters(), "1");
}

TEST_F(IndexerFunctionTest, LettersThatPostgresRefusesGoToTheRejectedTopicAndTheOthersAreStored) {
  std::vector<DeadLetterRecord> letters;
  for (int i = 0; i < 40; ++i) letters.push_back(NewLetter(customer_));
  letters[0].type = std::string("a\0b", 3);
  letters[17].tenant = "not utf-8 \xff";
  letters[18].attempts = std::numeric_limits<uint32_t>::max();
  letters[39].message_id = std::string(1, '\0');
  auto indexer = Make();
  for (int i = 0; i < 40; ++i) indexer->Read(i, letters[static_cast<size_t>(i)]);
  indexer->Advance(limits_.wait_max);
  std::vector<size_t> refused;
  for (const size_t index : {0u, 17u, 18u, 39u}) {
    const size_t number = refused.size();
    ASSERT_TRUE(Until([&] { return indexer->ctx.emitted().size() == number + 1; })) << index;
    // What is behind it waits until it is safe.
    Settle(*pool_);
    EXPECT_EQ(indexer->ctx.completed().size(), index);
    const AppendRecord& record = indexer->ctx.emitted()[number].record;
    EXPECT_EQ(record.topic, "p.rejected");
    EXPECT_EQ(record.partition, 0);
    EXPECT_EQ(record.value, EncodeDeadLetter(letters[index]));
    EXPECT_THAT(record.headers,
                IsSupersetOf({std::pair("reason", std::string("refused_by_postgres")),
                              std::pair("source", absl::StrCat(topic_, "/3")),
                              std::pair("offset", absl::StrCat(index))}));
    refused.push_back(index);
    indexer->ctx.Acknowledge(number);
  }
  ASSERT_TRUE(UntilCompleted(*indexer, 40));
  EXPECT_EQ(Letters(), "36");
  EXPECT_EQ(Stored(), "40");
  EXPECT_EQ(metrics_.refused.value(), 4);
  EXPECT_EQ(metrics_.failures.value(), 0);
  EXPECT_EQ(metrics_.letters.value(), 36);
}

TEST_F(IndexerFunctionTest, WhatIsNoLetterGoesToTheRejectedTopicBeforeTheOffsetPassesIt) {
  auto indexer = Make();
  indexer->ctx.set_emit_room(0);
  indexer->Read(0, NewLetter(customer_));
  indexer->Read(1, std::string("gar\0bage", 8));
  indexer->Read(2, std::string());
  indexer->Read(3, NewLetter(customer_));
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 1));
  Settle(*pool_);
  EXPECT_EQ(Stored(), "1");
  EXPECT_TRUE(indexer->ctx.emitted().empty());

  indexer->ctx.set_emit_room(10);
  indexer->function->OnRoom(indexer->ctx);
  ASSERT_EQ(indexer->ctx.emitted().size(), 2u);
  EXPECT_EQ(indexer->ctx.emitted()[0].record.value, std::string("gar\0bage", 8));
  EXPECT_EQ(indexer->ctx.emitted()[0].record.key, "key");
  EXPECT_THAT(indexer->ctx.emitted()[0].record.headers,
              IsSupersetOf({std::pair("reason", std::string("undecodable_dead_letter")),
                            std::pair("source", absl::StrCat(topic_, "/3")),
                            std::pair("offset", std::string("1"))}));
  // The second one's answer comes first.
  indexer->ctx.Acknowledge(1);
  Settle(*pool_);
  EXPECT_EQ(Stored(), "1");
  indexer->ctx.Acknowledge(0);
  ASSERT_TRUE(UntilCompleted(*indexer, 4));
  EXPECT_EQ(Letters(), "2");
  EXPECT_EQ(Stored(), "4");
  EXPECT_EQ(metrics_.undecodable.value(), 2);
}

TEST_F(IndexerFunctionTest, ARejectedTopicThatTakesNothingFailsTheTask) {
  auto indexer = Make();
  indexer->Read(0, "garbage");
  ASSERT_EQ(indexer->ctx.emitted().size(), 1u);
  indexer->ctx.Answer(0, absl::NotFoundError("no such topic"));
  ASSERT_TRUE(indexer->ctx.failure());
  EXPECT_EQ(indexer->ctx.failure()->code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(indexer->ctx.completed().empty());
}

TEST_F(IndexerFunctionTest, ARejectionMayBeAcknowledgedAfterAnotherIndexerHasPassedIt) {
  const DeadLetterRecord letter = NewLetter(customer_);
  auto slow = Make();
  slow->Read(0, "garbage");
  auto fast = Make();
  fast->Read(0, "garbage");
  fast->ctx.Acknowledge(0);
  fast->Read(1, letter);
  fast->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*fast, 2));
  // The slow one hears of it by its next write, which it does again.
  slow->Read(1, letter);
  slow->ctx.Acknowledge(0);
  slow->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*slow, 2));
  EXPECT_EQ(Letters(), "1");
}

TEST_F(IndexerFunctionTest, DaysGetPartitionsAndFarOnesShareTheDefault) {
  const auto at = [this](std::chrono::hours ago) {
    DeadLetterRecord letter = NewLetter(customer_);
    letter.letter = MakeLetterId(clock_.Wall() - ago, letter.letter.bytes());
    return letter;
  };
  using std::chrono::hours;
  const std::vector<std::pair<DeadLetterRecord, bool>> letters = {
      {at(hours(0)), true},        {at(hours(24 * 40)), true},   {at(hours(-24 * 6)), true},
      {at(hours(24 * 90)), false}, {at(hours(-24 * 30)), false}, {at(hours(24 * 19'000)), false}};
  const std::string count_sql =
      "SELECT count(*) FROM pg_inherits WHERE inhparent = 'postrider.dead_letters'::regclass";
  int before = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Ask(count_sql), &before));
  auto indexer = Make();
  for (size_t i = 0; i < letters.size(); ++i) {
    indexer->Read(static_cast<int64_t>(i), letters[i].first);
  }
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, letters.size()));
  EXPECT_EQ(Letters(), "6");
  for (const auto& [letter, has_own] : letters) {
    EXPECT_EQ(Column(letter, "tableoid::regclass::text"),
              has_own ? Column(letter, "'postrider.dead_letters_' || to_char(day, 'YYYYMMDD')")
                      : "postrider.dead_letters_default");
  }
  int after = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Ask(count_sql), &after));
  EXPECT_LE(after - before, 3) << "only the days that have letters";
}

TEST_F(IndexerFunctionTest, TimesThatPostgresCannotHoldAreBroughtToWhatItCan) {
  DeadLetterRecord early = NewLetter(customer_);
  early.event_time = WallTimeFromMillis(std::numeric_limits<int64_t>::min());
  DeadLetterRecord late = NewLetter(customer_);
  late.event_time = WallTimeFromMillis(std::numeric_limits<int64_t>::max());
  auto indexer = Make();
  indexer->Read(0, early);
  indexer->Read(1, late);
  indexer->Advance(limits_.wait_max);
  ASSERT_TRUE(UntilCompleted(*indexer, 2));
  EXPECT_EQ(Column(early, "event_time AT TIME ZONE 'UTC'"), "0001-01-01 00:00:00");
  EXPECT_EQ(Column(late, "event_time AT TIME ZONE 'UTC'"), "9999-12-31 23:59:59.999");
}

TEST_F(IndexerFunctionTest, StartsNothingWhileItMayNotActOrHandsOver) {
  auto indexer = Make();
  Settle(*pool_);
  indexer->ctx.set_may_act(false);
  indexer->Read(0, NewLetter(customer_));
  indexer->Advance(limits_.wait_max);
  EXPECT_EQ(indexer->function->in_flight(), 0u);
  indexer->ctx.set_may_act(true);
  indexer->function->OnResume(indexer->ctx);
  EXPECT_EQ(indexer->function->in_flight(), 1u);

  // The transaction that runs is finished, the next one is not begun.
  indexer->Read(1, NewLetter(customer_));
  indexer->function->OnDrain(indexer->ctx, KeyedProcessFunction::Drain::kHandover);
  ASSERT_TRUE(UntilCompleted(*indexer, 1));
  indexer->Advance(limits_.wait_max);
  EXPECT_EQ(indexer->function->in_flight(), 0u);
  indexer->function->OnResume(indexer->ctx);
  ASSERT_TRUE(UntilCompleted(*indexer, 2));

  // A stop does not wait for a batch to fill.
  indexer->Read(2, NewLetter(customer_));
  EXPECT_EQ(indexer->function->in_flight(), 0u);
  indexer->function->OnDrain(indexer->ctx, KeyedProcessFunction::Drain::kShutdown);
  EXPECT_EQ(indexer->function->in_flight(), 1u);
  ASSERT_TRUE(UntilCompleted(*indexer, 3));
  EXPECT_EQ(Letters(), "3");
}

}  // namespace
}  // namespace postrider::dlq
