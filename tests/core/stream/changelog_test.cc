#include "core/stream/changelog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using Effect = ChangelogReplay::Effect;
using Rule = ChangelogReplay::Rule;
using testing::ElementsAre;
using testing::IsEmpty;

ChangelogRecord Put(uint64_t epoch, std::string identity, std::string payload) {
  return ChangelogRecord{ChangelogKind::kPut, epoch, std::move(identity), std::move(payload)};
}
ChangelogRecord Without(ChangelogKind kind, uint64_t epoch, std::string identity = "") {
  return ChangelogRecord{kind, epoch, std::move(identity), ""};
}

TEST(ChangelogCodec, GivesBackEveryKind) {
  for (const ChangelogRecord& record :
       {Put(7, "id", "payload"), Put(~uint64_t{0}, std::string("\0\xff", 2), ""),
        Without(ChangelogKind::kClear, 7, "id"), Without(ChangelogKind::kDelete, 7, "id"),
        Without(ChangelogKind::kErase, 7, "id"), Without(ChangelogKind::kMarker, 7),
        Without(ChangelogKind::kErase, 7)}) {
    const EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
    EXPECT_THAT(DecodeChangelogRecord(encoded.key, encoded.value), tests::IsOkAndHolds(record));
  }
}

TEST(ChangelogCodec, SaysWhichRecordsPut) {
  EXPECT_TRUE(EncodeChangelogRecord(Put(4, "id", "p")).put);
  for (const ChangelogKind kind :
       {ChangelogKind::kClear, ChangelogKind::kDelete, ChangelogKind::kErase}) {
    EXPECT_FALSE(EncodeChangelogRecord(Without(kind, 4, "id")).put);
  }
  EXPECT_FALSE(EncodeChangelogRecord(Without(ChangelogKind::kMarker, 4)).put);
}

TEST(ChangelogCodec, KeepsTheRecordsOfEpochsApartForCompaction) {
  EXPECT_NE(EncodeChangelogRecord(Put(4, "id", "p")).key,
            EncodeChangelogRecord(Put(5, "id", "p")).key);
  EXPECT_EQ(EncodeChangelogRecord(Put(4, "id", "p")).key,
            EncodeChangelogRecord(Without(ChangelogKind::kErase, 4, "id")).key);
  EXPECT_EQ(ChangelogRecordKey("id", 4), EncodeChangelogRecord(Put(4, "id", "p")).key);
}

TEST(ChangelogCodec, RefusesARecordOfANewerVersion) {
  EncodedChangelogRecord encoded = EncodeChangelogRecord(Put(4, "id", "p"));
  encoded.value[0] = 2;
  EXPECT_THAT(
      DecodeChangelogRecord(encoded.key, encoded.value),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("version 2")));
}

TEST(ChangelogCodec, RefusesEveryChangedBitAndEveryCut) {
  for (const ChangelogRecord& record :
       {Put(7, "identity", "payload"), Without(ChangelogKind::kDelete, 7, "identity"),
        Without(ChangelogKind::kMarker, 7)}) {
    const EncodedChangelogRecord good = EncodeChangelogRecord(record);
    for (size_t bit = 0; bit < good.value.size() * 8; ++bit) {
      std::string value = good.value;
      value[bit / 8] = static_cast<char>(value[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(DecodeChangelogRecord(good.key, value).ok()) << "bit " << bit << " of the value";
    }
    for (size_t bit = 0; bit < good.key.size() * 8; ++bit) {
      std::string key = good.key;
      key[bit / 8] = static_cast<char>(key[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(DecodeChangelogRecord(key, good.value).ok()) << "bit " << bit << " of the key";
    }
    for (size_t cut = 1; cut < good.value.size(); ++cut) {
      EXPECT_FALSE(DecodeChangelogRecord(good.key, good.value.substr(0, cut)).ok());
    }
    for (size_t cut = 0; cut < good.key.size(); ++cut) {
      EXPECT_FALSE(DecodeChangelogRecord(good.key.substr(0, cut), good.value).ok());
    }
    EXPECT_FALSE(DecodeChangelogRecord(good.key, good.value + "x").ok());
  }
}

TEST(ChangelogCodec, SurvivesRandomBytes) {
  constexpr uint64_t kSeed = 99;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  Random random(kSeed);
  for (int i = 0; i < 50'000; ++i) {
    std::string key;
    std::string value;
    for (uint64_t n = random.Below(24); n > 0; --n) {
      key.push_back(static_cast<char>(random.Below(random.Below(2) == 0 ? 2 : 256)));
    }
    for (uint64_t n = random.Below(16); n > 0; --n) {
      value.push_back(static_cast<char>(random.Below(256)));
    }
    const auto decoded = DecodeChangelogRecord(key, value);
    if (!decoded.ok()) continue;
    const EncodedChangelogRecord again = EncodeChangelogRecord(*decoded);
    ASSERT_EQ(again.key, key);
    ASSERT_EQ(again.value, value);
  }
}

// "v..." changes in place, "e..." is put once.
Rule RuleOf(absl::string_view identity) {
  return identity[0] == 'v' ? Rule::kInPlace : Rule::kOnce;
}

class ChangelogReplayTest : public testing::Test {
 protected:
  ChangelogReplay::Step Read(const ChangelogRecord& record) {
    const EncodedChangelogRecord encoded = EncodeChangelogRecord(record);
    auto step = replay_.Read(encoded.key, encoded.value);
    EXPECT_THAT(step, tests::IsOk());
    return *std::move(step);
  }
  ChangelogReplay replay_{6, RuleOf};
};

TEST_F(ChangelogReplayTest, IgnoresLatePutsAndClearsBehindAMarker) {
  EXPECT_EQ(Read(Put(4, "v1", "good")).effect, Effect::kPut);
  Read(Without(ChangelogKind::kMarker, 5));
  EXPECT_EQ(Read(Put(4, "v1", "late")).effect, Effect::kNone);
  EXPECT_EQ(Read(Put(4, "e1", "late")).effect, Effect::kNone);
  EXPECT_EQ(Read(Without(ChangelogKind::kClear, 4, "v1")).effect, Effect::kNone);
  EXPECT_EQ(Read(Put(5, "v2", "of the owner")).effect, Effect::kPut);
  EXPECT_EQ(replay_.fenced(), 3u);
  EXPECT_EQ(replay_.fence(), 5u);
}

TEST_F(ChangelogReplayTest, CountsALateDelete) {
  Read(Put(5, "e1", "p"));
  Read(Without(ChangelogKind::kMarker, 6));
  EXPECT_EQ(Read(Without(ChangelogKind::kDelete, 4, "e1")).effect, Effect::kRemove);
  EXPECT_THAT(replay_.TakeErasable(),
              ElementsAre(ChangelogRecordKey("e1", 5), ChangelogRecordKey("e1", 4)));
}

TEST_F(ChangelogReplayTest, ErasesTheRecordOfExactlyOneEpoch) {
  Read(Put(4, "e1", "p"));
  Read(Put(5, "e1", "p"));
  EXPECT_EQ(Read(Without(ChangelogKind::kErase, 4, "e1")).effect, Effect::kNone);
  EXPECT_EQ(Read(Without(ChangelogKind::kErase, 5, "e1")).effect, Effect::kRemove);
}

TEST_F(ChangelogReplayTest, NeverRevivesWhatWasFinishedMeanwhile) {
  replay_.OnLiveRemove("e1");
  EXPECT_EQ(Read(Put(4, "e1", "p")).effect, Effect::kNone);
  EXPECT_THAT(replay_.TakeErasable(), ElementsAre(ChangelogRecordKey("e1", 4)));
}

TEST_F(ChangelogReplayTest, NeverOverwritesWhatWasWrittenMeanwhile) {
  Read(Put(4, "v1", "old"));
  replay_.OnLivePut("v1");
  EXPECT_EQ(Read(Put(5, "v1", "old too")).effect, Effect::kNone);
  EXPECT_EQ(Read(Without(ChangelogKind::kDelete, 5, "v1")).effect, Effect::kNone);
  EXPECT_EQ(Read(Put(6, "v1", "our own, read back")).effect, Effect::kNone);
  EXPECT_THAT(replay_.Reassert(), IsEmpty());
  EXPECT_THAT(replay_.TakeErasable(),
              ElementsAre(ChangelogRecordKey("v1", 4), ChangelogRecordKey("v1", 5),
                          ChangelogRecordKey("v1", 5)));
}

TEST_F(ChangelogReplayTest, TellsOfAnEntryThatWasPutMeanwhileThatItHadBeenPutBefore) {
  for (const char* identity : {"e1", "e2", "e3", "v1"}) replay_.OnLivePut(identity);
  const ChangelogReplay::Step step = Read(Put(4, "e1", "first"));
  EXPECT_EQ(step.effect, Effect::kPutBefore);
  EXPECT_EQ(step.payload, "first");
  EXPECT_EQ(Read(Put(4, "e2", "first")).effect, Effect::kPutBefore);
  EXPECT_EQ(Read(Without(ChangelogKind::kDelete, 4, "e2")).effect, Effect::kNone);
  EXPECT_EQ(Read(Put(6, "e3", "our own, read back")).effect, Effect::kNone);
  EXPECT_EQ(Read(Put(4, "v1", "a value has no place")).effect, Effect::kNone);
  EXPECT_THAT(replay_.Reassert(), ElementsAre("e1"));
  replay_.OnLiveRemove("e1");
  EXPECT_THAT(replay_.Reassert(), IsEmpty());
}

TEST_F(ChangelogReplayTest, ReassertsValuesOfEarlierEpochsAndShadowedEntries) {
  Read(Put(5, "v1", "value"));
  Read(Put(5, "v2", "value"));
  Read(Without(ChangelogKind::kClear, 5, "v2"));
  Read(Put(5, "e1", "entry"));
  Read(Put(5, "e2", "entry"));
  Read(Without(ChangelogKind::kMarker, 6));
  Read(Put(5, "e2", "the same, late: compaction would keep this one"));
  Read(Put(6, "v3", "ours"));
  EXPECT_THAT(replay_.Reassert(), ElementsAre("e2", "v1"));
  EXPECT_THAT(replay_.TakeErasable(), ElementsAre(ChangelogRecordKey("v2", 5)));
}

TEST_F(ChangelogReplayTest, NeverErasesARecordKeyOfItsOwnEpoch) {
  // A task that is restored again without a new claim has its own earlier records before it.
  Read(Put(6, "v1", "ours"));
  Read(Without(ChangelogKind::kClear, 6, "v1"));
  Read(Put(6, "e1", "ours"));
  Read(Without(ChangelogKind::kDelete, 6, "e1"));
  Read(Put(6, "v2", "ours"));
  replay_.OnLivePut("v2");
  EXPECT_THAT(replay_.TakeErasable(), IsEmpty());
}

TEST_F(ChangelogReplayTest, FailsOnARecordThatCannotBeRead) {
  EXPECT_THAT(replay_.Read("x", "y"), tests::StatusIs(absl::StatusCode::kDataLoss));
}

// A changelog with owners that follow each other, late writes of those that were replaced, crashed
// restores, and compaction, against what was said of each identity when it was written.
class ChangelogSimulation {
 public:
  explicit ChangelogSimulation(uint64_t seed) : random_(seed) {}

  void Run(int steps) {
    TakeOver();
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      switch (random_.Below(12)) {
        case 0:
          TakeOver();
          break;
        case 1:
          Compact();
          break;
        case 2:
        case 3:
          LateWrite();
          break;
        default:
          OwnWrite(owners_.back(), nullptr);
      }
    }
    TakeOver();
  }
  uint64_t restores() const { return restores_; }
  uint64_t compacted() const { return compacted_; }

 private:
  struct Value {
    uint64_t epoch;
    std::string payload;
    friend bool operator==(const Value&, const Value&) = default;
  };
  // One worker's epoch: what it believes.
  struct Owner {
    uint64_t epoch;
    std::map<std::string, Value> view;
    std::set<std::string> put;  // entries that it has put: once per epoch
  };

  void Append(const ChangelogRecord& record) { log_.push_back(EncodeChangelogRecord(record)); }
  std::string RandomValueIdentity() { return absl::StrCat("v", random_.Below(5)); }
  // An entry that the worker knows; empty when there is none.
  std::string KnownEntry(const Owner& owner) {
    std::vector<std::string> entries;
    for (const auto& [identity, value] : owner.view) {
      if (identity[0] == 'e') entries.push_back(identity);
    }
    return entries.empty() ? "" : entries[random_.Below(entries.size())];
  }
  void EraseOlder(const Owner& owner, const std::string& identity) {
    const auto found = owner.view.find(identity);
    if (found != owner.view.end() && found->second.epoch != owner.epoch) {
      Append(Without(ChangelogKind::kErase, found->second.epoch, identity));
    }
  }

  // `replay` is given while the owner restores.
  void OwnWrite(Owner& owner, ChangelogReplay* replay) {
    const std::string payload = absl::StrCat("p", ++payloads_);
    switch (random_.Below(4)) {
      case 0: {
        const std::string identity = RandomValueIdentity();
        if (replay != nullptr) replay->OnLivePut(identity);
        Append(Put(owner.epoch, identity, payload));
        if (replay == nullptr) EraseOlder(owner, identity);
        truth_[identity] = owner.view[identity] = Value{owner.epoch, payload};
        break;
      }
      case 1: {
        const std::string identity = RandomValueIdentity();
        if (replay != nullptr) replay->OnLiveRemove(identity);
        Append(Without(ChangelogKind::kClear, owner.epoch, identity));
        if (replay == nullptr) EraseOlder(owner, identity);
        owner.view.erase(identity);
        truth_.erase(identity);
        break;
      }
      case 2: {
        const std::string identity = absl::StrCat("e", ++entries_);
        if (replay != nullptr) replay->OnLivePut(identity);
        Append(Put(owner.epoch, identity, payload));
        truth_[identity] = owner.view[identity] = Value{owner.epoch, payload};
        break;
      }
      default: {
        // An owner that restores may finish what it has not read yet.
        std::string identity = KnownEntry(owner);
        if (replay != nullptr && entries_ > 0 && random_.Below(2) == 0) {
          identity = absl::StrCat("e", 1 + random_.Below(entries_));
        }
        if (identity.empty()) break;
        if (replay != nullptr) {
          replay->OnLiveRemove(identity);
          Append(Without(ChangelogKind::kDelete, owner.epoch, identity));
        } else {
          Append(Without(ChangelogKind::kErase, owner.view[identity].epoch, identity));
        }
        owner.view.erase(identity);
        truth_.erase(identity);
      }
    }
  }

  void LateWrite() {
    if (owners_.size() < 2) return;
    Owner& owner = owners_[random_.Below(owners_.size() - 1)];
    switch (random_.Below(5)) {
      case 0:
        Append(Put(owner.epoch, RandomValueIdentity(), "late"));
        break;
      case 1:
        Append(Without(ChangelogKind::kClear, owner.epoch, RandomValueIdentity()));
        break;
      case 2:
        Append(Put(owner.epoch, absl::StrCat("e", ++entries_), "late"));
        break;
      case 3: {
        const std::string identity = KnownEntry(owner);
        if (identity.empty()) break;
        Append(Without(ChangelogKind::kDelete, owner.epoch, identity));
        owner.view.erase(identity);
        truth_.erase(identity);
        break;
      }
      default: {
        const std::string identity = KnownEntry(owner);
        if (identity.empty()) break;
        const uint64_t epoch = owner.view[identity].epoch;
        Append(Without(ChangelogKind::kErase, epoch, identity));
        owner.view.erase(identity);
        const auto found = truth_.find(identity);
        if (found != truth_.end() && found->second.epoch == epoch) truth_.erase(found);
      }
    }
  }

  void TakeOver() {
    if (settled_) compactable_ = log_.size();
    settled_ = false;
    Owner owner;
    owner.epoch = ++epoch_;
    Append(Without(ChangelogKind::kMarker, owner.epoch));
    for (uint64_t n = random_.Below(3); n > 0; --n) LateWrite();
    ChangelogReplay replay(owner.epoch, RuleOf);
    const bool crashes = random_.Below(5) == 0;
    // Sometimes to the end as it was, sometimes through what it writes itself.
    size_t end = log_.size();
    for (size_t i = 0; i < end; ++i) {
      if (random_.Below(10) == 0) OwnWrite(owner, &replay);
      if (random_.Below(20) == 0) end = log_.size();
      if (crashes && random_.Below(end) == 0) break;
      auto step = replay.Read(log_[i].key, log_[i].value);
      ASSERT_THAT(step, tests::IsOk());
      if (step->effect == Effect::kPut) {
        owner.view[step->identity] = Value{step->epoch, step->payload};
      } else if (step->effect == Effect::kRemove) {
        ASSERT_EQ(owner.view.erase(step->identity), 1u);
      }
    }
    if (crashes) {
      owners_.push_back(std::move(owner));
      return;
    }
    ++restores_;
    for (const auto& [identity, value] : truth_) {
      ASSERT_EQ(owner.view.count(identity), 1u) << identity << " is lost";
      ASSERT_EQ(owner.view[identity], value) << identity;
    }
    for (const auto& [identity, value] : owner.view) {
      ASSERT_EQ(truth_.count(identity), 1u) << identity << " is revived";
    }
    for (const std::string& identity : replay.Reassert()) {
      Value& value = owner.view[identity];
      Append(Put(owner.epoch, identity, value.payload));
      Append(Without(ChangelogKind::kErase, value.epoch, identity));
      value.epoch = owner.epoch;
      truth_[identity] = value;
    }
    for (std::string& key : replay.TakeErasable()) {
      log_.push_back(EncodedChangelogRecord{std::move(key), ""});
    }
    settled_ = true;
    owners_.push_back(std::move(owner));
  }

  // Records with a later one of their key go, tombstones too when nothing is left that they hide.
  // While a take-over is under way its records are in the segment that is written to, which is
  // never compacted.
  void Compact() {
    if (settled_) compactable_ = log_.size();
    const size_t limit = random_.Below(compactable_ + 1);
    std::map<std::string, size_t> last;
    for (size_t i = 0; i < limit; ++i) last[log_[i].key] = i;
    std::vector<EncodedChangelogRecord> kept;
    const bool tombstones_expired = random_.Below(2) == 0;
    for (size_t i = 0; i < log_.size(); ++i) {
      const bool superseded = i < limit && last[log_[i].key] != i;
      const bool expired = i < limit && tombstones_expired && log_[i].value.empty();
      if (!superseded && !expired) kept.push_back(log_[i]);
    }
    compacted_ += log_.size() - kept.size();
    compactable_ -= log_.size() - kept.size();
    log_ = std::move(kept);
  }

  Random random_;
  std::vector<EncodedChangelogRecord> log_;
  std::vector<Owner> owners_;
  std::map<std::string, Value> truth_;
  uint64_t epoch_ = 0;
  uint64_t payloads_ = 0;
  uint64_t entries_ = 0;
  size_t compactable_ = 0;
  bool settled_ = false;  // the last take-over came to its end
  uint64_t restores_ = 0;
  uint64_t compacted_ = 0;
};

TEST(ChangelogReplaySimulation, LosesNothingAndRevivesNothingOverCompactionAndLateWriters) {
  uint64_t restores = 0;
  uint64_t compacted = 0;
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ChangelogSimulation simulation(seed);
    simulation.Run(80);
    restores += simulation.restores();
    compacted += simulation.compacted();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(restores, 3'000u);
  EXPECT_GT(compacted, 10'000u);
}

}  // namespace
}  // namespace postrider
