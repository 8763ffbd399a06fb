// What fuzzing has taught about ChangelogReplay; the rest is in
// tests/core/stream/changelog_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/stream/changelog.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using testing::ElementsAre;

TEST(ChangelogReplay, KeepsARecordThatWasPutAgainAfterTheLateDeleteOfALowerEpoch) {
  ChangelogReplay replay(3, [](absl::string_view) { return ChangelogReplay::Rule::kOnce; });
  const auto read = [&](ChangelogKind kind, uint64_t epoch, const std::string& identity) {
    const EncodedChangelogRecord record = EncodeChangelogRecord({kind, epoch, identity, ""});
    EXPECT_THAT(replay.Read(record.key, record.value), tests::IsOk());
  };
  read(ChangelogKind::kMarker, 2, "");
  read(ChangelogKind::kPut, 2, "id");
  read(ChangelogKind::kDelete, 1, "id");
  read(ChangelogKind::kPut, 2, "id");
  // Its record is the one of epoch 2, which the delete seemed to have done with.
  EXPECT_THAT(replay.Reassert(), testing::IsEmpty());
  EXPECT_THAT(replay.TakeErasable(), ElementsAre(ChangelogRecordKey("id", 1)));
}

}  // namespace
}  // namespace postrider
