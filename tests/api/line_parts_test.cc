#include "api/line_parts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/router.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> All(LineParts& parts) {
  std::vector<std::string> all;
  while (absl::optional<std::string> part = parts.Next()) all.push_back(*std::move(part));
  return all;
}

TEST(LinePartsTest, HandsOutWholeLinesAsTheyCome) {
  LineParts parts;
  EXPECT_THAT(All(parts), ElementsAre());
  parts.Add("a\nb\nc");
  EXPECT_THAT(All(parts), ElementsAre("a\nb"));
  EXPECT_EQ(parts.next_line(), 3);
  parts.Add("d");
  EXPECT_THAT(All(parts), ElementsAre());
  parts.Add("e\n\nf");
  EXPECT_THAT(All(parts), ElementsAre("cde\n"));
  EXPECT_EQ(parts.next_line(), 5);
  parts.End();
  EXPECT_THAT(All(parts), ElementsAre("f"));
  EXPECT_EQ(parts.next_line(), 6);
  EXPECT_FALSE(parts.line_too_long());
}

TEST(LinePartsTest, NeedsNoNewlineAtTheEndAndMakesNoLineOfIt) {
  LineParts parts;
  parts.Add("a\n");
  parts.End();
  EXPECT_THAT(All(parts), ElementsAre("a"));
  EXPECT_EQ(parts.next_line(), 2);
}

TEST(LinePartsTest, GivesABoundedNumberOfLinesAtOnce) {
  LineParts parts;
  parts.Add(std::string(kLinesOfPartMax + 1, '\n'));
  const std::vector<std::string> all = All(parts);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].size(), kLinesOfPartMax - 1);
  EXPECT_EQ(all[1], "");
  EXPECT_EQ(parts.next_line(), static_cast<int64_t>(kLinesOfPartMax) + 2);
}

TEST(LinePartsTest, TakesALineOfTheMostBytesAndNoLongerOne) {
  for (const bool ended : {false, true}) {
    LineParts parts;
    parts.Add(absl::StrCat("a\n", std::string(kLineBytesMax, 'x'), ended ? "" : "\n"));
    if (ended) parts.End();
    std::vector<std::string> all = All(parts);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.back().size(), kLineBytesMax + (ended ? 0 : 2));
    LineParts longer;
    longer.Add(absl::StrCat("a\n", std::string(kLineBytesMax + 1, 'x'), ended ? "" : "\n"));
    if (ended) longer.End();
    EXPECT_THAT(All(longer), ElementsAre("a"));
    EXPECT_TRUE(longer.line_too_long());
    EXPECT_EQ(longer.next_line(), 2);
  }
}

}  // namespace
}  // namespace postrider::api
