#include "core/base/log.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const LogField& field) { return field.text(); }

TEST(LogFieldTest, WritesPlainValuesBare) {
  EXPECT_EQ(Text({"key", "value-1.2/x"}), "key=value-1.2/x");
  EXPECT_EQ(Text({"key", std::string("v")}), "key=v");
  EXPECT_EQ(Text({"key", true}), "key=true");
  EXPECT_EQ(Text({"key", -7}), "key=-7");
  EXPECT_EQ(Text({"key", size_t{7}}), "key=7");
  EXPECT_EQ(Text({"key", std::numeric_limits<int64_t>::min()}), "key=-9223372036854775808");
}

TEST(LogFieldTest, WritesNumbersAndDurationsWithoutExponents) {
  EXPECT_EQ(Text({"key", 0.25}), "key=0.25");
  EXPECT_EQ(Text({"key", 100000.0}), "key=100000");
  EXPECT_EQ(Text({"wait_ms", std::chrono::seconds(86400)}), "wait_ms=86400000");
  EXPECT_EQ(Text({"wait_ms", std::chrono::microseconds(1500)}), "wait_ms=1.5");
  EXPECT_EQ(Text({"key", std::numeric_limits<double>::infinity()}), "key=inf");
}

TEST(LogFieldTest, QuotesWhatWouldBreakALine) {
  EXPECT_EQ(Text({"key", ""}), "key=\"\"");
  EXPECT_EQ(Text({"key", "a b"}), "key=\"a b\"");
  EXPECT_EQ(Text({"key", "a=b"}), "key=\"a=b\"");
  EXPECT_EQ(Text({"key", "a\"b\\"}), "key=\"a\\\"b\\\\\"");
  EXPECT_EQ(Text({"key", "a\nlevel=error\r\t"}), "key=\"a\\nlevel=error\\r\\t\"");
}

TEST(LogFieldTest, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Text({"key", "\x1b[2J\x7f"}), "key=\"\\x1b[2J\\x7f\"");
  EXPECT_EQ(Text({"key", "\xc2\x9b"}), "key=\"\\xc2\\x9b\"");
  EXPECT_EQ(Text({"key", "\xff"}), "key=\"\\xff\"");
  EXPECT_EQ(Text({"key", absl::string_view("\0", 1)}), "key=\"\\x00\"");
}

TEST(LogFieldTest, KeepsValidUtf8) {
  EXPECT_EQ(Text({"key", "Zürich €😀"}), "key=\"Zürich €😀\"");
  EXPECT_EQ(Text({"key", "\xe2\x82"}), "key=\"\\xe2\\x82\"");
  EXPECT_EQ(Text({"key", "\xed\xa0\x80"}), "key=\"\\xed\\xa0\\x80\"");
}

TEST(LogFieldTest, CutsALongValue) {
  EXPECT_EQ(Text({"k", std::string(4096, 'a')}), "k=" + std::string(4096, 'a'));
  EXPECT_EQ(Text({"k", std::string(4097, 'a')}), "k=\"" + std::string(4096, 'a') + "...\"");
}

TEST(LogLevelTest, ReadsTheFourNamesOnly) {
  LogLevel level = LogLevel::kInfo;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_TRUE(ParseLogLevel("warn", &level));
  EXPECT_EQ(level, LogLevel::kWarn);
  EXPECT_FALSE(ParseLogLevel("warning", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kWarn);
}

TEST(LogSiteTest, AdmitsTenLinesInARowAndThenOneEachTenSeconds) {
  internal::LogSite site;
  int64_t suppressed = -1;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(site.AdmitAt(1'000'000, &suppressed)) << i;
    EXPECT_EQ(suppressed, 0);
  }
  EXPECT_FALSE(site.AdmitAt(1'000'000, &suppressed));
  EXPECT_FALSE(site.AdmitAt(1'009'999, &suppressed));
  EXPECT_TRUE(site.AdmitAt(1'010'000, &suppressed));
  EXPECT_EQ(suppressed, 2);
  EXPECT_FALSE(site.AdmitAt(1'010'001, &suppressed));
  EXPECT_TRUE(site.AdmitAt(1'020'000, &suppressed));
  EXPECT_EQ(suppressed, 1);
}

TEST(LogSiteTest, AdmitsTenAgainAfterAQuietWindow) {
  internal::LogSite site;
  int64_t suppressed = 0;
  for (int i = 0; i < 12; ++i) site.AdmitAt(1'000'000, &suppressed);
  EXPECT_TRUE(site.AdmitAt(1'010'000, &suppressed));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(site.AdmitAt(1'020'000, &suppressed)) << i;
  EXPECT_FALSE(site.AdmitAt(1'020'000, &suppressed));
}

TEST(LogSiteTest, AdmitsTenLinesJustAfterBoot) {
  internal::LogSite site;
  int64_t suppressed = 0;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(site.AdmitAt(5, &suppressed)) << i;
  EXPECT_FALSE(site.AdmitAt(5, &suppressed));
}

TEST(LogTest, WritesALogfmtLineToStandardError) {
  ::testing::internal::CaptureStderr();
  POSTRIDER_LOG(kWarn, "worker assigned", {"key_groups", 8}, {"why", "a b"});
  POSTRIDER_LOG(kError, "bare");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ContainsRegex("^time=20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z "
                                  "level=warn msg=\"worker assigned\" key_groups=8 "
                                  "why=\"a b\"\ntime=[^ ]+ level=error msg=bare\n$"));
}

TEST(LogTest, SaysNothingBelowItsLevel) {
  StartLog(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  POSTRIDER_LOG(kInfo, "unheard");
  POSTRIDER_LOG(kWarn, "heard");
  const std::string text = ::testing::internal::GetCapturedStderr();
  StartLog(LogLevel::kInfo);
  EXPECT_THAT(text, Not(HasSubstr("unheard")));
  EXPECT_THAT(text, EndsWith("level=warn msg=heard\n"));
}

TEST(LogTest, LimitsEachPlaceByItself) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 15; ++i) POSTRIDER_LOG(kWarn, "often", {"i", i});
  POSTRIDER_LOG(kWarn, "once");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("i=9\n"));
  EXPECT_THAT(text, Not(HasSubstr("i=10\n")));
  EXPECT_THAT(text, HasSubstr("msg=once"));
}

}  // namespace
}  // namespace postrider
