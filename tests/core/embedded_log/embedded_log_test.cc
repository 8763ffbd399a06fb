#include "core/embedded_log/embedded_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"
#include "tests/core/embedded_log/nobody.h"
#include "tests/support/no_descriptors.h"

namespace postrider::tests {
namespace {

using testing::HasSubstr;

TEST_F(EmbeddedLogTest, KeepsTopicsRecordsAndPositionsOverARestart) {
  Open();
  MakeTopic("a", 2, {{"cleanup.policy", "compact"}});
  MakeTopic("b", 1);
  AppendMany({"a", 1}, 5, 10);
  AppendRecord with_header = Record({"b", 0}, "", "value");
  with_header.headers = {{"name", "content"}};
  ASSERT_TRUE(Append(std::move(with_header)).ok());
  ASSERT_TRUE(Append(Tombstone({"b", 0}, "key")).ok());
  ASSERT_TRUE(log_->ResetGroup("g", {{{"a", 1}, {3, "meta"}}}, kTimeout).ok());
  ASSERT_TRUE(log_->FreezeTopic("b", kTimeout).ok());
  ASSERT_TRUE(Trim({"a", 1}, 2).ok());
  Reopen();
  const std::vector<EmbeddedLog::TopicState> topics = log_->Topics();
  ASSERT_EQ(topics.size(), 2u);
  EXPECT_EQ(topics[0].name, "a");
  EXPECT_EQ(topics[0].partitions, 2);
  EXPECT_EQ(topics[0].settings.size(), 1u);
  EXPECT_FALSE(topics[0].frozen);
  EXPECT_TRUE(topics[1].frozen);
  EXPECT_EQ(Append(Record({"b", 0}, "k", "v")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const WholeReader reader = ReadAll({"a", 1});
  ASSERT_EQ(reader.records.size(), 3u);
  EXPECT_EQ(reader.records[0].offset, 2);
  EXPECT_EQ(reader.records[0].key, "k2");
  EXPECT_EQ(reader.end, 5);
  EXPECT_EQ(log_->Offsets({"a", 1}, kTimeout)->begin, 2);
  const WholeReader other = ReadAll({"b", 0});
  ASSERT_EQ(other.records.size(), 2u);
  EXPECT_EQ(other.records[0].value, "value");
  EXPECT_TRUE(other.records[1].tombstone);
  const auto group = log_->DescribeGroup("g", {{"a", 1}}, kTimeout);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->partitions[0].committed, (CommittedPosition{3, "meta"}));
  EXPECT_THAT(log_->Groups(), testing::ElementsAre("g"));
  EXPECT_EQ(Append(Record({"a", 1}, "k", "v")).value_or(-1), 5) << "offsets go on";
}

TEST_F(EmbeddedLogTest, GoesOnBehindTheEndOfAPartitionThatWasTrimmedWhole) {
  Open();
  MakeTopic("a", 1);
  AppendMany({"a", 0}, 7, 10);
  ASSERT_TRUE(Trim({"a", 0}, 7).ok());
  Reopen();
  const auto range = log_->Offsets({"a", 0}, kTimeout);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->begin, 7);
  EXPECT_EQ(range->end, 7);
  EXPECT_EQ(Append(Record({"a", 0}, "k", "v")).value_or(-1), 7);
}

TEST_F(EmbeddedLogTest, ForgetsADeletedTopicForGood) {
  Open();
  MakeTopic("a", 1);
  AppendMany({"a", 0}, 7, 10);
  ASSERT_TRUE(log_->ResetGroup("g", {{{"a", 0}, {3, ""}}}, kTimeout).ok());
  ASSERT_TRUE(log_->DeleteTopic("a", kTimeout).ok());
  MakeTopic("a", 1);
  Reopen();
  EXPECT_EQ(log_->Offsets({"a", 0}, kTimeout)->end, 0);
  EXPECT_TRUE(ReadAll({"a", 0}).records.empty());
  EXPECT_FALSE(log_->DescribeGroup("g", {{"a", 0}}, kTimeout)->partitions[0].committed.has_value());
}

TEST_F(EmbeddedLogTest, ReadsFromTheDatabaseWhatMemoryHasNoRoomFor) {
  Open();
  MakeTopic("a", 2);
  constexpr int kCount = 6'000;
  for (int32_t partition = 0; partition < 2; ++partition) {
    for (int i = 0; i < kCount; i += 1'000) AppendMany({"a", partition}, 1'000, 1'000, i);
  }
  for (int round = 0; round < 2; ++round) {
    for (int32_t partition = 0; partition < 2; ++partition) {
      const WholeReader reader = ReadAll({"a", partition});
      ASSERT_EQ(reader.records.size(), static_cast<size_t>(kCount));
      for (int i = 0; i < kCount; ++i) {
        const KeptRecord& record = reader.records[static_cast<size_t>(i)];
        ASSERT_EQ(record.offset, i);
        ASSERT_EQ(record.key, absl::StrCat("k", i));
        ASSERT_EQ(record.value.size(), 1'000u);
      }
    }
    Reopen();
  }
  EXPECT_GT(Metric("postrider_embedded_log_cold_reads_total"), 10);
}

TEST_F(EmbeddedLogTest, HoldsNoMoreThanItMayPrefetchOverManyPartitionsAndReadsAllInTurn) {
  constexpr int kPartitions = 500;
  constexpr int kRounds = 4;
  constexpr size_t kValueBytes = 40'000;
  constexpr double kReadBytes = 2 * kValueBytes;  // 64 KiB are asked for: two runs
  constexpr double kPrefetchBytes = 4 << 20;
  Open();
  MakeTopic("a", kPartitions);
  for (int round = 0; round < kRounds; ++round) {
    int acknowledged = 0;
    for (int32_t partition = 0; partition < kPartitions; ++partition) {
      while (!producer().Append(Record({"a", partition}, "k", std::string(kValueBytes, 'v')),
                                [&](const absl::StatusOr<int64_t>& at) {
                                  EXPECT_TRUE(at.ok()) << at.status();
                                  ++acknowledged;
                                })) {
        ASSERT_TRUE(Until([&] { return acknowledged == partition; }));
      }
    }
    ASSERT_TRUE(Until([&] { return acknowledged == kPartitions; }));
  }
  Reopen();  // nothing is in memory
  struct Counter : ReadHandler {
    void OnRecord(const LogRecord& record) override {
      ++records;
      ++of[static_cast<size_t>(record.partition)];
      // Nobody's second read comes before everybody's first.
      if (of[static_cast<size_t>(record.partition)] > 2) {
        late += std::count(of.begin(), of.end(), 0) > 0 ? 1 : 0;
      }
    }
    void OnPartitionEnd(const TopicPartition&, int64_t) override { ++ends; }
    std::vector<int> of = std::vector<int>(kPartitions, 0);
    int records = 0;
    int ends = 0;
    int late = 0;
  } counter;
  ReaderOptions options;
  options.prefetch_bytes = static_cast<int64_t>(kPrefetchBytes);
  absl::StatusOr<std::unique_ptr<PartitionReader>> opened =
      log_->OpenReader(*loop_, options, counter);
  ASSERT_TRUE(opened.ok());
  PartitionReader& reader = **opened;
  const double before = Metric("postrider_embedded_log_cold_reads_total");
  const auto ahead = [&] {
    const double reads = Metric("postrider_embedded_log_cold_reads_total") - before;
    return reads * kReadBytes - static_cast<double>(counter.records) * kValueBytes;
  };
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    reader.Add({{"a", partition}, StartPosition::At::kLogStart, 0});
  }
  // Nothing is taken, and it reads ahead.
  EXPECT_TRUE(Until([&] {
    reader.Poll(0);
    return ahead() > kPrefetchBytes / 4;
  }));
  double most = 0;
  ASSERT_TRUE(loop_
                  ->Watch(reader.wake_fd(), kFdReadable,
                          [&](uint32_t) {
                            reader.Poll(10);
                            most = std::max(most, ahead());
                          })
                  .ok());
  EXPECT_TRUE(Until([&] { return counter.ends == kPartitions; }));
  loop_->Unwatch(reader.wake_fd());
  EXPECT_EQ(counter.records, kPartitions * kRounds);
  EXPECT_EQ(counter.late, 0);
  EXPECT_LE(most, kPrefetchBytes);
}

TEST_F(EmbeddedLogTest, GoesOnWhereNotEvenOneReadFitsIntoWhatItMayPrefetch) {
  Open();
  MakeTopic("a", 3);
  for (int32_t partition = 0; partition < 3; ++partition) AppendMany({"a", partition}, 300, 1'000);
  Reopen();
  struct Ends : WholeReader {
    void OnPartitionEnd(const TopicPartition&, int64_t) override { ++ends; }
    int ends = 0;
  } counter;
  ReaderOptions options;
  options.prefetch_bytes = 1;
  absl::StatusOr<std::unique_ptr<PartitionReader>> opened =
      log_->OpenReader(*loop_, options, counter);
  ASSERT_TRUE(opened.ok());
  PartitionReader& reader = **opened;
  ASSERT_TRUE(loop_->Watch(reader.wake_fd(), kFdReadable, [&](uint32_t) { reader.Poll(7); }).ok());
  for (int32_t partition = 0; partition < 3; ++partition) {
    reader.Add({{"a", partition}, StartPosition::At::kLogStart, 0});
  }
  EXPECT_TRUE(Until([&] { return counter.ends == 3; }));
  // One that was given up while it was read leaves its room to the others.
  reader.Add({{"a", 0}, StartPosition::At::kLogStart, 0});
  reader.Add({{"a", 1}, StartPosition::At::kLogStart, 0});
  reader.Poll(7);
  reader.Remove({"a", 0});
  EXPECT_TRUE(Until([&] { return counter.ends == 4; }));
  loop_->Unwatch(reader.wake_fd());
  EXPECT_GE(counter.records.size(), 1'200u);
}

TEST_F(EmbeddedLogTest, FindsTheOffsetForATimeWhereverTheClockGoes) {
  Open();
  MakeTopic("a", 1);
  const WallTime start = clock_.Wall();
  const auto at = [&](int minutes) { return start + std::chrono::minutes(minutes); };
  // Ten records a minute; at 5 the clock is set back by three.
  const int minutes[] = {0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7};
  int first = 0;
  for (const int minute : minutes) {
    clock_.SetWall(at(minute));
    AppendMany({"a", 0}, 10, 20, first);
    first += 10;
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(OffsetForTime({"a", 0}, at(0)).value_or(-1), 0);
    EXPECT_EQ(OffsetForTime({"a", 0}, at(3)).value_or(-1), 30) << "the first that was so late";
    EXPECT_EQ(OffsetForTime({"a", 0}, at(5)).value_or(-1), 50);
    EXPECT_EQ(OffsetForTime({"a", 0}, at(6)).value_or(-1), 100);
    EXPECT_EQ(OffsetForTime({"a", 0}, at(7) + std::chrono::milliseconds(1)).value_or(-1), 120);
    Reopen();
  }
}

TEST_F(EmbeddedLogTest, RefusesASecondProcessAndNamesKafka) {
  Open();
  const auto second = EmbeddedLog::Open(options_, clock_, metrics_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Kafka"));
  Reopen();
}

TEST_F(EmbeddedLogTest, RefusesADirectoryOfANewerVersion) {
  Open();
  Close();
  std::ofstream(options_.directory + "/FORMAT") << "postrider-log 2\n";
  const absl::Status newer = TryOpen();
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(newer.message()), HasSubstr("newer Postrider (format 2"));
  std::ofstream(options_.directory + "/FORMAT") << "postrider-log 1\n";
  Open();
}

TEST_F(EmbeddedLogTest, RefusesADamagedFormatFile) {
  Open();
  Close();
  std::ofstream(options_.directory + "/FORMAT") << "postrider-lof 1\n";
  const absl::Status damaged = TryOpen();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("should read \"postrider-log 1\""));
}

TEST_F(EmbeddedLogTest, LeavesADirectoryAloneThatHoldsSomethingElse) {
  std::filesystem::create_directory(options_.directory);
  std::ofstream(options_.directory + "/thesis.txt") << "mine";
  const absl::Status foreign = TryOpen();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("thesis.txt"));
  EXPECT_FALSE(std::filesystem::exists(options_.directory + "/db"));
}

TEST_F(EmbeddedLogTest, SaysWhatToChangeWhenItsDirectoryCannotBeWritten) {
  namespace fs = std::filesystem;
  Open();
  Close();
  fs::permissions(directory_.path(), fs::perms::all);
  for (const char* part : {"/lock", "/FORMAT", "/db"}) {
    fs::permissions(options_.directory + part, fs::perms::owner_read | fs::perms::group_read |
                                                   fs::perms::others_read | fs::perms::owner_exec |
                                                   fs::perms::others_exec);
  }
  fs::permissions(options_.directory, fs::perms::owner_read | fs::perms::owner_exec |
                                          fs::perms::others_read | fs::perms::others_exec);
  {
    const Nobody nobody;
    const absl::Status opened = TryOpen();
    EXPECT_EQ(opened.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(opened.message()), HasSubstr(options_.directory));
    EXPECT_THAT(std::string(opened.message()), HasSubstr("Permission denied; let the user"));
  }
  // The database alone: it is no damage, and nothing is put together anew.
  fs::permissions(options_.directory, fs::perms::all);
  fs::permissions(options_.directory + "/lock", fs::perms::all);
  {
    const Nobody nobody;
    const absl::Status opened = TryOpen();
    EXPECT_EQ(opened.code(), absl::StatusCode::kUnavailable) << opened;
    EXPECT_THAT(std::string(opened.message()), HasSubstr("Permission denied"));
    EXPECT_THAT(std::string(opened.message()), HasSubstr(options_.directory + "/db"));
  }
  fs::permissions(options_.directory + "/db", fs::perms::owner_all);
  Open();
}

TEST_F(EmbeddedLogTest, SaysThatADirectoryCannotBeMade) {
  options_.directory = directory_.path() + "/none/log";
  const absl::Status missing = TryOpen();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("No such file"));
}

TEST_F(EmbeddedLogTest, SaysThatThereIsNoDescriptorLeft) {
  Open();
  MakeTopic("a", 1);
  struct Handler final : public GroupHandler {
    void OnAssigned(Assignment) override {}
    void OnRevoked() override {}
    void OnLost() override {}
    void OnRecord(const LogRecord&) override {}
    void OnPartitionEnd(const TopicPartition&, int64_t) override {}
    void OnOutOfRange(const TopicPartition&, int64_t) override {}
    void OnReachable(bool) override {}
  } member;
  WholeReader reader;
  absl::optional<absl::Status> trimmed;
  {
    const NoDescriptors none;
    constexpr auto kNone = absl::StatusCode::kResourceExhausted;
    EXPECT_EQ(log_->OpenProducer(*loop_, ProducerOptions()).status().code(), kNone);
    EXPECT_EQ(log_->OpenReader(*loop_, ReaderOptions(), reader).status().code(), kNone);
    GroupOptions group;
    group.group = "g";
    group.topics = {"a"};
    EXPECT_EQ(log_->JoinGroup(*loop_, group, member).status().code(), kNone);
    log_->Trim(*loop_, {"a", 0}, 0, [&](absl::Status answer) { trimmed = std::move(answer); });
    EXPECT_FALSE(trimmed.has_value()) << "never from inside the call";
  }
  ASSERT_TRUE(Until([&] { return trimmed.has_value(); }));
  EXPECT_EQ(trimmed->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Append(Record({"a", 0}, "k", "v")).ok());
  EXPECT_TRUE(Trim({"a", 0}, 1).ok());
}

}  // namespace
}  // namespace postrider::tests
