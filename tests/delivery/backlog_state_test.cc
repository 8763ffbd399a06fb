#include "delivery/backlog_state.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace postrider::delivery {
namespace {

IdBytes Digest(uint8_t first) {
  IdBytes digest{};
  digest[0] = first;
  return digest;
}

TEST(BacklogStateTest, MembersComeBackInTheirOrder) {
  const StateSerializer<std::vector<BatchMember>> serializer = BatchMembersSerializer();
  const std::vector<BatchMember> members = {
      {5, Digest(1), 700}, {6, Digest(2), 0}, {~uint64_t{0}, Digest(3), ~uint32_t{0}}, {1, {}, 1}};
  const std::string encoded = serializer.encode(members, 1);
  EXPECT_EQ(serializer.decode(encoded, 1), members);
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(serializer.decode(encoded.substr(0, size), 1)) << size;
  }
  EXPECT_FALSE(serializer.decode(encoded + '\0', 1));
  EXPECT_EQ(serializer.decode(serializer.encode({}, 1), 1), std::vector<BatchMember>());
}

TEST(BacklogStateTest, AttemptsComeBackAndNoOutcomeThatIsNotKnown) {
  const StateSerializer<BatchAttempts> serializer = BatchAttemptsSerializer();
  BatchAttempts attempts;
  attempts.attempts = 3;
  attempts.tries = 5;
  attempts.first_try = WallTimeFromMillis(-1);
  attempts.due = WallTimeFromMillis(1'900'000'000'000);
  attempts.last_outcome = 11;
  attempts.last_status = 503;
  EXPECT_EQ(serializer.decode(serializer.encode(attempts, 1), 1), attempts);
  attempts.last_outcome = 99;
  EXPECT_FALSE(serializer.decode(serializer.encode(attempts, 1), 1));
  attempts.last_outcome = 0;
  attempts.last_status = 1'000;
  EXPECT_FALSE(serializer.decode(serializer.encode(attempts, 1), 1));
}

TEST(BacklogStateTest, HasBacklogIsOneByte) {
  const StateSerializer<bool> serializer = HasBacklogSerializer();
  EXPECT_EQ(serializer.decode(serializer.encode(true, 1), 1), true);
  EXPECT_EQ(serializer.decode(serializer.encode(false, 1), 1), false);
  EXPECT_FALSE(serializer.decode("", 1));
  EXPECT_FALSE(serializer.decode("\x02", 1));
}

}  // namespace
}  // namespace postrider::delivery
