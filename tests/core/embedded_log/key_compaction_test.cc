#include <chrono>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "gtest/gtest.h"
#include "tests/core/embedded_log/log_fixture.h"

namespace postrider::tests {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class KeyCompactionTest : public EmbeddedLogTest {
 protected:
  const TopicPartition tp_{"log", 0};

  void OpenCompacted() {
    Open();
    MakeTopic("log", 1, {{"cleanup.policy", "compact"}, {"delete.retention.ms", "3600000"}});
  }
  // The last run is never compacted: what is appended here is alone in it.
  void AppendLast() { ASSERT_TRUE(Append(Record(tp_, "last", "x")).ok()); }
  void Put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(Append(Record(tp_, key, value)).ok());
  }
  std::string Told() {
    std::string told;
    for (const KeptRecord& record : ReadAll(tp_).records) {
      absl::StrAppend(&told, record.offset, ":", record.key,
                      record.tombstone ? "-" : "=" + record.value, " ");
    }
    return told;
  }
  // Reads go to memory first, where nothing is compacted.
  void Compact() {
    log_->RunUpkeep();
    Reopen();
  }
};

TEST_F(KeyCompactionTest, KeepsTheLastRecordOfEachKeyAtItsOffset) {
  OpenCompacted();
  Put("a", "1");
  Put("b", "1");
  Put("a", "2");
  ASSERT_TRUE(Append(Record(tp_, "", "no key")).ok());
  Put("c", "1");
  Put("b", "2");
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "2:a=2 3:=no key 4:c=1 5:b=2 6:last=x ");
  EXPECT_EQ(log_->Offsets(tp_, kTimeout)->end, 7);
  EXPECT_EQ(log_->Offsets(tp_, kTimeout)->begin, 0);
  Put("c", "2");
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "2:a=2 3:=no key 5:b=2 6:last=x 7:c=2 8:last=x ");
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "2:a=2 3:=no key 5:b=2 7:c=2 8:last=x 9:last=x ");
}

TEST_F(KeyCompactionTest, KeepsATombstoneForItsTimeAfterTheRoundThatMadeItTheLastWord) {
  OpenCompacted();
  Put("a", "1");
  ASSERT_TRUE(Append(Tombstone(tp_, "a")).ok());
  Put("b", "1");
  // However old it is when it is first seen: a reader may just have come past the value.
  clock_.Advance(hours(48));
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "1:a- 2:b=1 3:last=x ");
  clock_.Advance(hours(1) - milliseconds(1));
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "1:a- 2:b=1 3:last=x 4:last=x ");
  clock_.Advance(milliseconds(1));
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "2:b=1 4:last=x 5:last=x ");
}

TEST_F(KeyCompactionTest, NeverCompactsWhatIsNotToBe) {
  Open();
  MakeTopic("log", 1, {{"cleanup.policy", "delete"}});
  Put("a", "1");
  Put("a", "2");
  AppendLast();
  Compact();
  EXPECT_EQ(Told(), "0:a=1 1:a=2 2:last=x ");
}

TEST_F(KeyCompactionTest, LeavesYoungRecordsToReadersThatFollow) {
  Open();
  MakeTopic("log", 1, {{"cleanup.policy", "compact"}, {"min.compaction.lag.ms", "60000"}});
  Put("a", "1");
  Put("a", "2");
  AppendLast();
  clock_.Advance(milliseconds(59'999));
  Compact();
  EXPECT_EQ(Told(), "0:a=1 1:a=2 2:last=x ");
  clock_.Advance(milliseconds(1));
  Compact();
  EXPECT_EQ(Told(), "1:a=2 2:last=x ");
}

TEST_F(KeyCompactionTest, GivesTheSameAsAMapOverManyRandomRounds) {
  OpenCompacted();
  Random random(7);
  std::map<std::string, std::string> expected;
  int records = 0;
  for (int round = 0; round < 8; ++round) {
    int acknowledged = 0;
    const int count = 500 + static_cast<int>(random.Below(3'000));
    for (int i = 0; i < count; ++i) {
      const std::string key = absl::StrCat("key ", random.Below(300));
      const bool remove = random.Below(4) == 0;
      const std::string value = absl::StrCat(records++, std::string(random.Below(300), 'v'));
      if (remove) {
        expected.erase(key);
      } else {
        expected[key] = value;
      }
      ASSERT_TRUE(
          producer().Append(remove ? Tombstone(tp_, key) : Record(tp_, key, value),
                            [&](absl::StatusOr<int64_t> at) { acknowledged += at.ok() ? 1 : 0; }));
    }
    ASSERT_TRUE(Until([&] { return acknowledged == count; }));
    clock_.Advance(std::chrono::minutes(40));
    AppendLast();
    expected["last"] = "x";
    ++records;
    Compact();
    std::map<std::string, std::string> read;
    int64_t before = -1;
    for (const KeptRecord& record : ReadAll(tp_).records) {
      EXPECT_GT(record.offset, before);
      before = record.offset;
      if (record.tombstone) {
        read.erase(record.key);
      } else {
        read[record.key] = record.value;
      }
    }
    ASSERT_EQ(read, expected) << "round " << round;
  }
  // 300 keys, their tombstones and what the last run and the last round left.
  EXPECT_LT(ReadAll(tp_).records.size(), 4'000u);
  EXPECT_GT(Metric("postrider_embedded_log_compacted_records_total"), 5'000);
}

TEST_F(KeyCompactionTest, StopsShortOfWhatIsTrimmedMeanwhile) {
  OpenCompacted();
  for (int i = 0; i < 20; ++i) Put(absl::StrCat("k", i % 3), absl::StrCat(i));
  AppendLast();
  ASSERT_TRUE(Trim(tp_, 19).ok());
  Compact();
  EXPECT_EQ(Told(), "19:k1=19 20:last=x ");
}

}  // namespace
}  // namespace postrider::tests
