#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/stream/log.h"
#include "core/stream/record.h"

namespace postrider::contract {

// What every Log is held to. A test binary includes this once and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Kafka, LogContract, testing::Values(LogContractFactory(MakeKafka)));
//
// A test runs on one thread: one loop, which all members and producers share.
class LogContractEnvironment {
 public:
  virtual ~LogContractEnvironment() = default;
  virtual Log& log() = 0;
  virtual EventLoop& loop() = 0;
  // One turn of the loop, at most some ms long; its clock goes on with each, by itself or by hand.
  virtual void Step() = 0;
  // Topics and groups whose names begin with it are this test's own.
  virtual std::string prefix() = 0;
};
using LogContractFactory = std::function<std::unique_ptr<LogContractEnvironment>()>;

inline constexpr std::chrono::seconds kPatience{60};
inline constexpr std::chrono::milliseconds kAdminTimeout{60'000};

struct SeenRecord {
  TopicPartition tp;
  int64_t offset = 0;
  WallTime timestamp;
  std::string key;
  std::string value;
  std::vector<std::pair<std::string, std::string>> headers;
  bool tombstone = false;
};

inline SeenRecord Seen(const LogRecord& record) {
  SeenRecord seen;
  seen.tp = {std::string(record.topic), record.partition};
  seen.offset = record.offset;
  seen.timestamp = record.timestamp;
  seen.key = std::string(record.key);
  seen.value = std::string(record.value);
  for (const RecordHeader& header : record.headers) {
    seen.headers.emplace_back(std::string(header.name), std::string(header.value));
  }
  seen.tombstone = record.value.data() == nullptr;
  return seen;
}

// What the members of a group have done together.
struct GroupLedger {
  std::map<TopicPartition, CommittedPosition> acknowledged;
  std::map<std::pair<TopicPartition, int64_t>, int> seen;
  std::vector<std::string> faults;
};

// A member that reads from what is committed, else from the log's start, and commits what it has
// read before it gives anything back.
class Member : public GroupHandler {
 public:
  Member(LogContractEnvironment& environment, GroupOptions options, GroupLedger* ledger = nullptr)
      : environment_(environment), options_(std::move(options)), ledger_(ledger) {}
  ~Member() override { Crash(); }

  void Join() {
    auto joined = environment_.log().JoinGroup(environment_.loop(), options_, *this);
    ASSERT_TRUE(joined.ok()) << joined.status();
    consumer_ = *std::move(joined);
    Watch();
  }
  void Watch() {
    const absl::Status watched =
        environment_.loop().Watch(consumer_->wake_fd(), kFdReadable, [this](uint32_t) { Poll(); });
    ASSERT_TRUE(watched.ok()) << watched;
  }
  // Polls no more until Thaw(): a stalled process, whose client goes on with its heartbeats.
  void Freeze() {
    frozen_ = true;
    environment_.loop().Unwatch(consumer_->wake_fd());
  }
  void Thaw() {
    frozen_ = false;
    Watch();
  }
  void Crash() {
    if (consumer_ == nullptr) return;
    environment_.loop().Unwatch(consumer_->wake_fd());
    consumer_.reset();
  }
  void Poll() {
    polled_at_ = environment_.loop().clock().Now();
    EXPECT_LE(consumer_->Poll(poll_records_max), poll_records_max);
  }
  // The net below the wake-ups that a shard has too: an idle member must poll now and then.
  void PollIfDue() {
    if (consumer_ == nullptr || frozen_) return;
    if (environment_.loop().clock().Now() - polled_at_ >= std::chrono::milliseconds(500)) Poll();
  }
  void Commit(std::vector<CommitEntry> entries, std::function<void()> then = nullptr) {
    ++commits_outstanding;
    consumer_->Commit(entries, [this, entries, then](std::vector<absl::Status> statuses) {
      --commits_outstanding;
      commit_statuses = statuses;
      ASSERT_EQ(statuses.size(), entries.size());
      for (size_t i = 0; i < entries.size(); ++i) {
        if (ledger_ != nullptr && statuses[i].ok()) {
          ledger_->acknowledged[entries[i].tp] = entries[i].position;
        }
      }
      if (then != nullptr) then();
    });
  }
  std::vector<CommitEntry> Progress() const {
    std::vector<CommitEntry> entries;
    for (const auto& [tp, next] : next_offsets) {
      entries.push_back({tp, {next, absl::StrCat("read to ", next, " by ", name)}});
    }
    return entries;
  }
  size_t RecordsOf(const TopicPartition& tp) const {
    return static_cast<size_t>(std::count_if(
        records.begin(), records.end(), [&tp](const SeenRecord& one) { return one.tp == tp; }));
  }
  bool Owns(size_t partitions) const {
    return reading && assigned.has_value() && assigned->partitions.size() == partitions;
  }
  GroupConsumer& consumer() { return *consumer_; }

  void OnAssigned(Assignment assignment) override {
    ++assignments;
    assigned = std::move(assignment);
    next_offsets.clear();
    std::vector<CommitEntry> claims;
    for (const AssignedPartition& one : assigned->partitions) {
      if (ledger_ != nullptr) CheckHandedOver(one);
      if (one.committed.has_value()) {
        next_offsets[one.tp] = one.committed->offset;
        claims.push_back({one.tp, *one.committed});
      }
    }
    if (!start_by_itself) return;
    if (claim && !claims.empty()) {
      Commit(std::move(claims), [this] { StartAll(); });
    } else {
      StartAll();
    }
  }
  void StartAll() {
    std::vector<StartPosition> positions;
    for (const AssignedPartition& one : assigned->partitions) {
      if (one.committed.has_value()) {
        positions.push_back({one.tp, StartPosition::At::kOffset, one.committed->offset});
      } else {
        positions.push_back({one.tp, StartPosition::At::kLogStart, 0});
      }
    }
    Start(std::move(positions));
  }
  void Start(std::vector<StartPosition> positions) {
    reading = true;
    consumer_->Start(std::move(positions));
  }
  void OnRevoked() override {
    ++revocations;
    reading = false;
    if (commit_on_revoke && !next_offsets.empty()) {
      Commit(Progress(), [this] { GiveBack(); });
    } else {
      GiveBack();
    }
  }
  void OnLost() override {
    ++losses;
    reading = false;
    GiveBack();
  }
  void GiveBack() {
    assigned.reset();
    next_offsets.clear();
    consumer_->Release();
  }
  void OnRecord(const LogRecord& record) override {
    EXPECT_TRUE(reading) << name << " got a record while it reads nothing";
    SeenRecord seen = Seen(record);
    next_offsets[seen.tp] = record.offset + 1;
    if (ledger_ != nullptr) ++ledger_->seen[{seen.tp, record.offset}];
    records.push_back(std::move(seen));
  }
  void OnPartitionEnd(const TopicPartition& tp, int64_t next) override { ends[tp] = next; }
  void OnOutOfRange(const TopicPartition& tp, int64_t log_start) override {
    out_of_range[tp] = log_start;
  }
  void OnReachable(bool now) override { reachable = now; }

  std::string name = "member";
  size_t poll_records_max = 1'000;
  bool start_by_itself = true;
  bool claim = false;
  bool commit_on_revoke = true;

  absl::optional<Assignment> assigned;
  bool reading = false;
  bool reachable = true;
  int assignments = 0;
  int revocations = 0;
  int losses = 0;
  int commits_outstanding = 0;
  bool left = false;
  std::vector<absl::Status> commit_statuses;
  std::vector<SeenRecord> records;
  std::map<TopicPartition, int64_t> next_offsets;
  std::map<TopicPartition, int64_t> ends;
  std::map<TopicPartition, int64_t> out_of_range;

 private:
  void CheckHandedOver(const AssignedPartition& one) {
    const auto acknowledged = ledger_->acknowledged.find(one.tp);
    const bool was = acknowledged != ledger_->acknowledged.end();
    if (was != one.committed.has_value() || (was && !(acknowledged->second == *one.committed))) {
      ledger_->faults.push_back(absl::StrCat(
          one.tp.ToString(), ": ", name, " was given ",
          one.committed ? absl::StrCat(one.committed->offset, " ", one.committed->metadata)
                        : "nothing",
          ", acknowledged was ",
          was ? absl::StrCat(acknowledged->second.offset, " ", acknowledged->second.metadata)
              : "nothing"));
    }
  }

  LogContractEnvironment& environment_;
  const GroupOptions options_;
  GroupLedger* const ledger_;
  std::unique_ptr<GroupConsumer> consumer_;
  bool frozen_ = false;
  MonotonicTime polled_at_;
};

// Reads partitions of its choice.
class Reader : public ReadHandler {
 public:
  explicit Reader(LogContractEnvironment& environment) : environment_(environment) {}
  ~Reader() override { Close(); }

  void Open() {
    auto opened = environment_.log().OpenReader(environment_.loop(), ReaderOptions(), *this);
    ASSERT_TRUE(opened.ok()) << opened.status();
    reader_ = *std::move(opened);
    const absl::Status watched =
        environment_.loop().Watch(reader_->wake_fd(), kFdReadable, [this](uint32_t) { Poll(); });
    ASSERT_TRUE(watched.ok()) << watched;
  }
  void Close() {
    if (reader_ == nullptr) return;
    environment_.loop().Unwatch(reader_->wake_fd());
    reader_.reset();
  }
  void Poll() { EXPECT_LE(reader_->Poll(poll_records_max), poll_records_max); }
  void Add(const TopicPartition& tp, StartPosition::At at, int64_t offset = 0) {
    reader_->Add({tp, at, offset});
  }
  std::vector<int64_t> OffsetsOf(const TopicPartition& tp) const {
    std::vector<int64_t> offsets;
    for (const SeenRecord& one : records) {
      if (one.tp == tp) offsets.push_back(one.offset);
    }
    return offsets;
  }
  PartitionReader& reader() { return *reader_; }

  void OnRecord(const LogRecord& record) override {
    records.push_back(Seen(record));
    if (on_record != nullptr) on_record(records.back());
  }
  void OnPartitionEnd(const TopicPartition& tp, int64_t next) override { ends[tp].push_back(next); }

  size_t poll_records_max = 1'000;
  std::function<void(const SeenRecord&)> on_record;
  std::vector<SeenRecord> records;
  std::map<TopicPartition, std::vector<int64_t>> ends;

 private:
  LogContractEnvironment& environment_;
  std::unique_ptr<PartitionReader> reader_;
};

class LogContract : public testing::TestWithParam<LogContractFactory> {
 protected:
  void SetUp() override {
    environment_ = GetParam()();
    ASSERT_NE(environment_, nullptr);
  }

  Log& log() { return environment_->log(); }
  std::string Topic(const std::string& name) { return environment_->prefix() + name; }
  std::string MakeTopic(const std::string& name, int32_t partitions) {
    const std::string topic = Topic(name);
    const absl::Status made = log().EnsureTopics({Spec(topic, partitions)}, kAdminTimeout);
    EXPECT_TRUE(made.ok()) << made;
    return topic;
  }
  static TopicSpec Spec(const std::string& topic, int32_t partitions) {
    TopicSpec spec;
    spec.name = topic;
    spec.partitions = partitions;
    return spec;
  }
  GroupOptions Options(const std::vector<std::string>& topics) {
    GroupOptions options;
    options.group = environment_->prefix() + "group";
    options.topics = topics;
    options.session_timeout = std::chrono::milliseconds(6'000);
    options.heartbeat_interval = std::chrono::milliseconds(100);
    options.poll_interval_max = std::chrono::milliseconds(6'000);
    options.topic_refresh = std::chrono::milliseconds(1'000);
    options.fetch_wait_max = std::chrono::milliseconds(50);
    return options;
  }
  Member& Add(const GroupOptions& options, GroupLedger* ledger = nullptr) {
    members_.push_back(std::make_unique<Member>(*environment_, options, ledger));
    members_.back()->name = absl::StrCat("member ", members_.size());
    return *members_.back();
  }
  Member& JoinNew(const GroupOptions& options) {
    Member& member = Add(options);
    member.Join();
    return member;
  }

  // Steps until `condition` holds.
  testing::AssertionResult Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end) {
        return testing::AssertionFailure() << "it did not come about";
      }
      environment_->Step();
      for (const auto& member : members_) member->PollIfDue();
    }
    return testing::AssertionSuccess();
  }
  testing::AssertionResult UntilClockPasses(Duration time) {
    const MonotonicTime end = environment_->loop().clock().Now() + time;
    return Until([this, end] { return environment_->loop().clock().Now() >= end; });
  }

  std::unique_ptr<LogProducer> OpenProducer(const ProducerOptions& options = {}) {
    auto producer = log().OpenProducer(environment_->loop(), options);
    EXPECT_TRUE(producer.ok()) << producer.status();
    return producer.ok() ? *std::move(producer) : nullptr;
  }
  // Appends `count` records "v<i>" and waits for their offsets.
  std::vector<int64_t> Append(const TopicPartition& tp, int count) {
    if (producer_ == nullptr) producer_ = OpenProducer();
    std::vector<int64_t> offsets;
    for (int i = 0; i < count; ++i) {
      AppendRecord record;
      record.topic = tp.topic;
      record.partition = tp.partition;
      record.key = "k";
      record.value = absl::StrCat("v", i);
      EXPECT_TRUE(producer_->Append(std::move(record), [&offsets](absl::StatusOr<int64_t> offset) {
        EXPECT_TRUE(offset.ok()) << offset.status();
        offsets.push_back(offset.value_or(-1));
      }));
    }
    EXPECT_TRUE(Until([&] { return offsets.size() == static_cast<size_t>(count); }));
    return offsets;
  }
  absl::Status Trim(const TopicPartition& tp, int64_t offset) {
    absl::optional<absl::Status> status;
    log().Trim(environment_->loop(), tp, offset,
               [&status](absl::Status answer) { status = std::move(answer); });
    EXPECT_FALSE(status.has_value()) << "answered from inside the call";
    EXPECT_TRUE(Until([&] { return status.has_value(); }));
    return status.value_or(absl::UnknownError("no answer"));
  }
  void LeaveAndWait(Member& member) {
    member.consumer().Leave([&member] { member.left = true; });
    EXPECT_TRUE(Until([&] { return member.left; }));
  }
  Reader& OpenReader() {
    readers_.push_back(std::make_unique<Reader>(*environment_));
    readers_.back()->Open();
    return *readers_.back();
  }
  // Appends one record and waits for its answer.
  absl::StatusOr<int64_t> AppendOne(AppendRecord record) {
    if (producer_ == nullptr) producer_ = OpenProducer();
    absl::optional<absl::StatusOr<int64_t>> answer;
    EXPECT_TRUE(producer_->Append(std::move(record), [&answer](absl::StatusOr<int64_t> offset) {
      answer = std::move(offset);
    }));
    EXPECT_TRUE(Until([&] { return answer.has_value(); }));
    return answer.value_or(absl::UnknownError("no answer"));
  }
  static AppendRecord Record(const TopicPartition& tp, const std::string& key,
                             const std::string& value) {
    AppendRecord record;
    record.topic = tp.topic;
    record.partition = tp.partition;
    record.key = key;
    record.value = value;
    return record;
  }
  static AppendRecord Tombstone(const TopicPartition& tp, const std::string& key) {
    AppendRecord record = Record(tp, key, "");
    record.tombstone = true;
    return record;
  }
  absl::StatusOr<int64_t> OffsetForTime(const TopicPartition& tp, WallTime time) {
    absl::optional<absl::StatusOr<int64_t>> answer;
    log().OffsetForTime(environment_->loop(), tp, time,
                        [&answer](absl::StatusOr<int64_t> offset) { answer = std::move(offset); });
    EXPECT_FALSE(answer.has_value()) << "answered from inside the call";
    EXPECT_TRUE(Until([&] { return answer.has_value(); }));
    return answer.value_or(absl::UnknownError("no answer"));
  }
  std::vector<absl::optional<int64_t>> Ends(const std::vector<TopicPartition>& partitions) {
    absl::optional<std::vector<absl::optional<int64_t>>> answer;
    log().Ends(environment_->loop(), partitions,
               [&answer](auto ends) { answer.emplace(std::move(ends)); });
    EXPECT_FALSE(answer.has_value()) << "answered from inside the call";
    EXPECT_TRUE(Until([&] { return answer.has_value(); }));
    return answer.value_or(std::vector<absl::optional<int64_t>>());
  }
  void TearDown() override {
    readers_.clear();
    members_.clear();
    producer_.reset();
    environment_.reset();
  }

  std::unique_ptr<LogContractEnvironment> environment_;
  std::unique_ptr<LogProducer> producer_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<Reader>> readers_;
};

TEST_P(LogContract, AnswersAPing) {
  const absl::Status status = log().Ping(std::chrono::milliseconds(10'000));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(LogContract, EnsuresTopicsTwiceAndRefusesAnotherCount) {
  const std::string topic = MakeTopic("a", 3);
  const absl::Status again = log().EnsureTopics({Spec(topic, 3)}, kAdminTimeout);
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(log().EnsureTopics({Spec(topic, 4)}, kAdminTimeout).code(),
            absl::StatusCode::kFailedPrecondition);
  const auto partitions = log().Partitions(topic, kAdminTimeout);
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  EXPECT_EQ(*partitions, 3);
  EXPECT_EQ(log().Partitions(Topic("none"), kAdminTimeout).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(LogContract, ReadsBackWhatWasAppendedInItsOrder) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  std::unique_ptr<LogProducer> producer = OpenProducer();
  std::vector<int64_t> offsets;
  for (int i = 0; i < 500; ++i) {
    AppendRecord record;
    record.topic = tp.topic;
    record.key = absl::StrCat("key ", i);
    record.value = absl::StrCat("value ", i, std::string("\0\xff", 2));
    if (i % 2 == 1) record.headers = {{"first", "1"}, {"empty", ""}, {"first", "again"}};
    if (i == 7) record.value.clear();
    ASSERT_TRUE(producer->Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      ASSERT_TRUE(offset.ok()) << offset.status();
      offsets.push_back(*offset);
    }));
    EXPECT_TRUE(offsets.size() <= static_cast<size_t>(i)) << "answered from inside the call";
  }
  producer->Flush();
  ASSERT_TRUE(Until([&] { return offsets.size() == 500; }));
  EXPECT_EQ(producer->pending(), 0u);
  for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(offsets[i], static_cast<int64_t>(i));

  Member& member = JoinNew(Options({tp.topic}));
  member.poll_records_max = 7;  // so that several polls must empty what one wake-up told of
  ASSERT_TRUE(Until([&] { return member.records.size() >= 500; }));
  ASSERT_EQ(member.records.size(), 500u);
  for (int i = 0; i < 500; ++i) {
    const SeenRecord& seen = member.records[static_cast<size_t>(i)];
    EXPECT_EQ(seen.tp, tp);
    EXPECT_EQ(seen.offset, i);
    EXPECT_EQ(seen.key, absl::StrCat("key ", i));
    EXPECT_EQ(seen.value, i == 7 ? "" : absl::StrCat("value ", i, std::string("\0\xff", 2)));
    EXPECT_EQ(seen.headers.size(), i % 2 == 1 ? 3u : 0u);
    if (i % 2 == 1) {
      EXPECT_EQ(seen.headers[0], std::make_pair(std::string("first"), std::string("1")));
      EXPECT_EQ(seen.headers[1], std::make_pair(std::string("empty"), std::string()));
      EXPECT_EQ(seen.headers[2], std::make_pair(std::string("first"), std::string("again")));
    }
    EXPECT_GT(MillisSinceEpoch(seen.timestamp), 1'600'000'000'000);
  }
}

TEST_P(LogContract, RefusesAppendsWhenFullAndCallsWhenHalfIsFree) {
  const std::string topic = MakeTopic("a", 1);
  ProducerOptions options;
  options.queue_records_max = 10;
  std::unique_ptr<LogProducer> producer = OpenProducer(options);
  size_t answered = 0;
  size_t pending_at_room = 1'000;
  int rooms = 0;
  producer->SetRoomCallback([&] {
    ++rooms;
    pending_at_room = producer->pending();
  });
  const auto append = [&] {
    AppendRecord record;
    record.topic = topic;
    record.value = "v";
    const bool taken = producer->Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      EXPECT_TRUE(offset.ok()) << offset.status();
      ++answered;
    });
    if (!taken) {
      // NOLINTNEXTLINE(bugprone-use-after-move): a refused record is untouched.
      EXPECT_EQ(record.topic, topic);
      // NOLINTNEXTLINE(bugprone-use-after-move)
      EXPECT_EQ(record.value, "v");
    }
    return taken;
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(append()) << i;
  EXPECT_EQ(producer->pending(), 10u);
  EXPECT_FALSE(append());
  EXPECT_EQ(rooms, 0);
  ASSERT_TRUE(Until([&] { return rooms > 0; }));
  EXPECT_LE(pending_at_room, 5u);
  EXPECT_TRUE(append());
  ASSERT_TRUE(Until([&] { return answered == 11; }));
  EXPECT_EQ(rooms, 1) << "room is told once for each refusal";
}

TEST_P(LogContract, BoundsTheBytesThatWaitButTakesOneLargeRecord) {
  const std::string topic = MakeTopic("a", 1);
  ProducerOptions options;
  options.queue_bytes_max = 10'000;
  std::unique_ptr<LogProducer> producer = OpenProducer(options);
  size_t answered = 0;
  const auto append = [&](size_t bytes) {
    AppendRecord record;
    record.topic = topic;
    record.value = std::string(bytes, 'x');
    return producer->Append(std::move(record), [&](absl::StatusOr<int64_t>) { ++answered; });
  };
  EXPECT_TRUE(append(20'000));
  EXPECT_FALSE(append(1));
  ASSERT_TRUE(Until([&] { return answered == 1; }));
  EXPECT_TRUE(append(6'000));
  EXPECT_TRUE(append(4'000));
  EXPECT_FALSE(append(1));
  ASSERT_TRUE(Until([&] { return answered == 3; }));
}

TEST_P(LogContract, AnswersAnAppendThatCanNeverBeWritten) {
  const std::string topic = MakeTopic("a", 1);
  std::unique_ptr<LogProducer> producer = OpenProducer();
  std::vector<absl::Status> answers;
  const auto append = [&](int32_t partition, size_t bytes) {
    AppendRecord record;
    record.topic = topic;
    record.partition = partition;
    record.value = std::string(bytes, 'x');
    EXPECT_TRUE(producer->Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      answers.push_back(offset.status());
    }));
    EXPECT_TRUE(Until([&] { return !answers.empty(); }));
    const absl::Status answer = answers.empty() ? absl::UnknownError("none") : answers.back();
    answers.clear();
    return answer;
  };
  EXPECT_TRUE(append(0, 1).ok());
  EXPECT_EQ(append(5, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(append(0, 5'000'000).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(append(0, 1).ok());
}

TEST_P(LogContract, AnswersWhatIsPendingWhenTheProducerIsClosed) {
  const std::string topic = MakeTopic("a", 1);
  std::unique_ptr<LogProducer> producer = OpenProducer();
  int written = 0;
  int aborted = 0;
  for (int i = 0; i < 100; ++i) {
    AppendRecord record;
    record.topic = topic;
    record.value = "v";
    ASSERT_TRUE(producer->Append(std::move(record), [&](absl::StatusOr<int64_t> offset) {
      if (offset.ok()) {
        ++written;
      } else {
        EXPECT_EQ(offset.status().code(), absl::StatusCode::kAborted) << offset.status();
        ++aborted;
      }
    }));
  }
  producer.reset();
  EXPECT_EQ(written + aborted, 100);
  EXPECT_GT(aborted, 0);
}

TEST_P(LogContract, TellsTheEndOfAPartitionEachTimeItIsReached) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Member& member = JoinNew(Options({tp.topic}));
  ASSERT_TRUE(Until([&] { return member.ends.contains(tp); }));
  EXPECT_EQ(member.ends[tp], 0);
  Append(tp, 3);
  ASSERT_TRUE(Until([&] { return member.ends[tp] == 3; }));
  EXPECT_EQ(member.records.size(), 3u);
  Append(tp, 2);
  ASSERT_TRUE(Until([&] { return member.ends[tp] == 5; }));
  EXPECT_EQ(member.records.size(), 5u);
}

TEST_P(LogContract, StartsAtTheLogStartItsEndOrAnOffset) {
  const std::string topic = MakeTopic("a", 3);
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 10);
  Member& member = Add(Options({topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  ASSERT_EQ(member.assigned->partitions.size(), 3u);
  EXPECT_TRUE(member.records.empty());
  member.Start({{{topic, 0}, StartPosition::At::kLogStart, 0},
                {{topic, 1}, StartPosition::At::kLogEnd, 0},
                {{topic, 2}, StartPosition::At::kOffset, 4}});
  ASSERT_TRUE(Until([&] { return member.ends.size() == 3; }));
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 1);
  ASSERT_TRUE(Until([&] { return member.records.size() >= 11 + 1 + 7; }));
  EXPECT_EQ(member.RecordsOf({topic, 0}), 11u);
  EXPECT_EQ(member.RecordsOf({topic, 1}), 1u);
  EXPECT_EQ(member.RecordsOf({topic, 2}), 7u);
  for (const SeenRecord& seen : member.records) {
    const int64_t least[] = {0, 10, 4};
    EXPECT_GE(seen.offset, least[seen.tp.partition]);
  }
}

TEST_P(LogContract, LeavesUnreadWhatStartLeavesOutAndStillCommitsIt) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 0}, 5);
  Append({topic, 1}, 5);
  Member& member = Add(Options({topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  member.Start({{{topic, 1}, StartPosition::At::kLogStart, 0}});
  ASSERT_TRUE(Until([&] { return member.RecordsOf({topic, 1}) == 5; }));
  member.Commit({{{topic, 0}, {0, "kept"}}, {{topic, 1}, {5, "read"}}});
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  EXPECT_THAT(member.commit_statuses, testing::ElementsAre(absl::OkStatus(), absl::OkStatus()));
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(300)));
  EXPECT_EQ(member.RecordsOf({topic, 0}), 0u);
}

TEST_P(LogContract, KeepsCommitMetadataOfUpTo4096Bytes) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 10);
  std::string longest(kCommitMetadataBytesMax, 'm');
  longest[17] = '\n';
  {
    Member& member = JoinNew(Options({tp.topic}));
    member.commit_on_revoke = false;
    ASSERT_TRUE(Until([&] { return member.Owns(1); }));
    EXPECT_FALSE(member.assigned->partitions[0].committed.has_value());
    EXPECT_FALSE(member.assigned->group_has_commits);
    member.Commit({{tp, {4, longest}}});
    ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
    EXPECT_THAT(member.commit_statuses, testing::ElementsAre(absl::OkStatus()));
    member.Commit({{tp, {5, longest + "m"}}});
    ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
    ASSERT_EQ(member.commit_statuses.size(), 1u);
    EXPECT_EQ(member.commit_statuses[0].code(), absl::StatusCode::kInvalidArgument);
    LeaveAndWait(member);
  }
  Member& successor = JoinNew(Options({tp.topic}));
  ASSERT_TRUE(Until([&] { return successor.Owns(1); }));
  ASSERT_TRUE(successor.assigned->partitions[0].committed.has_value());
  EXPECT_EQ(successor.assigned->partitions[0].committed->offset, 4);
  EXPECT_EQ(successor.assigned->partitions[0].committed->metadata, longest);
  EXPECT_TRUE(successor.assigned->group_has_commits);
  successor.commit_on_revoke = false;
}

TEST_P(LogContract, TellsOfTheGroupsCommitsForOtherPartitions) {
  const TopicPartition old_tp{MakeTopic("old", 1), 0};
  const TopicPartition new_tp{MakeTopic("new", 1), 0};
  Member& first = JoinNew(Options({old_tp.topic}));
  ASSERT_TRUE(Until([&] { return first.Owns(1); }));
  first.Commit({{old_tp, {0, "x"}}});
  ASSERT_TRUE(Until([&] { return first.commits_outstanding == 0; }));
  LeaveAndWait(first);
  Member& second = JoinNew(Options({new_tp.topic}));
  ASSERT_TRUE(Until([&] { return second.Owns(1); }));
  EXPECT_EQ(second.assigned->partitions[0].tp, new_tp);
  EXPECT_FALSE(second.assigned->partitions[0].committed.has_value());
  EXPECT_TRUE(second.assigned->group_has_commits);
}

TEST_P(LogContract, SharesPartitionsAndHandsThemOverWithoutLossOrRepeat) {
  constexpr int32_t kPartitions = 6;
  constexpr int kRounds = 12;
  const std::string topic = MakeTopic("a", kPartitions);
  GroupLedger ledger;
  const auto join = [&]() -> Member& {
    Member& member = Add(Options({topic}), &ledger);
    member.claim = true;
    member.Join();
    return member;
  };
  int appended = 0;
  const auto append = [&] {
    for (int32_t partition = 0; partition < kPartitions; ++partition) Append({topic, partition}, 5);
    appended += kPartitions * 5;
  };
  Member& first = join();
  ASSERT_TRUE(Until([&] { return first.Owns(6); }));
  append();
  Member& second = join();
  ASSERT_TRUE(Until([&] { return first.Owns(3) && second.Owns(3); }));
  append();
  for (int round = 0; round < kRounds / 4; ++round) {
    Member& third = join();
    append();
    ASSERT_TRUE(Until([&] { return first.Owns(2) && second.Owns(2) && third.Owns(2); }));
    append();
    third.consumer().Leave([&third] { third.left = true; });
    append();
    ASSERT_TRUE(Until([&] { return third.left && first.Owns(3) && second.Owns(3); }));
    append();
  }
  LeaveAndWait(first);
  append();
  ASSERT_TRUE(
      Until([&] { return second.Owns(6) && ledger.seen.size() == static_cast<size_t>(appended); }));
  EXPECT_THAT(ledger.faults, testing::IsEmpty());
  for (const auto& [record, times] : ledger.seen) {
    EXPECT_EQ(times, 1) << record.first.ToString() << " at " << record.second;
  }
  EXPECT_EQ(first.losses + second.losses, 0);
}

TEST_P(LogContract, FencesAMemberThatTheGroupHasMovedOnFrom) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 10);
  Member& stalled = JoinNew(Options({tp.topic}));
  stalled.commit_on_revoke = false;
  ASSERT_TRUE(Until([&] { return stalled.Owns(1) && stalled.records.size() == 10; }));
  stalled.Freeze();
  Member& successor = JoinNew(Options({tp.topic}));
  ASSERT_TRUE(Until([&] { return successor.Owns(1); }));
  successor.Commit({{tp, {7, "successor"}}});
  ASSERT_TRUE(Until([&] { return successor.commits_outstanding == 0; }));

  // It does not know yet that it has lost everything.
  EXPECT_TRUE(stalled.reading);
  stalled.Commit({{tp, {3, "stalled"}}});
  stalled.Thaw();
  ASSERT_TRUE(Until([&] { return stalled.commits_outstanding == 0; }));
  ASSERT_EQ(stalled.commit_statuses.size(), 1u);
  EXPECT_EQ(stalled.commit_statuses[0].code(), absl::StatusCode::kAborted)
      << stalled.commit_statuses[0];
  // Which of the two depends on what its client heard of first.
  ASSERT_TRUE(Until([&] { return stalled.losses + stalled.revocations == 1; }));

  successor.commit_on_revoke = false;
  LeaveAndWait(successor);
  ASSERT_TRUE(Until([&] { return stalled.Owns(1); }));
  ASSERT_TRUE(stalled.assigned->partitions[0].committed.has_value());
  EXPECT_EQ(stalled.assigned->partitions[0].committed->offset, 7);
  EXPECT_EQ(stalled.assigned->partitions[0].committed->metadata, "successor");
}

TEST_P(LogContract, AbortsCommitsWhileNothingIsAssigned) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Member& member = JoinNew(Options({tp.topic}));
  member.commit_on_revoke = false;
  member.Commit({{tp, {1, "too early"}}});
  EXPECT_TRUE(member.commit_statuses.empty()) << "answered from inside the call";
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  ASSERT_EQ(member.commit_statuses.size(), 1u);
  EXPECT_EQ(member.commit_statuses[0].code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(Until([&] { return member.Owns(1); }));
  EXPECT_FALSE(member.assigned->partitions[0].committed.has_value());
}

TEST_P(LogContract, ExtendsTheLeaseByAcknowledgedCommitsOnly) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  const GroupOptions options = Options({tp.topic});
  const Clock& clock = environment_->loop().clock();
  Member& member = JoinNew(options);
  ASSERT_TRUE(Until([&] { return member.Owns(1); }));
  if (member.consumer().LeaseUntil() == MonotonicTime::max()) {
    // Nobody else can take over here, for as long as it lasts.
    ASSERT_TRUE(UntilClockPasses(2 * options.session_timeout));
    EXPECT_EQ(member.consumer().LeaseUntil(), MonotonicTime::max());
    EXPECT_TRUE(member.Owns(1));
    return;
  }
  EXPECT_LE(member.consumer().LeaseUntil(), clock.Now());

  const MonotonicTime before = clock.Now();
  member.Commit({{tp, {0, "a"}}});
  const MonotonicTime after = clock.Now();
  EXPECT_LE(member.consumer().LeaseUntil(), after) << "not acknowledged yet";
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  const MonotonicTime lease = member.consumer().LeaseUntil();
  const Duration span = options.session_timeout - std::chrono::seconds(1);
  EXPECT_GE(lease, before + span);
  EXPECT_LE(lease, after + span);

  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(200)));
  EXPECT_EQ(member.consumer().LeaseUntil(), lease) << "polling alone is no proof";
  member.Commit({{tp, {0, "a"}}});
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  EXPECT_GE(member.consumer().LeaseUntil(), lease + std::chrono::milliseconds(200));
}

TEST_P(LogContract, TrimsAndTellsWhoeverIsOutOfRange) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 10);
  const absl::Status trimmed = Trim(tp, 5);
  ASSERT_TRUE(trimmed.ok()) << trimmed;
  EXPECT_TRUE(Trim(tp, 5).ok()) << "again is nothing";
  EXPECT_EQ(Trim(tp, 11).code(), absl::StatusCode::kOutOfRange);
  const auto range = log().Offsets(tp, kAdminTimeout);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->begin, 5);
  EXPECT_EQ(range->end, 10);

  Member& member = Add(Options({tp.topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  member.Start({{tp, StartPosition::At::kOffset, 2}});
  ASSERT_TRUE(Until([&] { return member.out_of_range.contains(tp); }));
  EXPECT_EQ(member.out_of_range[tp], 5);
  EXPECT_TRUE(member.records.empty());
  member.out_of_range.clear();
  member.consumer().Restart(tp, 50);
  ASSERT_TRUE(Until([&] { return member.out_of_range.contains(tp); }));
  EXPECT_EQ(member.out_of_range[tp], 5);
  member.consumer().Restart(tp, 5);
  ASSERT_TRUE(Until([&] { return member.records.size() == 5; }));
  EXPECT_EQ(member.records.front().offset, 5);
  EXPECT_EQ(member.records.back().offset, 9);
}

TEST_P(LogContract, RestartsOnePartitionWithoutRepeatingAnother) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 0}, 10);
  Append({topic, 1}, 10);
  ASSERT_TRUE(Trim({topic, 0}, 5).ok());
  Member& member = Add(Options({topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  member.Start(
      {{{topic, 0}, StartPosition::At::kOffset, 1}, {{topic, 1}, StartPosition::At::kLogStart, 0}});
  ASSERT_TRUE(Until([&] {
    return member.out_of_range.contains({topic, 0}) && member.RecordsOf({topic, 1}) == 10;
  }));
  member.consumer().Restart({topic, 0}, 6);
  ASSERT_TRUE(Until([&] { return member.RecordsOf({topic, 0}) == 4; }));
  Append({topic, 0}, 1);
  Append({topic, 1}, 1);
  ASSERT_TRUE(Until([&] { return member.records.size() >= 10 + 4 + 2; }));
  EXPECT_EQ(member.RecordsOf({topic, 0}), 5u);
  EXPECT_EQ(member.RecordsOf({topic, 1}), 11u);
}

TEST_P(LogContract, LeavesAtOnceWithWhateverItHas) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 3);
  Member& reading = JoinNew(Options({tp.topic}));
  ASSERT_TRUE(Until([&] { return reading.records.size() == 3; }));
  LeaveAndWait(reading);
  EXPECT_EQ(reading.revocations, 1);
  EXPECT_FALSE(reading.assigned.has_value());

  // Well before the session of the one that left could expire.
  const MonotonicTime left = environment_->loop().clock().Now();
  Member& offered = Add(Options({tp.topic}));
  offered.start_by_itself = false;
  offered.Join();
  ASSERT_TRUE(Until([&] { return offered.assigned.has_value(); }));
  EXPECT_LT(environment_->loop().clock().Now() - left, std::chrono::seconds(5));
  ASSERT_TRUE(offered.assigned->partitions[0].committed.has_value());
  EXPECT_EQ(offered.assigned->partitions[0].committed->offset, 3);
  LeaveAndWait(offered);
  EXPECT_EQ(offered.revocations, 1);

  Member& early = JoinNew(Options({tp.topic}));
  LeaveAndWait(early);
  EXPECT_EQ(early.revocations, early.assignments);
}

TEST_P(LogContract, FindsNewTopicsByPatternAndSkipsExcludedPrefixes) {
  const std::string first = MakeTopic("source.a", 1);
  MakeTopic("source.own.b", 1);
  MakeTopic("source", 1);  // the pattern is for whole names
  GroupOptions options = Options({"^" + Topic("source[.].*")});
  options.excluded_prefixes = {Topic("source.own.")};
  options.strategy = AssignmentStrategy::kRoundRobin;
  Member& member = JoinNew(options);
  ASSERT_TRUE(Until([&] { return member.Owns(1); }));
  EXPECT_EQ(member.assigned->partitions[0].tp.topic, first);
  Append({first, 0}, 1);
  const std::string second = MakeTopic("source.c", 1);
  MakeTopic("source.own.d", 1);
  Append({second, 0}, 1);
  ASSERT_TRUE(Until([&] { return member.Owns(2); }));
  ASSERT_TRUE(Until([&] { return member.RecordsOf({second, 0}) == 1; }));
  for (const AssignedPartition& one : member.assigned->partitions) {
    EXPECT_TRUE(one.tp.topic == first || one.tp.topic == second) << one.tp.topic;
  }
  EXPECT_EQ(member.RecordsOf({first, 0}), 1u) << "handed over to itself with its commit";
}

TEST_P(LogContract, ReadsAnExemptTopicWithinAnExcludedPrefix) {
  const std::string other = MakeTopic("source.a", 1);
  const std::string exempt = MakeTopic("source.own.main", 1);
  MakeTopic("source.own.mai", 1);
  MakeTopic("source.own.main-2", 1);
  MakeTopic("source.own.moon", 1);
  MakeTopic("source.own.x", 1);
  MakeTopic("source.own", 1);
  GroupOptions options = Options({"^" + Topic("source[.].*")});
  options.excluded_prefixes = {Topic("source.own")};
  options.exempt_topics = {exempt};
  options.strategy = AssignmentStrategy::kRoundRobin;
  Member& member = JoinNew(options);
  ASSERT_TRUE(Until([&] { return member.Owns(2); }));
  for (const AssignedPartition& one : member.assigned->partitions) {
    EXPECT_TRUE(one.tp.topic == other || one.tp.topic == exempt) << one.tp.topic;
  }
  Append({exempt, 0}, 1);
  ASSERT_TRUE(Until([&] { return member.RecordsOf({exempt, 0}) == 1; }));
}

TEST_P(LogContract, GivesAMemberTooManyAnEmptyAssignment) {
  const std::string topic = MakeTopic("a", 1);
  Member& first = JoinNew(Options({topic}));
  ASSERT_TRUE(Until([&] { return first.Owns(1); }));
  Member& second = JoinNew(Options({topic}));
  ASSERT_TRUE(Until(
      [&] { return (first.Owns(1) && second.Owns(0)) || (first.Owns(0) && second.Owns(1)); }));
  Member& owner = first.Owns(1) ? first : second;
  Member& idle = first.Owns(1) ? second : first;
  LeaveAndWait(owner);
  ASSERT_TRUE(Until([&] { return idle.Owns(1); }));
}

TEST_P(LogContract, TellsATombstoneFromAnEmptyValue) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  EXPECT_TRUE(AppendOne(Record(tp, "k", "v")).ok());
  EXPECT_TRUE(AppendOne(Record(tp, "k", "")).ok());
  EXPECT_TRUE(AppendOne(Tombstone(tp, "k")).ok());
  AppendRecord with_header = Tombstone(tp, "k");
  with_header.headers = {{"h", "1"}};
  EXPECT_TRUE(AppendOne(std::move(with_header)).ok());
  AppendRecord empty_with_header = Record(tp, "k", "");
  empty_with_header.headers = {{"h", "1"}};
  EXPECT_TRUE(AppendOne(std::move(empty_with_header)).ok());
  Reader& reader = OpenReader();
  reader.Add(tp, StartPosition::At::kLogStart);
  Member& member = JoinNew(Options({tp.topic}));
  ASSERT_TRUE(Until([&] { return member.records.size() >= 5 && reader.records.size() >= 5; }));
  for (const auto* records : {&member.records, &reader.records}) {
    ASSERT_EQ(records->size(), 5u);
    const bool tombstones[] = {false, false, true, true, false};
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ((*records)[i].tombstone, tombstones[i]) << i;
      EXPECT_EQ((*records)[i].value, i == 0 ? "v" : "");
      EXPECT_EQ((*records)[i].key, "k");
      EXPECT_EQ((*records)[i].headers.size(), i >= 3 ? 1u : 0u);
    }
  }
}

TEST_P(LogContract, RefusesToAppendWhatSaysNothing) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  EXPECT_EQ(AppendOne(Record(tp, "", "")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AppendOne(Tombstone(tp, "")).status().code(), absl::StatusCode::kInvalidArgument);
  AppendRecord header_alone = Record(tp, "", "");
  header_alone.headers = {{"h", ""}};
  EXPECT_TRUE(AppendOne(std::move(header_alone)).ok());
}

TEST_P(LogContract, ReaderStartsAtTheLogStartItsEndOrAnOffset) {
  const std::string topic = MakeTopic("a", 3);
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 10);
  Reader& reader = OpenReader();
  reader.Add({topic, 0}, StartPosition::At::kLogStart);
  reader.Add({topic, 1}, StartPosition::At::kLogEnd);
  reader.Add({topic, 2}, StartPosition::At::kOffset, 4);
  ASSERT_TRUE(Until([&] { return reader.ends.size() == 3; }));
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 1);
  ASSERT_TRUE(Until([&] { return reader.records.size() >= 11 + 1 + 7; }));
  EXPECT_EQ(reader.OffsetsOf({topic, 0}).size(), 11u);
  EXPECT_THAT(reader.OffsetsOf({topic, 1}), testing::ElementsAre(10));
  EXPECT_THAT(reader.OffsetsOf({topic, 2}), testing::ElementsAre(4, 5, 6, 7, 8, 9, 10));
}

TEST_P(LogContract, ReaderTellsTheEndOnceForEachTimeItIsReached) {
  const std::string topic = MakeTopic("a", 2);
  const TopicPartition empty{topic, 0};
  const TopicPartition tp{topic, 1};
  Reader& reader = OpenReader();
  reader.Add(empty, StartPosition::At::kLogStart);
  reader.Add(tp, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.ends[empty].size() == 1 && reader.ends[tp].size() == 1; }));
  Append(tp, 3);
  ASSERT_TRUE(Until([&] { return reader.ends[tp].back() == 3; }));
  Append(tp, 2);
  ASSERT_TRUE(Until([&] { return reader.ends[tp].back() == 5; }));
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(300)));
  EXPECT_THAT(reader.ends[empty], testing::ElementsAre(0));
  EXPECT_EQ(reader.OffsetsOf(tp).size(), 5u);
  for (size_t i = 1; i < reader.ends[tp].size(); ++i) {
    EXPECT_LT(reader.ends[tp][i - 1], reader.ends[tp][i]);
  }
}

TEST_P(LogContract, ReaderTakesMorePartitionsAndLosesSomeWhileItReads) {
  constexpr int32_t kPartitions = 8;
  const std::string topic = MakeTopic("a", kPartitions);
  for (int32_t partition = 0; partition < kPartitions; ++partition) Append({topic, partition}, 50);
  Reader& reader = OpenReader();
  reader.poll_records_max = 7;
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(50)));
  // The next partition from inside a callback, in the middle of the one before.
  reader.on_record = [&](const SeenRecord& record) {
    const int32_t next = record.tp.partition + 1;
    if (record.offset == 20 && next < kPartitions) {
      reader.Add({topic, next}, StartPosition::At::kLogStart);
    }
  };
  reader.Add({topic, 0}, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.records.size() >= 50 * kPartitions; }));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 50; ++i) all.push_back(i);
  for (int32_t partition = 0; partition < kPartitions; ++partition) {
    EXPECT_EQ(reader.OffsetsOf({topic, partition}), all) << partition;
  }
  reader.on_record = nullptr;
  reader.records.clear();
  reader.reader().Remove({topic, 3});
  reader.reader().Remove({topic, 3});
  reader.reader().Remove({Topic("never.read"), 3});
  Append({topic, 3}, 5);
  Append({topic, 4}, 5);
  ASSERT_TRUE(Until([&] { return reader.records.size() >= 5; }));
  reader.Add({topic, 3}, StartPosition::At::kOffset, 49);
  ASSERT_TRUE(Until([&] { return reader.records.size() >= 11; }));
  EXPECT_THAT(reader.OffsetsOf({topic, 3}), testing::ElementsAre(49, 50, 51, 52, 53, 54));
  EXPECT_THAT(reader.OffsetsOf({topic, 4}), testing::ElementsAre(50, 51, 52, 53, 54));
}

TEST_P(LogContract, ReaderReadsAnewWhatIsAddedAgain) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 0}, 10);
  Append({topic, 1}, 10);
  Reader& reader = OpenReader();
  reader.Add({topic, 0}, StartPosition::At::kLogStart);
  reader.Add({topic, 1}, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.ends.size() == 2; }));
  EXPECT_EQ(reader.records.size(), 20u);
  reader.records.clear();
  reader.ends.clear();
  reader.Add({topic, 0}, StartPosition::At::kOffset, 8);
  ASSERT_TRUE(Until([&] { return reader.ends.contains({topic, 0}); }));
  EXPECT_THAT(reader.OffsetsOf({topic, 0}), testing::ElementsAre(8, 9));
  EXPECT_THAT(reader.OffsetsOf({topic, 1}), testing::IsEmpty());
}

TEST_P(LogContract, ReaderGoesOnFromTheLogStartOrEndWhenItsPositionIsOutside) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 0}, 10);
  Append({topic, 1}, 10);
  ASSERT_TRUE(Trim({topic, 0}, 6).ok());
  Reader& reader = OpenReader();
  reader.Add({topic, 0}, StartPosition::At::kOffset, 2);
  reader.Add({topic, 1}, StartPosition::At::kOffset, 30);
  ASSERT_TRUE(Until([&] { return reader.ends.size() == 2; }));
  EXPECT_THAT(reader.OffsetsOf({topic, 0}), testing::ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(reader.OffsetsOf({topic, 1}), testing::IsEmpty());
  Append({topic, 1}, 1);
  ASSERT_TRUE(Until([&] { return !reader.OffsetsOf({topic, 1}).empty(); }));
  EXPECT_THAT(reader.OffsetsOf({topic, 1}), testing::ElementsAre(10));
}

TEST_P(LogContract, ReaderWaitsForATopicThatIsMadeLater) {
  const std::string there = MakeTopic("there", 1);
  Append({there, 0}, 2);
  const TopicPartition later{Topic("later"), 0};
  Reader& reader = OpenReader();
  reader.Add(later, StartPosition::At::kLogStart);
  reader.Add({there, 0}, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.OffsetsOf({there, 0}).size() == 2; }));
  MakeTopic("later", 1);
  Append(later, 3);
  ASSERT_TRUE(Until([&] { return reader.OffsetsOf(later).size() == 3; }));
}

TEST_P(LogContract, ReaderReadsBesideAGroupAndAfterAnotherReader) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 5);
  Member& member = JoinNew(Options({tp.topic}));
  for (int i = 0; i < 2; ++i) {
    Reader& reader = OpenReader();
    reader.Add(tp, StartPosition::At::kLogStart);
    ASSERT_TRUE(Until([&] { return reader.ends[tp].size() == 1; }));
    EXPECT_EQ(reader.records.size(), 5u);
    reader.Close();
  }
  ASSERT_TRUE(Until([&] { return member.RecordsOf(tp) == 5; }));
  EXPECT_EQ(member.assignments, 1);
}

TEST_P(LogContract, RestartBeginsWhatStartLeftOut) {
  const std::string topic = MakeTopic("a", 3);
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 10);
  Member& member = Add(Options({topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  member.Start({{{topic, 0}, StartPosition::At::kLogStart, 0}});
  ASSERT_TRUE(Until([&] { return member.RecordsOf({topic, 0}) == 10; }));
  member.consumer().Restart({topic, 1}, 4);
  member.consumer().Restart({topic, 2}, 7);
  ASSERT_TRUE(Until([&] { return member.ends.size() == 3; }));
  EXPECT_EQ(member.RecordsOf({topic, 0}), 10u);
  EXPECT_EQ(member.RecordsOf({topic, 1}), 6u);
  EXPECT_EQ(member.RecordsOf({topic, 2}), 3u);
}

TEST_P(LogContract, RestartBeginsWhenStartLeftOutEverything) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 1}, 10);
  Member& member = Add(Options({topic}));
  member.start_by_itself = false;
  member.Join();
  ASSERT_TRUE(Until([&] { return member.assigned.has_value(); }));
  member.Start({});
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(50)));
  EXPECT_TRUE(member.records.empty());
  member.consumer().Restart({topic, 1}, 5);
  ASSERT_TRUE(Until([&] { return member.RecordsOf({topic, 1}) == 5; }));
}

TEST_P(LogContract, FindsTheOffsetForATime) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  const Clock& clock = environment_->loop().clock();
  Append(tp, 3);
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(20)));
  const WallTime between = clock.Wall();
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(20)));
  Append(tp, 2);
  ASSERT_TRUE(UntilClockPasses(std::chrono::milliseconds(20)));
  const auto offset = OffsetForTime(tp, between);
  ASSERT_TRUE(offset.ok()) << offset.status();
  EXPECT_EQ(*offset, 3);
  EXPECT_EQ(OffsetForTime(tp, WallTime()).value_or(-1), 0);
  EXPECT_EQ(OffsetForTime(tp, clock.Wall()).value_or(-1), 5) << "none is that late: the end";
  EXPECT_EQ(OffsetForTime({Topic("none"), 0}, between).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(LogContract, TellsWherePartitionsEnd) {
  const std::string a = MakeTopic("a", 2);
  const std::string b = MakeTopic("b", 1);
  Append({a, 1}, 3);
  Append({b, 0}, 5);
  EXPECT_THAT(Ends({{b, 0}, {a, 0}, {a, 1}}), ::testing::ElementsAre(5, 0, 3));
  EXPECT_THAT(Ends({}), ::testing::IsEmpty());
  EXPECT_THAT(Ends({{a, 1}, {Topic("none"), 0}, {b, 0}}),
              ::testing::ElementsAre(3, absl::nullopt, 5))
      << "one that is not there spoils no other";
}

TEST_P(LogContract, DescribesAGroupWithAndWithoutMembers) {
  const std::string topic = MakeTopic("a", 2);
  const std::vector<TopicPartition> both = {{topic, 0}, {topic, 1}};
  const GroupOptions options = Options({topic});
  const auto before = log().DescribeGroup(options.group, both, kAdminTimeout);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->members, 0);
  ASSERT_EQ(before->partitions.size(), 2u);
  EXPECT_FALSE(before->partitions[0].committed.has_value());
  Append({topic, 1}, 5);
  Member& member = JoinNew(options);
  member.commit_on_revoke = false;
  ASSERT_TRUE(Until([&] { return member.Owns(2); }));
  member.Commit({{{topic, 1}, {3, "note"}}});
  ASSERT_TRUE(Until([&] { return member.commits_outstanding == 0; }));
  const auto during = log().DescribeGroup(options.group, both, kAdminTimeout);
  ASSERT_TRUE(during.ok()) << during.status();
  EXPECT_EQ(during->members, 1);
  ASSERT_EQ(during->partitions.size(), 2u);
  EXPECT_EQ(during->partitions[0].tp, both[0]);
  EXPECT_FALSE(during->partitions[0].committed.has_value());
  EXPECT_EQ(during->partitions[1].tp, both[1]);
  EXPECT_EQ(during->partitions[1].committed, (CommittedPosition{3, "note"}));
  LeaveAndWait(member);
  const auto after = log().DescribeGroup(options.group, both, kAdminTimeout);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->members, 0);
  EXPECT_EQ(after->partitions[1].committed, (CommittedPosition{3, "note"}));
}

TEST_P(LogContract, ResetsAGroupOnlyWhileItHasNoMembers) {
  const std::string topic = MakeTopic("a", 2);
  Append({topic, 0}, 5);
  const GroupOptions options = Options({topic});
  const absl::Status fresh = log().ResetGroup(
      options.group, {{{topic, 0}, {2, "a"}}, {{topic, 1}, {0, ""}}}, kAdminTimeout);
  ASSERT_TRUE(fresh.ok()) << fresh;
  Member& member = JoinNew(options);
  member.commit_on_revoke = false;
  ASSERT_TRUE(Until([&] { return member.Owns(2); }));
  for (const AssignedPartition& one : member.assigned->partitions) {
    const bool first = one.tp.partition == 0;
    EXPECT_EQ(one.committed, (first ? CommittedPosition{2, "a"} : CommittedPosition{0, ""}));
  }
  EXPECT_EQ(log().ResetGroup(options.group, {{{topic, 0}, {4, "b"}}}, kAdminTimeout).code(),
            absl::StatusCode::kFailedPrecondition);
  LeaveAndWait(member);
  const absl::Status again =
      log().ResetGroup(options.group, {{{topic, 0}, {4, "b"}}}, kAdminTimeout);
  ASSERT_TRUE(again.ok()) << again;
  const auto state = log().DescribeGroup(options.group, {{topic, 0}, {topic, 1}}, kAdminTimeout);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->partitions[0].committed, (CommittedPosition{4, "b"}));
  EXPECT_EQ(state->partitions[1].committed, (CommittedPosition{0, ""}));
  EXPECT_EQ(log().ResetGroup(options.group, {{{Topic("none"), 0}, {4, "b"}}}, kAdminTimeout).code(),
            absl::StatusCode::kNotFound);
}

TEST_P(LogContract, DeletesATopicAndMakesItAnew) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  Append(tp, 3);
  const absl::Status deleted = log().DeleteTopic(tp.topic, kAdminTimeout);
  ASSERT_TRUE(deleted.ok()) << deleted;
  EXPECT_EQ(log().Partitions(tp.topic, kAdminTimeout).status().code(), absl::StatusCode::kNotFound);
  const absl::Status again = log().DeleteTopic(tp.topic, kAdminTimeout);
  EXPECT_TRUE(again.ok()) << again;
  MakeTopic("a", 2);
  const auto range = log().Offsets(tp, kAdminTimeout);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->end, 0);
}

TEST_P(LogContract, AcknowledgesNoAppendToAFrozenTopic) {
  const std::string topic = Topic("a");
  TopicSpec spec = Spec(topic, 3);
  spec.settings = {{"cleanup.policy", "compact"}};
  const absl::Status made = log().EnsureTopics({spec}, kAdminTimeout);
  ASSERT_TRUE(made.ok()) << made;
  const std::string other = MakeTopic("b", 1);
  for (int32_t partition = 0; partition < 3; ++partition) Append({topic, partition}, 3);
  const absl::Status frozen = log().FreezeTopic(topic, kAdminTimeout);
  ASSERT_TRUE(frozen.ok()) << frozen;
  for (int32_t partition = 0; partition < 3; ++partition) {
    EXPECT_EQ(AppendOne(Record({topic, partition}, "k", "v")).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(AppendOne(Tombstone({topic, partition}, "k")).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Append({other, 0}, 1).size(), 1u) << "other topics are as they were";
  const absl::Status again = log().FreezeTopic(topic, kAdminTimeout);
  EXPECT_TRUE(again.ok()) << again;
  Reader& reader = OpenReader();
  for (int32_t partition = 0; partition < 3; ++partition) {
    reader.Add({topic, partition}, StartPosition::At::kLogStart);
  }
  ASSERT_TRUE(Until([&] { return reader.ends.size() == 3; }));
  for (int32_t partition = 0; partition < 3; ++partition) {
    EXPECT_EQ(reader.OffsetsOf({topic, partition}).size(), 3u);
    const auto range = log().Offsets({topic, partition}, kAdminTimeout);
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ((reader.ends[{topic, partition}].back()), range->end);
  }
  EXPECT_EQ(log().FreezeTopic(Topic("none"), kAdminTimeout).code(), absl::StatusCode::kNotFound);
}

TEST_P(LogContract, KeepsEverythingThatWasAcknowledgedWhenATopicFreezesUnderLoad) {
  const TopicPartition tp{MakeTopic("a", 1), 0};
  std::unique_ptr<LogProducer> producer = OpenProducer();
  size_t acknowledged = 0;
  size_t refused = 0;
  const auto append = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(producer->Append(Record(tp, "k", "v"), [&](absl::StatusOr<int64_t> offset) {
        if (offset.ok()) {
          ++acknowledged;
        } else {
          EXPECT_EQ(offset.status().code(), absl::StatusCode::kFailedPrecondition)
              << offset.status();
          ++refused;
        }
      }));
    }
  };
  append(500);
  for (int i = 0; i < 5; ++i) environment_->Step();
  append(500);
  const absl::Status frozen = log().FreezeTopic(tp.topic, kAdminTimeout);
  ASSERT_TRUE(frozen.ok()) << frozen;
  const auto range = log().Offsets(tp, kAdminTimeout);
  ASSERT_TRUE(range.ok()) << range.status();
  append(10);
  ASSERT_TRUE(Until([&] { return acknowledged + refused == 1'010; }));
  EXPECT_GE(refused, 10u);
  Reader& reader = OpenReader();
  reader.Add(tp, StartPosition::At::kLogStart);
  ASSERT_TRUE(Until([&] { return reader.ends.contains(tp); }));
  EXPECT_EQ(reader.ends[tp].back(), range->end);
  EXPECT_EQ(reader.records.size(), acknowledged);
}

}  // namespace postrider::contract
