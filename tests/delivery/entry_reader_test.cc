#include "delivery/entry_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "delivery/endpoint_health.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

IdBytes Digest(uint64_t order) {
  IdBytes digest{};
  digest[0] = static_cast<uint8_t>(order >> 8);
  digest[1] = static_cast<uint8_t>(order);
  return digest;
}

class EntryReaderTest : public testing::Test {
 protected:
  static std::string Encoded() {
    subscriptions::DispatchRecord record;
    record.tenant = "t1";
    record.data = "{}";
    return subscriptions::EncodeDispatchRecord(record);
  }
  static size_t RoomOfOne() { return Encoded().size() + kMessageOverheadBytes; }
  EntryReader Reader(size_t room_bytes) {
    return EntryReader(state_, left_out_, rooms_, rooms_.TakeAnyway(state_.room, room_bytes),
                       MonotonicTime() + std::chrono::seconds(7));
  }
  static absl::optional<Message> Read(EntryReader& reader, uint64_t order,
                                      const std::string& encoded = Encoded()) {
    return reader.Read(order, Digest(order), encoded, ListState::Place());
  }

  HealthOptions options_;
  BacklogRoom rooms_{1 << 20};
  EndpointState state_{options_};
  absl::flat_hash_set<IdBytes> left_out_;
};

TEST_F(EntryReaderTest, MakesAMessageThatIsInMemoryOnceItIsTaken) {
  EntryReader reader = Reader(RoomOfOne());
  absl::optional<Message> message = Read(reader, 5);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->order, 5u);
  EXPECT_EQ(message->digest, Digest(5));
  EXPECT_EQ(message->arrived, MonotonicTime() + std::chrono::seconds(7));
  EXPECT_TRUE(message->listed);
  EXPECT_FALSE(message->pending);
  EXPECT_TRUE(message->place.has_value());
  EXPECT_EQ(state_.drain_from, 0u) << "it may be left for later";
  EXPECT_TRUE(state_.claimed.empty());
  reader.Take(*message);
  EXPECT_EQ(state_.drain_from, 6u);
  EXPECT_TRUE(state_.claimed.contains(Digest(5)));
  EXPECT_EQ(message->content->room.bytes(), RoomOfOne());
  EXPECT_EQ(reader.taken(), 1u);
  // Its own scan does not show it again, another one steps over it.
  EXPECT_FALSE(Read(reader, 5).has_value());
  EXPECT_TRUE(reader.goes_on());
}

TEST_F(EntryReaderTest, HasRoomForTheFirstWhateverItTakesAndForOthersWhatIsLeft) {
  EntryReader reader = Reader(2 * RoomOfOne() - 1);
  absl::optional<Message> first = Read(reader, 1);
  ASSERT_TRUE(first.has_value());
  reader.Take(*first);
  absl::optional<Message> second = Read(reader, 2);
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(reader.HasRoom(*second));
  // What is missing is taken in excess.
  reader.Take(*second);
  EXPECT_EQ(second->content->room.bytes(), RoomOfOne());
  EXPECT_EQ(state_.room.bytes, 2 * RoomOfOne());

  EntryReader without = Reader(0);
  absl::optional<Message> third = Read(without, 3);
  ASSERT_TRUE(third.has_value());
  EXPECT_TRUE(without.HasRoom(*third));
}

TEST_F(EntryReaderTest, StepsOverWhatIsInMemoryAndWhatWaitsWithoutItsMembersUpToABound) {
  constexpr uint64_t kMax = 5'000;
  left_out_.insert(Digest(1));
  for (uint64_t order = 2; order <= kMax; ++order) state_.claimed.insert(Digest(order));
  EntryReader reader = Reader(0);
  for (uint64_t order = 1; order < kMax; ++order) {
    ASSERT_FALSE(Read(reader, order).has_value());
    ASSERT_TRUE(reader.goes_on()) << order;
  }
  EXPECT_FALSE(Read(reader, kMax).has_value());
  EXPECT_FALSE(reader.goes_on());
  EXPECT_EQ(reader.stepped_over(), kMax);
  EXPECT_EQ(state_.drain_from, kMax + 1);
}

TEST_F(EntryReaderTest, CollectsWhatNobodyOfUsHasWrittenUpToABound) {
  constexpr uint64_t kMax = 64;
  EntryReader reader = Reader(0);
  for (uint64_t order = 1; order <= kMax; ++order) {
    ASSERT_TRUE(reader.goes_on());
    ASSERT_FALSE(Read(reader, order, "\xff not ours").has_value());
  }
  EXPECT_FALSE(reader.goes_on());
  EXPECT_TRUE(reader.fault().ok());
  ASSERT_EQ(reader.damaged().size(), kMax);
  EXPECT_EQ(reader.damaged()[0].order, 1u);
  EXPECT_EQ(reader.damaged()[0].encoded, "\xff not ours");
  EXPECT_EQ(state_.drain_from, kMax + 1);
}

TEST_F(EntryReaderTest, EndsAtAnEntryThatOnlyANewerProgramReads) {
  std::string newer = Encoded();
  newer[0] = 4;
  EntryReader reader = Reader(0);
  EXPECT_FALSE(Read(reader, 4, newer).has_value());
  EXPECT_FALSE(reader.goes_on());
  EXPECT_TRUE(absl::IsUnimplemented(reader.fault()));
  EXPECT_EQ(state_.drain_from, 0u);
}

}  // namespace
}  // namespace postrider::delivery
