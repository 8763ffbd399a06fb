#include "core/json/time_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace postrider {
namespace {

absl::optional<int64_t> Millis(absl::string_view text) {
  const absl::optional<WallTime> time = ParseRfc3339(text);
  return time ? absl::make_optional(MillisSinceEpoch(*time)) : absl::nullopt;
}

TEST(TimeTextTest, DATA_10_ReadsTheFormsOfRfc3339WhateverTheMachinesZone) {
  for (const char* zone : {"Pacific/Apia", "America/St_Johns", "UTC"}) {
    ::setenv("TZ", zone, 1);
    ::tzset();
    EXPECT_EQ(Millis("1970-01-01T00:00:00Z"), 0);
    EXPECT_EQ(Millis("2030-03-31T01:30:00+01:00"), 1901147400000);
    EXPECT_EQ(Millis("2030-03-31T00:30:00.000Z"), 1901147400000);
    EXPECT_EQ(Millis("2030-03-30t19:30:00.0-05:00"), 1901147400000);
    EXPECT_EQ(Millis("2030-03-31 00:30:00.1239999z"), 1901147400123);
    EXPECT_EQ(Millis("1969-12-31T23:59:59.999Z"), -1);
    EXPECT_EQ(Millis("2016-12-31T23:59:60Z"), Millis("2017-01-01T00:00:00Z"));
    EXPECT_EQ(Millis("2024-02-29T00:00:00Z"), 1709164800000);
    EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(1901147400007)), "2030-03-31T00:30:00.007Z");
  }
}

TEST(TimeTextTest, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "2030-03-31", "2030-03-31T01:30:00", "2030-02-30T00:00:00Z", "2030-13-01T00:00:00Z",
        "2023-02-29T00:00:00Z", "2030-03-31T24:00:00Z", "2030-03-31T23:60:00Z",
        "2030-03-31T23:59:61Z", "2030-03-31T01:30:00.Z", "2030-03-31T01:30:00+1:00",
        "2030-03-31T01:30:00+24:00", "2030-03-31T01:30:00+0100", "2030-03-31T01:30:00Z ",
        " 2030-03-31T01:30:00Z", "10000-01-01T00:00:00Z", "9999-12-31T23:59:59-00:01",
        "2030-3-31T01:30:00Z", "2030-03-31T01:30Z"}) {
    EXPECT_EQ(Millis(text), absl::nullopt) << text;
  }
}

TEST(TimeTextTest, WritesWhatItReadsAndHoldsTheRange) {
  for (const int64_t millis :
       {int64_t{0}, int64_t{-1}, int64_t{1901147400123}, int64_t{253402300799999}}) {
    EXPECT_EQ(Millis(FormatRfc3339(WallTimeFromMillis(millis))), millis);
  }
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(253402300800000)), "9999-12-31T23:59:59.999Z");
  EXPECT_EQ(FormatRfc3339(WallTimeFromMillis(INT64_MIN / 2)), "0000-01-01T00:00:00.000Z");
}

}  // namespace
}  // namespace postrider
