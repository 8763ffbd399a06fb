#include "core/state/savepoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/random.h"
#include "core/state/durable_state_reader.h"
#include "core/stream/blocking_reader.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/changelog.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/hole_map.h"
#include "core/stream/state_key.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/forwarding_log.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using std::chrono::hours;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kKeyGroups = 2;
constexpr uint16_t kHints = 2;    // a value that changes in place
constexpr uint16_t kBacklog = 3;  // a list

std::string Hint(const std::string& key) { return EncodeStateKey(kHints, key, ""); }
// The entry of the message at that offset.
std::string Message(int64_t offset) {
  return EncodeStateKey(kBacklog, "endpoint", absl::StrCat(offset));
}

using State = std::map<std::string, std::string>;  // identity to payload

// Two key groups whose messages stand at the offsets 0 to 29, and what a worker did with them.
class SavepointTest : public testing::Test {
 protected:
  SavepointTest() {
    log_.MakeTopic("dispatch", kKeyGroups);
    log_.MakeTopic("state", kKeyGroups);
    log_.MakeTopic("backlog", kKeyGroups);
    log_.MakeTopic("control", 1);
    pool_.pool = "default";
    pool_.group = "g";
    pool_.topic = "dispatch";
    pool_.changelogs = {"state", "backlog"};
    pool_.control_topic = "control";
    for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
      for (int offset = 0; offset < 30; ++offset) log_.Write({"dispatch", i}, "k", "message");
      Append("state", i, ChangelogKind::kMarker, 4, "");
      Append("backlog", i, ChangelogKind::kMarker, 4, "");
      Append("state", i, ChangelogKind::kPut, 4, Hint("waits"), "yes");
      for (const int64_t offset : {3, 7, 12}) {
        Append("backlog", i, ChangelogKind::kPut, 4, Message(offset), absl::StrCat("m", offset));
      }
      Commit(i, 10, {12}, 4);
    }
  }

  void Append(const std::string& topic, int32_t partition, ChangelogKind kind, uint64_t epoch,
              const std::string& identity, const std::string& payload = "") {
    ChangelogRecord record;
    record.kind = kind;
    record.epoch = epoch;
    record.identity = identity;
    record.payload = payload;
    EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
    AppendRecord append;
    append.topic = topic;
    append.partition = partition;
    append.key = std::move(encoded.key);
    append.tombstone = encoded.value.empty();
    append.value = std::move(encoded.value);
    auto writer = BlockingWriter::Open(log_, clock_, BlockingWriterOptions());
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->Append(std::move(append)));
    ASSERT_OK((*writer)->Flush());
  }
  void Commit(int32_t partition, int64_t offset, const std::vector<int64_t>& completed,
              uint64_t epoch, int64_t incarnation_ms = 77) {
    CommitMetadata metadata;
    metadata.epoch = epoch;
    metadata.incarnation_ms = incarnation_ms;
    for (const int64_t done : completed) metadata.completed.Append(done, done + 1);
    log_.SetCommitted("g", {"dispatch", partition},
                      {offset, EncodeCommitMetadata(metadata, offset).text});
  }
  // What a worker did after the savepoint: 3 was delivered, all below 20 were completed, two of
  // them by waiting, 22 above.
  void GoOn() {
    for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
      Append("backlog", i, ChangelogKind::kErase, 4, Message(3));
      Append("backlog", i, ChangelogKind::kPut, 4, Message(15), "m15");
      Append("backlog", i, ChangelogKind::kPut, 4, Message(18), "m18");
      Append("state", i, ChangelogKind::kPut, 4, Hint("waits"), "longer");
      Append("state", i, ChangelogKind::kPut, 4, Hint("later"), "new");
      Commit(i, 20, {22}, 4);
    }
  }

  State Read(const std::string& topic, int32_t partition) {
    State state;
    auto reader = BlockingReader::Open(log_, clock_, BlockingReaderOptions());
    EXPECT_OK(reader);
    DurableStateReader states(**reader, directory_.path());
    const int64_t end = log_.Offsets({topic, partition}, hours(1))->end;
    EXPECT_OK(states.Read({topic, partition}, end, [&](const DurableEntry& entry) {
      state[std::string(entry.identity)] = std::string(entry.payload);
      return absl::OkStatus();
    }));
    return state;
  }
  CommitMetadata Committed(int32_t partition, int64_t* offset) {
    const auto committed = log_.Committed("g", {"dispatch", partition});
    *offset = committed->offset;
    return *DecodeCommitMetadata(committed->metadata, committed->offset);
  }
  void ExpectRestored() {
    for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
      EXPECT_EQ(Read("state", i), (State{{Hint("waits"), "yes"}}));
      EXPECT_EQ(Read("backlog", i),
                (State{{Message(3), "m3"}, {Message(7), "m7"}, {Message(12), "m12"}}));
      int64_t offset = 0;
      const CommitMetadata metadata = Committed(i, &offset);
      EXPECT_EQ(offset, 10);
      EXPECT_GT(metadata.epoch, 4u);
      EXPECT_EQ(metadata.incarnation_ms, 77);
      OffsetSet completed;
      completed.Append(12, 13);
      EXPECT_EQ(metadata.completed, completed);
    }
    EXPECT_THAT(ReadControl(log_, clock_, "control")->restores, IsEmpty());
  }

  std::string Directory() const { return directory_.path() + "/savepoint"; }
  absl::StatusOr<SavepointManifest> Create() {
    CreateSavepointOptions options;
    options.directory = Directory();
    options.id = SavepointId({1, 2, 3});
    options.log_identity = {9};
    return CreateSavepoint(log_, clock_, pool_, options);
  }
  RestoreSavepointOptions RestoreOptions() const {
    RestoreSavepointOptions options;
    options.directory = Directory();
    options.writer = {8};
    return options;
  }
  absl::StatusOr<RestoreReport> Restore() {
    return RestoreSavepoint(log_, clock_, pool_, RestoreOptions());
  }

  // Everything that the log has, to see that nothing was changed.
  std::string Dump() {
    std::string text;
    for (const char* topic : {"dispatch", "state", "backlog", "control"}) {
      for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
        for (const auto& record : log_.Records({topic, i})) {
          absl::StrAppend(&text, topic, i, "@", record.offset, "=", record.key, record.value, "\n");
        }
        const auto committed = log_.Committed("g", {"dispatch", i});
        if (committed) absl::StrAppend(&text, committed->offset, committed->metadata, "\n");
      }
    }
    return text;
  }
  void ExpectRefused(absl::StatusCode code, const std::string& why) {
    const std::string before = Dump();
    EXPECT_THAT(Restore(), tests::StatusIs(code, HasSubstr(why)));
    EXPECT_TRUE(Dump() == before) << "something was changed";
  }

  ManualClock clock_;
  MemoryLog log_{clock_};
  SavepointPool pool_;
  tests::TemporaryDirectory directory_;
};

TEST_F(SavepointTest, BringsBackStateAndPositions) {
  ASSERT_OK_AND_ASSIGN(const SavepointManifest made, Create());
  EXPECT_EQ(made.entries(), 4 * kKeyGroups);
  EXPECT_THAT(VerifySavepoint(Directory()), tests::IsOkAndHolds(made));
  EXPECT_THAT(InspectSavepoint(Directory()), tests::IsOkAndHolds(made));
  GoOn();
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, Restore());
  ExpectRestored();
  EXPECT_EQ(report.entries_put, 4 * kKeyGroups);
  EXPECT_EQ(report.entries_deleted, 3 * kKeyGroups);
  EXPECT_EQ(report.lost_max, 0u);
  // 10, 11, 13 to 19 and 22 were completed since; 3 was delivered out of the backlog.
  EXPECT_EQ(report.repeated_max, (10 + 1) * kKeyGroups);
}

TEST_F(SavepointTest, ChangesNothingWhenNothingHasHappenedSince) {
  ASSERT_OK(Create());
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, Restore());
  ExpectRestored();
  EXPECT_EQ(report.repeated_max, 0u);
  EXPECT_EQ(report.entries_deleted, 0u);
}

TEST_F(SavepointTest, LeavesOutWhatIsRemovedSupersededOrFenced) {
  Append("backlog", 0, ChangelogKind::kMarker, 5, "");
  Append("backlog", 0, ChangelogKind::kPut, 5, Message(7), "m7 again");
  Append("backlog", 0, ChangelogKind::kPut, 4, Message(14), "fenced");
  Append("backlog", 0, ChangelogKind::kDelete, 4, Message(3), "");
  Append("state", 0, ChangelogKind::kClear, 4, Hint("waits"));
  ASSERT_OK(Create());
  GoOn();
  ASSERT_OK(Restore());
  EXPECT_EQ(Read("backlog", 0), (State{{Message(7), "m7 again"}, {Message(12), "m12"}}));
  EXPECT_THAT(Read("state", 0), IsEmpty());
}

TEST_F(SavepointTest, CarriesValuesOfAnySize) {
  const std::string large(900'000, 'v');
  for (int i = 0; i < 3; ++i) {
    Append("backlog", 0, ChangelogKind::kPut, 4, Message(100 + i), large + absl::StrCat(i));
  }
  Append("backlog", 0, ChangelogKind::kPut, 4, Message(200), "");
  const State before = Read("backlog", 0);
  EXPECT_EQ(before.size(), 7u);
  ASSERT_OK(Create());
  for (int i = 0; i < 3; ++i) Append("backlog", 0, ChangelogKind::kErase, 4, Message(100 + i));
  ASSERT_OK(Restore());
  EXPECT_TRUE(Read("backlog", 0) == before);
}

TEST_F(SavepointTest, IsTheSameOverACompactedLog) {
  GoOn();
  for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
    log_.Compact({"state", i}, MemoryLog::Tombstones::kDrop);
    log_.Compact({"backlog", i}, MemoryLog::Tombstones::kDrop);
  }
  const State before = Read("backlog", 0);
  EXPECT_EQ(before.size(), 4u);
  ASSERT_OK(Create());
  Append("backlog", 0, ChangelogKind::kErase, 4, Message(18));
  log_.Compact({"backlog", 0}, MemoryLog::Tombstones::kDrop);
  ASSERT_OK(Restore());
  log_.Compact({"backlog", 0}, MemoryLog::Tombstones::kDrop);
  EXPECT_EQ(Read("backlog", 0), before);
}

TEST_F(SavepointTest, FencesWhatAWorkerOfBeforeWritesLate) {
  ASSERT_OK(Create());
  GoOn();
  ASSERT_OK(Restore());
  Append("backlog", 0, ChangelogKind::kPut, 4, Message(19), "late");
  Append("state", 0, ChangelogKind::kPut, 4, Hint("waits"), "late");
  ExpectRestored();
}

TEST_F(SavepointTest, RaisesTheEpochAboveTheChangelogsWhenTheGroupHasForgottenIt) {
  ASSERT_OK(Create());
  GoOn();
  Append("backlog", 1, ChangelogKind::kMarker, 40, "");
  Append("backlog", 1, ChangelogKind::kPut, 40, Message(21), "m21");
  ASSERT_OK(Restore());
  ExpectRestored();
  int64_t offset = 0;
  EXPECT_EQ(Committed(0, &offset).epoch, 5u);
  EXPECT_EQ(Committed(1, &offset).epoch, 41u);
}

TEST_F(SavepointTest, CanBeRestoredAgainAndOverAnotherOne) {
  ASSERT_OK(Create());
  GoOn();
  ASSERT_OK(Restore());
  ASSERT_OK(Restore());
  ExpectRestored();
}

TEST_F(SavepointTest, TakesTheLogsStartOfAKeyGroupWithoutACommit) {
  log_.MakeTopic("fresh", 1);
  log_.MakeTopic("fresh.state", 1);
  log_.TrimNow({"dispatch", 0}, 0);
  pool_.topic = "fresh";
  pool_.changelogs = {"fresh.state"};
  pool_.group = "fresh";
  ASSERT_OK_AND_ASSIGN(const SavepointManifest made, Create());
  EXPECT_FALSE(made.key_groups[0].committed);
  EXPECT_EQ(made.key_groups[0].offset, 0);
  ASSERT_OK(Restore());
  EXPECT_EQ(log_.Committed("fresh", {"fresh", 0})->offset, 0);
}

// --- Under load ----------------------------------------------------------------------------------

// A log on which something else happens before each call.
class BusyLog final : public ForwardingLog {
 public:
  BusyLog(Log& log, std::function<void()> meanwhile)
      : ForwardingLog(log), meanwhile_(std::move(meanwhile)) {}

  absl::StatusOr<std::unique_ptr<LogProducer>> OpenProducer(
      EventLoop& loop, const ProducerOptions& options) override {
    meanwhile_();
    return ForwardingLog::OpenProducer(loop, options);
  }
  absl::StatusOr<std::unique_ptr<PartitionReader>> OpenReader(EventLoop& loop,
                                                              const ReaderOptions& options,
                                                              ReadHandler& handler) override {
    meanwhile_();
    return ForwardingLog::OpenReader(loop, options, handler);
  }
  absl::StatusOr<int32_t> Partitions(const std::string& topic,
                                     std::chrono::milliseconds timeout) override {
    meanwhile_();
    return ForwardingLog::Partitions(topic, timeout);
  }
  absl::StatusOr<Range> Offsets(const TopicPartition& tp,
                                std::chrono::milliseconds timeout) override {
    meanwhile_();
    return ForwardingLog::Offsets(tp, timeout);
  }
  absl::StatusOr<GroupState> DescribeGroup(const std::string& group,
                                           const std::vector<TopicPartition>& partitions,
                                           std::chrono::milliseconds timeout) override {
    meanwhile_();
    return ForwardingLog::DescribeGroup(group, partitions, timeout);
  }

 private:
  const std::function<void()> meanwhile_;
};

// One key group's worker: each message waits, is parked, is delivered; commits come between.
struct Worker {
  enum class At { kUnread, kParked, kDone };
  std::vector<At> messages = std::vector<At>(30, At::kUnread);
  std::set<int64_t> completed;
};

TEST_F(SavepointTest, HasEveryMessageThatWasNotDoneWhateverHappensMeanwhile) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const std::string topic = absl::StrCat("dispatch", seed);
    const std::string backlog = absl::StrCat("backlog", seed);
    pool_.topic = topic;
    pool_.changelogs = {backlog};
    log_.MakeTopic(topic, 3);
    log_.MakeTopic(backlog, 3);
    std::vector<Worker> workers(3);
    for (int32_t i = 0; i < 3; ++i) {
      for (int n = 0; n < 30; ++n) log_.Write({topic, i}, "k", "message");
    }
    const auto act = [&] {
      for (uint64_t acts = random.Below(12); acts > 0; --acts) {
        const auto i = static_cast<int32_t>(random.Below(3));
        Worker& worker = workers[static_cast<size_t>(i)];
        const auto offset = static_cast<int64_t>(random.Below(30));
        Worker::At& at = worker.messages[static_cast<size_t>(offset)];
        if (at == Worker::At::kUnread) {
          // Delivered at once, or durable in the backlog.
          const bool park = random.Below(2) == 0;
          if (park) Append(backlog, i, ChangelogKind::kPut, 4, Message(offset), "m");
          at = park ? Worker::At::kParked : Worker::At::kDone;
          worker.completed.insert(offset);
        } else if (at == Worker::At::kParked && random.Below(3) == 0) {
          Append(backlog, i, ChangelogKind::kErase, 4, Message(offset));
          at = Worker::At::kDone;
        }
        if (random.Below(4) > 0) continue;
        int64_t watermark = 0;
        while (worker.completed.contains(watermark)) ++watermark;
        const auto above = worker.completed.lower_bound(watermark);
        CommitMetadata metadata;
        metadata.epoch = 4;
        for (auto it = above; it != worker.completed.end(); ++it) {
          metadata.completed.Append(*it, *it + 1);
        }
        log_.SetCommitted("g", {topic, i},
                          {watermark, EncodeCommitMetadata(metadata, watermark).text});
      }
    };
    BusyLog busy(log_, act);
    CreateSavepointOptions options;
    options.directory = absl::StrCat(directory_.path(), "/", seed);
    options.id = SavepointId({1});
    ASSERT_OK(CreateSavepoint(busy, clock_, pool_, options));
    const std::vector<Worker> then = workers;
    for (int more = 0; more < 20; ++more) act();
    RestoreSavepointOptions restore = RestoreOptions();
    restore.directory = options.directory;
    ASSERT_OK(RestoreSavepoint(log_, clock_, pool_, restore));
    for (int32_t i = 0; i < 3; ++i) {
      const State state = Read(backlog, i);
      const auto committed = log_.Committed("g", {topic, i});
      const auto metadata = DecodeCommitMetadata(committed->metadata, committed->offset);
      ASSERT_TRUE(metadata);
      for (int64_t offset = 0; offset < 30; ++offset) {
        if (then[static_cast<size_t>(i)].messages[static_cast<size_t>(offset)] ==
            Worker::At::kDone) {
          continue;
        }
        const bool read_again =
            offset >= committed->offset && !metadata->completed.Contains(offset);
        EXPECT_TRUE(read_again || state.contains(Message(offset))) << i << " " << offset;
      }
    }
  }
}

// --- Crashes -------------------------------------------------------------------------------------

// The messages that were not done when the restore began.
const std::set<int64_t> kWaiting = {7, 12, 15, 18};

TEST_F(SavepointTest, LosesNothingAndComesToTheSameEndAfterACrashAtAnyStep) {
  int crashes = 0;
  for (int crash_at = 0;; ++crash_at) {
    SCOPED_TRACE(crash_at);
    // A fresh world for each.
    std::filesystem::remove_all(Directory());
    log_.DeleteTopic("dispatch");
    log_.DeleteTopic("state");
    log_.DeleteTopic("backlog");
    log_.DeleteTopic("control");
    log_.MakeTopic("dispatch", kKeyGroups);
    log_.MakeTopic("state", kKeyGroups);
    log_.MakeTopic("backlog", kKeyGroups);
    log_.MakeTopic("control", 1);
    for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
      for (int offset = 0; offset < 30; ++offset) log_.Write({"dispatch", i}, "k", "message");
      Append("state", i, ChangelogKind::kPut, 4, Hint("waits"), "yes");
      for (const int64_t offset : {3, 7, 12}) {
        Append("backlog", i, ChangelogKind::kPut, 4, Message(offset), absl::StrCat("m", offset));
      }
      Commit(i, 10, {12}, 4);
    }
    ASSERT_OK(Create());
    GoOn();
    RestoreSavepointOptions options = RestoreOptions();
    int step = 0;
    options.before_step = [&] {
      return step++ == crash_at ? absl::AbortedError("crash") : absl::OkStatus();
    };
    const auto crashed = RestoreSavepoint(log_, clock_, pool_, options);
    if (crashed.ok()) {
      ExpectRestored();
      break;
    }
    ++crashes;
    EXPECT_THAT(crashed, tests::StatusIs(absl::StatusCode::kAborted));
    const bool began = crash_at > 0;
    EXPECT_EQ(ReadControl(log_, clock_, "control")->restores.contains("default"), began);
    if (began) {
      EXPECT_THAT(crashed.status().message(), HasSubstr("run it again"));
    }
    // Even if workers went on from here, each message that was not done is somewhere.
    for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
      const State backlog = Read("backlog", i);
      int64_t committed = 0;
      const CommitMetadata metadata = Committed(i, &committed);
      for (const int64_t offset : kWaiting) {
        const bool read_again = offset >= committed && !metadata.completed.Contains(offset);
        EXPECT_TRUE(read_again || backlog.contains(Message(offset))) << i << " " << offset;
      }
    }
    ASSERT_OK_AND_ASSIGN(const RestoreReport report, Restore());
    ExpectRestored();
    EXPECT_GE(report.repeated_max, (10 + 1) * kKeyGroups);
    EXPECT_LE(report.repeated_max, (10 + 3) * kKeyGroups);
  }
  EXPECT_GT(crashes, 15);
}

TEST_F(SavepointTest, MayBeAbandonedInTheMiddle) {
  ASSERT_OK(Create());
  GoOn();
  RestoreSavepointOptions options = RestoreOptions();
  int step = 0;
  options.before_step = [&] {
    return step++ == 4 ? absl::AbortedError("crash") : absl::OkStatus();
  };
  ASSERT_FALSE(RestoreSavepoint(log_, clock_, pool_, options).ok());
  EXPECT_EQ(ReadControl(log_, clock_, "control")->restores.size(), 1u);
  EXPECT_OK(AbandonRestore(log_, clock_, "control", "default"));
  EXPECT_THAT(ReadControl(log_, clock_, "control")->restores, IsEmpty());
  EXPECT_THAT(AbandonRestore(log_, clock_, "control", "default"),
              tests::StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SavepointTest, NoticesAWorkerThatRanMeanwhile) {
  ASSERT_OK(Create());
  GoOn();
  RestoreSavepointOptions options = RestoreOptions();
  int step = 0;
  options.before_step = [&] {
    if (step++ == 5) Commit(1, 11, {}, 9);
    return absl::OkStatus();
  };
  EXPECT_THAT(RestoreSavepoint(log_, clock_, pool_, options),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("a worker of the pool was running")));
  EXPECT_EQ(ReadControl(log_, clock_, "control")->restores.size(), 1u);
}

TEST_F(SavepointTest, IsNotMadeOfAPoolThatIsBeingRestored) {
  RestoreMark mark;
  mark.pool = "default";
  log_.Write({"control", 0}, RestoreMarkKey("default"), EncodeRestoreMark(mark));
  EXPECT_THAT(Create(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("being restored")));
}

TEST_F(SavepointTest, LeavesNoHoldAndNoSavepointWhenItCannotBeMade) {
  log_.Write({"backlog", 1}, "no record", "of ours");
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("backlog/1")));
  EXPECT_THAT(*ListSavepoints(log_, clock_, "control"), IsEmpty());
  EXPECT_THAT(VerifySavepoint(Directory()),
              tests::StatusIs(absl::StatusCode::kNotFound, HasSubstr("never finished")));
  ExpectRefused(absl::StatusCode::kNotFound, "never finished");
}

// --- Holds ---------------------------------------------------------------------------------------

TEST_F(SavepointTest, HoldsItsPositionsUntilItIsDroppedOrExpires) {
  ASSERT_OK_AND_ASSIGN(const SavepointManifest made, Create());
  const auto held = [&](int32_t partition, WallTime now) {
    return ReadControl(log_, clock_, "control")
        ->holds.LowestHeld("g", {"dispatch", partition}, now);
  };
  EXPECT_EQ(held(0, clock_.Wall()), 10);
  EXPECT_EQ(held(1, clock_.Wall() + hours(23)), 10);
  EXPECT_EQ(held(1, clock_.Wall() + hours(24)), absl::nullopt);
  ASSERT_OK_AND_ASSIGN(const auto listed, ListSavepoints(log_, clock_, "control"));
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].id, made.id);
  EXPECT_EQ(listed[0].pool, "default");
  EXPECT_EQ(listed[0].expires, clock_.Wall() + hours(24));
  EXPECT_OK(DropSavepoint(log_, clock_, "control", made.id));
  EXPECT_EQ(held(0, clock_.Wall()), absl::nullopt);
  EXPECT_THAT(DropSavepoint(log_, clock_, "control", made.id),
              tests::StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SavepointTest, IsNotMadeOverATrimThatCameFirst) {
  log_.TrimNow({"dispatch", 1}, 11);
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("below the log's start")));
  EXPECT_THAT(*ListSavepoints(log_, clock_, "control"), IsEmpty());
}

TEST_F(SavepointTest, IsFollowedByWorkers) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock_));
  int changes = 0;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<ControlFollower> follower,
                       ControlFollower::Open(log_, *loop, "control", [&] { ++changes; }));
  // Nothing is known yet: nothing may be trimmed.
  EXPECT_EQ(follower->state(), nullptr);
  EXPECT_EQ(follower->TrimLimit("g", {"dispatch", 0}), 0);
  while (changes == 0) loop->RunOnce(std::chrono::milliseconds(10));
  EXPECT_EQ(follower->TrimLimit("g", {"dispatch", 0}), absl::nullopt);
  ASSERT_OK_AND_ASSIGN(const SavepointManifest made, Create());
  while (follower->TrimLimit("g", {"dispatch", 0}) != absl::optional<int64_t>(10)) {
    loop->RunOnce(std::chrono::milliseconds(10));
  }
  clock_.Advance(hours(24));
  EXPECT_EQ(follower->TrimLimit("g", {"dispatch", 0}), absl::nullopt);
}

// --- What is refused -----------------------------------------------------------------------------

TEST_F(SavepointTest, RefusesADirectoryThatIsNotEmpty) {
  ASSERT_OK(Create());
  EXPECT_THAT(Create(),
              tests::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not empty")));
}

TEST_F(SavepointTest, RefusesAPoolThatIsRunning) {
  ASSERT_OK(Create());
  GoOn();
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock_));
  struct Handler final : GroupHandler {
    void OnAssigned(Assignment) override {}
    void OnRevoked() override {}
    void OnLost() override {}
    void OnRecord(const LogRecord&) override {}
    void OnPartitionEnd(const TopicPartition&, int64_t) override {}
    void OnOutOfRange(const TopicPartition&, int64_t) override {}
    void OnReachable(bool) override {}
  } handler;
  GroupOptions group;
  group.group = "g";
  group.topics = {"dispatch"};
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<GroupConsumer> member,
                       log_.JoinGroup(*loop, group, handler));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is running");
}

TEST_F(SavepointTest, RefusesAForeignOne) {
  ASSERT_OK(Create());
  GoOn();
  pool_.pool = "other";
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "of pool 'default'");
  pool_.pool = "default";
  pool_.group = "h";
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "another installation");
  pool_.group = "g";
  log_.Write({"control", 0}, LogIdentityKey(), EncodeLogIdentity({7}));
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "another Kafka cluster");
}

TEST_F(SavepointTest, RefusesOneOfAnotherNumberOfKeyGroups) {
  ASSERT_OK(Create());
  for (const char* topic : {"dispatch", "state", "backlog"}) {
    log_.DeleteTopic(topic);
    log_.MakeTopic(topic, 3);
  }
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "2 key groups");
}

TEST_F(SavepointTest, RefusesATopicThatWasMadeAnew) {
  ASSERT_OK(Create());
  Commit(1, 20, {}, 4, /*incarnation_ms=*/78);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "made anew");
  log_.DeleteTopic("dispatch");
  log_.MakeTopic("dispatch", kKeyGroups);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "past the log's end");
}

TEST_F(SavepointTest, RefusesAGroupWithoutPositionsUnlessItIsToldTo) {
  ASSERT_OK(Create());
  log_.DeleteTopic("dispatch");
  log_.MakeTopic("dispatch", kKeyGroups);
  for (int32_t i = 0; i < static_cast<int32_t>(kKeyGroups); ++i) {
    for (int offset = 0; offset < 30; ++offset) log_.Write({"dispatch", i}, "k", "message");
  }
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has no position");
  RestoreSavepointOptions options = RestoreOptions();
  options.accept_loss = true;
  EXPECT_OK(RestoreSavepoint(log_, clock_, pool_, options));
  ExpectRestored();
}

TEST_F(SavepointTest, RefusesWhatTheLogDoesNotHaveAnyMoreUnlessItIsToldTo) {
  ASSERT_OK(Create());
  GoOn();
  log_.TrimNow({"dispatch", 1}, 10);
  log_.TrimNow({"dispatch", 0}, 15);
  // 12 is in the backlog.
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "offsets 10 to 14 are gone, at most 4");
  RestoreSavepointOptions options = RestoreOptions();
  options.accept_loss = true;
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, RestoreSavepoint(log_, clock_, pool_, options));
  EXPECT_EQ(report.lost_max, 4u);
  int64_t offset = 0;
  EXPECT_TRUE(Committed(0, &offset).completed.empty());
  EXPECT_EQ(offset, 15);
  EXPECT_EQ(Committed(1, &offset).completed.size(), 1);
  EXPECT_EQ(offset, 10);
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_F(SavepointTest, RefusesOneThatIsDamagedAnywhere) {
  ASSERT_OK(Create());
  GoOn();
  for (const char* name : {"manifest", "0-00000", "1-00001"}) {
    const std::string path = absl::StrCat(Directory(), "/", name);
    const std::string bytes = ReadAll(path);
    ASSERT_FALSE(bytes.empty());
    for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x40);
      WriteAll(path, changed);
      ExpectRefused(absl::StatusCode::kDataLoss, name);
      WriteAll(path, bytes.substr(0, at));
      ExpectRefused(absl::StatusCode::kDataLoss, name);
    }
    WriteAll(path, bytes + "x");
    ExpectRefused(absl::StatusCode::kDataLoss, name);
    WriteAll(path, bytes);
    EXPECT_OK(VerifySavepoint(Directory()));
  }
  std::filesystem::remove(Directory() + "/1-00000");
  ExpectRefused(absl::StatusCode::kDataLoss, "missing");
}

TEST_F(SavepointTest, RefusesFilesThatChangedPlaces) {
  Append("backlog", 1, ChangelogKind::kPut, 4, Message(9), "m9");
  ASSERT_OK(Create());
  std::filesystem::rename(Directory() + "/1-00000", Directory() + "/x");
  std::filesystem::rename(Directory() + "/1-00001", Directory() + "/1-00000");
  std::filesystem::rename(Directory() + "/x", Directory() + "/1-00001");
  ExpectRefused(absl::StatusCode::kDataLoss, "not the file");
}

TEST_F(SavepointTest, RefusesOneOfANewerVersion) {
  ASSERT_OK(Create());
  const std::string path = Directory() + "/manifest";
  std::string bytes = ReadAll(path);
  bytes[20] = 2;
  WriteAll(path, bytes);
  ExpectRefused(absl::StatusCode::kUnimplemented, "newer version");
}

TEST_F(SavepointTest, SaysWhatIsMissing) {
  pool_.changelogs = {"state", "none"};
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("topic none does not exist")));
  pool_.changelogs = {"state", "backlog"};
  pool_.topic = "none";
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("there is no pool 'default'")));
  pool_.topic = "dispatch";
  pool_.control_topic = "none";
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("topic none does not exist")));
  log_.MakeTopic("odd", 3);
  pool_.control_topic = "control";
  pool_.changelogs = {"state", "odd"};
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("odd has 3 partitions")));
}

TEST_F(SavepointTest, SaysThatTheLogIsAway) {
  log_.SetReachable(false);
  EXPECT_THAT(Create(), tests::StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace postrider
