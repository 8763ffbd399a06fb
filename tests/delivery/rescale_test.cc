#include "delivery/rescale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/state/savepoint.h"
#include "core/stream/blocking_writer.h"
#include "core/stream/changelog.h"
#include "core/stream/control_follower.h"
#include "core/stream/control_record.h"
#include "core/stream/hole_map.h"
#include "core/stream/key_groups.h"
#include "core/stream/keyed_state.h"
#include "core/stream/operation.h"
#include "core/stream/state_key.h"
#include "delivery/backlog_state.h"
#include "delivery/batch.h"
#include "delivery/flight_result.h"
#include "delivery/outcome.h"
#include "delivery/parked_header.h"
#include "delivery/worker_role.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"
#include "tests/support/status_matchers.h"

namespace postrider::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using subscriptions::DispatchRecord;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Phase = PoolRecord::Phase;

constexpr int32_t kKeyGroups = 4;
constexpr char kDispatch[] = "p.dispatch.default";
constexpr char kState[] = "p.state.default";
constexpr char kBacklog[] = "p.backlog.default";

IdBytes Bytes(uint8_t first, uint8_t last) {
  IdBytes bytes{};
  bytes[0] = first;
  bytes[15] = last;
  return bytes;
}

// A pool of four key groups that was stopped with messages of many endpoints in all states: done,
// parked and never tried, parked in batches, and not begun.
class RescaleTest : public testing::Test {
 protected:
  RescaleTest() {
    pool_.topic_prefix = "p.";
    pool_.pool = "default";
    pool_.match_group = "p.match";
    pool_.holder = Bytes(1, 1);
    pool_.spool_directory = directory_.path();
    pool_.sleep = [this](Duration by) { clock_.Advance(by); };
    pool_.tell = [this](const std::string& line) { told_.push_back(line); };
    MakePool();
  }

  void MakePool() {
    log_.MakeTopic("p.control", 1);
    for (const char* topic : {kDispatch, kState, kBacklog}) log_.MakeTopic(topic, kKeyGroups);
    const auto writer = BlockingWriter::Open(log_, clock_, BlockingWriterOptions());
    // By key group: what its commit says to be done.
    std::map<int32_t, std::set<int64_t>> done;
    for (int round = 0; round < 8; ++round) {
      for (uint8_t endpoint = 1; endpoint <= 12; ++endpoint) {
        const DispatchRecord record = Record(endpoint, round);
        const std::string key = KeyOf(endpoint);
        const int32_t key_group = KeyGroupOf(key, 0, kKeyGroups);
        const int64_t offset =
            log_.Write({kDispatch, key_group}, key, subscriptions::EncodeDispatchRecord(record));
        const std::string name = absl::StrCat(endpoint, ":", round);
        if (round == 0) {  // delivered
          done[key_group].insert(offset);
          continue;
        }
        if (round == 7 || (round == 5 && endpoint % 3 == 0)) {  // not begun
          left_.insert(name);
          continue;
        }
        done[key_group].insert(offset);
        parked_.insert(name);
        const IdBytes digest = record.identity.Digest();
        Put(**writer, kBacklog, key_group, EncodeStateKey(kBacklogState, key, DigestBytes(digest)),
            kEntryVersion, subscriptions::EncodeDispatchRecord(record),
            static_cast<uint64_t>(offset));
        // Rounds 2, 3 and 6 of each endpoint were tried together.
        if (round == 2 || round == 3 || round == 6) {
          batches_[endpoint].push_back({static_cast<uint64_t>(offset), digest, 9});
        }
      }
    }
    for (auto& [endpoint, members] : batches_) {
      const std::string key = KeyOf(endpoint);
      const int32_t key_group = KeyGroupOf(key, 0, kKeyGroups);
      const std::string batch(DigestBytes(Bytes(7, endpoint)));
      // One that has ended meanwhile stays in the composition.
      std::vector<BatchMember> composition = members;
      composition.insert(composition.begin(), {0, Bytes(200, endpoint), 9});
      Put(**writer, kBacklog, key_group, EncodeStateKey(kBatchesState, key, batch), 1,
          BatchMembersSerializer().encode(composition, 1));
      Put(**writer, kBacklog, key_group, EncodeStateKey(kAttemptsState, key, batch), 1,
          BatchAttemptsSerializer().encode(Attempts(endpoint), 1));
      Put(**writer, kState, key_group, EncodeStateKey(kHasBacklogState, key, ""), 1, "\x01");
    }
    for (int32_t i = 0; i < kKeyGroups; ++i) Commit(i, done[i]);
  }

  static subscriptions::EndpointId EndpointOf(uint8_t endpoint) {
    return subscriptions::EndpointId(Bytes(9, endpoint));
  }
  // Some of them stand for a part of theirs.
  static uint32_t PartOf(uint8_t endpoint) { return endpoint > 9 ? endpoint - 9U : 0; }
  static std::string KeyOf(uint8_t endpoint) {
    return subscriptions::EncodeDispatchKey({EndpointOf(endpoint), PartOf(endpoint)});
  }
  DispatchRecord Record(uint8_t endpoint, int round) const {
    DispatchRecord record;
    record.identity.source_topic = "events.a";
    record.identity.source_offset = round;
    record.identity.endpoint = EndpointOf(endpoint);
    record.part = PartOf(endpoint);
    record.event_id = absl::StrCat(endpoint, ":", round);
    record.type = "a";
    record.tenant = "t";
    record.event_time = clock_.Wall();
    record.dispatch_time = clock_.Wall();
    record.data = "{}";
    return record;
  }
  static BatchAttempts Attempts(uint8_t endpoint) {
    BatchAttempts attempts;
    attempts.attempts = endpoint;
    attempts.tries = endpoint + 1;
    attempts.first_try = WallTimeFromMillis(1'000 + endpoint);
    attempts.due = WallTimeFromMillis(2'000 + endpoint);
    attempts.last_status = 503;
    return attempts;
  }
  static void Put(BlockingWriter& writer, const std::string& topic, int32_t partition,
                  const std::string& identity, uint32_t version, const std::string& bytes,
                  uint64_t order = 0) {
    StatePayload payload;
    payload.version = version;
    payload.order = order;
    payload.bytes = bytes;
    ChangelogRecord put;
    put.epoch = 3;
    put.identity = identity;
    put.payload = EncodeStatePayload(payload);
    EncodedChangelogRecord encoded = EncodeChangelogRecord(put);
    AppendRecord append;
    append.topic = topic;
    append.partition = partition;
    append.key = std::move(encoded.key);
    append.value = std::move(encoded.value);
    ASSERT_OK(writer.Append(std::move(append)));
    ASSERT_OK(writer.Flush());
  }
  void Commit(int32_t partition, const std::set<int64_t>& done) {
    int64_t watermark = 0;
    while (done.contains(watermark)) ++watermark;
    CommitMetadata metadata;
    metadata.epoch = 3;
    for (auto it = done.lower_bound(watermark); it != done.end(); ++it) {
      metadata.completed.Append(*it, *it + 1);
    }
    log_.SetCommitted("p.deliver.default", {kDispatch, partition},
                      {watermark, EncodeCommitMetadata(metadata, watermark).text});
  }

  absl::StatusOr<RescaleReport> Run(int32_t key_groups, bool keep_old = false) {
    return Rescale(log_, clock_, pool_, {key_groups, keep_old});
  }
  PoolRecord Pool() { return ReadControl(log_, clock_, "p.control")->pools.at("default"); }
  bool Exists(const std::string& topic) { return log_.Partitions(topic, hours(1)).ok(); }

  // All that the pool had left stands in the generation once, at its new place and in its order.
  void ExpectMoved(uint64_t generation, int32_t key_groups) {
    const std::string topic = absl::StrCat("p.dispatch.", GenerationName("default", generation));
    ASSERT_EQ(*log_.Partitions(topic, hours(1)), key_groups);
    std::set<std::string> parked;
    std::set<std::string> left;
    for (int32_t i = 0; i < key_groups; ++i) {
      std::map<uint8_t, std::vector<std::string>> order;
      for (const MemoryLog::StoredRecord& stored : log_.Records({topic, i})) {
        EXPECT_EQ(KeyGroupOf(stored.key, 0, key_groups), i);
        const auto record = subscriptions::DecodeDispatchRecord(stored.value);
        ASSERT_OK(record);
        const auto endpoint = static_cast<uint8_t>(record->identity.endpoint.view().back());
        EXPECT_EQ(stored.key, KeyOf(endpoint));
        order[endpoint].push_back(record->event_id);
        if (stored.headers.empty()) {
          EXPECT_TRUE(left.insert(record->event_id).second) << record->event_id;
          continue;
        }
        EXPECT_TRUE(parked.insert(record->event_id).second) << record->event_id;
        ASSERT_EQ(stored.headers.size(), 1u);
        EXPECT_EQ(stored.headers[0].first, kParkedHeader);
        const auto header = DecodeParkedHeader(stored.headers[0].second);
        ASSERT_OK(header);
        const char round = record->event_id.back();
        const bool tried = round == '2' || round == '3' || round == '6';
        ASSERT_EQ(header->batch.has_value(), tried) << record->event_id;
        if (!tried) continue;
        EXPECT_EQ(header->batch->key, Bytes(7, endpoint));
        EXPECT_EQ(header->batch->count, 3u);
        EXPECT_EQ(header->batch->index, round == '2' ? 0u : round == '3' ? 1u : 2u);
        EXPECT_EQ(header->batch->attempts, Attempts(endpoint));
      }
      for (const auto& [endpoint, ids] : order) {
        std::vector<std::string> want;
        // A batch stands together, where its first member stood.
        for (const int round : {1, 2, 3, 6, 4, 5, 7}) {
          want.push_back(absl::StrCat(endpoint, ":", round));
        }
        EXPECT_EQ(ids, want);
      }
    }
    EXPECT_EQ(parked, parked_);
    EXPECT_EQ(left, left_);
  }

  tests::TemporaryDirectory directory_;
  ManualClock clock_;
  MemoryLog log_{clock_};
  RescalePool pool_;
  std::vector<std::string> told_;
  std::set<std::string> parked_;  // event ids
  std::set<std::string> left_;
  std::map<uint8_t, std::vector<BatchMember>> batches_;
};

TEST_F(RescaleTest, MovesWhatIsLeftByTheNewHashAndRemovesTheOldTopics) {
  const auto report = Run(7);
  ASSERT_OK(report);
  EXPECT_TRUE(report->moved);
  EXPECT_EQ(report->key_groups_before, 4);
  EXPECT_EQ(report->generation, 2u);
  EXPECT_EQ(report->entries, parked_.size());
  EXPECT_EQ(report->left_over, left_.size());
  EXPECT_EQ(report->batches, 12u);
  EXPECT_THAT(report->removed, ElementsAre(kDispatch, kState, kBacklog));
  ExpectMoved(2, 7);
  for (const char* topic : {kDispatch, kState, kBacklog}) EXPECT_FALSE(Exists(topic)) << topic;
  EXPECT_EQ(*log_.Partitions("p.backlog.default.g2", hours(1)), 7);
  const PoolRecord pool = Pool();
  EXPECT_EQ(pool.phase, Phase::kSteady);
  EXPECT_EQ(pool.generation, 2u);
  EXPECT_EQ(pool.key_groups, 7);
  EXPECT_EQ(pool.generation_left, 0u);
}

TEST_F(RescaleTest, CarriesOverWhatIsKnownOfEndpointsAsAnOwnerBeforeTheFirstOneWouldHaveLeftIt) {
  const auto writer = BlockingWriter::Open(log_, clock_, BlockingWriterOptions());
  std::map<std::string, std::string> known;  // identity -> payload
  for (uint8_t endpoint = 1; endpoint <= 12; ++endpoint) {
    const std::string key(EndpointOf(endpoint).view());
    for (const uint16_t state : {kHealthState, kOperationalState, kLearnedState}) {
      const std::string identity = EncodeStateKey(state, key, "");
      StatePayload payload;
      payload.version = 1;
      const std::string value = absl::StrCat(endpoint, "/", state);
      payload.bytes = value;
      known[identity] = EncodeStatePayload(payload);
      Put(**writer, kState, KeyGroupOf(key, 0, kKeyGroups), identity, 1, value);
    }
  }
  const auto expect_known = [&](uint64_t generation, int32_t key_groups) {
    const std::string topic = absl::StrCat("p.state.", GenerationName("default", generation));
    std::map<std::string, std::string> found;
    for (int32_t i = 0; i < key_groups; ++i) {
      for (const MemoryLog::StoredRecord& stored : log_.Records({topic, i})) {
        const auto record = DecodeChangelogRecord(stored.key, stored.value);
        ASSERT_OK(record);
        EXPECT_EQ(record->kind, ChangelogKind::kPut);
        EXPECT_EQ(record->epoch, 0u);
        EXPECT_EQ(KeyGroupOf(DecodeStateKey(record->identity)->key, 0, key_groups), i);
        EXPECT_TRUE(found.emplace(record->identity, record->payload).second);
      }
    }
    EXPECT_EQ(found, known);
  };
  const auto report = Run(7);
  ASSERT_OK(report);
  EXPECT_EQ(report->states, 36u);
  expect_known(2, 7);
  ASSERT_OK(Run(1));
  expect_known(3, 1);
  ExpectMoved(3, 1);
}

TEST_F(RescaleTest, MovesAgainWhatNoWorkerHasTakenYet) {
  ASSERT_OK(Run(7));
  const auto report = Run(2);
  ASSERT_OK(report);
  EXPECT_EQ(report->left_over, parked_.size() + left_.size());
  ExpectMoved(3, 2);
  EXPECT_FALSE(Exists("p.dispatch.default.g2"));
  const auto again = Run(2);
  ASSERT_OK(again);
  EXPECT_FALSE(again->moved);
  EXPECT_EQ(Pool().generation, 3u);
}

TEST_F(RescaleTest, KeepsTheOldTopicsWhenItIsTold) {
  const auto report = Run(7, true);
  ASSERT_OK(report);
  EXPECT_THAT(report->kept, ElementsAre(kDispatch, kState, kBacklog));
  EXPECT_TRUE(Exists(kDispatch));
  const auto next = Run(1);
  ASSERT_OK(next);
  EXPECT_TRUE(Exists(kDispatch));
  ExpectMoved(3, 1);
}

TEST_F(RescaleTest, KeepsTheOldTopicsAsLongAsASavepointNeedsThem) {
  SavepointHold hold;
  hold.pool = "default";
  hold.id = "sp_1";
  hold.group = "p.deliver.default";
  hold.topic = kDispatch;
  hold.expires = clock_.Wall() + hours(1);
  log_.Write({"p.control", 0}, SavepointHoldKey("default", "sp_1"), EncodeSavepointHold(hold));
  auto report = Run(7);
  ASSERT_OK(report);
  ASSERT_EQ(report->kept.size(), 3u);
  EXPECT_THAT(report->kept[0], HasSubstr("sp_1"));
  EXPECT_TRUE(Exists(kBacklog));
  EXPECT_EQ(Pool().generation_left, 1u);
  clock_.Advance(hours(1));
  report = Run(7);
  ASSERT_OK(report);
  EXPECT_FALSE(report->moved);
  EXPECT_EQ(report->removed.size(), 3u);
  EXPECT_FALSE(Exists(kBacklog));
  EXPECT_EQ(Pool().generation_left, 0u);
}

TEST_F(RescaleTest, ACrashAnywhereIsMadeUpForByTheNextCall) {
  int crashes = 0;
  for (int crash_at = 0;; ++crash_at) {
    if (crash_at > 0) {
      for (const char* topic : {kDispatch, kState, kBacklog}) {
        if (Exists(topic)) log_.DeleteTopic(topic);
      }
      for (int generation = 2; generation < 6; ++generation) {
        for (const char* topic : {kDispatch, kState, kBacklog}) {
          const std::string name = absl::StrCat(topic, ".g", generation);
          if (Exists(name)) log_.DeleteTopic(name);
        }
      }
      log_.DeleteTopic("p.control");
      parked_.clear();
      left_.clear();
      batches_.clear();
      MakePool();
    }
    int step = 0;
    pool_.holder = Bytes(1, static_cast<uint8_t>(crash_at));
    pool_.before_step = [&] {
      return step++ == crash_at ? absl::AbortedError("crash") : absl::OkStatus();
    };
    const auto crashed = Run(7);
    pool_.before_step = nullptr;
    if (crashed.ok() && step <= crash_at) break;
    ++crashes;
    const ControlState control = *ReadControl(log_, clock_, "p.control");
    const auto now = control.pools.find("default");
    const bool moved = now != control.pools.end() && now->second.generation > 1;
    // Before the pointer has moved everything that it stood on is there.
    if (!moved) {
      for (const char* topic : {kDispatch, kState, kBacklog}) ASSERT_TRUE(Exists(topic)) << topic;
    }
    // Its lease binds the next one, until it is over.
    pool_.holder = Bytes(2, static_cast<uint8_t>(crash_at));
    if (now != control.pools.end() && now->second.phase != Phase::kSteady) {
      const auto refused = Run(7);
      EXPECT_THAT(refused, tests::StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(refused.status().message(), HasSubstr("already"));
      clock_.Advance(pool_.lease);
    }
    ASSERT_OK(Run(7)) << crash_at;
    const PoolRecord pool = Pool();
    EXPECT_EQ(pool.phase, Phase::kSteady);
    EXPECT_EQ(pool.generation_left, 0u);
    ExpectMoved(pool.generation, 7);
    for (const char* topic : {kDispatch, kState, kBacklog}) EXPECT_FALSE(Exists(topic)) << topic;
    for (uint64_t tried = 2; tried < pool.generation; ++tried) {
      EXPECT_FALSE(Exists(absl::StrCat(kDispatch, ".g", tried)));
    }
  }
  EXPECT_GT(crashes, 10);
}

TEST_F(RescaleTest, LeavesOutWhatIsAnEntryAlreadyAndResultsOfRequests) {
  // A matcher has written the same message twice; its first copy was parked.
  const DispatchRecord twice = Record(1, 1);
  const std::string key = KeyOf(1);
  const int32_t key_group = KeyGroupOf(key, 0, kKeyGroups);
  log_.Write({kDispatch, key_group}, key, subscriptions::EncodeDispatchRecord(twice));
  log_.Write({kDispatch, key_group}, key, "result", {{std::string(kResultHeader), "1"}});
  const auto report = Run(7);
  ASSERT_OK(report);
  ExpectMoved(2, 7);
}

TEST_F(RescaleTest, WhatAnUnreadResultSaysToBeDeliveredIsNotSentAgain) {
  const auto write = [this](uint8_t endpoint, IdBytes id, Verdict verdict,
                            std::vector<IdBytes> failed = {}) {
    const std::string key = KeyOf(endpoint);
    const int32_t key_group = KeyGroupOf(key, 0, kKeyGroups);
    OperationResult result{key, id, {}, ""};
    for (const MemoryLog::StoredRecord& stored : log_.Records({kDispatch, key_group})) {
      const auto record = subscriptions::DecodeDispatchRecord(stored.value);
      if (record.ok() && record->event_id == absl::StrCat(endpoint, ":", 7)) {
        result.offsets.push_back(stored.offset);
      }
    }
    ASSERT_EQ(result.offsets.size(), 1u);
    FlightResult flight;
    flight.outcome.verdict = verdict;
    flight.failed = std::move(failed);
    flight.parked = true;
    flight.parked_members = {Record(endpoint, 1).identity.Digest()};
    result.outcome = EncodeFlightResult(flight);
    log_.Write({kDispatch, key_group}, key, EncodeOperationResult(result),
               {{std::string(kResultHeader), "1"}});
  };
  write(1, Bytes(7, 1), Verdict::kDone);
  write(2, Bytes(7, 2), Verdict::kRetry);
  write(4, Bytes(8, 8), Verdict::kDone);  // of no batch that is there
  write(5, Bytes(7, 5), Verdict::kDone, {Record(5, 7).identity.Digest()});  // in part
  const auto report = Run(7);
  ASSERT_OK(report);
  EXPECT_EQ(report->batches, 11u);
  EXPECT_EQ(report->entries, parked_.size() - 4 - 1);
  EXPECT_EQ(report->left_over, left_.size() - 2);
  std::set<std::string> moved;
  for (int32_t i = 0; i < 7; ++i) {
    for (const MemoryLog::StoredRecord& stored : log_.Records({"p.dispatch.default.g2", i})) {
      const auto record = subscriptions::DecodeDispatchRecord(stored.value);
      ASSERT_OK(record);
      moved.insert(record->event_id);
    }
  }
  std::set<std::string> want = parked_;
  want.insert(left_.begin(), left_.end());
  for (const char* name : {"1:1", "1:2", "1:3", "1:6", "1:7", "4:1", "4:7"}) {
    EXPECT_EQ(want.erase(name), 1u) << name;
  }
  EXPECT_EQ(moved, want);
}

TEST_F(RescaleTest, CarriesOverWhatItCannotRead) {
  log_.Write({kDispatch, 2}, "short", "not a dispatch record", {{"a", "b"}});
  ASSERT_OK(Run(7));
  std::vector<MemoryLog::StoredRecord> found;
  for (int32_t i = 0; i < 7; ++i) {
    for (auto& record : log_.Records({"p.dispatch.default.g2", i})) {
      if (record.key == "short") found.push_back(record);
    }
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].value, "not a dispatch record");
  EXPECT_THAT(found[0].headers, ElementsAre(std::pair<std::string, std::string>("a", "b")));
}

TEST_F(RescaleTest, RefusesStateThatItDoesNotKnowBeforeThePointerMoves) {
  const auto writer = BlockingWriter::Open(log_, clock_, BlockingWriterOptions());
  Put(**writer, kBacklog, 1, EncodeStateKey(77, "k", std::string(16, 'x')), 1, "bytes");
  const auto refused = Run(7);
  EXPECT_THAT(refused, tests::StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(refused.status().message(), HasSubstr("state 77"));
  EXPECT_EQ(Pool().phase, Phase::kMoving);
  EXPECT_EQ(Pool().generation, 1u);
  EXPECT_TRUE(Exists(kBacklog));
}

TEST_F(RescaleTest, RefusesWhatCannotBe) {
  EXPECT_THAT(Run(0), tests::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Run(kKeyGroupsMax + 1), tests::StatusIs(absl::StatusCode::kInvalidArgument));
  pool_.pool = "other";
  EXPECT_THAT(Run(3).status().message(), HasSubstr("no pool 'other'"));
  pool_.pool = "default";
  RestoreMark mark;
  mark.pool = "default";
  log_.Write({"p.control", 0}, RestoreMarkKey("default"), EncodeRestoreMark(mark));
  EXPECT_THAT(Run(3).status().message(), HasSubstr("being restored"));
  EXPECT_TRUE(ReadControl(log_, clock_, "p.control")->pools.empty());
}

// A member of a group that does nothing, as if it hung.
class Hanging final : public GroupHandler {
 public:
  Hanging(MemoryLog& log, const Clock& clock, const std::string& group, const std::string& topic)
      : loop_(*EventLoop::Create(clock)) {
    GroupOptions options;
    options.group = group;
    options.topics = {topic};
    options.session_timeout = seconds(6);
    consumer_ = *log.JoinGroup(*loop_, options, *this);
    for (int i = 0; i < 10; ++i) consumer_->Poll(1);
  }
  void OnAssigned(Assignment) override {}
  void OnRevoked() override {}
  void OnLost() override {}
  void OnRecord(const LogRecord&) override {}
  void OnPartitionEnd(const TopicPartition&, int64_t) override {}
  void OnOutOfRange(const TopicPartition&, int64_t) override {}
  void OnReachable(bool) override {}

 private:
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<GroupConsumer> consumer_;
};

TEST_F(RescaleTest, AMatcherThatStaysKeepsThePoolAsItWas) {
  pool_.drain_wait_max = seconds(2);
  Hanging matcher(log_, clock_, "p.match", kDispatch);
  const auto refused = Run(7);
  EXPECT_THAT(refused, tests::StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(refused.status().message(), HasSubstr("works on as before"));
  EXPECT_EQ(Pool().phase, Phase::kSteady);
  EXPECT_EQ(Pool().generation, 1u);
  EXPECT_FALSE(Exists("p.dispatch.default.g2"));
}

TEST_F(RescaleTest, AWorkerThatWasKilledIsWaitedForAndWhatItLeftIsMoved) {
  pool_.drain_wait_max = seconds(60);
  Hanging worker(log_, clock_, "p.deliver.default", kDispatch);
  const MonotonicTime gone = clock_.Now() + seconds(6);
  pool_.sleep = [&](Duration by) {
    clock_.Advance(by);
    for (const uint64_t member : log_.Members("p.deliver.default")) {
      if (clock_.Now() >= gone) log_.Expire("p.deliver.default", member);
    }
  };
  const auto report = Run(7);
  ASSERT_OK(report);
  ExpectMoved(2, 7);
  EXPECT_THAT(told_, testing::Contains(HasSubstr("waiting: 0 matcher shards and 1 worker")));
}

TEST_F(RescaleTest, IsAbortedWhileItDrainsAndNotAfterwards) {
  EXPECT_THAT(AbortRescale(log_, clock_, pool_), tests::StatusIs(absl::StatusCode::kNotFound));
  PoolRecord record;
  record.pool = "default";
  record.key_groups = kKeyGroups;
  record.phase = Phase::kDraining;
  record.holder = Bytes(5, 5);
  record.lease_until = clock_.Wall() + seconds(30);
  log_.Write({"p.control", 0}, PoolKey("default"), EncodePoolRecord(record));
  ASSERT_OK(AbortRescale(log_, clock_, pool_));
  EXPECT_EQ(Pool().phase, Phase::kSteady);
  EXPECT_EQ(Pool().key_groups, kKeyGroups);
  record.phase = Phase::kMoving;
  record.generation_tried = 2;
  log_.Write({"p.control", 0}, PoolKey("default"), EncodePoolRecord(record));
  const absl::Status refused = AbortRescale(log_, clock_, pool_);
  EXPECT_THAT(refused, tests::StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--key-groups 4"));
  // It goes forward, to the number that it had too.
  clock_.Advance(seconds(30));
  ASSERT_OK(Run(kKeyGroups));
  ExpectMoved(3, kKeyGroups);
}

// --- A savepoint of another number of key groups ---

class AdoptTest : public RescaleTest {
 protected:
  AdoptTest() {
    SavepointPool saved;
    saved.pool = "default";
    saved.group = "p.deliver.default";
    saved.topic = kDispatch;
    saved.changelogs = {kState, kBacklog};
    saved.control_topic = "p.control";
    CreateSavepointOptions options;
    options.directory = savepoint();
    options.id = SavepointId({7});
    options.log_identity = Bytes(3, 3);
    EXPECT_OK(CreateSavepoint(log_, clock_, saved, options));
  }
  std::string savepoint() const { return absl::StrCat(directory_.path(), "/savepoint"); }
  absl::StatusOr<AdoptReport> Adopt(bool accept_loss = false) {
    return AdoptSavepoint(log_, clock_, pool_, savepoint(), accept_loss);
  }
  void Empty(const std::string& topic, int32_t partitions) {
    log_.DeleteTopic(topic);
    log_.MakeTopic(topic, partitions);
  }
};

TEST_F(AdoptTest, PutsBackAllThatItHasAndThatItHadNotBegunIntoTheKeyGroupsOfNow) {
  ASSERT_OK(Run(7));  // the savepoint holds the old topics
  Empty("p.dispatch.default.g2", 7);
  const auto report = Adopt();
  ASSERT_OK(report);
  EXPECT_EQ(report->key_groups_before, kKeyGroups);
  EXPECT_EQ(report->key_groups, 7);
  EXPECT_EQ(report->entries, parked_.size());
  EXPECT_EQ(report->left_over, left_.size());
  ExpectMoved(2, 7);
}

TEST_F(AdoptTest, WithoutItsTopicItNeedsLeaveToGoOnWithoutWhatIsGone) {
  ASSERT_OK(Run(7));
  log_.DeleteTopic(kDispatch);
  Empty("p.dispatch.default.g2", 7);
  const auto refused = Adopt();
  EXPECT_THAT(refused, tests::StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(refused.status().message(), HasSubstr("--accept-loss"));
  for (int32_t i = 0; i < 7; ++i)
    EXPECT_THAT(log_.Records({"p.dispatch.default.g2", i}), IsEmpty());
  const auto report = Adopt(true);
  ASSERT_OK(report);
  EXPECT_EQ(report->entries, parked_.size());
  EXPECT_EQ(report->left_over, 0u);
}

TEST_F(AdoptTest, RefusesAPoolThatRuns) {
  ASSERT_OK(Run(7));
  Hanging worker(log_, clock_, "p.deliver.default", "p.dispatch.default.g2");
  EXPECT_THAT(Adopt().status().message(), HasSubstr("is running"));
}

TEST_F(AdoptTest, RefusesOneOfAnotherPoolAndOneThatIsDamaged) {
  log_.MakeTopic("p.dispatch.other", 2);
  pool_.pool = "other";
  EXPECT_THAT(Adopt().status().message(), HasSubstr("of pool 'default'"));
  pool_.pool = "default";
  std::ofstream(savepoint() + "/1-00000", std::ios::app) << "x";
  EXPECT_THAT(Adopt(), tests::StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace postrider::delivery
