#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/state/heap_store.h"
#include "core/stream/changelog.h"
#include "core/stream/hole_map.h"
#include "core/stream/job.h"
#include "core/stream/shard.h"
#include "core/stream/state_store.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_log.h"
#include "tests/fakes/sample_function.h"

namespace postrider {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A heap store that is full when the test says so.
class FullableStore final : public StateStore {
 public:
  explicit FullableStore(const bool& full) : full_(full), store_(MakeHeapStore({})) {}
  absl::Status Apply(const StateBatch& batch) override {
    return full_ ? absl::ResourceExhaustedError("full") : store_->Apply(batch);
  }
  absl::StatusOr<bool> Get(absl::string_view key, std::string& value) const override {
    return store_->Get(key, value);
  }
  absl::StatusOr<ScanEnd> Scan(StateRange& range, absl::string_view from, const ScanLimits& limits,
                               Visitor visit) const override {
    return store_->Scan(range, from, limits, visit);
  }
  absl::Status Clear() override { return store_->Clear(); }
  StoreFigures figures() const override { return store_->figures(); }

 private:
  const bool& full_;
  std::unique_ptr<StateStore> store_;
};

// One shard of the sample job.
class SampleMember {
 public:
  SampleMember(Log& log, const Clock& clock, const JobOptions& options, uint64_t seed,
               SampleWorld& world)
      : loop(*EventLoop::Create(clock)) {
    ShardProgramFactory factory = [this, &world](const ShardEnvironment& environment) {
      auto made = std::make_unique<SampleProgram>(environment, world);
      program = made.get();
      return absl::StatusOr<std::unique_ptr<ShardProgram>>(std::move(made));
    };
    shard = *Shard::Create(log, *loop, metrics, options, 0, seed, factory);
  }

  bool Has(const TopicPartition& tp) const { return program->At(tp) != nullptr; }
  SampleFunction& At(const TopicPartition& tp) const {
    POSTRIDER_CHECK(Has(tp));
    return *program->At(tp);
  }
  double Metric(const std::string& name, const std::string& more = "") const {
    const std::string text = metrics.Expose();
    const std::string start = absl::StrCat(name, "{job=\"test\",shard=\"0\"", more, "} ");
    const size_t at = text.find(start);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + start.size()));
  }

  std::unique_ptr<EventLoop> loop;
  Metrics metrics;
  SampleProgram* program = nullptr;
  std::unique_ptr<Shard> shard;  // ends first
};

class DurableTest : public ::testing::Test {
 protected:
  DurableTest() {
    log_.MakeTopic("t", 2);
    log_.MakeTopic("first", 2);
    log_.MakeTopic("beside", 2);
    options_.name = "test";
    options_.group.group = "g";
    options_.group.topics = {"t"};
    options_.changelogs = {Changelog("first", ChangelogOptions::Restore::kFirst),
                           Changelog("beside", ChangelogOptions::Restore::kBeside)};
  }
  ~DurableTest() override {
    EXPECT_EQ(world_.revived, 0);
    EXPECT_EQ(world_.stale, 0);
  }

  ChangelogOptions Changelog(const std::string& topic, ChangelogOptions::Restore restore) {
    ChangelogOptions changelog;
    changelog.topic = topic;
    changelog.restore = restore;
    changelog.open_store =
        [this](const TopicPartition& tp) -> absl::StatusOr<std::unique_ptr<StateStore>> {
      if (broken_.contains(tp)) return absl::UnavailableError("the disk is away");
      return std::unique_ptr<StateStore>(std::make_unique<FullableStore>(full_[tp]));
    };
    return changelog;
  }
  std::unique_ptr<SampleMember> Join() {
    return std::make_unique<SampleMember>(log_, clock_, options_, ++seed_, world_);
  }
  // Writes records of one key; returns the first one's offset.
  int64_t Write(const TopicPartition& tp, int count, const std::string& key = "k") {
    const int64_t first = log_.Write(tp, key, "v");
    for (int i = 1; i < count; ++i) log_.Write(tp, key, "v");
    return first;
  }
  void Settle(const std::vector<SampleMember*>& members) {
    int quiet = 0;
    for (int round = 0; round < 10'000 && quiet < 2; ++round) {
      size_t ran = 0;
      for (SampleMember* member : members) ran += member->loop->RunOnce(Duration::zero());
      quiet = ran == 0 ? quiet + 1 : 0;
    }
    if (quiet < 2) ADD_FAILURE() << "the loops never come to rest";
  }
  void Pass(Duration time, const std::vector<SampleMember*>& members,
            Duration step = milliseconds(10)) {
    Settle(members);
    for (Duration left = time; left > Duration::zero(); left -= step) {
      clock_.Advance(std::min(step, left));
      Settle(members);
    }
  }
  int64_t Committed(const TopicPartition& tp) const {
    const auto committed = log_.Committed("g", tp);
    return committed ? committed->offset : -1;
  }
  uint64_t Epoch(const TopicPartition& tp) const {
    const auto committed = log_.Committed("g", tp);
    POSTRIDER_CHECK(committed.has_value());
    const auto metadata = DecodeCommitMetadata(committed->metadata, committed->offset);
    POSTRIDER_CHECK(metadata.has_value());
    return metadata->epoch;
  }
  // A changelog's records as they stand.
  std::vector<ChangelogRecord> Changelog(const TopicPartition& tp) const {
    std::vector<ChangelogRecord> records;
    for (const MemoryLog::StoredRecord& record : log_.Records(tp)) {
      records.push_back(*DecodeChangelogRecord(record.key, record.value));
    }
    return records;
  }
  void WriteChangelog(const TopicPartition& tp, const ChangelogRecord& record) {
    const EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
    log_.Write(tp, encoded.key, encoded.value);
  }
  std::string Name(const TopicPartition& tp, int64_t offset) const {
    return absl::StrCat(tp.ToString(), "@", offset);
  }

  ManualClock clock_;
  MemoryLog log_{clock_};
  JobOptions options_;
  SampleWorld world_;
  std::set<TopicPartition> broken_;      // changelog partitions whose store cannot be opened
  std::map<TopicPartition, bool> full_;  // whose store is full
  const TopicPartition t0_{"t", 0};
  const TopicPartition t1_{"t", 1};
  const TopicPartition first0_{"first", 0};
  const TopicPartition beside0_{"beside", 0};

 private:
  uint64_t seed_ = 0;
};

}  // namespace postrider
