#include "delivery/backlog_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "delivery/outcome.h"

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
  attempts.last_outcome = kOutcomeKinds;
  EXPECT_FALSE(serializer.decode(serializer.encode(attempts, 2), 2));
  attempts.last_outcome = 0;
  attempts.last_status = 1'000;
  EXPECT_FALSE(serializer.decode(serializer.encode(attempts, 1), 1));
}

TEST(BacklogStateTest, AttemptsOfTheVersionBeforeAreReadAndWrittenUntilTheUpgradeIsFinished) {
  const StateSerializer<BatchAttempts> serializer = BatchAttemptsSerializer();
  EXPECT_EQ(serializer.version_write, 1u);
  EXPECT_EQ(serializer.version_max, 2u);
  BatchAttempts attempts;
  attempts.tries = 1;
  attempts.due = WallTimeFromMillis(1'900'000'005'000);
  attempts.set_at = WallTimeFromMillis(1'900'000'000'000);
  attempts.last_outcome = static_cast<uint32_t>(OutcomeKind::kPartlyDelivered);
  const std::string second = serializer.encode(attempts, 2);
  EXPECT_EQ(serializer.decode(second, 2), attempts);
  EXPECT_FALSE(serializer.decode(second, 1));
  for (size_t size = 0; size < second.size(); ++size) {
    EXPECT_FALSE(serializer.decode(second.substr(0, size), 2)) << size;
  }
  // What readers of version 1 do not know they are not told.
  const absl::optional<BatchAttempts> first = serializer.decode(serializer.encode(attempts, 1), 1);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->set_at);
  EXPECT_EQ(first->last_outcome, static_cast<uint32_t>(OutcomeKind::kOtherStatus));
  EXPECT_EQ(first->due, attempts.due);
}

TEST(BacklogStateTest, NoRetryWaitsLongerThanWasAskedForWhateverTheClockSays) {
  using std::chrono::hours;
  using std::chrono::seconds;
  const WallTime set_at = WallTimeFromMillis(1'900'000'000'000);
  BatchAttempts attempts;
  attempts.set_at = set_at;
  attempts.due = set_at + seconds(60);
  EXPECT_EQ(LeftUntilDue(attempts, set_at), seconds(60));
  EXPECT_EQ(LeftUntilDue(attempts, set_at + seconds(59)), seconds(1));
  EXPECT_EQ(LeftUntilDue(attempts, set_at + seconds(60)), seconds(0));
  EXPECT_EQ(LeftUntilDue(attempts, set_at + hours(1'000)), seconds(0));
  EXPECT_EQ(LeftUntilDue(attempts, set_at - hours(1'000)), seconds(60)) << "set back";
  EXPECT_EQ(LeftUntilDue(attempts, WallTimeFromMillis(std::numeric_limits<int64_t>::min())),
            seconds(60));
  attempts.due = set_at - seconds(1);
  EXPECT_EQ(LeftUntilDue(attempts, set_at), seconds(0));
  attempts.due = set_at + hours(1'000);
  EXPECT_EQ(LeftUntilDue(attempts, set_at), hours(24));
  // Version 1.
  attempts.set_at.reset();
  attempts.due = set_at + seconds(60);
  EXPECT_EQ(LeftUntilDue(attempts, set_at - hours(1)), hours(1) + seconds(60));
  EXPECT_EQ(LeftUntilDue(attempts, set_at - hours(100)), hours(24));
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
