#include "delivery/part_notice.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "subscriptions/dispatch/dispatch_record.h"

namespace postrider::delivery {
namespace {

PartNotice Example() {
  return {DisableReason::kFailing, 300, WallTimeFromMillis(1'900'000'000'123)};
}

TEST(PartNoticeTest, DecodesWhatItEncodes) {
  PartNotice notice = Example();
  EXPECT_EQ(*DecodePartNotice(EncodePartNotice(notice)), notice);
  notice = {DisableReason::kGone, UINT64_MAX, WallTimeFromMillis(-5)};
  EXPECT_EQ(*DecodePartNotice(EncodePartNotice(notice)), notice);
}

TEST(PartNoticeTest, RefusesWhatWasNeverWritten) {
  const std::string encoded = EncodePartNotice(Example());
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodePartNotice(encoded.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodePartNotice(encoded + "x").status()));
  for (const size_t place : {0u, 2u}) {
    for (const char bad : {'\0', '\x7f'}) {
      std::string damaged = encoded;
      damaged[place] = bad;
      EXPECT_TRUE(absl::IsDataLoss(DecodePartNotice(damaged).status())) << place;
    }
  }
}

TEST(PartNoticeTest, TellsANewerVersionFromDamage) {
  std::string encoded = EncodePartNotice(Example());
  encoded[1] = 2;
  EXPECT_TRUE(absl::IsUnimplemented(DecodePartNotice(encoded).status()));
}

TEST(PartNoticeTest, WhoDoesNotKnowItTakesItForALaterVersionOfAMessage) {
  EXPECT_TRUE(absl::IsUnimplemented(
      subscriptions::DecodeDispatchRecord(EncodePartNotice(Example())).status()));
}

}  // namespace
}  // namespace postrider::delivery
