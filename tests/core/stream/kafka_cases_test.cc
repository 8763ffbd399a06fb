// The KAFKA cases that the shard decides, each named by its id; tests/README.md says which tests
// prove the others.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/stream/hole_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/stream/durable_fixture.h"
#include "tests/core/stream/shard_fixture.h"

namespace postrider {
namespace {

using KafkaCasesTest = ShardTest;
using KafkaCasesDurableTest = DurableTest;

// An event that fails until the third restart, others that are done in any order, and crashes in
// between: whatever is committed was done.
TEST_F(KafkaCasesTest, KAFKA_01_NoCommitPassesOverAnEventThatIsNotDone) {
  constexpr int kEvents = 1'000;
  constexpr int64_t kFailing = 100;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const TopicPartition tp{absl::StrCat("one-", seed), 0};
    log_.MakeTopic(tp.topic, 1);
    options_.group.group = absl::StrCat("g-", seed);
    options_.group.topics = {tp.topic};
    Write(tp, kEvents);
    std::set<int64_t> done;
    std::vector<std::string> early;
    int commits = 0;
    log_.SetCommitObserver([&](const std::string&, uint64_t, const CommitEntry& entry) {
      ++commits;
      const auto metadata = DecodeCommitMetadata(entry.position.metadata, entry.position.offset);
      for (int64_t offset = 0; offset < kEvents; ++offset) {
        if (offset >= entry.position.offset &&
            !(metadata && metadata->completed.Contains(offset))) {
          continue;
        }
        if (!done.contains(offset)) {
          early.push_back(absl::StrCat(offset, " in ", entry.position.offset));
        }
      }
    });
    for (int life = 0; life < 4; ++life) {
      auto member = Join();
      // Its predecessor's session ends first.
      Pass(seconds(7), {member.get()}, milliseconds(100));
      ASSERT_TRUE(member->Has(tp));
      const bool heals = life == 3;
      const int rounds = heals ? 1'000'000 : static_cast<int>(random.Below(60));
      for (int round = 0; round < rounds && done.size() < kEvents; ++round) {
        std::vector<int64_t> pending(member->At(tp).pending().begin(),
                                     member->At(tp).pending().end());
        for (uint64_t i = random.Below(10); i > 0 && !pending.empty(); --i) {
          const size_t at = random.Below(std::min<uint64_t>(pending.size(), 400));
          const int64_t offset = pending[at];
          pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
          if (offset == kFailing && !heals) continue;
          done.insert(offset);
          member->At(tp).Complete(offset);
        }
        Pass(milliseconds(100), {member.get()}, milliseconds(50));
      }
      if (heals) Pass(milliseconds(400), {member.get()});
      EXPECT_EQ(done.contains(kFailing), heals);
      if (!heals) {
        EXPECT_LE(log_.Committed(options_.group.group, tp)->offset, kFailing);
      }
      // It crashes: nothing more is committed.
    }
    EXPECT_EQ(log_.Committed(options_.group.group, tp)->offset, kEvents);
    EXPECT_THAT(early, ::testing::IsEmpty());
    EXPECT_GT(commits, 10);
    log_.SetCommitObserver(nullptr);
  }
}

// With durable state the watermark does pass what fails, once that is kept elsewhere for good: it
// is there after a crash, and done when it heals.
TEST_F(KafkaCasesDurableTest, KAFKA_01_WhatFailsIsDurableBeforeACommitPassesOverIt) {
  bool healed = false;
  int broken_commits = 0;
  const std::string failing = Name(t0_, 10);
  world_.takes = [&](const std::string& name) { return healed || name != failing; };
  log_.SetCommitObserver([&](const std::string&, uint64_t, const CommitEntry& entry) {
    if (entry.tp != t0_ || entry.position.offset <= 10) return;
    if (!world_.parked.contains(failing)) ++broken_commits;
  });
  Write(t0_, 100);
  auto a = Join();
  Pass(seconds(3), {a.get()});
  EXPECT_EQ(Committed(t0_), 100);
  EXPECT_EQ(world_.taken.size(), 99u);
  a.reset();  // crashed
  auto b = Join();
  Pass(seconds(8), {b.get()});
  EXPECT_EQ(b->At(t0_).parked(), 1u);
  healed = true;
  Pass(seconds(2), {b.get()});
  EXPECT_EQ(world_.taken[failing], 1);
  EXPECT_EQ(b->At(t0_).parked(), 0u);
  EXPECT_EQ(broken_commits, 0);
}

// Back-pressure that comes and goes every 50 ms, and rebalances meanwhile: every offset is given
// once to somebody who completes it, in the order of its partition, and none is passed over.
TEST_F(KafkaCasesTest, KAFKA_04_NothingIsSkippedWhilePressureComesAndGoesOverRebalances) {
  options_.pending_records_max = 20;
  constexpr int kEvents = 4'000;
  Write(t0_, kEvents);
  Write(t1_, kEvents);
  std::map<TopicPartition, std::set<int64_t>> done;
  auto a = Join();
  auto b = Join();
  std::unique_ptr<ShardMember> guest;
  bool leaving = false;
  int rebalances = 0;
  int stalls = 0;
  for (int slice = 0; slice < 4'000; ++slice) {
    std::vector<ShardMember*> members{a.get(), b.get()};
    if (guest) members.push_back(guest.get());
    const bool release = slice % 2 == 0;  // a slice of 50 ms each
    for (ShardMember* member : members) {
      for (const auto& [tp, function] : member->open) {
        if (function->pending().size() >= 15) ++stalls;
        if (!release) continue;
        done[tp].insert(function->pending().begin(), function->pending().end());
        function->CompleteAll();
      }
    }
    Pass(milliseconds(50), members);
    if (slice % 20 == 10 && rebalances < 20) {
      ++rebalances;
      if (!guest) {
        guest = Join();
      } else if (!leaving) {
        leaving = true;
        guest->shard->Stop([&leaving] { leaving = false; });
      }
    }
    // It has left.
    if (guest && rebalances % 2 == 0 && !leaving) guest.reset();
    if (rebalances == 20 && Committed(t0_) == kEvents && Committed(t1_) == kEvents) break;
  }
  EXPECT_EQ(rebalances, 20);
  EXPECT_GT(stalls, 100) << "there was no pressure";
  for (const TopicPartition& tp : {t0_, t1_}) {
    EXPECT_EQ(done[tp].size(), static_cast<size_t>(kEvents)) << tp.ToString();
    EXPECT_EQ(Committed(tp), kEvents) << tp.ToString();
  }
}

// We do not pause (DESIGN 4): a full shard reads nothing and keeps what rebalances bring. What was
// full before, during or after a rebalance goes on when there is room again.
TEST_F(KafkaCasesTest, KAFKA_14_EveryPartitionGoesOnAfterRebalancesOfFullShards) {
  options_.pending_records_max = 10;
  Write(t0_, 8'000);
  Write(t1_, 8'000);
  auto a = Join();
  auto b = Join();
  Pass(seconds(2), {a.get(), b.get()}, milliseconds(50));
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    // Each of these is two rebalances, while everything is full.
    for (int i = 0; i < 10; ++i) {
      auto guest = Join();
      Pass(seconds(3), {a.get(), b.get(), guest.get()}, milliseconds(50));
      bool left = false;
      guest->shard->Stop([&left] { left = true; });
      Pass(seconds(3), {a.get(), b.get(), guest.get()}, milliseconds(50));
      ASSERT_TRUE(left);
    }
    Pass(seconds(2), {a.get(), b.get()}, milliseconds(50));
    std::map<TopicPartition, int64_t> before;
    for (const TopicPartition& tp : {t0_, t1_}) {
      before[tp] = Committed(tp);
      ASSERT_TRUE(a->Has(tp) || b->Has(tp)) << tp.ToString();
    }
    for (Duration passed{}; passed < seconds(5); passed += milliseconds(50)) {
      for (ShardMember* member : {a.get(), b.get()}) {
        for (const auto& [tp, function] : member->open) function->CompleteAll();
      }
      Pass(milliseconds(50), {a.get(), b.get()});
    }
    for (const TopicPartition& tp : {t0_, t1_}) {
      // More than what was held when it was released: it reads again.
      EXPECT_GT(Committed(tp), before[tp] + 25) << tp.ToString();
    }
  }
}

}  // namespace
}  // namespace postrider
