#include "core/stream/control_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "core/stream/trim_holds.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

SavepointHold Hold() {
  SavepointHold hold;
  hold.pool = "default";
  hold.id = "sp_1";
  hold.group = "g";
  hold.topic = "dispatch";
  hold.created = WallTimeFromMillis(1'000);
  hold.expires = WallTimeFromMillis(5'000);
  hold.offsets = {7, 0, std::numeric_limits<int64_t>::max()};
  return hold;
}

RestoreMark Mark() {
  RestoreMark mark;
  mark.pool = "default";
  mark.savepoint = "sp_1";
  mark.began = WallTimeFromMillis(9);
  mark.repeated_max = 300;
  return mark;
}

PoolRecord Pool() {
  PoolRecord pool;
  pool.pool = "default";
  pool.phase = PoolRecord::Phase::kMoving;
  pool.generation = 300;
  pool.key_groups = 4'096;
  pool.holder = {7, 8};
  pool.lease_until = WallTimeFromMillis(12'345);
  pool.key_groups_next = 96;
  pool.generation_tried = 302;
  pool.generation_left = 299;
  return pool;
}

TEST(ControlRecord, GivesBackWhatWasWritten) {
  EXPECT_THAT(DecodePoolRecord(EncodePoolRecord(Pool())), tests::IsOkAndHolds(Pool()));
  EXPECT_THAT(DecodePoolRecord(EncodePoolRecord({})), tests::IsOkAndHolds(PoolRecord()));
  EXPECT_THAT(DecodeSavepointHold(EncodeSavepointHold(Hold())), tests::IsOkAndHolds(Hold()));
  EXPECT_THAT(DecodeSavepointHold(EncodeSavepointHold({})), tests::IsOkAndHolds(SavepointHold()));
  EXPECT_THAT(DecodeRestoreMark(EncodeRestoreMark(Mark())), tests::IsOkAndHolds(Mark()));
  const IdBytes identity = {1, 2, 3};
  EXPECT_THAT(DecodeLogIdentity(EncodeLogIdentity(identity)), tests::IsOkAndHolds(identity));
}

template <typename Decoder>
void RefusesEveryChange(const std::string& bytes, Decoder decode) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_THAT(decode(changed), tests::StatusIs(absl::StatusCode::kDataLoss)) << i;
    }
    EXPECT_THAT(decode(bytes.substr(0, i)), tests::StatusIs(absl::StatusCode::kDataLoss)) << i;
  }
  EXPECT_FALSE(decode(bytes + "x").ok());
}

TEST(ControlRecord, RefusesEveryChangedByteAndEveryCut) {
  RefusesEveryChange(EncodeSavepointHold(Hold()),
                     [](const std::string& bytes) { return DecodeSavepointHold(bytes); });
  RefusesEveryChange(EncodeRestoreMark(Mark()),
                     [](const std::string& bytes) { return DecodeRestoreMark(bytes); });
  RefusesEveryChange(EncodePoolRecord(Pool()),
                     [](const std::string& bytes) { return DecodePoolRecord(bytes); });
  RefusesEveryChange(EncodeLogIdentity({1, 2}),
                     [](const std::string& bytes) { return DecodeLogIdentity(bytes); });
}

TEST(ControlRecord, ReadsItsOwnKeysAndNoOthers) {
  const ControlKey hold = ParseControlKey(SavepointHoldKey("default", "sp_1"));
  EXPECT_EQ(hold.kind, ControlKey::Kind::kSavepointHold);
  EXPECT_EQ(hold.pool, "default");
  EXPECT_EQ(hold.id, "sp_1");
  const ControlKey mark = ParseControlKey(RestoreMarkKey("default"));
  EXPECT_EQ(mark.kind, ControlKey::Kind::kRestoreMark);
  EXPECT_EQ(mark.pool, "default");
  const ControlKey pool = ParseControlKey(PoolKey("default"));
  EXPECT_EQ(pool.kind, ControlKey::Kind::kPool);
  EXPECT_EQ(pool.pool, "default");
  EXPECT_EQ(ParseControlKey(LogIdentityKey()).kind, ControlKey::Kind::kLogIdentity);
  for (const char* other :
       {"", "savepoint/", "savepoint/a", "savepoint//b", "savepoint/a/", "savepoint/a/b/c",
        "restore/", "restore/a/b", "pool/", "pool/a/b", "log-identity2", "x"}) {
    EXPECT_EQ(ParseControlKey(other).kind, ControlKey::Kind::kUnknown) << other;
  }
}

TEST(ControlRecord, NamesGenerationsAsNoPoolIsCalled) {
  EXPECT_EQ(GenerationName("default", 1), "default");
  EXPECT_EQ(GenerationName("default", 2), "default.g2");
  for (const char* name : {"default", "g2", "a.g", "a.g2x", "a.2", "2"}) {
    EXPECT_TRUE(IsPoolName(name)) << name;
  }
  for (const char* name : {"", "a/b", "default.g2", ".g12"}) EXPECT_FALSE(IsPoolName(name)) << name;
}

class TrimHoldsTest : public testing::Test {
 protected:
  absl::optional<int64_t> Held(int32_t partition, int64_t now_ms = 1'000,
                               const std::string& group = "g",
                               const std::string& topic = "dispatch") const {
    return holds_.LowestHeld(group, {topic, partition}, WallTimeFromMillis(now_ms));
  }
  TrimHolds holds_;
};

TEST_F(TrimHoldsTest, HoldTheLowestOffsetOfThoseThatHaveNotExpired) {
  EXPECT_EQ(Held(0), absl::nullopt);
  holds_.Set("default", "sp_1", EncodeSavepointHold(Hold()));
  SavepointHold lower = Hold();
  lower.id = "sp_2";
  lower.offsets = {3};
  lower.expires = WallTimeFromMillis(2'000);
  holds_.Set("default", "sp_2", EncodeSavepointHold(lower));
  EXPECT_EQ(Held(0, 1'999), 3);
  EXPECT_EQ(Held(0, 2'000), 7);
  EXPECT_EQ(Held(0, 4'999), 7);
  EXPECT_EQ(Held(0, 5'000), absl::nullopt);
  EXPECT_EQ(Held(1), 0);
  EXPECT_EQ(Held(3), absl::nullopt);
  EXPECT_EQ(Held(0, 1'000, "other"), absl::nullopt);
  EXPECT_EQ(Held(0, 1'000, "g", "other"), absl::nullopt);
}

TEST_F(TrimHoldsTest, AreDroppedByARecordWithoutValue) {
  holds_.Set("default", "sp_1", EncodeSavepointHold(Hold()));
  holds_.Set("default", "sp_1", absl::string_view());
  EXPECT_EQ(Held(0), absl::nullopt);
}

TEST_F(TrimHoldsTest, HoldEverythingWhileOneCannotBeRead) {
  holds_.Set("default", "sp_1", "of a newer version");
  EXPECT_EQ(Held(0), 0);
  EXPECT_EQ(Held(0, 1'000, "other", "other"), 0);
  EXPECT_EQ(holds_.unreadable().size(), 1u);
  holds_.Set("default", "sp_1", absl::string_view());
  EXPECT_EQ(Held(0), absl::nullopt);
}

TEST_F(TrimHoldsTest, TakeNoHoldUnderAnotherKeyThanItsOwn) {
  holds_.Set("other", "sp_1", EncodeSavepointHold(Hold()));
  EXPECT_EQ(holds_.holds().size(), 0u);
  EXPECT_EQ(holds_.unreadable().size(), 1u);
}

}  // namespace
}  // namespace postrider
